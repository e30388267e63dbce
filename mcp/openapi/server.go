package openapi

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// readServers finds out where the API is.
func (b *builder) readServers() error {
	origin := b.origin
	declared := b.declaredServer(b.root())
	b.declared = declared
	for _, s := range b.o.Servers {
		u, err := parseBase(s)
		if err != nil {
			return fmt.Errorf("Options.Servers: %s: %w", clip(s), err)
		}
		b.servers[originOf(u)] = true
	}
	if b.o.BaseURL != "" {
		u, err := parseBase(b.o.BaseURL)
		if err != nil {
			return fmt.Errorf("Options.BaseURL: %w", err)
		}
		b.base = u
		return nil
	}
	if (len(b.o.Header) > 0 || b.o.Authorizer != nil) && origin.Host == "" {
		return errors.New("Options.Header and Authorizer need Options.BaseURL: the document would choose who gets the credentials")
	}
	u, err := origin.Parse(declared)
	if err != nil || declared == "" || u.Host == "" {
		return errors.New("the document does not say where its API is: set Options.BaseURL")
	}
	if u, err = parseBase(u.String()); err != nil {
		return fmt.Errorf("the document's server %s: %w; set Options.BaseURL", clip(declared), err)
	}
	if origin.Host != "" && originOf(u) != originOf(origin) {
		return fmt.Errorf("the document comes from %s, and its server is %s: if you mean that, set Options.BaseURL to %q",
			originOf(origin), originOf(u), u.String())
	}
	b.base = u
	return b.checkBase()
}

// parseBase reads an address below which paths are.
func parseBase(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return nil, errors.New("it is no URL")
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
		return nil, errors.New("it must be https:// or http:// and a host")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("it must have no user, query and fragment")
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), strings.TrimRight(u.RawPath, "/")
	return u, nil
}

// declaredServer returns the first server that a document, path item or operation names, with the
// values of its variables.
func (b *builder) declaredServer(n node) string {
	if b.swagger {
		host := n.get("host").text()
		if host == "" {
			return n.get("basePath").text()
		}
		scheme := "https"
		if all := n.get("schemes").texts(); len(all) > 0 && !strings.Contains(strings.Join(all, " "), "https") {
			scheme = all[0]
		}
		return scheme + "://" + host + n.get("basePath").text()
	}
	servers := n.get("servers").items()
	if len(servers) == 0 {
		return ""
	}
	address := servers[0].get("url").text()
	servers[0].get("variables").each(func(name string, v node) bool {
		value, ok := b.o.Variables[name]
		if !ok {
			value = v.get("default").text()
		}
		address = strings.ReplaceAll(address, "{"+name+"}", value)
		return true
	})
	return address
}

// baseOf returns where an operation is: at the base, unless it names its own server, which must be
// of an origin that is allowed.
func (b *builder) baseOf(o *operation) (*url.URL, error) {
	own := ""
	if !b.swagger {
		if own = b.declaredServer(o.node); own == "" {
			own = b.declaredServer(o.item)
		}
	}
	if own == "" || own == b.declared {
		return b.base, nil
	}
	u, err := b.base.Parse(own)
	if err == nil {
		u, err = parseBase(u.String())
	}
	if err != nil {
		return nil, refusal("its server " + clip(own) + " is no address")
	}
	if d, err := b.base.Parse(b.declared); err == nil && b.declared != "" && originOf(u) == originOf(d) {
		at := *b.base // the document's own server is where the base is
		if strings.TrimRight(d.Path, "/") != u.Path {
			at.Path, at.RawPath = u.Path, u.RawPath
		}
		return &at, nil
	}
	if at := originOf(u); at != originOf(b.base) && !b.servers[at] {
		return nil, refusal(fmt.Sprintf("its server is %s: allow that with Options.Servers", at))
	}
	return u, nil
}

// originOf returns scheme, host and port.
func originOf(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	host := strings.ToLower(u.Hostname())
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port == map[string]string{"http": "80", "https": "443"}[u.Scheme] {
		return u.Scheme + "://" + host
	}
	return u.Scheme + "://" + host + ":" + port
}
