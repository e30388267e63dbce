package gateway

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What is accepted, and not as one may think.
func TestGuardNotices(t *testing.T) {
	t.Setenv("GUARD_TEST_SECRET", strings.Repeat("s3cr3t", 8))
	for text, want := range map[string]string{
		"guard: {}": "1:8: guard: no authentication method is configured: every request is refused, " +
			"except over standard input; add keys, jwt, mtls or signatures, or anonymous: true",
		"guard:": "guard: no authentication method is configured",
		"guard: {signatures: {id: a, secret: " +
			"s3cr3ts3cr3ts3cr3ts3cr3ts3cr3ts3cr3t}}": "1:37: guard.signatures[0].secret: it is secret and " +
			"stands in the file itself; write ${NAME} for a variable of the environment, or file:PATH",
		"guard: {signatures: {id: a, secret: " +
			"'${GUARD_TEST_UNSET:-s3cr3ts3cr3ts3cr3ts3cr3ts3cr3ts3cr3t}'}}": "1:37: " +
			"guard.signatures[0].secret: it is secret",
		"guard: {signatures: {id: a, secret: " +
			"'${GUARD_TEST_SECRET}'}}": "guard.resource.url: it is missing: a signature made for another " +
			"server would be accepted",
		"guard: {signatures: {id: a, secret: '${GUARD_TEST_SECRET}'}, resource: 'https://h/x'}": "",
		"guard: {keys: {id: a, hash: '" + testHash +
			"'}}": "",
		"guard: {keys: {id: a, hash: '" + testHash +
			"', roles: [dev]}, allow: [{devs: x/y}]}": `guard.allow[0].roles: no principal has the ` +
			`role "devs"`,
		"guard: {keys: {id: a, hash: '" + testHash +
			"', roles: [dev]}, allow: [{dev: x/y}]}": "",
		"guard: {jwt: {issuer: 'https://id.example.com', audience: a}, allow: [{devs: x/y}]}": "",
	} {
		c, problems := parse(t, "f", text+"\nupstreams: {a: x}")
		if problems != "" {
			t.Errorf("%s: %s", text, problems)
			continue
		}
		var got strings.Builder
		for _, n := range c.Notices() {
			got.WriteString(n.String() + "\n")
		}
		if !strings.Contains(got.String(), want) || (want == "") != (got.String() == "") ||
			strings.Contains(got.String(), "s3cr3t") {
			t.Errorf("%s\n\t%s\nwant\n\t%s", text, got.String(), want)
		}
	}
	if c, _ := parse(t, "f.json", `{"mcpServers": {"a": {"command": "x"}}, "guard": {}}`); c.Guard !=
		nil || len(c.Notices()) != 1 {
		t.Errorf("the file of a client has no guard: %v", c.Notices())
	}
}

// The guards of docs/security.md are in order.
func TestSecurityDocs(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 5 {
		t.Fatalf("%d examples", len(blocks))
	}
	t.Setenv("INTROSPECTION_SECRET", "s3cr3t")
	dir := t.TempDir()
	for _, name := range []string{"prod-ca.pem", "partner-ca.pem"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(testAuthority), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range blocks {
		if strings.Contains(b[1], "\ntests:\n") {
			continue // of farcall policy test
		}
		c, problems := parse(t, filepath.Join(dir, "farcall.yaml"),
			b[1]+"upstreams: {bank: x, files: x, github: x, search: x}\n")
		if problems != "" {
			t.Errorf("%s\n%s", problems, b[1])
			continue
		}
		for _, n := range c.Notices() {
			if !strings.Contains(n.Message, "conflict: deny[0] wins") { // it is meant to
				t.Errorf("%v\n%s", n, b[1])
			}
		}
	}
}

// What the guard itself finds wrong has its place in the file, and nothing of what came from
// elsewhere.
func TestGuardChecks(t *testing.T) {
	dir := guardDir(t)
	t.Setenv("GUARD_TEST_SECRET", "s3cr3t")
	if err := os.WriteFile(filepath.Join(dir, "bad.cedar"),
		[]byte("permit(principal, action, resource);\npermit(x"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "f.yaml")
	for text, want := range map[string]string{
		"keys:\n    - {id: a, hash: abc}":                     "3:21: guard.keys[0].hash: ",
		"keys:\n    - {hash: '" + testHash + "'}":             "3:8: guard.keys[0].id: ",
		"signatures: {id: a, secret: '${GUARD_TEST_SECRET}'}": "2:16: guard.signatures[0]: ",
		"signatures: {id: a}":                                 "2:16: guard.signatures[0]: ",
		"resource: ${GUARD_TEST_SECRET}":                      "2:13: guard.resource.url: ",
		"jwt: https://id.example.com":                         "2:8: guard.jwt[0]: ",
		"allow: [{roles: a, calls: []}]":                      "guard.allow[0]",
		"cedar: permit(": "2:10: guard.cedar: " +
			"line 1, column ",
		"cedar_files: [policy.cedar, bad.cedar]": "2:31: guard.cedar_files[1]: " +
			"bad.cedar: line 2, column ",
		"limits: {rates: [1/s, {per: weekday, limit: 1/s}]}":         "2:31: guard.limits.rates[1].per: ",
		"limits: {rates: {per: '${GUARD_TEST_SECRET}', limit: 1/s}}": "guard.limits.rates[0].per: ",
	} {
		_, got := parse(t, file, "guard:\n  "+text+"\nupstreams: {a: x}")
		if !strings.Contains(got, want) || strings.Contains(got, "s3cr3t") ||
			strings.Contains(got, "\n") {
			t.Errorf("%s\n\t%s\nwant\n\t%s", text, got, want)
		}
	}
}

// testAuthority is a certificate that signs others. Its key is not kept.
const testAuthority = `-----BEGIN CERTIFICATE-----
MIIBFjCByaADAgECAgEBMAUGAytlcDASMRAwDgYDVQQDEwdleGFtcGxlMCAXDTI2
MDEwMTAwMDAwMFoYDzIxMjYwMTAxMDAwMDAwWjASMRAwDgYDVQQDEwdleGFtcGxl
MCowBQYDK2VwAyEASXsb7AExYvWkPx6Mm5WANkuVjRqu/q9OKRTyfNhh/qKjQjBA
MA4GA1UdDwEB/wQEAwICBDAPBgNVHRMBAf8EBTADAQH/MB0GA1UdDgQWBBRGlgk6
yZsS7hIE4AXi5Z3HaLyCmzAFBgMrZXADQQCBX81GKRusSAgX4+Spa27YkjyhLaeD
UvQMrgES2r1IDDaGN9T77siEWj0akb6yYKvxTSzqQNU1/ucbnf9fCHsD
-----END CERTIFICATE-----
`
