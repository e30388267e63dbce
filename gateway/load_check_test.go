package gateway

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
)

// Each text has these problems and no others.
func TestProblems(t *testing.T) {
	t.Setenv("CONFIG_TEST_SECRET", "s3cr3t")
	const ab = "upstreams:\n  a: " // what follows is in line 2, column 6
	for _, c := range []struct{ text, want string }{
		{"", "1:1: the file is empty; name a server under upstreams"},
		{"a", "1:1: a map with the key upstreams is wanted, and this is one value"},
		{"- a", "1:1: a map with the key upstreams is wanted, and this is a list"},
		{
			"name: x", "1:1: there are no upstreams; name a server under upstreams, with its command or url",
		},
		{
			"upstreams:",
			"1:1: there are no upstreams; name a server under upstreams, with its command or url",
		},
		{
			"upstream: {a: x}",
			"1:1: there are no upstreams; name a server under upstreams, with its command or url\n" +
				`1:1: upstream: there is no key "upstream" here; did you mean upstreams?`,
		},
		{
			"servers: {a: x}",
			"1:1: there are no upstreams; name a server under upstreams, with its command or url\n" +
				`1:1: servers: there is no key "servers" here; did you mean upstreams?`,
		},
		{
			"upstreams: [x]",
			"1:12: upstreams: a map of keys and values is wanted, and this is a list\n" +
				"1:1: there are no upstreams; name a server under upstreams, with its command or url",
		},
		{
			ab + "{command: x}\ntasks: {dri: x, ttl: 1h}",
			`3:9: tasks.dri: there is no key "dri" here; did you mean dir?` +
				"\n3:9: tasks: it has no dir; name a directory, such as dir: tasks",
		},
		{
			ab + "{command: x}\ntrace: {parent: linked}",
			`3:17: trace.parent: there is no kind of parent "linked"; use remote or link (did you ` +
				`mean link?)`,
		},
		{
			ab +
				"{command: x}\nlisten: [':1', 'nats://h/s']\n" +
				"trace: {listeners: {':1': linked, ':2': link, 'nats://h/s': link}}",
			`4:27: trace.listeners.:1: there is no kind of parent "linked"; use remote or link (did you ` +
				`mean link?)` +
				"\n4:41: trace.listeners.:2: listen has no such address; write one of listen, as it is there" +
				"\n4:61: trace.listeners.nats://h/s: a message queue has no listener; use trace.parent",
		},
		{
			ab + "{command: x}\nlisten: ':1'\ntrace: {listeners: {':1': ''}}",
			"4:27: trace.listeners.:1: it has no kind of parent; use remote or link",
		},
		{
			ab + "{command: x}\nsearch: sometimes",
			`3:9: search: there is no mode of search "sometimes"; use always or auto`,
		},
		{
			ab + "{command: x}\nsearch: {limit: 21, always: [c/*]}",
			"3:17: search.limit: 21 is not a number from 1 to 20; callers can ask for more than " +
				"the default\n" +
				`3:30: search.always[0]: there is no upstream "c"; the upstreams are a`,
		},
		{
			ab + "{command: x}\nnamespace: never\nsearch: true",
			"4:9: search: with search, names are always qualified, and the namespace is never; " +
				"remove namespace",
		},
		{
			ab + "{command: x}\nendpoints: {team: {search: {modus: auto}}}",
			`3:29: endpoints.team.search.modus: there is no key "modus" here; did you mean mode?`,
		},
		{
			ab + "{command: x}\ntasks: [x]",
			"3:8: tasks: a map of keys and values is wanted, and this is a list",
		},
		{
			ab + "{command: x}\ntasks: load.go",
			"3:8: tasks: it is not a directory; name one for tasks alone, which is made if it is not there",
		},
		{
			ab + "{command: x}\ntasks: {dir: x, ttl: 0s, max_size: 2TiB}",
			`3:22: tasks.ttl: "0s" must be greater than zero; write 30s, or leave the key out for ` +
				`the default` + "\n" +
				`3:36: tasks.max_size: "2TiB" is not a size from 1KB to 1TiB; write 10MB, 512KiB or a ` +
				`number of bytes`,
		},
		{
			ab + "{command: x, lifetime: sesion}",
			`2:29: upstreams.a.lifetime: there is no lifetime "sesion"; use auto, shared, principal, ` +
				`session or call (did you mean session?)`,
		},
		{
			ab + "{command: x, lifetime: '${CONFIG_TEST_SECRET}'}",
			`2:29: upstreams.a.lifetime: there is no lifetime "${CONFIG_TEST_SECRET}"; use auto, shared, ` +
				`principal, session or call`,
		},
		{
			ab + "{command: x, lifetime: shared, pool: 2}",
			`2:43: upstreams.a.pool: the lifetime shared is one connection with one state, and the pool ` +
				`is 2; remove pool, or choose another lifetime`,
		},
		{
			ab + "{command: x, lifetime: [shared]}",
			`2:29: upstreams.a.lifetime: one value is wanted, and this is a list`,
		},
		{ab + "{comand: x}", "2:3: upstreams.a: it has neither a command nor a url; add command: " +
			"[PROGRAM, ARGUMENTS...] or url: https://host/mcp\n" +
			`2:7: upstreams.a.comand: there is no key "comand" here; did you mean command?`},
		{ab, "2:3: upstreams.a: is empty; give it a command or a url"},
		{
			ab + "x | y",
			`2:6: upstreams.a: it cannot be split into words; "|" has no meaning without a shell; quote ` +
				`it if it is an argument; ` + noShell,
		},
		{
			ab + "{command: [], args: [x]}",
			"2:16: upstreams.a.command: it is a list, and there are args as well; put all of it into " +
				"command, or only the program",
		},
		{
			ab + "{command: []}", "2:16: upstreams.a.command: it is empty; name a program and its arguments",
		},
		{
			ab + "{command: ''}", "2:16: upstreams.a.command: it is empty; name a program and its arguments",
		},
		{
			ab + "{command: ['']}",
			"2:16: upstreams.a.command: the program has no name; name it first, then its arguments",
		},
		{ab + "{args: [x]}", "2:13: upstreams.a.args: there is no command for them; add command"},
		{
			ab + "{command: x, url: 'http://h'}",
			"2:24: upstreams.a.url: there is a command as well; remove one; use two upstreams for both",
		},
		{
			ab + "{command: x, headers: {A: b}, transport: sse}",
			"2:29: upstreams.a.headers: a command has none; remove it; it is for a url\n" +
				"2:47: upstreams.a.transport: a command has none; remove it; it is for a url",
		},
		{
			ab + "{command: x, timeout: 30}",
			`2:28: upstreams.a.timeout: "30" is not a duration; it has no unit; write 30s if it ` +
				`is in seconds`,
		},
		{
			ab + "{command: x, timeout: -1s}",
			`2:28: upstreams.a.timeout: "-1s" must be greater than zero; write 30s, or leave the key out ` +
				`for the default`,
		},
		{
			ab + "{command: x, timeout: '${CONFIG_TEST_SECRET}'}",
			`2:28: upstreams.a.timeout: "${CONFIG_TEST_SECRET}" is not a duration; write a number with ` +
				`its unit: 500ms, 30s, 5m, 1h`,
		},
		{
			ab + "{command: x, pool: 0}",
			`2:25: upstreams.a.pool: "0" is not a number from 1; write a whole number, or leave the key ` +
				`out for the default`,
		},
		{
			ab + "{command: x, disabled: yes}",
			`2:29: upstreams.a.disabled: "yes" is neither true nor false; write true or false`,
		},
		{
			ab + "{command: x, max_message: 2GB}",
			`2:32: upstreams.a.max_message: "2GB" is not a size from 1KB to 1GiB; write 10MB, 512KiB or a ` +
				`number of bytes`,
		},
		{
			ab + "{command: x, restart: no}",
			`2:28: upstreams.a.restart: there is no way of restarting "no"; use never or always, or a map ` +
				`with min and max`,
		},
		{
			ab + "{command: x, restart: {min: 2s, max: 1s}}",
			`2:34: upstreams.a.restart.min: it is more than max; exchange them`,
		},
		{
			ab + "{command: x, env: {A: , B: [x]}}",
			"2:27: upstreams.a.env.A: it has no value; give one, or leave the key out; \"\" is the " +
				"empty text\n" +
				"2:33: upstreams.a.env.B: one value is wanted, and this is a list",
		},
		{
			ab + "{command: x, env: {A=b: c}, inherit_env: [s3cr3t=b]}",
			"2:25: upstreams.a.env.A...: no variable can have this name or value; remove = and NUL bytes\n" +
				`2:48: upstreams.a.inherit_env[0]: "s3cr3t..." is not the name of a variable; write the name ` +
				`only, as in AWS_PROFILE or AWS_*; values go into env`,
		},
		{
			ab + "{command: x, era: '2020-01-01'}",
			`2:24: upstreams.a.era: there is no era "2020-01-01"; use auto, modern, legacy, 2026-07-28, ` +
				`2025-11-25, 2025-06-18, 2025-03-26 or 2024-11-05`,
		},
		{
			ab + "{command: x, namespace: perhaps, framing: lines}",
			`2:30: upstreams.a.namespace: there is no namespace "perhaps"; use auto, always or never` +
				"\n" +
				`2:48: upstreams.a.framing: there is no framing "lines"; use line, header or raw (did you ` +
				`mean line?)`,
		},
		{
			ab + "{url: 'http://h', framing: line, pool: 2, cwd: /, env: {A: b}, restart: never}",
			"2:33: upstreams.a.framing: " +
				"only commands and byte streams (tcp, tls, unix) have it; remove it\n" +
				"2:45: upstreams.a.pool: over HTTP one connection carries any number of calls; remove it; to " +
				"bound the calls in flight use max_in_flight\n" +
				"2:53: upstreams.a.cwd: only a command has it; remove it\n" +
				"2:62: upstreams.a.env: only a command has it; remove it\n" +
				"2:78: upstreams.a.restart: only a command has it; remove it",
		},
		{
			ab + "{url: 'tcp://h:1', headers: {A: b}, transport: sse}",
			"2:35: upstreams.a.headers: only http, https, ws and wss have it; remove it\n" +
				"2:53: upstreams.a.transport: only http and https have it; remove it",
		},
		{ab + "{url: host/mcp}", "2:12: upstreams.a.url: it is not a URL; write http://host:port/path, " +
			"ws://host:port/path, tcp://host:port or unix:PATH"},
		{
			ab + "{url: 'ftp://h'}",
			"2:12: upstreams.a.url: there is no transport \"ftp\"; use http, https, ws, wss, tcp, tls, " +
				"unix, nats, nats+tls or npipe",
		},
		{ab + "{url: 'http:///x'}", "2:12: upstreams.a.url: it has no host; write http://host:port/path"},
		{
			ab + "{url: 'tcp://h'}",
			"2:12: upstreams.a.url: it needs a host and a port; write tcp://host:port",
		},
		{ab + "{url: 'unix:'}", "2:12: upstreams.a.url: it has no path; write unix:/run/server.sock"},
		{
			ab + "https://u:s3cr3t@h/",
			"2:6: upstreams.a.url: it has a user or password; put them into headers: " +
				"Authorization: ${NAME}",
		},
		{
			ab + "{url: 'http://h', headers: {mcp-name: a, A: a, a: b, 'B: s3cr3t': c, D: \"x\\ny\"}}",
			"2:34: upstreams.a.headers.B...: no header can have this name; write the name only, without a " +
				"colon\n" +
				"2:44: upstreams.a.headers.mcp-name: farcall sets this header itself; remove it\n" +
				"2:56: upstreams.a.headers.a: it is the same header as A; remove one\n" +
				"2:78: upstreams.a.headers.D: the value has a line break; remove it; a header is one line",
		},
		{
			ab + "{url: 'tcp://h:1', profile: raw, lifetime: shared, tools: {deny: [x]}}",
			"2:49: upstreams.a.lifetime: a url with the profile raw has none; remove it\n" +
				"2:65: upstreams.a.tools: it is about MCP, and the profile is raw; remove it, or the profile",
		},
		{
			ab + "{command: x, profile: raw, lifetime: call, era: legacy}",
			`2:43: upstreams.a.lifetime: the lifetime "call" is for MCP, and the profile is raw; use ` +
				`shared or session` + "\n" +
				"2:54: upstreams.a.era: it is about MCP, and the profile is raw; remove it, or the profile",
		},
		{ab +
			"{command: x, tools: {allow: x, rename: {a: 'b c', c: d, e: d}}, resources: {rename: {a: b}, " +
			"deny: ['']}}", "2:34: upstreams.a.tools.allow: a list is wanted, and this is one value\n" +
			`2:49: upstreams.a.tools.rename.a: "b c" cannot be a name; use up to 128 letters, digits, ` +
			`_, -, . and /` + "\n" +
			"2:65: upstreams.a.tools.rename.e: c has been renamed to the same; use another name\n" +
			`2:94: upstreams.a.resources.rename.a: "b" is not a URI; write one, such as docs://readme; ` +
			`resources go by their URIs` + "\n" +
			"2:105: upstreams.a.resources.deny[0]: it is empty and matches nothing; write a name, or a " +
			"pattern with * or ?"},
		{
			ab + "{command: '${CONFIG_TEST_UNSET} ${CONFIG_TEST_UNSET:?} ${command:x} ${input:the-token}'}",
			"2:16: upstreams.a.command: the environment has no CONFIG_TEST_UNSET; set it before farcall " +
				"starts, or write ${CONFIG_TEST_UNSET:-default}\n" +
				"2:16: upstreams.a.command: after ${ must stand the name of a variable of the environment; " +
				"write ${NAME}, ${NAME:-default} or ${file:PATH}; $${ if the text itself has ${\n" +
				"2:16: upstreams.a.command: after ${ must stand the name of a variable of the environment; " +
				"write ${NAME}, ${NAME:-default} or ${file:PATH}; $${ if the text itself has ${\n" +
				"2:16: upstreams.a.command: the editor asks its user for ${input:the-token}, and farcall " +
				"cannot; set THE_TOKEN in the environment and write ${THE_TOKEN}",
		},
		{
			ab + "{command: ['${s3cr3t']}",
			"2:17: upstreams.a.command[0]: ${ has no }; add it, or write $${ if the text itself has ${",
		},
		{
			"namespace: some\nlisten: ['http://h', x, 'unix:', ':99999']\nupstreams: {ws: x, a__b: x, B: " +
				"x, b: x, -x: x, " + strings.Repeat("a", 65) + ": x}",
			"1:12: namespace: there is no namespace \"some\"; use auto, always or never\n" +
				"2:10: listen[0]: cannot listen on \"http://h\"; it has a scheme, and one port speaks every " +
				"protocol; write h\n" +
				"2:22: listen[1]: cannot listen on \"x\"; it cannot be read: missing port in address; write " +
				"host:port, :port for every interface, 127.0.0.1:0 for any free port, or unix:PATH\n" +
				"2:25: listen[2]: cannot listen on \"unix:\"; it has no path; write unix:/tmp/farcall.sock\n" +
				"2:34: listen[3]: cannot listen on \":99999\"; it has a bad port; ports go from 0 to 65535; " +
				"write host:port, :port for every interface, 127.0.0.1:0 for any free port, or unix:PATH\n" +
				"3:13: upstreams.ws: \"ws\" cannot be a name: /rpc/ws has its own meaning; use another\n" +
				"3:20: upstreams.a__b: the name \"a__b\" has __, which stands between an upstream and its " +
				"tool; use one _\n" +
				"3:35: upstreams.b: there are the names \"B\" and \"b\", which differ at most in case; " +
				"rename one of them\n" +
				"3:41: upstreams.-x: \"-x\" cannot be a name; use letters, digits, - and _, as in github-2\n" +
				"3:48: upstreams." + strings.Repeat("a", 65) +
				": the name has 65 letters, and 64 are allowed; shorten it",
		},
		{
			"hosts: [a.example, '*.a.example:8443', '*', 'http://a', 'a*.example', '', 'a:b', " +
				"'[::1]']\nupstreams: {a: x}",
			"1:45: hosts[3]: \"http://a\" is not a host name; write tools.example.com, *.example.com, or " +
				"* for every name\n" +
				"1:57: hosts[4]: \"a*.example\" is not a host name; write tools.example.com, *.example.com, " +
				"or * for every name\n" +
				"1:71: hosts[5]: \"\" is not a host name; write tools.example.com, *.example.com, or * for " +
				"every name\n" +
				"1:75: hosts[6]: \"a:b\" is not a host name; write tools.example.com, *.example.com, or * " +
				"for every name\n" +
				"1:82: hosts[7]: \"[::1]\" is not a host name; write tools.example.com, *.example.com, or * " +
				"for every name",
		},
		{
			"trusted_proxies: [10.0.0.0/8, 0.0.0.0/0, proxy, unix]\nupstreams: {a: x}",
			"1:31: trusted_proxies[1]: not a proxy: \"0.0.0.0/0\"; write an address, a network such as " +
				"10.0.0.0/8 that is not all there are, or unix\n" +
				"1:42: trusted_proxies[2]: not a proxy: \"proxy\"; write an address, a network such as " +
				"10.0.0.0/8 that is not all there are, or unix",
		},
		{
			"upstreams:\n  a: x\n  a: y\nname: a\nname: b\nx-1: {a: 1, a: 2}",
			"3:3: upstreams.a: the key is given twice; the first is on line 2; remove one\n" +
				"5:1: name: the key is given twice; the first is on line 4; remove one\n" +
				"6:13: x-1.a: the key is given twice; the first is on line 6; remove one",
		},
		{
			"upstreams: {a: x}\n---\nupstreams: {b: x}",
			"3:1: there is a second document (---) in the file; remove it; a file is one configuration",
		},
		{"upstreams: {a: !!str x}", "1:16: tags such as !!str are not used here; remove it"},
		{"upstreams: {a: *b}", "1:16: there is no anchor &b before this"},
		{"upstreams: {<<: x}", "1:13: << takes a map, or a list of maps"},
	} {
		_, got := parse(t, "f", c.text)
		want := "f:" + strings.ReplaceAll(c.want, "\n", "\nf:")
		if sorted(got) != sorted(want) {
			t.Errorf("%s\n\t%s\nwant\n\t%s", c.text, strings.ReplaceAll(got, "\n", "\n\t"),
				strings.ReplaceAll(want, "\n", "\n\t"))
		}
		if strings.Contains(strings.ReplaceAll(got, `"s3cr3t..."`, ""), "s3cr3t") {
			t.Errorf("a secret is shown: %s", got)
		}
	}
}

