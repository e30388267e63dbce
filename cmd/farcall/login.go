package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcpauth"
)

// storeVar names the token store, unless --store does.
const storeVar = "FARCALL_STORE"

// keyringStore is the store that is no file.
const keyringStore = "keyring"

// loginsKey is the entry of the store that has the logins, by URL.
const loginsKey = "logins"

// A login is how a user has logged in to a server: what renewing the tokens needs.
type login struct {
	Target       string `json:"target"` // as it was given
	ClientID     string `json:"client_id,omitzero"`
	ClientSecret string `json:"client_secret,omitzero"`
	MetadataURL  string `json:"metadata_url,omitzero"`
	DPoP         bool   `json:"dpop,omitzero"`
}

// String keeps the secret out of logs.
func (l login) String() string { return "login to " + l.Target }

// GoString keeps the secret out of logs.
func (l login) GoString() string { return l.String() }

// tokenStore is where tokens are kept.
type tokenStore struct {
	mcpauth.Store

	name string // a path, or keyring
	flag string // --store NAME for advice; "" for the default
}

// openStore opens the store that a flag names, or the environment.
func (e *env) openStore(flag string) (*tokenStore, error) {
	s := &tokenStore{name: flag}
	if flag != "" {
		s.flag = "--store " + shellQuote(flag) + " "
	} else {
		s.name = e.getenv(storeVar)
	}
	switch s.name {
	case keyringStore:
		s.Store = mcpauth.NewKeyring("farcall")
		return s, nil
	case "":
		dir, err := os.UserConfigDir()
		if err != nil {
			return nil, usagef("Name a file with --store FILE or "+storeVar+".",
				"there is no place to keep tokens: %w", err)
		}
		s.name = filepath.Join(dir, "farcall", "tokens.json")
	}
	path, err := filepath.Abs(s.name)
	if err != nil {
		return nil, err
	}
	s.name, s.Store = path, mcpauth.NewFileStore(path)
	return s, nil
}

// logins returns who has logged in where.
func (s *tokenStore) logins(ctx context.Context) (map[string]login, error) {
	text, err := s.Load(ctx, loginsKey)
	all := map[string]login{}
	if err != nil || text == nil {
		return all, err
	}
	if err := jsonv2.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("the logins in the token store %s are damaged", s.name)
	}
	return all, nil
}

// keep notes a login, or that there is none any more.
func (s *tokenStore) keep(ctx context.Context, url string, l *login) error {
	// Others may log in elsewhere meanwhile, with the same entry.
	if locked, ok := s.Store.(interface {
		Lock(ctx context.Context, key string) (unlock func(), err error)
	}); ok {
		unlock, err := locked.Lock(ctx, loginsKey)
		if err != nil {
			return err
		}
		defer unlock()
	}
	all, err := s.logins(ctx)
	if err != nil {
		return err
	}
	if l == nil {
		delete(all, url)
	} else {
		all[url] = *l
	}
	text, err := jsonv2.Append(nil, all)
	if err != nil {
		return err
	}
	return s.Save(ctx, loginsKey, text)
}

// loggedIn returns the login to an address and its store. It is nil where there is none.
func (e *env) loggedIn(ctx context.Context, url string) (*login, *tokenStore, error) {
	s, err := e.openStore("")
	if err != nil {
		return nil, nil, nil //nolint:nilerr // there are no logins
	}
	all, err := s.logins(ctx)
	if err != nil {
		return nil, nil, plainError{err}
	}
	l, ok := all[url]
	if !ok {
		return nil, nil, nil
	}
	return &l, s, nil
}

// options are those of the client that has the tokens.
func (l *login) options(s *tokenStore) *mcpauth.Options {
	return &mcpauth.Options{
		ClientID: l.ClientID, ClientSecret: l.ClientSecret, MetadataURL: l.MetadataURL, DPoP: l.DPoP,
		Store: s.Store, Target: s.flag + l.Target,
	}
}

