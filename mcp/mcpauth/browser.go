package mcpauth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"
)

const (
	maxVisit       = 5 * time.Minute
	visitGoodbye   = time.Second // for the page to be written
	visitHeader    = 5 * time.Second
	maxVisitHeader = 64 << 10
)

// BrowserOptions adjust Browser. Nil means the defaults.
type BrowserOptions struct {
	// Output gets the address, for those with a browser that is elsewhere. Default: standard error.
	Output io.Writer
	// Print only prints the address and opens nothing.
	Print bool
}

// Browser returns an Options.Visit that opens the user's browser, and waits on a port of the
// loopback interface until it comes back (RFC 8252 §7.3). It takes the port of the redirect URL;
// when that says none, or when it is taken, another one. It gives up when the context ends, and
// after 5 minutes.
func Browser(
	o *BrowserOptions,
) func(
	ctx context.Context, redirect string, begin func(redirect string) (address string, err error),
) (*url.URL, error) {
	v := visitor{output: os.Stderr, open: openBrowser, limit: maxVisit}
	if o != nil && o.Output != nil {
		v.output = o.Output
	}
	if o != nil && o.Print {
		v.open = nil
	}
	return v.visit
}

type visitor struct {
	output io.Writer
	open   func(ctx context.Context, address string) error
	limit  time.Duration
}

func (v *visitor) visit(
	ctx context.Context, redirect string, begin func(string) (string, error),
) (*url.URL, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, v.limit,
		fmt.Errorf("the user has not signed in within %v", v.limit))
	defer cancel()
	l, back, err := listenFor(ctx, redirect)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	address, err := begin(back.String())
	if err != nil {
		return nil, err
	}
	at, err := url.Parse(address)
	if err != nil || at.Scheme != "https" && at.Scheme != "http" || at.Host == "" {
		return nil, errors.New("mcpauth: the authorization server's address is none for a browser")
	}
	w := &waiter{back: back, state: at.Query().Get("state"), came: make(chan *url.URL, 1)}
	if w.state == "" {
		return nil, errors.New("mcpauth: the address to sign in at has no state")
	}
	s := &http.Server{
		Handler: w, ReadHeaderTimeout: visitHeader, ReadTimeout: visitHeader,
		MaxHeaderBytes: maxVisitHeader,
	}
	s.SetKeepAlivesEnabled(false)
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(l) }) // it ends with Close
	defer wg.Wait()
	defer s.Close() //nolint:errcheck // nothing waits for what is left
	fmt.Fprintf(v.output, "To sign in, open this address in a browser on this machine:\n\n  %s\n\n",
		at)
	if v.open != nil {
		if err := v.open(ctx, at.String()); err != nil {
			fmt.Fprintf(v.output, "No browser was opened: %v\n", err)
		}
	}
	select {
	case callback := <-w.came:
		goodbye, cancel := context.WithTimeout(context.WithoutCancel(ctx), visitGoodbye)
		defer cancel()
		_ = s.Shutdown(goodbye) // the page is a courtesy
		return callback, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("mcpauth: signing in was given up: %w", context.Cause(ctx))
	}
}

// listenFor listens where a redirect URL leads to, and returns it with the port.
func listenFor(ctx context.Context, redirect string) (net.Listener, *url.URL, error) {
	back, err := url.Parse(redirect)
	if err != nil || back.Scheme != "http" || back.RawQuery != "" || back.Fragment != "" {
		return nil, nil,
			fmt.Errorf("mcpauth: a browser on this machine cannot be sent to the redirect URL %q; it has "+
				"to be like %s", redirect, DefaultRedirect)
	}
	host := back.Hostname()
	switch host {
	case "127.0.0.1", "::1":
	case "localhost":
		host = "127.0.0.1"
	default:
		return nil, nil,
			fmt.Errorf("mcpauth: the redirect URL %q is not on this machine; it has to be like %s", redirect,
				DefaultRedirect)
	}
	var lc net.ListenConfig
	port := cmp.Or(back.Port(), "0")
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil && port != "0" {
		l, err = lc.Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("mcpauth: nowhere to send the browser to: %w", err)
	}
	_, port, err = net.SplitHostPort(l.Addr().String())
	if err != nil {
		l.Close()
		return nil, nil, fmt.Errorf("mcpauth: nowhere to send the browser to: %w", err)
	}
	back.Host = net.JoinHostPort(back.Hostname(), port)
	back.Path = cmp.Or(back.Path, "/")
	return l, back, nil
}

// A waiter answers the browser that comes back.
type waiter struct {
	back  *url.URL
	state string
	came  chan *url.URL // gets the first one
}

// ServeHTTP implements http.Handler. Any page can send a browser here: a request without the state
// learns nothing, and changes nothing.
func (w *waiter) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	h := rw.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer") // the address has the code
	h.Set("Cache-Control", "no-store")
	h.Set("Connection", "close")
	if r.Method != http.MethodGet {
		h.Set("Allow", http.MethodGet)
		page(rw, http.StatusMethodNotAllowed, "This address is for a browser.")
		return
	}
	if !strings.EqualFold(r.Host, w.back.Host) { // another name for this machine: DNS rebinding
		page(rw, http.StatusMisdirectedRequest, "This address goes by another name.")
		return
	}
	q := r.URL.Query()
	if r.URL.Path != w.back.Path || !q.Has("code") && !q.Has("error") || len(q["state"]) != 1 ||
		q.Get("state") != w.state {
		page(rw, http.StatusNotFound,
			"There is nothing here. Sign in by the address that farcall has shown.")
		return
	}
	callback := *w.back
	callback.RawQuery = r.URL.RawQuery
	select {
	case w.came <- &callback:
	default: // it has come already
	}
	if q.Has("error") {
		page(rw, http.StatusOK, "You are not signed in. You may close this window; farcall says why.")
		return
	}
	page(rw, http.StatusOK, "You may close this window.")
}

// page has nothing in it of what was asked.
func page(w http.ResponseWriter, status int, text string) {
	w.WriteHeader(status)
	fmt.Fprintf(w,
		"<!doctype html>\n<html lang=\"en\"><head><meta "+
			"charset=\"utf-8\"><title>farcall</title></head><body><p>%s</p></body></html>\n", text)
}

// openBrowser has the desktop open an address. Whether that works shows in the
// browser only.
func openBrowser(ctx context.Context, address string) error {
	var command []string
	switch runtime.GOOS {
	case "windows":
		command = []string{"rundll32", "url.dll,FileProtocolHandler", address}
	case "darwin":
		command = []string{"open", address}
	default:
		opener := browserCommand(os.Getenv("BROWSER"), address)
		if _, err := exec.LookPath(opener[0]); err != nil {
			return err
		}
		// The browser may be the process itself and lives on without us, so we do not wait
		// for it, and it is no child of ours.
		command = append([]string{"/bin/sh", "-c", `"$@" </dev/null >/dev/null 2>&1 &`, "sh"}, opener...)
	}
	return exec.CommandContext(ctx, command[0], command[1:]...).Run() //nolint:gosec // BROWSER is the user's own, and the address one word that begins with http
}

// browserCommand reads the variable BROWSER: the first of the commands, with %s for the
// address.
func browserCommand(variable, address string) []string {
	first, _, _ := strings.Cut(variable, ":")
	words := strings.Fields(first)
	if len(words) == 0 {
		return []string{"xdg-open", address}
	}
	found := false
	for i, word := range words {
		if i > 0 && strings.Contains(word, "%s") {
			words[i], found = strings.ReplaceAll(word, "%s", address), true
		}
	}
	if !found {
		words = append(words, address)
	}
	return words
}
