package gateway

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

// hooks reads a list of hooks.
func (r *reader) hooks(dst *[]Hook) take {
	return r.items(func(n *node, path string) {
		var h Hook
		var child Upstream
		r.fields(n, path, map[string]take{
			"name":          r.text(&h.Name),
			"on":            r.text(&h.On),
			"tools":         r.choice(&h.Tools),
			"command":       func(n *node, path string) { r.command(&child, n, path, true) },
			"env":           r.table(&h.Env),
			"url":           r.text(&h.URL),
			"headers":       r.table(&h.Headers),
			"tls":           r.tlsFiles(&h.TLS),
			"timeout":       r.duration(&h.Timeout),
			"on_failure":    r.text(&h.OnFailure),
			"max_in_flight": r.count(&h.MaxInFlight),
		})
		h.Command = child.Command
		*dst = append(*dst, h)
	})
}

// tlsFiles reads with which certificates a server is called.
func (r *reader) tlsFiles(t *struct{ CA, Cert, Key, ServerName string }) take {
	return r.section(map[string]take{
		"ca": r.path(&t.CA), "cert": r.path(&t.Cert), "key": r.path(&t.Key),
		"server_name": r.text(&t.ServerName),
	})
}

// maxHookTimeout bounds the time of a hook: calls wait for it.
const maxHookTimeout = time.Minute

// allHooks checks the hooks of all upstreams.
func (c *checker) allHooks(conf *Config) {
	for i := range conf.Hooks {
		path, h := fmt.Sprintf("hooks[%d]", i), &conf.Hooks[i]
		c.hook(h, path)
		for n, pattern := range h.Tools {
			c.chosen(fmt.Sprintf("%s.tools[%d]", path, n), pattern, namesOf(conf.Upstreams))
		}
	}
}

// upstreamHooks checks those of one upstream.
func (c *checker) upstreamHooks(u *Upstream, path string) {
	for i := range u.Hooks {
		path, h := fmt.Sprintf("%s[%d]", path, i), &u.Hooks[i]
		c.hook(h, path)
		for n, pattern := range h.Tools {
			at := fmt.Sprintf("%s.tools[%d]", path, n)
			if pattern == "" {
				c.problem(at, "it is empty and matches nothing", "write a name, or a pattern with * or ?")
			} else if own, ok := strings.CutPrefix(pattern, u.Name+"/"); ok && c.notice != nil {
				c.notice(at, "patterns in an upstream match the upstream's names, without "+u.Name+"/",
					"write "+own)
			}
		}
	}
}

// hook checks what a hook is, but for its tools.
func (c *checker) hook(h *Hook, path string) {
	if h.On == "" {
		c.problem(path, "it does not say when it is asked", "add on: before or on: after")
	}
	c.choice(path+".on", "phase", h.On, hookBefore, hookAfter)
	c.choice(path+".on_failure", "choice", h.OnFailure, hookDeny, hookAllow)
	c.notBefore(path+".timeout", h.Timeout)
	c.notNegative(path+".max_in_flight", h.MaxInFlight)
	if h.Timeout > maxHookTimeout {
		c.problem(path+".timeout", fmt.Sprintf("%v is too long: calls wait for it", h.Timeout),
			fmt.Sprintf("write %v at most", maxHookTimeout))
	}
	if h.Tools != nil && len(h.Tools) == 0 {
		c.problem(path+".tools", "it is empty, so the hook is asked about no tool",
			"remove tools, for all of them, or remove the hook")
	}
	like := &Upstream{Name: "hook", Command: h.Command, Env: h.Env, URL: h.URL, Headers: h.Headers}
	like.TLS = h.TLS
	switch {
	case len(h.Command) > 0 && h.URL != "":
		c.problem(path+".url", "there is a command as well", "remove one; use two hooks for both")
	case len(h.Command) > 0:
		c.command(like, path)
		c.environment(like, path)
	case h.URL == "":
		c.problem(path, "it has neither a command nor a url",
			"add command: [PROGRAM, ARGUMENTS...] or url: https://host/path")
	default:
		c.hookAddress(like, path)
	}
}

// hookAddress checks a hook that is reached over HTTP.
func (c *checker) hookAddress(like *Upstream, path string) {
	at := path + ".url"
	u, err := url.Parse(like.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		c.problem(at, "a hook is at a URL of http or https", "write https://host:port/path")
		return
	}
	c.address(like, path)
	c.headers(like, path)
	if u.Scheme == "http" && !onThisMachine(u.Hostname()) && c.notice != nil {
		c.notice(at, "calls and results go to another machine without TLS", "write https")
	}
}

// onThisMachine reports whether a host name is that of this machine.
func onThisMachine(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