// authorize adds what farcall login has got for a target, unless the command line has credentials.
func (m *mcpRemote) authorize(ctx context.Context, t *target.Target, o *mcp.ClientOptions) error {
	if t.Kind != target.HTTP || o.HTTP.Header.Get("Authorization") != "" {
		return nil
	}
	l, s, err := m.loggedIn(ctx, t.URL.String())
	if err != nil || l == nil {
		return err
	}
	options := l.options(s)
	if m.overTLS() {
		options.HTTP = o.HTTP.HTTP
	}
	auth, err := mcpauth.New(t.URL.String(), options)
	if err != nil {
		return plainError{err}
	}
	o.HTTP.Authorize = auth
	return nil
}

// authorizeUpstream has a gateway use what farcall login has got for a server that was named on the
// command line.
func (e *env) authorizeUpstream(ctx context.Context, u *gateway.Upstream) error {
	if u.Auth != nil || u.Profile == profileRaw || !strings.HasPrefix(u.URL, "http://") &&
		!strings.HasPrefix(u.URL, "https://") {
		return nil
	}
	for name := range u.Headers {
		if strings.EqualFold(name, "Authorization") {
			return nil
		}
	}
	l, s, err := e.loggedIn(ctx, u.URL)
	if err != nil || l == nil {
		return err
	}
	u.Auth = &gateway.Credentials{
		Type: "oauth", ClientID: l.ClientID, Secret: l.ClientSecret, MetadataURL: l.MetadataURL,
		DPoP: l.DPoP, Store: s.name,
	}
	fmt.Fprintf(e.stderr, "farcall: calls of %s are made with the login of 'farcall login %s'\n",
		u.Name, tame(l.Target))
	return nil
}

// loginFlags are those of farcall login and farcall logout.
type loginFlags struct {
	remote
	store, secretFile, redirect string
	scopes                      []string
	noBrowser, list             bool
	signIns                     signIns
	login
}

func newLoginCmd(e *env) *cobra.Command {
	f := loginFlags{remote: remote{env: e}}
	cmd := command("login TARGET", "Sign in to an MCP server that wants OAuth, in the browser",
		func(cmd *cobra.Command, args []string) error {
			switch {
			case f.signIns.config != "" && (!f.list || len(args) > 0):
				return usagef("For example: farcall login --list --config farcall.yaml",
					"principals sign in to upstreams of a gateway with their browsers; --config only lists "+
						"them, with --list")
			case f.signIns.config != "":
				return f.printSignIns(cmd.Context(), &f.signIns)
			case f.list:
				return f.printLogins(cmd.Context(), args)
			}
			return f.run(cmd, args)
		})
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&f.noBrowser, "no-browser", false,
		"only print the address; open it in a browser on this machine")
	flags.StringArrayVar(&f.scopes, "scope", nil,
		"ask for this `scope`; can be repeated (default: what the server names)")
	flags.StringVar(&f.ClientID, "client-id", "",
		"the `ID` that farcall is registered with at the authorization server")
	flags.StringVar(&f.secretFile, "client-secret-file", "", "`file` with the secret of that client")
	flags.StringVar(&f.MetadataURL, "client-metadata", "", "`URL` of a client ID metadata document")
	flags.StringVar(&f.redirect, "redirect", "",
		"`URL` that the browser is sent to, where the authorization server allows one only: "+
			"http://127.0.0.1:PORT/PATH")
	flags.BoolVar(&f.DPoP, "dpop", false, "bind the tokens to a key (RFC 9449) where the server can")
	f.common(cmd)
	flags.BoolVar(&f.list, "list", false, "list the logins, without TARGET")
	flags.StringVar(&f.signIns.config, "config", "",
		"with --list: list the principals that have signed in to upstreams of the gateway with this "+
			"configuration `file`")
	return cmd
}

