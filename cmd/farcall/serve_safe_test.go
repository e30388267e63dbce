package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
)

// TestReach is an invariant over addresses, guards and certificates: what other machines can
// reach has a guard, and no secret that can be used again crosses the network in the clear.
func TestReach(t *testing.T) {
	allow, onTrial := []guard.Rule{{Calls: []string{"math/*"}}}, []guard.Rule{{Calls: []string{"math/*"}, Mode: "shadow"}}
	keys := []guard.Key{{ID: "a"}}
	limited := &guard.Config{Anonymous: true}
	limited.Limits.Rates = []guard.Rate{{Limit: 1}}
	scoped := &guard.Config{Anonymous: true}
	scoped.Resource.Scopes = map[string][]string{"*": {"use"}}
	guards := map[string]struct {
		c            *guard.Config
		open, bearer bool
	}{
		"none":                {nil, true, false},
		"empty":               {&guard.Config{}, false, false},
		"anonymous":           {&guard.Config{Anonymous: true}, true, false},
		"limits":              {limited, true, false},
		"rule on trial":       {&guard.Config{Anonymous: true, Deny: onTrial}, true, false},
		"guard on trial":      {&guard.Config{Anonymous: true, Allow: allow, Mode: "shadow"}, true, false},
		"allow":               {&guard.Config{Anonymous: true, Allow: allow}, false, false},
		"deny":                {&guard.Config{Anonymous: true, Deny: allow}, false, false},
		"local":               {&guard.Config{Anonymous: true, Local: []string{"*"}}, false, false},
		"Cedar":               {&guard.Config{Anonymous: true, Cedar: "permit(principal, action, resource);"}, false, false},
		"scopes":              {scoped, false, false},
		"keys":                {&guard.Config{Keys: keys}, false, true},
		"keys on trial":       {&guard.Config{Keys: keys, Mode: "shadow"}, false, true},
		"keys, anonymous":     {&guard.Config{Anonymous: true, Keys: keys}, true, true},
		"keys, some may call": {&guard.Config{Anonymous: true, Keys: keys, Allow: allow}, false, true},
		"tokens":              {&guard.Config{JWT: []guard.Issuer{{Issuer: "x"}}}, false, true},
		"DPoP":                {&guard.Config{JWT: []guard.Issuer{{Issuer: "x", DPoP: "required"}}}, false, false},
		"one DPoP":            {&guard.Config{JWT: []guard.Issuer{{Issuer: "x", DPoP: "required"}, {Issuer: "y"}}}, false, true},
		"mtls":                {&guard.Config{MTLS: []guard.Certificate{{SAN: "x"}}}, false, false},
		"signatures":          {&guard.Config{Signatures: []guard.Signer{{ID: "a"}}}, false, false},
	}
	addresses := map[string]bool{
		"127.0.0.1:1": false, "[::1]:1": false, "localhost:1": false, "unix:/s": false, "[::ffff:127.0.0.1]:1": false,
		":1": true, "0.0.0.0:1": true, "[::]:1": true, "172.17.0.2:1": true, "192.168.1.5:1": true, "[fd00::5]:1": true, "tools.example.com:1": true,
	}
	for address, reachable := range addresses {
		for name, g := range guards {
			for _, by := range []string{"", "TLS", "proxies"} {
				secure := by != ""
				got := (&reach{addresses: []string{"127.0.0.1:0", address}, tls: by == "TLS", proxies: by == "proxies", guard: g.c}).find()
				want := reachable && (g.open || g.bearer && !secure)
				if (len(got) == 1) != want || len(got) > 1 {
					t.Errorf("%s, guard %s, TLS %v: %v, want refused %v", address, name, secure, got, want)
				}
				for _, x := range got {
					if x.at != 1 || !strings.Contains(x.message, address) || !strings.Contains(x.hint, "--insecure") ||
						!strings.Contains(x.hint, "listen on 127.0.0.1:1") || strings.Contains(x.hint, "--tls-cert") == g.open ||
						strings.Contains(x.hint, "--trusted-proxy") == g.open || strings.Contains(x.hint, "anonymous: true") != (g.open && g.c != nil) {
						t.Errorf("%s, guard %s: %+v", address, name, x)
					}
				}
			}
		}
	}
}

