package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReachOfConfig: what serve refuses, check reports, with its place.
func TestReachOfConfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeCertificate(t, dir)
	const keys = "guard:\n  keys: [{id: ci, hash: " +
		"'sha256:4a1f0e8c9c0b6f0d2f4f6b7f3f1f1c1b5c5a4d3e2f1a0b9c8d7e6f5a4b3c2d1e'}]\n"
	for name, c := range map[string]struct {
		text  string
		check []string // arguments
		want  string   // "" for none
	}{
		"no guard": {
			"listen: ['127.0.0.1:1', ':7331']\n", nil,
			`:1:25: listen[1]: other machines can reach :7331, and no guard`,
		},
		"no guard, TLS": {
			"listen: 0.0.0.0:7331\ntls: {cert: cert.pem, key: key.pem}\n", nil,
			":1:9: listen[0]: other machines can reach 0.0.0.0:7331, and no guard",
		},
		"open guard": {
			"listen: ':7331'\nguard: {anonymous: true}\n", nil,
			":1:9: listen[0]: other machines can reach :7331, and the guard lets anonymous callers call " +
				"everything; say what",
		},
		"guard with rule": {
			"listen: ':7331'\nguard: {anonymous: true, allow: [{anonymous: math/*}]}\n",
			nil, "",
		},
		"keys, no TLS": {
			"listen: ':7331'\n" + keys, nil,
			":1:9: listen[0]: other machines can reach :7331, and API keys would cross the network " +
				"unencrypted",
		},
		"keys, proxies": {"listen: ':7331'\ntrusted_proxies: 10.0.0.1\n" + keys, nil, ""},
		"keys, TLS":     {"listen: ':7331'\ntls: {cert: cert.pem, key: key.pem}\n" + keys, nil, ""},
		"insecure":      {"listen: ':7331'\n", []string{"--insecure"}, ""},
		"loopback":      {"listen: '127.0.0.1:7331'\n", nil, ""},
		"no key":        {"tls: {cert: cert.pem}\n", nil, ":1:7: tls: it needs both cert and key"},
		"no such file": {
			"tls: {cert: cert.pem, key: none.pem}\n", nil,
			":1:7: tls: cannot use the certificate",
		},
		"not its key": {
			"tls: {cert: cert.pem, key: cert.pem}\n", nil,
			":1:7: tls: cannot use the certificate",
		},
		"no authorities": {
			"tls: {cert: cert.pem, key: key.pem, client_ca: key.pem}\n", nil,
			"key.pem: it has no certificate in PEM",
		},
		"key not known": {
			"tls: {cert: cert.pem, key: key.pem, ca: x}\n", nil,
			`tls.ca: there is no key "ca" here`,
		},
		"all as it is to": {"tls: {cert: cert.pem, key: key.pem, client_ca: cert.pem}\n", nil, ""},
	} {
		file := filepath.Join(dir, "farcall.yaml")
		if err := os.WriteFile(file, []byte(c.text+"upstreams: {a: 'http://127.0.0.1:1/mcp'}\n"),
			0o600); err != nil {
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