func newLogoutCmd(e *env) *cobra.Command {
	f := loginFlags{remote: remote{env: e}}
	cmd := command("logout [TARGET]", "Revoke and forget the tokens for an MCP server",
		func(cmd *cobra.Command, args []string) error {
			if f.signIns.config == "" && !f.signIns.chooses() {
				return f.logout(cmd, args)
			}
			if f.signIns.config == "" || len(args) > 0 {
				return usagef("For example: farcall logout --config farcall.yaml --principal ada",
					"--principal, --upstream and --all go with --config, and there is no TARGET then")
			}
			return f.endSignIns(cmd.Context(), &f.signIns)
		})
	f.common(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.signIns.config, "config", "",
		"the configuration `file` of a gateway with principals that have signed in to upstreams")
	flags.StringVar(&f.signIns.principal, "principal", "",
		"end the sign-ins of the principal of this `name`")
	flags.StringVar(&f.signIns.upstream, "upstream", "",
		"end the sign-ins to the upstream of this `name`")
	flags.BoolVar(&f.signIns.all, "all", false, "end all sign-ins")
	return cmd
}

func (f *loginFlags) common(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.store, "store", "",
		"keep the tokens in this `file`, or in the desktop's keyring: keyring")
	f.tlsFlags(cmd)
}

// target reads the one TARGET.
func (f *loginFlags) target(cmd *cobra.Command, args []string) (*target.Target, error) {
	if len(args) != 1 || cmd.ArgsLenAtDash() >= 0 {
		return nil, usagef("For example: "+cmd.CommandPath()+" https://example.com/mcp",
			"one TARGET is needed")
	}
	t, err := forMCP(f.locate(args[0]))
	if err != nil {
		return t, err
	}
	if t.Kind != target.HTTP {
		return t, usagef("Only servers over HTTP have logins.", "cannot log in to %s", t)
	}
	return t, f.check(t)
}

// client is who gets the tokens.
func (f *loginFlags) client(
	t *target.Target, l *login, s *tokenStore, adjust func(*mcpauth.Options),
) (*mcpauth.Client, error) {
	o := l.options(s)
	if f.overTLS() {
		client, err := f.httpClient()
		if err != nil {
			return nil, err
		}
		o.HTTP = client
	}
	if adjust != nil {
		adjust(o)
	}
	c, err := mcpauth.New(t.URL.String(), o)
	if err != nil {
		return nil, &exitError{code: exitUsage, err: plainError{err}}
	}
	return c, nil
}

func (f *loginFlags) run(cmd *cobra.Command, args []string) error {
	t, err := f.target(cmd, args)
	if err != nil {
		return err
	}
	if f.secretFile != "" {
		secret, err := os.ReadFile(f.secretFile)
		if err != nil {
			return unreadable("--client-secret-file", f.secretFile, err)
		}
		f.ClientSecret = strings.TrimSpace(string(secret))
	}
	s, err := f.openStore(f.store)
	if err != nil {
		return err
	}
	l := f.login
	l.Target = args[0]
	c, err := f.client(t, &l, s, func(o *mcpauth.Options) {
		o.Scopes, o.RedirectURL = f.scopes, f.redirect
		o.Visit = mcpauth.Browser(&mcpauth.BrowserOptions{Output: f.stderr, Print: f.noBrowser})
	})
	if err != nil {
		return err
	}
	ctx, stop := interruptible(cmd.Context())
	defer stop()
	if err := c.Login(ctx); err != nil {
		return f.failure(ctx, t, err)
	}
	if err := s.keep(context.WithoutCancel(ctx), t.URL.String(), &l); err != nil {
		return plainError{err}
	}
	st, err := c.Status(ctx)
	if err != nil {
		return plainError{err}
	}
	fmt.Fprintf(f.stdout, "logged in to %s\n", tame(t.URL.String()))
	f.printStatus(st, s)
	return nil
}