func TestReachOfNothing(t *testing.T) {
	for _, f := range []serveFlags{{}, {stdio: true}, {listen: []string{"unix:/s"}}} {
		var stderr bytes.Buffer
		if err := f.checkReach(&gateway.Config{}, &stderr); err != nil || stderr.Len() > 0 {
			t.Errorf("%v, %s", err, &stderr)
		}
		f.insecure = true
		if err := f.checkReach(&gateway.Config{}, &stderr); err != nil || stderr.Len() > 0 {
			t.Errorf("with --insecure: %v, %s", err, &stderr)
		}
	}
}

// TestInsecure: it says once, and in one line, what is not safe.
func TestInsecure(t *testing.T) {
	var stderr bytes.Buffer
	f := serveFlags{insecure: true, listen: []string{":7331", "0.0.0.0:80", "127.0.0.1:1"}, certs: &certificates{}}
	if err := f.checkReach(&gateway.Config{}, &stderr); err != nil {
		t.Fatal(err)
	}
	const want = "farcall: INSECURE, as --insecure demands: other machines can reach :7331, and no guard says who may call what; " +
		"other machines can reach 0.0.0.0:80, and no guard says who may call what; connections without TLS are accepted\n"
	if stderr.String() != want {
		t.Errorf("%s", &stderr)
	}
}

// TestReachOfConfig: what serve refuses, check reports, with its place.
func TestReachOfConfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeCertificate(t, dir)
	const keys = "guard:\n  keys: [{id: ci, hash: 'sha256:4a1f0e8c9c0b6f0d2f4f6b7f3f1f1c1b5c5a4d3e2f1a0b9c8d7e6f5a4b3c2d1e'}]\n"
	for name, c := range map[string]struct {
		text  string
		check []string // arguments
		want  string   // "" for none
	}{
		"no guard":        {"listen: ['127.0.0.1:1', ':7331']\n", nil, `:1:25: listen[1]: other machines can reach :7331, and no guard`},
		"no guard, TLS":   {"listen: 0.0.0.0:7331\ntls: {cert: cert.pem, key: key.pem}\n", nil, ":1:9: listen[0]: other machines can reach 0.0.0.0:7331, and no guard"},
		"open guard":      {"listen: ':7331'\nguard: {anonymous: true}\n", nil, ":1:9: listen[0]: other machines can reach :7331, and the guard lets anonymous callers call everything; say what"},
		"guard with rule": {"listen: ':7331'\nguard: {anonymous: true, allow: [{anonymous: math/*}]}\n", nil, ""},
		"keys, no TLS":    {"listen: ':7331'\n" + keys, nil, ":1:9: listen[0]: other machines can reach :7331, and API keys would cross the network unencrypted"},
		"keys, proxies":   {"listen: ':7331'\ntrusted_proxies: 10.0.0.1\n" + keys, nil, ""},
		"keys, TLS":       {"listen: ':7331'\ntls: {cert: cert.pem, key: key.pem}\n" + keys, nil, ""},
		"insecure":        {"listen: ':7331'\n", []string{"--insecure"}, ""},
		"loopback":        {"listen: '127.0.0.1:7331'\n", nil, ""},
		"no key":          {"tls: {cert: cert.pem}\n", nil, ":1:7: tls: it needs both cert and key"},
		"no such file":    {"tls: {cert: cert.pem, key: none.pem}\n", nil, ":1:7: tls: cannot use the certificate"},
		"not its key":     {"tls: {cert: cert.pem, key: cert.pem}\n", nil, ":1:7: tls: cannot use the certificate"},
		"no authorities":  {"tls: {cert: cert.pem, key: key.pem, client_ca: key.pem}\n", nil, "key.pem: it has no certificate in PEM"},
		"key not known":   {"tls: {cert: cert.pem, key: key.pem, ca: x}\n", nil, `tls.ca: there is no key "ca" here`},
		"all as it is to": {"tls: {cert: cert.pem, key: key.pem, client_ca: cert.pem}\n", nil, ""},
	} {
		file := filepath.Join(dir, "farcall.yaml")
		if err := os.WriteFile(file, []byte(c.text+"upstreams: {a: 'http://127.0.0.1:1/mcp'}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		code, _, stderr := execute(t, append([]string{"check", file}, c.check...)...)
		if (code == exitOK) != (c.want == "") || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: check: %d %s, want %q", name, code, stderr, c.want)
		}
		if c.want == "" {
			continue
		}
		code, _, stderr = execute(t, "serve", "--config", file)
		if code != exitUsage || !strings.Contains(stderr, strings.TrimPrefix(c.want, ":1:7: tls: ")) {
			t.Errorf("%s: serve: %d %s, want %q", name, code, stderr, c.want)
		}
	}
}
