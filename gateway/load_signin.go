package gateway

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/farcall-dev/farcall/internal/cluster"
)

// The values of Config.SignIn.Browser.
const (
	browserLink      = "link"
	browserPrincipal = "principal"
)

// signInConfig is the type of Config.SignIn.
type signInConfig = struct {
	URL          string
	Keys         []string
	Dir, Browser string
}

// signIn reads how principals sign in to upstreams.
func (r *reader) signIn(c *Config, n *node, path string) {
	s := &c.SignIn
	r.fields(n, path, map[string]take{
		"url": r.text(&s.URL), "dir": r.directory(&s.Dir), "browser": r.text(&s.Browser),
		"keys": r.items(func(n *node, path string) {
			var key string
			r.hidden(&key, n, path)
			s.Keys = append(s.Keys, key)
		}),
	})
}

// bindsBrowsers reports whether only a browser that shows the credentials of the principal may sign
// in for it. It is the default where browsers can show credentials: a guard with client
// certificates.
func (c *Config) bindsBrowsers() bool {
	if c.SignIn.Browser != "" {
		return c.SignIn.Browser == browserPrincipal
	}
	return c.Guard != nil && len(c.Guard.MTLS) > 0
}

// signIn checks how principals sign in to upstreams.
func (c *checker) signIn(conf *Config) {
	s := &conf.SignIn
	if why := badPublic(s.URL); s.URL != "" && why != "" {
		c.problem("sign_in.url", c.quote("sign_in.url", s.URL)+" "+why,
			"write the address that browsers reach the gateway at: https://tools.example.com")
	}
	c.choice("sign_in.browser", "kind of browser", s.Browser, browserLink, browserPrincipal)
	for i, text := range s.Keys {
		if _, err := cluster.ParseKey(text); err != nil {
			c.problem(fmt.Sprintf("sign_in.keys[%d]", i), err.Error(),
				"`openssl rand -base64 32` prints one")
		}
	}
	if s.Dir != "" && len(s.Keys) == 0 {
		c.problem("sign_in", "the tokens in dir need keys",
			"write keys: [file:sign-in.key], with what `openssl rand -base64 32` prints in the file")
	}
	for i, u := range conf.Upstreams {
		if !u.signsIn() {
			continue
		}
		path := c.roots[i] + ".auth.type"
		switch {
		case s.URL == "":
			c.problem(path, "sign_in needs the address at which browsers reach the gateway",
				"add sign_in: {url: https://tools.example.com}")
		case conf.Guard == nil:
			c.problem(path, "sign_in keeps tokens for principals, and without a guard there are none",
				"add guard")
		}
	}
	if c.notice != nil {
		c.noticeSignIn(conf)
	}
}

// noticeSignIn says what may surprise, of a configuration with sign-in.
func (c *checker) noticeSignIn(conf *Config) {
	s := &conf.SignIn
	if s.Dir == "" && conf.signsIn() && !conf.Cluster.Set() {
		c.notice("sign_in", "the tokens are in memory: a restart signs every principal out",
			"add dir and keys")
	}
	if s.Browser == "" && conf.signsIn() && !conf.bindsBrowsers() {
		c.notice("sign_in",
			"any browser may follow the link of a sign-in: a user who follows the link of "+
				"another principal signs in for that principal",
			"where browsers have client certificates, or a proxy adds tokens, write browser: principal; "+
				"browser: link accepts this and ends this notice")
	}
}

// badPublic returns what is wrong with the URL of the gateway.
func badPublic(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" ||
		u.Scheme+"://"+u.Host != strings.TrimSuffix(text, "/") {
		return "is not scheme, host and port"
	}
	ip, err := netip.ParseAddr(u.Hostname())
	if u.Scheme == "http" && u.Hostname() != "localhost" && (err != nil || !ip.IsLoopback()) {
		return "is not https: codes and cookies would go over the network in clear text"
	}
	if n, err := strconv.ParseUint(cmp.Or(u.Port(), "443"), 10, 16); err != nil || n == 0 ||
		strings.HasSuffix(u.Host, ":") {
		return "has no valid port"
	}
	return ""
}

// signsIn reports whether principals sign in to an upstream.
func (u *Upstream) signsIn() bool {
	return u != nil && !u.Disabled && u.Auth != nil && u.Auth.Type == authSignIn
}

// signsIn reports whether principals sign in to any upstream.
func (c *Config) signsIn() bool {
	return slices.ContainsFunc(c.Upstreams, (*Upstream).signsIn)
}
