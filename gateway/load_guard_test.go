package gateway

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/guard"
)

const (
	testHash  = "sha256:7d7bec08f0b7a84099fdd8fe4221e2cc902b9e488fd7281a0591346b042c37d6"
	otherHash = "sha256:8d7bec08f0b7a84099fdd8fe4221e2cc902b9e488fd7281a0591346b042c37d6"
)

// testKey makes a private key in PEM.
func testKey(t *testing.T) string {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// everyGuardKey has every key of guard at least once.
const everyGuardKey = `
guard:
  anonymous: true
  mode: shadow
  keys:
    - {id: ci, hash: "` +
	testHash + `", kind: agent, roles: [builder, dev], scopes: repo, expires: 2027-01-01}
    - {id: late, hash: "` + otherHash + `", expires: "2027-01-01T12:00:00+01:00"}
  jwt:
    - issuer: https://id.example.com
      jwks: https://id.example.com/keys
      audience: [https://tools.example.com/mcp]
      algorithms: [RS256, ES256]
      skew: 10s
      max_age: 1h
      id: email
      roles: realm_access.roles
      kind: agent
      claims: {tenant: acme}
      dpop: required
      private: true
      refresh: 10m
      keys_max_age: 12h
      introspection: {url: https://id.example.com/introspect, client_id: rpc, client_secret: "file:secret.txt", auth: post, opaque: true, any_audience: true, ttl: 10s, timeout: 2s}
    - https://other.example.com
    - {issuer: https://third.example.com, jwks: keys.json}
  mtls: {san: "spiffe://example.org/agent/*", ca: ca.pem, id: agents, kind: agent, roles: agent}
  signatures:
    - {id: partner, secret: "${GUARD_TEST_SECRET}", kind: user, roles: [partner]}
    - {id: other, secret: "file:secret.txt"}
    - {id: third, public: "file:public.txt"}
  locks:
    - {principal: mallory, reason: left, expires: 2027-01-01}
    - {key: "sha256:00"}
    - {jti: abc}
    - {session: s1}
  locks_file: locks.jsonl
  stdio: {trust: false, id: me, roles: [operator], token_env: FARCALL_TOKEN}
  resource:
    url: https://tools.example.com/mcp
    servers: https://id.example.com
    scopes: {"tools/call github/*": [repo, user], "math/*": math}
  replay: {window: 1m, future: 5s, memory: 1000}
  allow:
    - tools/call time/*
    - {name: builders, roles: builder, principals: [ci], calls: [math/*], destructive: false, mode: shadow}
    - dev: [tools/call github/*, prompts/get *]
      ops: "*"
  deny: tools/call github/delete_*
  local: [admin/*]
  cedar: |
    permit(principal in Role::"ops", action, resource);
  cedar_files: policy.cedar
  params: {schemas: false, max_string: 1MB, max_depth: 10, allow_keys: true}
  limits:
    rates:
      - {per: address, calls: tools/call github/*, each: true, roles: [dev], limit: 10/s, burst: 20}
      - 1000/day
    refusals: {limit: 100/min, burst: 500}
    concurrent: 16
    total: 256
    connections: 64
    accepted: 1000
    accept_rate: 100
    max_body: 10MB
    max_header: 16KB
    body_timeout: 10s
    idle: 5m
  audit: {file: audit.jsonl, max_size: 2GB, keep: 3, keep_for: 30d, on_full: rotate, key: "file:secret.txt", params: true, redact: [body, "x*"]}
upstreams: {a: x}
`

func guardDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"keys.json": " {\"keys\":[{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"kid\":\"a\",\"alg\":\"EdDSA\"," +
			"\"use\":\"sig\",\"x\":\"O2onvM62pC1io6jQKm8Nc2UyFXcd4kOmOsBIoYtZ2ik\"}]}\n",
		"secret.txt":   strings.Repeat("s3cr3t", 10) + "\n",
		"public.txt":   "O2onvM62pC1io6jQKm8Nc2UyFXcd4kOmOsBIoYtZ2ik=",
		"policy.cedar": "permit(principal, action, resource);", "ca.pem": testAuthority,
		"locks.jsonl": `{"jti":"x"}` + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GUARD_TEST_SECRET", strings.Repeat("s3cr3t", 8))
	return dir
}