func sorted(lines string) string {
	list := strings.Split(lines, "\n")
	slices.Sort(list)
	return strings.Join(list, "\n")
}

// What is no YAML or JSON is refused without a word of what is in it.
func TestBrokenTextIsNotQuoted(t *testing.T) {
	for _, text := range []string{
		"a: 's3cr3t", "a: \"s3cr3t", "a: {s3cr3t", "a: [s3cr3t", "a: b: s3cr3t", "a:\n\ts3cr3t",
		"a: s3cr3t\n b: c", "a: |x\n  s3cr3t", "%s3cr3t\n", "a: \"\\xs3cr3t\"", "a: @s3cr3t",
		"a: `s3cr3t`",
		"a: s3cr3t\n- b", "\"s3cr3t\nupstreams:", "? s3cr3t\n  b", "&s3cr3t", "a: {\"s3cr3t\": }\n}",
		`{"a": s3cr3t}`, `{"s3cr3t" 1}`, `{"a": "s3cr3t}`, `{"a": "\xs3cr3t"}`,
	} {
		for _, name := range []string{"f.yaml", "f.json"} {
			if _, err := Parse(name, []byte(text)); err == nil {
				t.Errorf("%s: taken", text)
			} else if got := strings.ReplaceAll(err.Error(), `anchor &s3cr3t`, ""); strings.Contains(got,
				"s3cr3t") {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
}

func TestCheck(t *testing.T) {
	good := &Config{Upstreams: []*Upstream{
		{Name: "a", Command: []string{"x"}},
		{Name: "b", URL: "https://h"},
		{Name: "c", URL: "tcp://h:1", Profile: "raw"},
	}}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	full := good.Filled()
	if err := full.Check(); err != nil {
		t.Error(err)
	}
	if u := full.Upstreams[0]; u.Lifetime != "auto" || u.Pool != 8 || u.Timeout != time.Minute ||
		u.Restart.Max != 30*time.Second || u.Namespace != "always" || u.Label != "a" ||
		u.Arguments != "rewrite" || u.Web != "bare" || good.Upstreams[0].Pool != 0 {
		t.Errorf("%+v", *u)
	}
	bad := &Config{
		MaxSuspended: -1, DrainTimeout: -1,
		Upstreams: []*Upstream{
			nil, {}, {Name: "x", Command: []string{"x"}, Pool: -1, Timeout: -1, Cwd: "\x00"},
		},
	}
	const want = `max_suspended: -1 is less than nothing; give a number from 1, or 0 for the default
drain_timeout: -1ns is less than nothing; give a time, or 0 for the default
upstreams.?: it is nil; remove it
upstreams.: it has no name; use letters, digits, - and _, as in github-2
upstreams.: it has neither a command nor a url; add command: [PROGRAM, ARGUMENTS...] or url: https://host/mcp
upstreams.x.pool: -1 is less than nothing; give a number from 1, or 0 for the default
upstreams.x.timeout: -1ns is less than nothing; give a time, or 0 for the default
upstreams.x.command: it has a NUL byte, which no command can have; remove it`
	if err := bad.Check(); err == nil || err.Error() != want {
		t.Error(err)
	}
}

func TestNewUpstream(t *testing.T) {
	for target, want := range map[string]string{
		"npx -y 'a b'": "n (npx -y 'a b')", "-- npx x": "n (npx x)", "https://h/mcp": "n (https://h/mcp)",
		"unix:/s": "n (unix:/s)", "wss://h": "n (wss://h)",
	} {
		u, err := NewUpstream("n", target)
		if err != nil || u.String() != want {
			t.Errorf("%s: %v %v", target, u, err)
		}
	}
	for target, want := range map[string]string{
		"":        "upstreams.n: it is empty; name a program and its arguments",
		"http://": "upstreams.n.url: it has no host; write http://host:port/path",
		"a | b":   "upstreams.n: it cannot be split",
	} {
		if _, err := NewUpstream("n", target); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", target, err)
		}
	}
	if _, err := NewUpstream("a b", "x"); err == nil {
		t.Error("a bad name is taken")
	}
}

// Nothing that prints an upstream prints what is secret.
func TestUpstreamPrintsNoSecret(t *testing.T) {
	t.Setenv("CONFIG_TEST_SECRET", "s3cr3t")
	c, problems := parse(t, "f.yaml", `
upstreams:
  a:
    command: [x, --key, "${CONFIG_TEST_SECRET}", --api-token=s3cr3t, --password, s3cr3t, ghp_s3cr3t, -e, A_TOKEN=s3cr3t, "postgres://u:s3cr3t@h/db?x=s3cr3t", "--x=${CONFIG_TEST_UNSET:-s3cr3t}"]
    env: {A: s3cr3t, B: "${CONFIG_TEST_SECRET}"}
  b: {url: "https://h/x?key=s3cr3t", headers: {Authorization: Bearer s3cr3t}}
  c: {url: "https://h/${CONFIG_TEST_SECRET}/x"}
`)
	if problems != "" {
		t.Fatal(problems)
	}
	var b bytes.Buffer
	for _, u := range c.Upstreams {
		slog.New(slog.NewJSONHandler(&b, nil)).Info("x", "u", u)
		fmt.Fprintf(&b, "%v %+v %#v %s %s\n", u, u, u, u, u.Target())
	}
	fmt.Fprintf(&b, "%v %+v", c, c)
	if strings.Contains(b.String(), "s3cr3t") {
		t.Error(b.String())
	}
	want := "x --key ${CONFIG_TEST_SECRET} --api-token=... --password ... ... -e A_TOKEN=... " +
		"postgres://...@h/db?... --x=${CONFIG_TEST_UNSET}"
	if got := c.Upstreams[0].Target(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := c.Upstreams[2].Target(); got != "https://h/${CONFIG_TEST_SECRET}/x" {
		t.Error(got)
	}
}

func TestEnviron(t *testing.T) {
	u := &Upstream{
		Env:        map[string]string{"HOME": "/x", "B": "2"},
		InheritEnv: []string{"AWS_*", "ONE"},
	}
	got := u.Environ([]string{
		"HOME=/root", "PATH=/bin", "GITHUB_TOKEN=x", "LC_ALL=C", "AWS_X=1",
		"ONE=1", "ONES=2", "broken", "=x",
	})
	if want := []string{
		"PATH=/bin", "LC_ALL=C", "AWS_X=1", "ONE=1", "B=2",
		"HOME=/x",
	}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	// A corporate proxy with its own CA, and a private registry.
	u = &Upstream{
		Env:        map[string]string{"UV_INDEX_URL": "x"},
		InheritEnv: []string{"UV_PUBLISH_TOKEN"},
	}
	from := []string{
		"HTTPS_PROXY=http://proxy:3128", "http_proxy=http://me:word@proxy:3128",
		"ALL_PROXY=me:word@proxy:1080", "NODE_EXTRA_CA_CERTS=/ca.pem",
		"SSL_CERT_FILE=/ca.pem", "npm_config_registry=https://npm.corp/",
		"npm_config_//npm.corp/:_authToken=x", "NPM_CONFIG__AUTH=x",
		"PIP_INDEX_URL=https://u:p@pypi.corp/", "UV_INDEX_URL=https://u:p@pypi.corp/",
		"UV_PUBLISH_TOKEN=t", "XDG_CACHE_HOME=/cache", "DATABASE_URL=x",
	}
	want := []string{
		"HTTPS_PROXY=http://proxy:3128", "NODE_EXTRA_CA_CERTS=/ca.pem", "SSL_CERT_FILE=/ca.pem",
		"npm_config_registry=https://npm.corp/",
		"UV_PUBLISH_TOKEN=t", "XDG_CACHE_HOME=/cache", "UV_INDEX_URL=x",
	}
	if got := u.Environ(from); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := u.withheld(from); !slices.Equal(got,
		[]string{
			"ALL_PROXY", "NPM_CONFIG__AUTH", "PIP_INDEX_URL", "http_proxy",
			"npm_config_//npm.corp/:_authToken",
		}) {
		t.Errorf("withheld: %q", got)
	}
	u = &Upstream{InheritEnv: []string{"*"}}
	if got := u.Environ([]string{"A=1", "B=2"}); len(got) != 2 {
		t.Errorf("%q", got)
	}
}
