package mcpauth

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// fetched sends a request without following anything, and returns what matters of the answer.
func fetched(t *testing.T, r *http.Request) (status int, csp, body string) {
	t.Helper()
	tr := &http.Transport{DisableKeepAlives: true}
	resp, err := tr.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Content-Security-Policy"), string(all)
}

func asks(t *testing.T, method, address, host string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	if host != "" {
		r.Host = host
	}
	return r
}

func TestBrowser(t *testing.T) {
	var out bytes.Buffer
	opened, back := "", ""
	v := visitor{output: &out, limit: maxVisit, open: func(_ context.Context, address string) error {
		opened = address
		for name, c := range map[string]struct {
			method, path, host string
			status             int
		}{
			"another page":  {"GET", "/favicon.ico", "", 404},
			"no code":       {"GET", "/callback?state=S", "", 404},
			"another state": {"GET", "/callback?code=x&state=T", "", 404},
			"two states":    {"GET", "/callback?code=x&state=S&state=T", "", 404},
			"no state":      {"GET", "/callback?code=x", "", 404},
			"another path":  {"GET", "/callback/?code=x&state=S", "", 404},
			"POST":          {"POST", "/callback?code=x&state=S", "", 405},
			"rebinding":     {"GET", "/callback?code=x&state=S", "evil.example", 421},
			"other port":    {"GET", "/callback?code=x&state=S", "127.0.0.1:1", 421},
		} {
			root := strings.TrimSuffix(back, "/callback")
			if status, _, _ := fetched(t, asks(t, c.method, root+c.path, c.host)); status != c.status {
				t.Errorf("%s: status %d", name, status)
			}
		}
		status, csp, body := fetched(t, asks(t, "GET", back+"?code=c%2B1&state=S&iss=i", ""))
		if status != http.StatusOK || !strings.Contains(body, "You may close this window.") ||
			strings.Contains(body, "<script") || strings.Contains(body, "c+1") {
			t.Errorf("%d %s", status, body)
		}
		if !strings.HasPrefix(csp, "default-src 'none'") {
			t.Errorf("CSP %q", csp)
		}
		fetched(t, asks(t, "GET", back+"?code=late&state=S", "")) // the first counts
		return nil
	}}
	callback, err := v.visit(t.Context(), DefaultRedirect, func(redirect string) (string, error) {
		back = redirect
		return "https://issuer.example/authorize?state=S&redirect_uri=" + url.QueryEscape(redirect), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if q := callback.Query(); q.Get("code") != "c+1" || q.Get("iss") != "i" ||
		!strings.HasPrefix(callback.String(), back) {
		t.Errorf("%s", callback)
	}
	if opened == "" || !strings.Contains(out.String(), opened) {
		t.Errorf("%q was opened: %s", opened, out.String())
	}
	u, err := url.Parse(back)
	if err != nil || u.Hostname() != "127.0.0.1" || u.Port() == "" {
		t.Fatalf("%s, %v", back, err)
	}
	if c, err := net.DialTimeout("tcp", u.Host, time.Second); err == nil {
		c.Close()
		t.Error("it listens after the visit")
	}
}

func TestBrowserRefused(t *testing.T) {
	var out bytes.Buffer
	v := visitor{output: &out, limit: maxVisit, open: func(context.Context, string) error {
		return errors.New("no desktop")
	}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for name, c := range map[string]struct{ redirect, address, want string }{
		"elsewhere":  {"https://a.example/callback", "", "cannot be sent"},
		"other host": {"http://a.example/callback", "", "not on this machine"},
		"query":      {"http://127.0.0.1/callback?x=1", "", "cannot be sent"},
		"file":       {DefaultRedirect, "file:///etc/passwd?state=S", "none for a browser"},
		"script":     {DefaultRedirect, "javascript:alert(1)?state=S", "none for a browser"},
		"option":     {DefaultRedirect, "--version", "none for a browser"},
		"no state":   {DefaultRedirect, "https://a.example/", "no state"},
	} {
		_, err := v.visit(ctx, c.redirect, func(string) (string, error) { return c.address, nil })
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	failed := errors.New("no registration")
	if _, err := v.visit(ctx, DefaultRedirect, func(string) (string, error) {
		return "", failed
	}); !errors.Is(err, failed) {
		t.Errorf("%v", err)
	}
	cancel()
	if _, err := v.visit(ctx, "http://localhost", func(redirect string) (string, error) {
		if !strings.HasPrefix(redirect, "http://localhost:") || !strings.HasSuffix(redirect, "/") {
			t.Errorf("%s", redirect)
		}
		return "https://a.example/?state=S", nil
	}); err == nil {
		t.Error("a visit outlives its context")
	}
}

// A port that is taken is no reason to give up.
func TestBrowserPortTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := "http://" + l.Addr().String() + "/cb"
	stop := errors.New("enough")
	v := visitor{output: io.Discard, limit: maxVisit}
	_, err = v.visit(t.Context(), taken, func(redirect string) (string, error) {
		if redirect == taken || !strings.HasSuffix(redirect, "/cb") {
			t.Errorf("%s", redirect)
		}
		return "", stop
	})
	if !errors.Is(err, stop) {
		t.Error(err)
	}
}

func TestBrowserGivesUp(t *testing.T) {
	v := visitor{output: io.Discard, limit: 20 * time.Millisecond}
	_, err := v.visit(t.Context(), DefaultRedirect,
		func(string) (string, error) { return "https://a.example/?state=S", nil })
	if err == nil || !strings.Contains(err.Error(), "the user has not signed in within 20ms") {
		t.Errorf("%v", err)
	}
}

func TestBrowserCommand(t *testing.T) {
	for variable, want := range map[string][]string{
		"":                    {"xdg-open", "A"},
		"firefox:chromium":    {"firefox", "A"},
		"w3m -o x":            {"w3m", "-o", "x", "A"},
		"surf --url=%s --new": {"surf", "--url=A", "--new"},
	} {
		if got := browserCommand(variable, "A"); !slices.Equal(got, want) {
			t.Errorf("%s: %q", variable, got)
		}
	}
}

// The program that BROWSER names gets the address as one word, and is not waited for.
func TestOpenBrowser(t *testing.T) {
	if runtime.GOOS == "windows" || runtime.GOOS == "darwin" {
		t.Skip("skipped: the desktop has its own command")
	}
	dir := t.TempDir()
	script, out := filepath.Join(dir, "browser"), filepath.Join(dir, "out")
	if err := os.WriteFile(script,
		[]byte("#!/bin/sh\nprintf '%s' \"$*\" >"+out+".new && mv "+out+".new "+out+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("BROWSER", script)
	const address = "https://a.example/?state=S&x=$(touch%20hacked);'\"`id`"
	if err := openBrowser(t.Context(), address); err != nil {
		t.Fatal(err)
	}
	timeout := time.After(10 * time.Second)
	for {
		if got, err := os.ReadFile(out); err == nil {
			if string(got) != address {
				t.Errorf("%s", got)
			}
			break
		}
		select {
		case <-timeout:
			t.Fatal("the browser was not opened")
		case <-time.After(time.Millisecond):
		}
	}
	t.Setenv("BROWSER", filepath.Join(dir, "none"))
	if err := openBrowser(t.Context(), address); err == nil {
		t.Error("there is no such browser")
	}
}
