package gateway

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// parse is what Parse says of a text, "" when it is valid.
func parse(t *testing.T, name, text string) (*Config, string) {
	t.Helper()
	c, err := Parse(name, []byte(text))
	if err == nil {
		return c, ""
	}
	var bad *ConfigError
	if !errors.As(err, &bad) || bad.File != name || len(bad.Problems) == 0 {
		t.Fatalf("%T: %v", err, err)
	}
	return nil, err.Error()
}

// The examples of docs/config.md are in order, and the long one has every key.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "config.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```(yaml|json)\n(.*?)^```$").FindAllStringSubmatch(
		string(text), -1)
	if len(blocks) != 4 {
		t.Fatalf("%d examples", len(blocks))
	}
	t.Setenv("GITHUB_TOKEN", "")
	t.Setenv("SEARCH_TOKEN", "")
	t.Setenv("INTROSPECTION_SECRET", "s3cr3t")
	t.Setenv("PARTNER_SECRET", strings.Repeat("s3cr3t", 6))
	dir := t.TempDir()
	for name, text := range map[string]string{
		"policy.cedar": "permit(principal, action, resource);",
		"pets.yaml": "openapi: 3.1.0\npaths: {/pets: {get: {operationId: list, tags: [read]}, " +
			"delete: {}}}\n", "audit.key": strings.Repeat("s3cr3t", 6), "reports.pem": testKey(t),
		"example-ca.pem": testAuthority, "locks.jsonl": "", "cluster.key": strings.Repeat("6f", 32),
		"session.key": strings.Repeat("5e", 32), "session.previous.key": strings.Repeat("4d", 32),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	issueFor(t, filepath.Join(dir, "gateway.pem"), filepath.Join(dir, "gateway.key"), "gateway")
	for i, b := range blocks {
		c, problems := parse(t, filepath.Join(dir, "farcall."+b[1]), b[2])
		if problems != "" {
			t.Errorf("%s\n%s", problems, b[2])
			continue
		}
		if err := c.Filled().Check(); err != nil {
			t.Error(err)
		}
		if i == 1 {
			set := map[string]bool{}
			collect(reflect.ValueOf(*c), "Config", set)
			for _, field := range []string{
				"Anonymous", "Params.Schemas", "Params.AllowKeys",
				"Stdio.TokenEnv",
			} {
				set["Config.Guard."+field] = true // it has their defaults: the other is not for everybody
			}
			set["Upstream.Server"] = true // a value of Go, which no file has
			for _, field := range []string{
				"BaseURL", "Header", "Authorizer", "Client", "Timeout", "Allow",
				"Deny", "Edit",
			} {
				set["Upstream.OpenAPI.Options."+field] = true // as well, or those of the upstream
			}
			for field, ok := range set {
				if !ok && !strings.HasPrefix(field, "Upstream.Hooks.") { // those of Config.Hooks
					t.Errorf("the example does not have %s", field)
				}
			}
		}
	}
}

// collect notes which exported fields have a value, also those of structs within.
func collect(v reflect.Value, path string, set map[string]bool) {
	for i := range v.NumField() {
		field, at := v.Field(i), path+"."+v.Type().Field(i).Name
		if !v.Type().Field(i).IsExported() || strings.HasPrefix(at, "Upstream.Prompts.") ||
			strings.HasPrefix(at, "Upstream.Resources.") {
			// as for Tools
			continue
		}
		at = strings.Replace(at, "Guard.Deny.", "Guard.Allow.", 1) // the same
		switch inner := field.Type(); {
		case inner == reflect.TypeFor[[]*Upstream]():
			at = "Upstream"
			fallthrough
		case inner.Kind() == reflect.Slice &&
			(inner.Elem().Kind() == reflect.Struct || inner.Elem().Kind() == reflect.Pointer):
			set[at] = set[at] || field.Len() > 0
			for j := range field.Len() {
				collect(reflect.Indirect(field.Index(j)), at, set)
			}
		case inner == reflect.TypeFor[time.Time](), inner.Kind() != reflect.Struct &&
			(inner.Kind() != reflect.Pointer || inner.Elem().Kind() != reflect.Struct):
			set[at] = set[at] || !field.IsZero()
		case inner.Kind() == reflect.Struct:
			collect(field, at, set)
		default:
			set[at] = set[at] || !field.IsNil()
			if !field.IsNil() {
				collect(field.Elem(), at, set)
			}
		}
	}
}

