package gateway

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// upstream reads a server in farcall's own form: a map, a target, or the list of a
// command and its arguments.
func (r *reader) upstream(m member, path string) *Upstream {
	u := &Upstream{Name: m.key}
	n := m.value
	if n.kind != mapNode {
		r.short(u, m, path)
		u.broken = true
		return u
	}
	if d := n.get("disabled"); d != nil && d.text == "true" {
		r.lenient = true
		defer func() { r.lenient = false }()
	}
	var args []string
	filter := func(f *Filter) take {
		return r.section(map[string]take{
			"allow": r.texts(&f.Allow), "deny": r.texts(&f.Deny),
			"rename": r.table(&f.Rename), "describe": r.table(&f.Describe),
		})
	}
	r.fields(n, path, map[string]take{
		"command":         func(at *node, path string) { r.command(u, at, path, n.get("args") == nil) },
		"args":            r.arguments(&args, &u.shown),
		"env":             r.secrets(&u.Env, u, "env"),
		"inherit_env":     r.oneOrMore(&u.InheritEnv),
		"cwd":             r.cwd(&u.Cwd),
		"restart":         func(n *node, path string) { r.restart(&u.Restart, n, path) },
		"url":             func(n *node, path string) { r.url(u, n, path) },
		"openapi":         func(n *node, path string) { r.openAPI(u, n, path) },
		"headers":         r.secrets(&u.Headers, u, "headers"),
		"tls":             r.tlsFiles(&u.TLS),
		"proxy":           r.text(&u.Proxy),
		"forward_headers": r.texts(&u.ForwardHeaders),
		"transport":       r.text(&u.Transport),
		"lifetime":        r.text(&u.Lifetime),
		"pool":            r.count(&u.Pool),
		"idle_stop":       r.duration(&u.IdleStop),
		"timeout":         r.duration(&u.Timeout),
		"queue_timeout":   r.duration(&u.QueueTimeout),
		"start_timeout":   r.duration(&u.StartTimeout),
		"preload":         r.flag(&u.Preload),
		"required":        r.flag(&u.Required),
		"health_check":    r.duration(&u.HealthCheck),
		"max_in_flight":   r.count(&u.MaxInFlight),
		"max_queue":       r.count(&u.MaxQueue),
		"breaker": r.section(
			map[string]take{"after": r.count(&u.Breaker.After), "for": r.duration(&u.Breaker.For)}),
		"max_message":   r.size(&u.MaxMessage),
		"frame_timeout": r.duration(&u.FrameTimeout),
		"profile":       r.text(&u.Profile),
		"framing":       r.text(&u.Framing),
		"era":           r.text(&u.Era),
		"tools":         filter(&u.Tools),
		"resources":     filter(&u.Resources),
		"prompts":       filter(&u.Prompts),
		"namespace":     r.text(&u.Namespace),
		"label":         r.text(&u.Label),
		"arguments":     r.text(&u.Arguments),
		"web":           r.text(&u.Web),
		"cache":         func(n *node, path string) { r.cache(u, n, path) },
		"hooks":         r.hooks(&u.Hooks),
		"disabled":      r.flag(&u.Disabled),
		"sandbox":       func(n *node, path string) { u.Sandbox = r.sandbox(n, path) },
		"auth":          func(n *node, path string) { r.credentials(u, n, path) },
	})
	u.broken = n.get("command") != nil || n.get("url") != nil
	if args != nil && len(u.Command) == 0 && n.get("command") == nil {
		r.problem(path+".args", "there is no command for them", "add command")
	}
	u.Command = append(u.Command, args...)
	return u
}

// cache reads a time, or a map.
func (r *reader) cache(u *Upstream, n *node, path string) {
	r.mapOr("ttl", n, path,
		map[string]take{"ttl": r.duration(&u.Cache.TTL), "public": r.flag(&u.Cache.Public)})
	if n.kind == mapNode && n.get("ttl") == nil {
		r.problem(path, "it has no ttl", "add ttl: 30s")
	}
}

// short reads an upstream that is no map.
func (r *reader) short(u *Upstream, m member, path string) {
	n := m.value
	switch n.kind {
	case nullNode:
		r.problemAt(m.at, path, "is empty", "give it a command or a url")
	case listNode:
		r.spots[path+".command"] = n.at
		r.command(u, n, path, true)
	default:
		r.target(u, n, path)
	}
}

