package gateway

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/fetch"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/openapi"
)

// An OpenAPI is an HTTP API; each operation is a tool: see package mcp/openapi.
type OpenAPI struct {
	// Document is the path of a document, or its address: https, or http on this machine. It is
	// fetched without credentials when the upstream is needed first.
	Document string
	// Refresh is how often a document at an address is fetched again, 1 hour by default. One that
	// cannot be fetched or read leaves the tools as they are.
	Refresh time.Duration
	// Options say how operations become tools. BaseURL, Header, Authorizer, Client, Allow and Deny
	// must be empty: these are the URL, Headers, Auth, TLS and Proxy, Tools.Allow and Tools.Deny of
	// the Upstream. Timeout is that of the Upstream by default.
	Options openapi.Options
}

// remote reports whether the document is at an address.
func (o *OpenAPI) remote() bool { return isURL(o.Document) }

// Operations reads the document of [Upstream.OpenAPI]. It returns the operations as tools, and
// those that are no tools, or not wholly, with the reason. There are none when the document is at
// an address.
func (u *Upstream) Operations() (tools []*openapi.Tool, problems []string, err error) {
	if u.OpenAPI == nil || u.OpenAPI.remote() {
		return nil, nil, nil
	}
	doc, err := openapi.Open(u.OpenAPI.Document, u.openAPIOptions())
	if err != nil {
		return nil, nil, err
	}
	for _, p := range doc.Problems() {
		if p.Operation != "" { // others are notices
			problems = append(problems, optionNames.Replace(p.String()))
		}
	}
	return doc.Tools(), problems, nil
}

func (u *Upstream) openAPIOptions() *openapi.Options {
	o := u.OpenAPI.Options
	o.BaseURL, o.Header, o.Allow, o.Deny = u.URL, u.header(), u.Tools.Allow, u.Tools.Deny
	o.Timeout = cmp.Or(o.Timeout, u.Timeout)
	return &o
}

// An api is the server of an upstream that is an HTTP API. The document is read when it is needed
// first.
type api struct {
	upstream *Upstream
	client   *http.Client // nil: that of package openapi
	log      *slog.Logger
	ctx      context.Context //nolint:containedctx // it ends with the upstream
	stop     context.CancelFunc
	running  sync.WaitGroup

	reading chan struct{} // has one element while the document is read, which guards the rest
	server  *mcp.Server   // nil: it has not been read
	now     *openapi.API
}

func newAPI(u *Upstream, client *http.Client, log *slog.Logger) *api {
	a := &api{upstream: u, client: client, log: log, reading: make(chan struct{}, 1)}
	a.ctx, a.stop = context.WithCancel(context.Background()) //nolint:forbidigo // as ctx says
	return a
}