func TestValues(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "token.txt"), []byte(" from-file \n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CONFIG_TEST_A", "a value")
	t.Setenv("CONFIG_TEST_EMPTY", "")
	name := filepath.Join(dir, "farcall.yaml")
	c, problems := parse(t, name, `
name: ${CONFIG_TEST_A}
listen: :80
lock: farcall.lock
upstreams:
  one:
    command: -- run "two words" 'it''s' ${CONFIG_TEST_A} --x=${CONFIG_TEST_UNSET:-a b} $${HOME}
    env:
      A: x ${CONFIG_TEST_A} y
      B: file:token.txt
      C: Bearer ${file:token.txt}
      D: ${CONFIG_TEST_EMPTY:-d}${CONFIG_TEST_A}
      E: ${env:CONFIG_TEST_EMPTY}
      F: 0x10
      G: true
      H: 1.10
      I: ""
      J: ${_none:-file:}./x
    cwd: sub
    max_message: 1.5MB
    timeout: 1m30s
    pool: "3"
  two: {command: "C:\\Program Files\\x.exe", args: [1, a b]}
  three: unix:s.sock
  four: {disabled: true, command: x, env: {A: "${CONFIG_TEST_UNSET}", B: "file:none", C: "${file:none}", D: "${input:x}"}}
`)
	if problems != "" {
		t.Fatal(problems)
	}
	u := c.Upstreams[0]
	if want := []string{
		"run", "two words", "its", "a value", "--x=a b",
		"${HOME}",
	}; !slices.Equal(u.Command, want) {
		t.Errorf("%q, want %q", u.Command, want)
	}
	if c.Name != "a value" || c.Listen[0] != ":80" || c.Lock != filepath.Join(dir, "farcall.lock") ||
		u.Cwd != filepath.Join(dir, "sub") ||
		u.MaxMessage != 1_500_000 || u.Timeout != 90*time.Second || u.Pool != 3 {
		t.Errorf("%+v %s %d %v %d", c, u.Cwd, u.MaxMessage, u.Timeout, u.Pool)
	}
	for key, want := range map[string][2]string{
		"A": {"x a value y", "env CONFIG_TEST_A"},
		"B": {"from-file", "file token.txt"},
		"C": {"Bearer from-file", "file token.txt"},
		"D": {"da value", "the default of env CONFIG_TEST_EMPTY, env CONFIG_TEST_A"},
		"E": {"", "env CONFIG_TEST_EMPTY"},
		"F": {"0x10", ""}, "G": {"true", ""}, "H": {"1.10", ""}, "I": {"", ""},
		"J": {"file:./x", "the default of env _none"},
	} {
		if got := [2]string{u.Env[key], u.Origin("env." + key)}; got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
	if got := c.Upstreams[1].Command; !slices.Equal(got,
		[]string{`C:\Program Files\x.exe`, "1", "a b"}) {
		t.Errorf("%q", got)
	}
	if got := c.Upstreams[2].URL; got != "unix:"+filepath.Join(dir, "s.sock") {
		t.Errorf("%q", got)
	}
	if got := c.Files(); !slices.Equal(got, []string{name, filepath.Join(dir, "token.txt")}) {
		t.Errorf("%q", got)
	}
	if _, err := Load(filepath.Join(dir, "none.yaml")); err == nil || !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestYAML(t *testing.T) {
	c, problems := parse(t, "f.yaml",
		"\ufeff---\n# first\nx-a: &a\n  timeout: 2s\n  pool: 2\nupstreams:\n  one: \n    <<: *a\n"+
			"    command: |\n      x y\n  two: {<<: [*a], pool: 3, command: &c [x, z]}\n  three:\n"+
			"    <<: *a\n    command: *c\n...\n")
	if problems != "" {
		t.Fatal(problems)
	}
	for i, want := range []string{"[x y] 2s 2", "[x z] 2s 3", "[x z] 2s 2"} {
		u := c.Upstreams[i]
		if got := fmt.Sprint(u.Command, u.Timeout, u.Pool); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	var bomb strings.Builder
	bomb.WriteString("x-0: &a0 [x, x]\n")
	for i := range 200 {
		fmt.Fprintf(&bomb, "x-%d: &a%d [*a%d, *a%d, *a%d]\n", i+1, i+1, i, i, i)
	}
	bomb.WriteString("upstreams:\n  a: {command: *a200}\n")
	if _, problems := parse(t, "f.yaml", bomb.String()); !strings.Contains(problems,
		"upstreams.a.command[2]: one value is wanted, and this is a list") {
		t.Error(problems)
	}
}

func TestJSON(t *testing.T) {
	c, problems := parse(t, "f.json",
		"{\t\"upstreams\": { // \" a comment\n\t\"a\\u0062\": {\"command\": [\"x\", "+
			"\"\\u00e9\\/\\ud83d\\ude00\", \"// no\", \"/* no\", \"],}\"], /* one\n */ \"pool\": 3,},\n},}")
	if problems != "" {
		t.Fatal(problems)
	}
	if u := c.Upstreams[0]; u.Name != "ab" || u.Pool != 3 ||
		!slices.Equal(u.Command, []string{"x", "é/😀", "// no", "/* no", "],}"}) {
		t.Errorf("%s %q", u, u.Command)
	}
	for text, want := range map[string]string{
		`{"upstreams": {"a": {"command": "x", ` +
			`"command": "y"}}}`: `f.json:1:38: upstreams.a.command: the key is given twice; the first is ` +
			`on line 1; remove one`,
		"{\"upstreams\": {\n" +
			"\t\"é\": 1, \"b\": {\"command\": \"x\", \"\\u0070ool\": \"x\"}}}": "f.json:2:2: upstreams.é: ",
		`{'a': 1}`:               `f.json:1:2: this is not JSON: `,
		`{"a": tru}`:             `f.json:1:`,
		`{"upstreams": {}`:       `f.json:1:17: this is not JSON: `,
		`{"upstreams": [1,,]}`:   `f.json:1:18: this is not JSON: `,
		`[,]`:                    `f.json:1:2: this is not JSON: `,
		`{} {}`:                  `f.json:1:4: this is not JSON: `,
		`{} /*`:                  `f.json:1:4: this is not JSON: `,
		``:                       `f.json:1:1: this is not JSON: `,
		strings.Repeat("[", 100): `f.json:1:33: this is not JSON: `,
	} {
		if _, problems := parse(t, "f.json", text); !strings.HasPrefix(problems, want) {
			t.Errorf("%s\n\t%s\n\t%s", text, problems, want)
		}
	}
}

func TestWords(t *testing.T) {
	for line, want := range map[string][]string{
		``:                          nil,
		`  a  b	c `:                 {"a", "b", "c"},
		`a 'b c' "d \"e\" \x" f\ g`: {"a", "b c", `d "e" \x`, "f g"},
		`a '' ""`:                   {"a", "", ""},
		`a'b'"c"`:                   {"abc"},
		`-- npx -y x`:               {"npx", "-y", "x"},
		`a ${X:-b c}d e`:            {"a", "${X:-b c}d", "e"},
		`a --x=1 $ 5$`:              {"a", "--x=1", "$", "5$"},
	} {
		if got, err := splitWords(line); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", line, got, err)
		}
	}
	for line, want := range map[string]string{
		`a 'b`: "unterminated quote", `a "b\"`: "unterminated quote", `a | b`: `"|"`, `a && b`: `"&"`,
		`a > b`: `">"`, "a `b`": "\"`\"", `a $(b)`: `"$"`,
		`a $HOME/x`: "write ${HOME}", `A=b c`: "put it into env",
	} {
		if got, err := splitWords(line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v", line, got, err)
		}
	}
}

func TestNearest(t *testing.T) {
	words := []string{"shared", "principal", "session", "call", "idle_stop", "url"}
	for word, want := range map[string]string{
		"sesion": "session", "Session": "session", "sessoin": "session", "idleStop": "idle_stop",
		"idle-stop": "idle_stop",
		"cal":       "call", "calls": "call", "URL": "url", "u": "", "xyz": "", "banana": "", "": "",
		strings.Repeat("x", 1000): "",
	} {
		if got := nearest(word, words); got != want {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/config/*", "../docs/config.md"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatal(pattern, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(strings.HasSuffix(file, ".json"), data)
		}
	}
	for _, text := range []string{
		"upstreams: {a: x}", "upstreams:\n  a: {command: [x], env: {A: 1}}", "a: &a [*a]",
		"upstreams: &x {a: {<<: *x}}", "? [a]\n: b", "!!x y", "- a", "a: |\n  b",
		"upstreams: {a: {url: 'http://[::1'}}", "upstreams: {a: ${HOME}}",
		"guard: {keys: [{id: a, hash: x, expires: 2027-01-01}], jwt: [https://h, {issuer: x, claims: " +
			"{a: b}}], mtls: {san: x}, signatures: {id: a, secret: x}}\nupstreams: {a: x}",
		"guard: {allow: [a, {b: c, d: [e]}, {roles: f, calls: g, destructive: false}], deny: {name: " +
			"x}, local: '*', cedar: 'permit(principal, action, resource);'}\nupstreams: {a: x}",
		"guard: {limits: {rates: [1/s, {limit: 5/15m, per: all}], total: 3}, resource: https://h, " +
			"replay: {window: 1s}, stdio: {trust: false}, audit: x, params: {schemas: false}}\nupstreams: " +
			"{a: x}",
		"upstreams: {a: {command: x, sandbox: {network: [443, all], memory: 1GB, read: .}}, b: {url: " +
			"https://h, auth: {type: principals, principals: {'*': {A: b}}}}}",
	} {
		f.Add(false, []byte(text))
	}
	f.Fuzz(func(t *testing.T, isJSON bool, data []byte) {
		if strings.Contains(string(data), "file") {
			t.Skip() // it would read any file
		}
		name := "f.yaml"
		if isJSON {
			name = "f.json"
		}
		c, err := Parse(name, data)
		if err != nil {
			var bad *ConfigError
			if !errors.As(err, &bad) || len(bad.Problems) == 0 || c != nil {
				t.Fatalf("%T: %v", err, err)
			}
			for _, p := range bad.Problems {
				if p.Message == "" || p.Line < 0 ||
					p.Line > strings.Count(string(data), "\n")+strings.Count(string(data), "\r")+2 {
					t.Errorf("%+v", p)
				}
			}
			return
		}
		if err := c.Check(); err != nil {
			t.Errorf("parsed, but %v", err)
		}
		if err := c.Filled().Check(); err != nil {
			t.Errorf("filled, but %v", err)
		}
	})
}