// arguments reads a list, and keeps it as it was written, too.
func (r *reader) arguments(dst, shown *[]string) take {
	list := r.texts(dst)
	return func(n *node, path string) {
		list(n, path)
		for i, item := range n.list {
			*shown = append(*shown, item.text)
			r.literal(item, path+"["+strconv.Itoa(i)+"]")
		}
	}
}

// command reads a list, or a text that is split into words unless there are
// arguments as well.
func (r *reader) command(u *Upstream, n *node, path string, split bool) {
	var shown []string
	switch {
	case n.kind == listNode && !split:
		r.problemAt(n.at, path, "it is a list, and there are args as well",
			"put all of it into command, or only the program")
	case n.kind == listNode:
		r.arguments(&u.Command, &shown)(n, path)
		if len(n.list) == 0 {
			r.problemAt(n.at, path, "it is empty", "name a program and its arguments")
		}
	case n.kind == scalarNode && split:
		words, err := splitWords(n.text)
		if err != nil {
			r.problemAt(n.at, path, "it cannot be split into words", err.Error())
			return
		}
		if len(words) == 0 {
			r.problemAt(n.at, path, "it is empty", "name a program and its arguments")
		}
		shown = words
		for _, word := range words {
			r.literal(&node{kind: scalarNode, text: word}, path)
			if value, ok := r.value(&node{kind: scalarNode, text: word, at: n.at}, path); ok {
				u.Command = append(u.Command, value)
			}
		}
	default:
		if value, ok := r.value(n, path); ok {
			u.Command, shown = []string{value}, []string{n.text}
			r.literal(n, path)
		}
	}
	u.shown = append(shown, u.shown...)
}

// cwd reads the directory of a command.
func (r *reader) cwd(dst *string) take {
	return func(n *node, path string) {
		r.path(dst)(n, path)
		r.literal(n, path)
	}
}

// url keeps the address as it was written for when it is shown.
func (r *reader) url(u *Upstream, n *node, path string) {
	value, ok := r.value(n, path)
	if !ok {
		return
	}
	u.URL = value
	if socket, isUnix := strings.CutPrefix(value, "unix:"); isUnix && socket != "" {
		u.URL = "unix:" + r.beside(strings.TrimPrefix(socket, "//"))
	}
	if value != n.text {
		put(&u.origins, "url", n.text)
	}
}

// target reads what is short for a command or a url.
func (r *reader) target(u *Upstream, n *node, path string) {
	r.spots[path+".url"], r.spots[path+".command"] = n.at, n.at
	if isURL(n.text) {
		r.url(u, n, path)
		return
	}
	r.command(u, n, path, true)
}

var schemeStart = regexp.MustCompile(`^([a-zA-Z][a-zA-Z0-9+.-]*://|unix:)`)

func isURL(target string) bool { return schemeStart.MatchString(target) }

// NewUpstream makes an upstream of what may stand on a command line: a URL, or a
// command, with "-- " before it or not, which is split into words as a shell does.
func NewUpstream(name, target string) (*Upstream, error) {
	r := &reader{spots: map[string]spot{}, written: map[string]string{}}
	u := &Upstream{Name: name}
	r.target(u, &node{kind: scalarNode, text: target}, "upstreams."+name)
	check := checker{problem: r.problem, written: r.written, roots: []string{"upstreams." + name}}
	if len(r.problems) == 0 {
		check.upstream(u, check.roots[0])
	}
	if err := r.failure(); err != nil {
		return nil, err
	}
	return u, nil
}

func (r *reader) restart(dst *Restart, n *node, path string) {
	if n.kind != scalarNode {
		r.fields(n, path, map[string]take{"min": r.duration(&dst.Min), "max": r.duration(&dst.Max)})
		return
	}
	var word string
	r.text(&word)(n, path)
	switch word {
	case "never":
		dst.Never = true
	case "always", "":
	default:
		r.problemAt(n.at, path, fmt.Sprintf("there is no way of restarting %q", n.text),
			"use never or always, or a map with min and max")
	}
}