// serve returns the server. It reads the document when that has not been done.
func (a *api) serve(ctx context.Context) (*mcp.Server, error) {
	select {
	case a.reading <- struct{}{}:
		defer func() { <-a.reading }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if a.server != nil {
		return a.server, nil
	}
	doc, err := a.read(ctx)
	if err != nil {
		return nil, err
	}
	name, version := doc.Info()
	a.server = mcp.NewServer(cmp.Or(name, a.upstream.Name), version, &mcp.ServerOptions{})
	a.show(doc)
	if a.upstream.OpenAPI.remote() {
		a.running.Go(a.refresh)
	}
	return a.server, nil
}

// read reads the document, wherever it is.
func (a *api) read(ctx context.Context) (*openapi.API, error) {
	o := a.upstream.openAPIOptions()
	o.Client = a.client
	if a.upstream.Auth != nil {
		o.Authorizer = connectionAuth{}
	}
	if a.upstream.OpenAPI.remote() {
		return openapi.Fetch(ctx, a.upstream.OpenAPI.Document, o)
	}
	return openapi.Open(a.upstream.OpenAPI.Document, o)
}

// show puts the tools of a document in the place of those that the server has, when it is another
// one.
func (a *api) show(doc *openapi.API) {
	was := a.now
	if was != nil && was.Digest() == doc.Digest() {
		doc.CloseIdleConnections()
		return
	}
	a.now = doc
	doc.AddTo(a.server)
	if was == nil {
		return
	}
	names := map[string]bool{}
	for _, t := range doc.Tools() {
		names[t.Name] = true
	}
	for _, t := range was.Tools() {
		if !names[t.Name] {
			a.server.RemoveTool(t.Name)
		}
	}
	was.CloseIdleConnections()
	a.log.Info("the document has changed", "document", publicURL(a.upstream.OpenAPI.Document), "tools",
		len(names))
}

// refresh fetches the document again and again, until the upstream ends.
func (a *api) refresh() {
	every := time.NewTicker(cmp.Or(a.upstream.OpenAPI.Refresh, time.Hour))
	defer every.Stop()
	for {
		select {
		case <-every.C:
		case <-a.ctx.Done():
			return
		}
		doc, err := a.read(a.ctx)
		if err != nil {
			if a.ctx.Err() == nil {
				a.log.Warn("the document could not be read again; the tools stay as they are", "error", err)
			}
			continue
		}
		a.reading <- struct{}{}
		a.show(doc)
		<-a.reading
	}
}

func (a *api) close() {
	a.stop()
	a.running.Wait()
	a.reading <- struct{}{}
	defer func() { <-a.reading }()
	if a.now != nil {
		a.now.CloseIdleConnections()
	}
}

// authKey is that of the authorizer of the connection that a call came over.
type authKey struct{}

// authorizedBy are the options of a connection with calls that have the credentials of an
// authorizer, which may be nil.
func authorizedBy(auth mcphttp.Authorizer) *farcall.Options {
	return &farcall.Options{ConnContext: func(ctx context.Context) context.Context {
		return context.WithValue(ctx, authKey{}, auth)
	}}
}

// connectionAuth is the authorizer of the connection that a call came over.
type connectionAuth struct{}

// Authorize implements mcphttp.Authorizer.
func (connectionAuth) Authorize(ctx context.Context, r *http.Request) error {
	auth, _ := ctx.Value(authKey{}).(mcphttp.Authorizer)
	return auth.Authorize(ctx, r)
}

// Challenge implements mcphttp.Authorizer.
func (connectionAuth) Challenge(ctx context.Context, r *http.Response) (bool, error) {
	auth, _ := ctx.Value(authKey{}).(mcphttp.Authorizer)
	return auth.Challenge(ctx, r)
}

// openAPI checks an upstream that is an HTTP API.
func (c *checker) openAPI(u *Upstream, path string) {
	at, o := path+".openapi", u.OpenAPI
	c.refuse(path, "an HTTP API has none", "remove it, or use another upstream", map[string]bool{
		"command": len(u.Command) > 0, "env": len(u.Env) > 0, "inherit_env": len(u.InheritEnv) > 0,
		"cwd":     u.Cwd != "",
		"restart": u.Restart != Restart{}, "sandbox": u.Sandbox != nil, "transport": u.Transport != "",
		"framing":       u.Framing != "",
		"frame_timeout": u.FrameTimeout != 0, "max_message": u.MaxMessage != 0, "pool": u.Pool != 0,
		"forward_headers": len(u.ForwardHeaders) > 0,
	})
	if u.Profile == profileRaw {
		c.problem(path+".profile", "the operations of an HTTP API are tools of MCP", "remove it")
	}
	if u.URL == "" {
		c.refuse(path, "the document would choose who gets it", "add url: the address of the API",
			map[string]bool{
				"headers": len(u.Headers) > 0, "auth": u.Auth != nil, "tls": u.ownTLS(), "proxy": u.Proxy != "",
			})
	} else if c.address(u, path); !strings.HasPrefix(u.URL, "https://") &&
		!strings.HasPrefix(u.URL, "http://") {
		c.problem(path+".url", "an HTTP API has another address",
			"write https://host/path, below which the paths of the document are")
		return
	}
	x := o.Options
	if x.BaseURL != "" || x.Header != nil || x.Authorizer != nil || x.Client != nil ||
		x.Allow != nil || x.Deny != nil {
		c.problem(at,
			"the upstream has a URL, headers, credentials and allowed tools, and these options "+
				"must be empty", "set those of the upstream")
		return
	}
	c.notNegative(at+".max_tools", x.MaxTools)
	c.notNegative(at+".max_name", x.MaxName)
	c.notBefore(at+".refresh", o.Refresh)
	switch {
	case o.Document == "":
		c.problem(at, "there is no document", "write its path, or its address with https://")
	case o.remote():
		if err := fetch.Check(o.Document); err != nil {
			c.problem(at, "the document cannot be fetched: "+err.Error(),
				"write an address with https://, or a path")
		}
	default:
		c.document(u, at)
	}
}

// document reads the document.
func (c *checker) document(u *Upstream, at string) {
	doc, err := openapi.Open(u.OpenAPI.Document, u.openAPIOptions())
	if err != nil {
		c.problem(at, optionNames.Replace(strings.TrimPrefix(err.Error(), "openapi: ")),
			"see openapi in docs/config.md")
		return
	}
	if c.apis != nil {
		c.apis[u] = doc
	}
	for _, p := range doc.Problems() {
		if p.Operation == "" && c.notice != nil {
			c.notice(at, optionNames.Replace(p.Message), "")
		}
	}
}

// optionNames are the keys of a file for the options of package openapi.
var optionNames = strings.NewReplacer(
	"Options.BaseURL", "url", "Options.Servers", "openapi.servers",
	"Options.Header and Authorizer need", "headers and auth need", "Options.MaxTools",
	"openapi.max_tools",
	"choose some with Allow and Deny", "choose some with tools.allow and tools.deny", "with ReadOnly",
	"with openapi.read_only", "raise MaxTools", "raise openapi.max_tools", "name it in Allow",
	"name it in tools.allow", "choose some with Allow", "choose some with tools.allow",
	"the pattern of Allow", "the pattern of tools.allow", "the pattern of Deny",
	"the pattern of tools.deny",
)