func TestGuardKeys(t *testing.T) {
	dir := guardDir(t)
	off, harmless := false, false
	want := &guard.Config{
		Anonymous: true, Mode: "shadow",
		Keys: []guard.Key{
			{
				ID: "ci", Hash: testHash, Kind: "agent", Roles: []string{"builder", "dev"},
				Scopes: []string{"repo"}, Expires: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC),
			},
			{ID: "late", Hash: otherHash, Expires: time.Date(2027, 1, 1, 11, 0, 0, 0, time.UTC)},
		},
		JWT: []guard.Issuer{
			{
				Issuer: "https://id.example.com", JWKS: "https://id.example.com/keys",
				Audience: []string{"https://tools.example.com/mcp"}, Algorithms: []string{"RS256", "ES256"},
				Skew: 10 * time.Second, MaxAge: time.Hour, ID: "email", Roles: "realm_access.roles",
				Kind: "agent", Claims: map[string]string{"tenant": "acme"},
				DPoP: "required", Private: true, Refresh: 10 * time.Minute, KeysMaxAge: 12 * time.Hour,
			},
			{Issuer: "https://other.example.com"},
			{
				Issuer: "https://third.example.com",
				JWKS: `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a","alg":"EdDSA","use":"sig",` +
					`"x":"O2onvM62pC1io6jQKm8Nc2UyFXcd4kOmOsBIoYtZ2ik"}]}`,
			},
		},
		MTLS: []guard.Certificate{
			{
				SAN: "spiffe://example.org/agent/*", CA: strings.TrimSpace(testAuthority), ID: "agents",
				Kind: "agent", Roles: []string{"agent"},
			},
		},
		Signatures: []guard.Signer{
			{ID: "partner", Secret: strings.Repeat("s3cr3t", 8), Kind: "user", Roles: []string{"partner"}},
			{ID: "other", Secret: strings.Repeat("s3cr3t", 10)},
			{ID: "third", Public: "O2onvM62pC1io6jQKm8Nc2UyFXcd4kOmOsBIoYtZ2ik="},
		},
		Allow: []guard.Rule{
			{Calls: []string{"tools/call time/*"}},
			{
				Name: "builders", Roles: []string{"builder"}, Principals: []string{"ci"},
				Calls: []string{"math/*"}, Destructive: &harmless, Mode: "shadow",
			},
			{Roles: []string{"dev"}, Calls: []string{"tools/call github/*", "prompts/get *"}},
			{Roles: []string{"ops"}, Calls: []string{"*"}},
		},
		Deny:  []guard.Rule{{Calls: []string{"tools/call github/delete_*"}}},
		Local: []string{"admin/*"},
		Locks: []guard.Lock{
			{Principal: "mallory", Reason: "left", Expires: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)},
			{Key: "sha256:00"},
			{JTI: "abc"},
			{Session: "s1"},
		},
		LocksFile:  filepath.Join(dir, "locks.jsonl"),
		Cedar:      "permit(principal in Role::\"ops\", action, resource);\n",
		CedarFiles: []string{filepath.Join(dir, "policy.cedar")},
	}
	asked := &want.JWT[0].Introspection
	asked.URL, asked.ClientID, asked.ClientSecret, asked.Auth = "https://id.example.com/introspect",
		"rpc", strings.Repeat("s3cr3t", 10), "post"
	asked.Opaque, asked.AnyAudience, asked.TTL, asked.Timeout = true, true, 10*time.Second,
		2*time.Second
	want.Stdio.Trust, want.Stdio.ID, want.Stdio.Roles, want.Stdio.TokenEnv = &off, "me",
		[]string{"operator"}, "FARCALL_TOKEN"
	want.Resource.URL, want.Resource.Servers = "https://tools.example.com/mcp",
		[]string{"https://id.example.com"}
	want.Resource.Scopes = map[string][]string{
		"tools/call github/*": {"repo", "user"},
		"math/*":              {"math"},
	}
	want.Replay.Window, want.Replay.Future, want.Replay.Memory = time.Minute, 5*time.Second, 1000
	want.Params.Schemas, want.Params.MaxString, want.Params.MaxDepth, want.Params.AllowKeys = "off",
		1_000_000, 10, true
	l := &want.Limits
	l.Rates = []guard.Rate{
		{
			Per: "address", Calls: []string{"tools/call github/*"}, Each: true, Roles: []string{"dev"},
			Limit: 10, Every: time.Second, Burst: 20,
		},
		{Limit: 1000, Every: 24 * time.Hour},
	}
	l.Concurrent, l.Total, l.Connections, l.Accepted, l.AcceptRate = 16, 256, 64, 1000, 100
	l.MaxBody, l.MaxHeader, l.BodyTimeout, l.Idle = 10_000_000, 16_000, 10*time.Second, 5*time.Minute
	l.Refusals.Limit, l.Refusals.Every, l.Refusals.Burst = 100, time.Minute, 500
	want.Audit.KeepFor, want.Audit.OnFull, want.Audit.Key = 30*24*time.Hour, "rotate",
		strings.Repeat("s3cr3t", 10)
	want.Audit.File, want.Audit.MaxSize, want.Audit.Keep, want.Audit.Params, want.Audit.Redact =
		filepath.Join(dir, "audit.jsonl"), 2_000_000_000, 3, true, []string{"body", "x*"}

	file := filepath.Join(dir, "f.yaml")
	c, problems := parse(t, file, everyGuardKey)
	if problems != "" {
		t.Fatal(problems)
	}
	for i := range c.Guard.Keys {
		c.Guard.Keys[i].Expires = c.Guard.Keys[i].Expires.UTC()
	}
	compare(t, "guard", reflect.ValueOf(*c.Guard), reflect.ValueOf(*want))
	for _, name := range []string{"keys.json", "secret.txt", "public.txt", "policy.cedar", "ca.pem"} {
		if !slices.Contains(c.Files(), filepath.Join(dir, name)) {
			t.Errorf("%s is not watched: %q", name, c.Files())
		}
	}
	set := map[string]bool{}
	collect(reflect.ValueOf(*c), "Config", set)
	for field, ok := range set {
		if !ok && strings.HasPrefix(field, "Config.Guard") {
			t.Errorf("no key of the test is for %s", field)
		}
	}
}

