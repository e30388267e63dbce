package gateway

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSandboxKeys(t *testing.T) {
	dir := t.TempDir()
	c, problems := parse(t, filepath.Join(dir, "f.yaml"), `
upstreams:
  a:
    command: x
    sandbox: {mode: best-effort, read: [., /usr/share/x], write: out, execute: bin, network: [443, 80], memory: 4GiB, processes: 8, files: 100, cpu: 10m}
  b: {command: x, sandbox: strict}
  c: {command: x, sandbox: {network: all}}
  d: {command: x, sandbox: {}}
  e: {command: x}
`)
	if problems != "" {
		t.Fatal(problems)
	}
	want := &Sandbox{
		Mode: "best-effort", Read: []string{dir, "/usr/share/x"},
		Write: []string{filepath.Join(dir, "out")}, Execute: []string{filepath.Join(dir, "bin")},
		Network: []string{"443", "80"}, Memory: 4 << 30, Processes: 8, Files: 100, CPU: 10 * time.Minute,
	}
	if got := c.Upstreams[0].Sandbox; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if got := c.Upstreams[1].Sandbox; !reflect.DeepEqual(got, &Sandbox{Mode: "strict"}) {
		t.Errorf("%+v", got)
	}
	if got := c.Upstreams[2].Sandbox; !slices.Equal(got.Network, []string{"all"}) {
		t.Errorf("%+v", got)
	}
	full := c.Filled()
	if got := full.Upstreams[3].Sandbox; !reflect.DeepEqual(got,
		&Sandbox{Mode: "strict", Network: []string{"none"}, Memory: 1 << 30, Processes: 64, Files: 256}) {
		t.Errorf("%+v", got)
	}
	if c.Upstreams[3].Sandbox.Mode != "" || full.Upstreams[4].Sandbox != nil {
		t.Error("what was given has changed")
	}
}