// failure is the exit for a login that has come to nothing.
func (f *loginFlags) failure(ctx context.Context, t *target.Target, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return &exitError{code: exitInterrupted, err: errors.New("login: interrupted")}
	case isDialing(err):
		return connectFailure(t, plainError{err})
	}
	hint := ""
	if strings.Contains(err.Error(), "says who issues tokens") {
		hint = t.String() +
			" may have no OAuth. A key or a token that you have otherwise is sent with --bearer FILE."
	}
	return &exitError{code: exitFailure, err: fmt.Errorf("login: %s", plainWords(err)), hint: hint}
}

// printStatus says what there is for a server.
func (f *loginFlags) printStatus(st *mcpauth.Status, s *tokenStore) {
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(f.stdout, "  %-8s %s\n", name, tame(value))
		}
	}
	if st.Issuer == "" {
		row("expired", "log in again")
		return
	}
	row("issuer", st.Issuer)
	row("client", st.ClientID)
	row("scopes", strings.Join(st.Scopes, " "))
	row("expires", expiry(st, time.Now()))
	if st.Bound {
		row("bound", "to a key in the store (DPoP)")
	}
	row("store", s.name)
}

// expiry says when a login ends.
func expiry(st *mcpauth.Status, now time.Time) string {
	renewed := ""
	if st.Refresh {
		renewed = ", and is renewed without you"
	}
	switch end := time.Unix(st.Expires, 0); {
	case st.Expires == 0:
		return "it is not known when" + renewed
	case !end.After(now):
		return "has expired" + renewed
	default:
		return fmt.Sprintf("%s (in %v)%s", end.Format(time.RFC3339), end.Sub(now).Round(time.Second),
			renewed)
	}
}

func (f *loginFlags) logout(cmd *cobra.Command, args []string) error {
	t, err := f.target(cmd, args)
	if err != nil {
		return err
	}
	s, err := f.openStore(f.store)
	if err != nil {
		return err
	}
	ctx, stop := interruptible(cmd.Context())
	defer stop()
	all, err := s.logins(ctx)
	if err != nil {
		return plainError{err}
	}
	l, ok := all[t.URL.String()]
	if !ok {
		return &exitError{
			code: exitFailure, err: fmt.Errorf("not logged in to %s", t),
			hint: "'farcall login --list' shows the logins.",
		}
	}
	c, err := f.client(t, &l, s, nil)
	if err != nil {
		return err
	}
	if err := errors.Join(c.Logout(ctx), s.keep(ctx, t.URL.String(), nil)); err != nil {
		return plainError{err}
	}
	fmt.Fprintf(f.stdout, "logged out of %s\n", tame(t.URL.String()))
	return nil
}

// printLogins lists the logins.
func (f *loginFlags) printLogins(ctx context.Context, args []string) error {
	if len(args) > 0 {
		return usagef("Leave it out.", "--list shows all logins, and has no place for %q", args[0])
	}
	s, err := f.openStore(f.store)
	if err != nil {
		return err
	}
	all, err := s.logins(ctx)
	if err != nil {
		return plainError{err}
	}
	if len(all) == 0 {
		fmt.Fprintf(f.stderr, "farcall: there are no logins in %s\n", s.name)
	}
	for _, url := range slices.Sorted(maps.Keys(all)) {
		l := all[url]
		fmt.Fprintln(f.stdout, tame(url))
		c, err := mcpauth.New(url, l.options(s))
		if err != nil {
			return plainError{err}
		}
		st, err := c.Status(ctx)
		if err != nil {
			return plainError{err}
		}
		f.printStatus(st, s)
	}
	return nil
}

// unauthenticated reports whether a code means that the server does not know who calls.
func unauthenticated(c jsonrpc.Code) bool {
	row := jsonrpc.Unauthenticated.Condition()
	return row.Means(c)
}

// loginHint is for a server that wants to know who calls.
func loginHint(t *target.Target, status int) string {
	if status == http.StatusForbidden {
		return "The server denies this to the credentials that were sent. Send another key or token " +
			"with --bearer FILE, or log in again: farcall login " + t.String()
	}
	return "If the server has OAuth, run: farcall login " + t.String() +
		"\nOtherwise send a key or a token: --bearer FILE, or -H 'Authorization: Bearer TOKEN'."
}