// compare names the fields that differ.
func compare(t *testing.T, path string, got, want reflect.Value) {
	t.Helper()
	for i := range got.NumField() {
		at := path + "." + got.Type().Field(i).Name
		if got.Field(i).Kind() == reflect.Struct {
			compare(t, at, got.Field(i), want.Field(i))
		} else if !reflect.DeepEqual(got.Field(i).Interface(), want.Field(i).Interface()) {
			t.Errorf("%s:\n\t%+v\nwant\n\t%+v", at, got.Field(i), want.Field(i))
		}
	}
}

// The same in JSON, from the file of a guard alone, which need not be read otherwise.
func TestLoadGuard(t *testing.T) {
	dir := guardDir(t)
	file := filepath.Join(dir, "f.yaml")
	c, problems := parse(t, file, everyGuardKey)
	if problems != "" {
		t.Fatal(problems)
	}
	alone, _, _ := strings.Cut(everyGuardKey, "upstreams:")
	for name, text := range map[string]string{
		"alone": alone,
		"beside": alone +
			"upstreams: {a: '${NOT_SET_ANYWHERE}', b: 1}\nname: ${NOT_SET_ANYWHERE}\nx-any: 1\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		g, err := LoadGuard(file)
		if err != nil || !reflect.DeepEqual(g.Guard, c.Guard) || g.Files()[0] != file {
			t.Errorf("%s: %v", name, err)
		}
	}
	for text, want := range map[string]string{
		"upstreams: {a: x}": "1:1: there is no guard; add guard, with who " +
			"may call what",
		"guard: {anonymous: perhaps}": `1:20: guard.anonymous: "perhaps" is neither true nor ` +
			`false; write true or false`,
		"guards: {}": `1:1: guards: there is no key "guards" here; did you ` +
			`mean guard?`,
		"- guard": "1:1: a map with the key guard is wanted, and " +
			"this is a list",
		"guard: [a": "this is not YAML",
		"guard: {anonymous: true}\nguard: {}": "2:1: guard: the key is given twice; the first is on " +
			"line 1; remove one",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		g, err := LoadGuard(file)
		var bad *ConfigError
		if g != nil || !errors.As(err, &bad) || bad.File != file || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if _, err := LoadGuard(filepath.Join(dir, "none.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if err := os.WriteFile(file, []byte("guard:\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if g, err := LoadGuard(file); err != nil || g.Guard == nil {
		t.Errorf("an empty guard is one, too: %v %v", g, err)
	}
}

// Each text has these problems and no others.
func TestGuardProblems(t *testing.T) {
	dir := guardDir(t)
	t.Setenv("GUARD_TEST_SECRET", "s3cr3t")
	const in = "upstreams: {a: x}\nguard: " // what follows is in line 2, column 8
	for _, c := range []struct{ text, want string }{
		{"[x]", "2:8: guard: a map of keys and values is wanted, and this is a list"},
		{"{key: x}", `2:9: guard.key: there is no key "key" here; did you mean keys?`},
		{"{policy: x}", `2:9: guard.policy: there is no key "policy" here; remove it`},
		{"{keys: [x]}", "2:16: guard.keys[0]: a map of keys and values is wanted, and this is one value"},
		{
			"{keys: [{id: a, hash: '" + testHash + "', expire: 2027-01-01}]}",
			`2:105: guard.keys[0].expire: there is no key "expire" here; did you mean expires?`,
		},
		{
			"{keys: [{id: a, hash: '" + testHash + "', expires: soon}]}",
			`2:114: guard.keys[0].expires: "soon" is not a date; write 2030-01-31 or 2030-01-31T12:00:00Z`,
		},
		{"{anonymous: 1}", `2:20: guard.anonymous: "1" is neither true nor false; write true or false`},
		{"{mtls: [ null ]}", "2:17: guard.mtls[0]: is empty; remove it"},
		{
			"{signatures: {id: a, secret: [s3cr3t]}}",
			"2:37: guard.signatures[0].secret: one value is wanted, and this is a list",
		},
		{
			"{signatures: {id: a, secret: 'file:none.txt'}}",
			"2:37: guard.signatures[0].secret: cannot read the file: stat " +
				filepath.Join(dir, "none.txt") + ": no such file or directory; the path is relative to " + dir,
		},
		{
			"{signatures: {id: a, secret: '${GUARD_TEST_UNSET}'}}",
			"2:37: guard.signatures[0].secret: the environment has no GUARD_TEST_UNSET; set it before " +
				"farcall starts, or write ${GUARD_TEST_UNSET:-default}",
		},
		{
			"{jwt: {issuer: 'https://h', skew: 30}}",
			`2:42: guard.jwt[0].skew: "30" is not a duration; it has no unit; ` +
				`write 30s if it is in seconds`,
		},
		{
			"{jwt: {issuer: 'https://h', jwks: secret.txt}}",
			`2:42: guard.jwt[0].jwks: the file has no set of keys in JSON; it begins with {"keys":`,
		},
		{
			"{stdio: {trust: perhaps}}",
			`2:24: guard.stdio.trust: "perhaps" is neither true nor false; write true or false`,
		},
		{"{stdio: yes}", "2:16: guard.stdio: a map of keys and values is wanted, and this is one value"},
		{
			"{resource: {url: 'https://h', scopes: [a]}}",
			"2:46: guard.resource.scopes: a map of keys and values is wanted, and this is a list",
		},
		{
			"{replay: {window: '${GUARD_TEST_SECRET}', memory: 0}}",
			`2:26: guard.replay.window: "${GUARD_TEST_SECRET}" is not a duration; write a number with its ` +
				`unit: 500ms, 30s, 5m, 1h` + "\n" +
				`2:58: guard.replay.memory: "0" is not a number from 1; write a whole number, or leave the ` +
				`key out for the default`,
		},
		{
			"{allow: [{roles: a, call: b}]}",
			`2:28: guard.allow[0].call: there is no key "call" here; did you mean calls?`,
		},
		{
			"{deny: [{role: a, call: b}]}",
			`2:17: guard.deny[0]: there is no key "role" here; did you mean roles? A role of that name is ` +
				`written roles: [role]` + "\n" +
				`2:26: guard.deny[0]: there is no key "call" here; did you mean calls? A role of ` +
				`that name is ` +
				`written roles: [call]`,
		},
		{"{deny: [[a]]}", "2:16: guard.deny[0]: a map of keys and values is wanted, and this is a list"},
		{"{deny: }", "2:14: guard.deny[0]: is empty; remove it"},
		{"{allow: {dev: {a: b}}}", "2:23: guard.allow[0].calls: a list is wanted, and this is a map"},
		{
			"{cedar_files: [none.cedar, '.']}",
			"2:23: guard.cedar_files[0]: cannot read the file: no such file or directory; the path is " +
				"relative to " + dir + "\n" +
				"2:35: guard.cedar_files[1]: cannot read the file: it is not a regular file; the path is " +
				"relative to " + dir,
		},
		{
			"{params: {max_string: 1}}",
			`2:30: guard.params.max_string: "1" is not a size from 1KB to 1GiB; write 10MB, 512KiB or a ` +
				`number of bytes`,
		},
		{
			"{limits: {rates: 10}}",
			`2:25: guard.limits.rates[0].limit: "10" is not a number of calls in a time; write 10/s, ` +
				`600/min, 1000/day or 100/15m`,
		},
		{
			"{limits: {rates: {calls: '*'}}}",
			`2:26: guard.limits.rates[0]: it has no limit; add limit: 10/s or 1000/day`,
		},
		{
			"{limits: {rates: [{limit: 0/s}, {limit: 1/0s}, {limit: 1/x}, {limit: 99999999999/s}]}}",
			`2:34: guard.limits.rates[0].limit: "0/s" is not a number of calls in a time; write 10/s, ` +
				`600/min, 1000/day or 100/15m` + "\n" +
				`2:48: guard.limits.rates[1].limit: "1/0s" is not a number of calls in a time; write 10/s, ` +
				`600/min, 1000/day or 100/15m` + "\n" +
				`2:63: guard.limits.rates[2].limit: "1/x" is not a number of calls in a time; write 10/s, ` +
				`600/min, 1000/day or 100/15m` + "\n" +
				`2:77: guard.limits.rates[3].limit: "99999999999/s" is not a number of calls in a ` +
				`time; write ` +
				`10/s, 600/min, 1000/day or 100/15m`,
		},
		{
			"{limits: {max_bdy: 1MB}}",
			`2:18: guard.limits.max_bdy: there is no key "max_bdy" here; did you mean max_body?`,
		},
		{
			"{audit: {file: a, keep_for: 0d}}",
			`2:36: guard.audit.keep_for: "0d" is not a number of days from 1 to 36500; write 90d, or a ` +
				`number of hours: 36h`,
		},
		{
			"{audit: {file: a, keep_for: 90}}",
			`2:36: guard.audit.keep_for: "90" is not a duration; it has no unit; write 90s if it ` +
				`is in seconds`,
		},
		{
			"{audit: {file: a, on_full: stop}}",
			`2:35: guard.audit.on_full: "stop" is neither refuse nor rotate; refuse (the default) refuses ` +
				`calls when the store is full, rotate deletes the oldest file`,
		},
		{
			"{audit: {file: a, key: '${SHORT:-short}'}}",
			`2:31: guard.audit.key: it has fewer than 32 bytes; write file:PATH if the key is in a file; ` +
				`'openssl rand -base64 32' makes one`,
		},
		{
			"{limits: {refusals: many}}",
			`2:28: guard.limits.refusals.limit: "many" is not a number of calls in a time; write 10/s, ` +
				`600/min, 1000/day or 100/15m`,
		},
		{
			"{limits: {refusals: {burst: 3}}}",
			`2:29: guard.limits.refusals: it has no limit; add limit: 60/min`,
		},
		{
			"{audit: {max_size: 2TiB}}",
			`2:27: guard.audit.max_size: "2TiB" is not a size from 1KB to 1TiB; write 10MB, 512KiB or a ` +
				`number of bytes`,
		},
	} {
		_, got := parse(t, filepath.Join(dir, "f"), in+c.text)
		prefix := filepath.Join(dir, "f") + ":"
		want := prefix + strings.ReplaceAll(c.want, "\n", "\n"+prefix)
		if got != want {
			t.Errorf("%s\n\t%s\nwant\n\t%s", c.text, strings.ReplaceAll(got, "\n", "\n\t"),
				strings.ReplaceAll(want, "\n", "\n\t"))
		}
		if strings.Contains(got, "s3cr3t") {
			t.Errorf("a secret is shown: %s", got)
		}
	}
}

func TestFrequency(t *testing.T) {
	for text, want := range map[string]string{
		"10/s": "10 1s", "1 / sec": "1 1s", "2/second": "2 1s", "600/m": "600 1m0s",
		"600/min": "600 1m0s", "1/minute": "1 1m0s", "5/h": "5 1h0m0s", "5/hour": "5 1h0m0s",
		"1000/d": "1000 24h0m0s", "1000/day": "1000 24h0m0s", "100/15m": "100 15m0s",
		"1/250ms": "1 250ms",
		"":        "", "10": "", "/s": "", "10/": "", "-1/s": "", "1.5/s": "", "10/s/s": "", "1/-1s": "",
		"10 s": "", "1/week": "",
	} {
		limit, every, ok := parseFrequency(text)
		got := ""
		if ok {
			got = fmt.Sprint(limit, " ", every)
		}
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