func TestCredentialsKeys(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("GUARD_TEST_SECRET", "s3cr3t")
	key := testKey(t)
	if err := os.WriteFile(filepath.Join(dir, "key.pem"), []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	c, problems := parse(t, filepath.Join(dir, "f.yaml"), `
upstreams:
  a:
    url: https://h/mcp
    auth: {type: client_credentials, client_id: x, secret: "${GUARD_TEST_SECRET}", issuer: https://id, scopes: [a, b], dpop: true}
  b: {url: https://h/mcp, auth: {type: client_credentials, client_id: x, key: "file:key.pem"}}
  c: {url: https://h/mcp, auth: {type: client_credentials, client_id: x, secret: s3cr3t}}
  d: {url: https://h/mcp, lifetime: principal, auth: {type: principals, principals: {ci: {Authorization: Bearer s3cr3t, X-Team: a}, "*": {X-Key: "${GUARD_TEST_SECRET}"}}}}
  e: {url: https://h/mcp, auth: {type: oauth, store: tokens.json, metadata_url: https://me/client.json}}
  f: {url: https://h/mcp, auth: oauth}
  g: {url: https://h/mcp, auth: {type: oauth, store: keyring}}
  h: {url: https://h/mcp, lifetime: session, auth: {type: token_exchange, audience: https://h}}
`)
	if problems != "" {
		t.Fatal(problems)
	}
	for i, want := range []*Credentials{
		{
			Type: "client_credentials", ClientID: "x", Secret: "s3cr3t", Issuer: "https://id",
			Scopes: []string{"a", "b"}, DPoP: true,
		},
		{Type: "client_credentials", ClientID: "x", Key: strings.TrimSpace(key)},
		{Type: "client_credentials", ClientID: "x", Secret: "s3cr3t"},
		{
			Type: "principals",
			Principals: map[string]map[string]string{
				"ci": {"Authorization": "Bearer s3cr3t", "X-Team": "a"},
				"*":  {"X-Key": "s3cr3t"},
			},
		},
		{Type: "oauth", Store: filepath.Join(dir, "tokens.json"), MetadataURL: "https://me/client.json"},
		{Type: "oauth"},
		{Type: "oauth", Store: "keyring"},
		{Type: "token_exchange", Audience: "https://h"},
	} {
		if !reflect.DeepEqual(c.Upstreams[i].Auth, want) {
			t.Errorf("%d: %v", i, c.Upstreams[i].Auth)
		}
	}
	for key, want := range map[string]string{
		"0 auth.secret": "env GUARD_TEST_SECRET", "1 auth.key": "file key.pem", "2 auth.secret": "",
		"3 auth.principals.*.X-Key": "env GUARD_TEST_SECRET", "3 auth.principals.ci.X-Team": "",
	} {
		if got := c.Upstreams[key[0]-'0'].Origin(key[2:]); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
	if !slices.Contains(c.Files(), filepath.Join(dir, "key.pem")) {
		t.Errorf("%q", c.Files())
	}
	var b bytes.Buffer
	for _, n := range c.Notices() {
		b.WriteString(n.String() + "\n")
	}
	for _, want := range []string{
		"upstreams.c.auth.secret: it is secret",
		"upstreams.d.auth.principals.ci.Authorization: it is secret",
		"upstreams.d.auth: principals goes by who calls, and without a guard callers are " +
			"unauthenticated; add guard", "upstreams.h.auth: token_exchange goes by",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s\nhas not: %s", b.String(), want)
		}
	}
	if got := len(c.Notices()); got != 4 {
		t.Errorf("%d notices: %s", got, b.String())
	}
	for _, u := range c.Upstreams {
		slog.New(slog.NewJSONHandler(&b, nil)).Info("x", "auth", u.Auth, "value", *u.Auth, "upstream", u)
		fmt.Fprintf(&b, "%v %+v %#v %s %v %+v %#v %+v\n", u.Auth, u.Auth, u.Auth, u.Auth, *u.Auth,
			*u.Auth, *u.Auth, u)
	}
	if strings.Contains(b.String(), "s3cr3t") {
		t.Error(b.String())
	}
}

// Each text has these problems and no others.
func TestSandboxAndCredentialsProblems(t *testing.T) {
	t.Setenv("GUARD_TEST_SECRET", "s3cr3t")
	const ab = "upstreams:\n  a: " // what follows is in line 2, column 6
	for _, c := range []struct{ text, want string }{
		{
			"{command: x, sandbox: strickt}",
			`2:28: upstreams.a.sandbox.mode: there is no sandbox "strickt"; use strict, best-effort or ` +
				`none (did you mean strict?)`,
		},
		{
			"{command: x, sandbox: {reed: .}}",
			`2:29: upstreams.a.sandbox.reed: there is no key "reed" here; did you mean read?`,
		},
		{
			"{command: x, sandbox: {network: [443, al, 0, all]}}",
			"2:39: upstreams.a.sandbox.network[0]: all has every port; remove it, or all" + "\n" +
				`2:44: upstreams.a.sandbox.network[1]: "al" is neither a port nor a destination nor none nor ` +
				`all; write none, all, the TCP ports of public addresses: [443], or destinations: ` +
				`[db.internal:5432, 10.0.0.0/8:443]` + "\n" +
				`2:48: upstreams.a.sandbox.network[2]: "0" is neither a port nor a destination nor none nor ` +
				`all; write none, all, the TCP ports of public addresses: [443], or destinations: ` +
				`[db.internal:5432, 10.0.0.0/8:443]`,
		},
		{
			"{command: x, sandbox: {network: [none, 443]}}",
			"2:39: upstreams.a.sandbox.network[0]: none stands alone; remove it, or everything else",
		},
		{
			"{command: x, sandbox: {mode: none, memory: 1GiB}}",
			"2:29: upstreams.a.sandbox: mode none confines nothing; remove everything else, or the mode",
		},
		{
			"{command: x, sandbox: {memory: 1, cpu: 5, processes: -1}}",
			`2:37: upstreams.a.sandbox.memory: "1" is not a size from 1KB to 1PiB; write 10MB, 512KiB or ` +
				`a number of bytes` + "\n" +
				`2:45: upstreams.a.sandbox.cpu: "5" is not a duration; it has no unit; write 5s if it ` +
				`is in seconds` + "\n" +
				`2:59: upstreams.a.sandbox.processes: "-1" is not a number from 1; write a whole number, or ` +
				`leave the key out for the default`,
		},
		{
			"{url: 'https://h', sandbox: strict}",
			"2:34: upstreams.a.sandbox: only a command has it; remove it",
		},
		{"{command: x, auth: oauth}", "2:25: upstreams.a.auth: only http and https have it; remove it"},
		{
			"{url: 'ws://h', auth: oauth}", "2:28: upstreams.a.auth: only http and https have it; remove it",
		},
		{
			"{url: 'https://h', auth: {}}",
			"2:31: upstreams.a.auth: it has no type; use oauth, client_credentials, workload_identity, " +
				"token_exchange, principals, passthrough or sign_in",
		},
		{
			"{url: 'https://h', auth: '${GUARD_TEST_SECRET}'}",
			`2:31: upstreams.a.auth.type: there is no type "${GUARD_TEST_SECRET}"; use oauth, ` +
				`client_credentials, workload_identity, token_exchange, principals, passthrough or sign_in`,
		},
		{
			"{url: 'https://h', auth: {type: client_credentials, client_id: x}}",
			"2:32: upstreams.a.auth: client_credentials needs a client_id, and a secret or a key; add " +
				"what the authorization server knows the gateway by",
		},
		{
			"{url: 'https://h', auth: passthrough}",
			"2:31: upstreams.a.auth: passthrough goes by who calls, and with the lifetime auto all " +
				"callers have the same connection; add lifetime: principal (or session, or call)",
		},
		{
			"{url: 'https://h', auth: sign_in}",
			"2:31: upstreams.a.auth: sign_in goes by who calls, and with the lifetime auto all callers " +
				"have the same connection; add lifetime: principal (or session, or call)\n" +
				"2:31: upstreams.a.auth.type: sign_in needs the address at which browsers reach the gateway; " +
				"add sign_in: {url: https://tools.example.com}",
		},
		{
			"{url: 'https://h', lifetime: principal, auth: sign_in}\nsign_in: {url: 'https://me'}",
			"2:52: upstreams.a.auth.type: sign_in keeps tokens for principals, and without a guard there " +
				"are none; add guard",
		},
		{
			"{url: 'https://h'}\nsign_in: {url: 'http://me', keys: [abc], browser: x}",
			`3:16: sign_in.url: "http://me" is not https: codes and cookies would go over the network in ` +
				`clear text; write the address that browsers reach the gateway at: https://tools.example.com` +
				"\n" +
				"3:36: sign_in.keys[0]: it is not 32 bytes in base64 or hex; `openssl rand -base64 32` " +
				"prints one\n" +
				`3:51: sign_in.browser: there is no kind of browser "x"; use link or principal`,
		},
		{
			"{url: 'https://h'}\nsign_in: {url: 'https://me/path', dir: x}",
			"3:11: sign_in: the tokens in dir need keys; write keys: [file:sign-in.key], with what " +
				"`openssl rand -base64 32` prints in the file\n" +
				`3:16: sign_in.url: "https://me/path" is not scheme, host and port; write the address that ` +
				`browsers reach the gateway at: https://tools.example.com`,
		},
		{
			"{url: 'https://h', headers: {authorization: x}, auth: oauth}",
			"2:60: upstreams.a.auth: headers has Authorization as well; remove one",
		},
		{
			"{url: 'https://h', auth: {type: oauth, secret: [s3cr3t]}}",
			"2:53: upstreams.a.auth.secret: one value is wanted, and this is a list",
		},
		{
			"{url: 'https://h', auth: {type: principals, principals: {ci: s3cr3t}}}",
			"2:67: upstreams.a.auth.principals.ci: a map of keys and values is wanted, and " +
				"this is one value",
		},
	} {
		_, got := parse(t, "f", ab+c.text)
		want := "f:" + strings.ReplaceAll(c.want, "\n", "\nf:")
		if got != want {
			t.Errorf("%s\n\t%s\nwant\n\t%s", c.text, strings.ReplaceAll(got, "\n", "\n\t"),
				strings.ReplaceAll(want, "\n", "\n\t"))
		}
		if strings.Contains(got, "s3cr3t") {
			t.Errorf("a secret is shown: %s", got)
		}
	}
}