// signIns names the sign-ins to upstreams of a gateway that a command is about.
type signIns struct {
	config, principal, upstream string
	all                         bool
}

// chooses reports whether it names any.
func (s *signIns) chooses() bool { return s.principal != "" || s.upstream != "" || s.all }

// has reports whether it is about the sign-in of a principal to an upstream.
func (s *signIns) has(principal, upstream string) bool {
	return (s.principal == "" || s.principal == principal) &&
		(s.upstream == "" || s.upstream == upstream)
}

// printSignIns lists the principals that have signed in to upstreams of a gateway.
func (e *env) printSignIns(ctx context.Context, s *signIns) error {
	c, err := gateway.Load(s.config)
	if err != nil {
		return configFailure(err)
	}
	listed := 0
	_, err = c.SignOut(ctx, func(principal, upstream string) bool {
		listed++
		fmt.Fprintf(e.stdout, "%s  %s\n", tame(upstream), tame(principal))
		return false
	})
	if err != nil {
		return signInFailure(err)
	}
	if listed == 0 {
		fmt.Fprintf(e.stderr, "farcall: no principal has signed in to an upstream of %s\n", s.config)
	}
	return nil
}

// endSignIns revokes and removes the tokens of principals of a gateway.
func (e *env) endSignIns(ctx context.Context, s *signIns) error {
	if !s.chooses() {
		return usagef("For example: farcall logout --config "+s.config+
			" --principal NAME; --all ends all sign-ins.", "--config needs --principal, --upstream or --all")
	}
	c, err := gateway.Load(s.config)
	if err != nil {
		return configFailure(err)
	}
	ended, err := c.SignOut(ctx, func(principal, upstream string) bool {
		if !s.has(principal, upstream) {
			return false
		}
		fmt.Fprintf(e.stdout, "signing %s out of %s\n", tame(principal), tame(upstream))
		return true
	})
	switch {
	case err != nil:
		return signInFailure(err)
	case ended == 0:
		return &exitError{
			code: exitFailure, err: errors.New("no such sign-in was found"),
			hint: "'farcall login --list --config " + s.config + "' lists them.",
		}
	}
	return nil
}

// signInFailure is the exit for tokens that cannot be read or removed.
func signInFailure(err error) error {
	return &exitError{
		code: exitFailure, err: errors.New(tame(strings.TrimPrefix(err.Error(), "gateway: "))),
	}
}

// signInCaveats are what of an upstream with sign-in has no effect.
func signInCaveats(u *gateway.Upstream, c *gateway.Config) []string {
	if c.Lock == "" || u.Disabled || u.Auth == nil || u.Auth.Type != "sign_in" {
		return nil
	}
	return []string{
		"it cannot be pinned, because each principal signs in to it: with " + c.Lock +
			" nothing of it is shown",
	}
}

// signInLimits say how principals sign in to upstreams. Nil: they do not.
func signInLimits(c *gateway.Config) []string {
	s := &c.SignIn
	if s.URL == "" {
		return nil
	}
	text := "principals sign in to upstreams at " + s.URL + "/signin; "
	if s.Dir == "" && c.Cluster.Set() {
		text += "their tokens are in the store of the cluster, sealed with "
		if len(s.Keys) > 0 {
			text += countOf(len(s.Keys), "key")
		} else {
			text += "a key from the secret of the cluster, which is in that store"
		}
	} else if s.Dir == "" {
		text += "their tokens are in memory: a restart ends them"
	} else {
		text += fmt.Sprintf("their tokens are in %s, sealed with %s: they survive a restart", s.Dir,
			countOf(len(s.Keys), "key"))
	}
	if s.Browser == "principal" {
		text += "; a browser has to show the credentials of the principal"
	}
	return []string{text}
}
