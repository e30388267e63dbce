package openapi

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/validate"
	"github.com/farcall-dev/farcall/internal/yamljson"
)

// TestHostileDocuments: each is refused, and says why.
func TestHostileDocuments(t *testing.T) {
	var bomb strings.Builder
	bomb.WriteString("openapi: 3.0.3\na: &a [x,x,x,x,x,x,x,x,x,x]\n")
	for c := 'b'; c <= 'j'; c++ {
		fmt.Fprintf(&bomb, "%c: &%c [%s]\n", c, c,
			strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 10), ","))
	}
	var many strings.Builder
	many.WriteString(`"/p0":{}`)
	for i := range maxOperations + 1 {
		fmt.Fprintf(&many, `,"/p%d":{"get":{}}`, i)
	}
	var doubling strings.Builder
	for i := range 40 {
		fmt.Fprintf(&doubling,
			`"A%d":{"properties":{"p%d":{}},"allOf":[{"$ref":"#/components/schemas/A%d"},`+
				`{"$ref":"#/components/schemas/A%d"}]},`, i, i, i+1, i+1)
	}
	ref := func(to string) string {
		return string(docOf(`"/p":{"get":{"parameters":[{"$ref":"` + to + `"}]}}`))
	}
	for name, test := range map[string]struct{ doc, want string }{
		"too large": {strings.Repeat(" ", maxDocument) + "{}", "16777216 are allowed"},
		"too deep": {
			string(docOf("", `"x":`+strings.Repeat("[", 200)+strings.Repeat("]", 200))), "nested too deeply",
		},
		"YAML too large": {
			"a: " + strings.Repeat("x", yamljson.MaxBytes),
			"8388608 are allowed in YAML",
		},
		"YAML that is too deep": {"a: " + strings.Repeat("[", 200), "nested more than 128 deep"},
		"YAML lists in lists":   {strings.Repeat("- ", 100_000), "nested more than 128 deep"},
		"YAML keys":             {yamlKeys("k%d: v\n"), "too many keys beside each other"},
		"YAML keys of lists": {
			"a:\n" + yamlKeys("- x:\n  k%d: v\n") + yamlKeys("k%d: v\n"),
			"too many keys beside each other",
		},
		"YAML keys with marks": {yamlKeys("? k%d\n"), "too many keys beside each other"},
		"YAML commas": {
			"a: [" + strings.Repeat("x,", 250_000) + "]",
			"more than 200000 values in brackets",
		},
		"YAML brackets":       {"a: " + strings.Repeat("[", 300_000), "200000 are allowed in YAML"},
		"YAML bomb":           {bomb.String(), "when its aliases are expanded"},
		"invalid YAML":        {"a: [", "no YAML"},
		"two YAML documents":  {"a: b\n---\nc: d", "second document"},
		"no object":           {`["a"]`, "no OpenAPI document"},
		"nothing":             {"", ""},
		"another version":     {`{"openapi":"4.0.0","paths":{}}`, "version 4.0.0"},
		"no paths":            {`{"openapi":"3.0.0"}`, `no "paths"`},
		"too many operations": {string(docOf(many.String())), "more than 5000 operations"},
		"a remote reference": {
			ref("http://169.254.169.254/latest/meta-data#/a"),
			"bundle the document into one file",
		},
		"a file":        {ref("/proc/self/environ"), "bundle the document into one file"},
		"a file beside": {ref("other.json#/a"), "bundle the document into one file"},
		"a remote schema": {string(
			docOf(`"/p":{"get":{"parameters":[{"in":"query","name":"a",` +
				`"schema":{"$ref":"https://evil.test/x.json"}}]}}`)), "GET /p"},
		"a remote path item": {string(docOf(`"/p":{"$ref":"https://evil.test/x.json"}`)), "the path /p"},
		"schemas without end": {
			string(docOf(`"/p":{"post":{"requestBody":{"content":{"application/json":{"schema":`+
				`{"$ref":"#/components/schemas/A0"}}}}}}`,
				`"components":{"schemas":{`+doubling.String()+`"A40":{}}}`)),
			"too complex",
		},
		"properties without end": {
			string(
				docOf(`"/p":{"get":{"parameters":[{"in":"query","name":"v",`+
					`"schema":{"$ref":"#/components/schemas/A"}}]}}`,
					`"components":{"schemas":{"A":{"required":["a"],"allOf":[`+
						strings.TrimSuffix(strings.Repeat(`{"$ref":"#/components/schemas/A"},`, 500), ",")+`]}}}`)),
			"too complex",
		},
		"a path item that loops": {string(docOf(`"/p":{"$ref":"#/paths/~1p"}`)), "to itself"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New([]byte(test.doc), &Options{BaseURL: "https://api.example.test"})
			if err == nil || !strings.Contains(err.Error(), test.want) || len(err.Error()) > 500 {
				t.Errorf("%.500v", err)
			}
		})
	}
}

// yamlKeys repeats lines with a number in them.
func yamlKeys(line string) string {
	var b strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&b, line, i)
	}
	return b.String()
}

// TestHostileOperations: each is left out, and the others stay.
func TestHostileOperations(t *testing.T) {
	big := func(required bool) string {
		var props, names []string
		for i := range 800 {
			props = append(props,
				fmt.Sprintf(`"p%d":{"type":"string","maxLength":%d,"description":"what it is for"}`, i, i))
			names = append(names, fmt.Sprintf(`"p%d"`, i))
		}
		if !required {
			names = names[:1]
		}
		return `{"post":{"requestBody":{"required":true,` +
			`"content":{"application/json":{"schema":{"type":"object","required":[` +
			strings.Join(names, ",") + `],"properties":{` + strings.Join(props, ",") + `}}}}}}}`
	}
	deep := strings.Repeat(`{"type":"array","items":`, 60) + "{}" + strings.Repeat("}", 60)
	query := func(schema string) string {
		return `{"get":{"parameters":[{"in":"query","name":"a","schema":` + schema + `}]}}`
	}
	api := mustLoad(t,
		docOf(`"/good":{"get":{}},"/loop":`+query(`{"$ref":"#/components/schemas/L"}`)+`,"/gone":`+
			query(`{"$ref":"#/components/schemas/N"}`)+`,"/deep":`+query(deep)+`,"/big":`+big(true)+
			`,"/cut":`+big(false)+`,
		"/name":`+
			query(`{"properties":{"a\u202eb":{}}}`)+
			`,"/a\u0000b":{"get":{}},"/param":{"get":{"parameters":[{"in":"header","name":"A\r\nB","required":true}]}},"/h":{"get":{"parameters":[{"in":"header","name":"a b","required":true}]}},
		"/x{y":{"get":{}},"/x/{y}":{"get":{}},"/unused":{"get":{"parameters":[{"in":"path","name":"z"}]}},"/in":{"get":{"parameters":[{"in":"moon","name":"z"}]}},"/style":{"get":{"parameters":[{"in":"query","name":"z","required":true,"style":"matrix"}]}},
		"/elsewhere":{"servers":[{"url":"https://evil.test"}],"get":{}},"relative":{"get":{}}`,
			`"components":{"schemas":{"L":{"$ref":"#/components/schemas/M"},`+
				`"M":{"$ref":"#/components/schemas/L"}}}`), nil)
	for op, want := range map[string]string{
		"GET /loop": "to itself", "GET /gone": "there is nothing at the reference #/components/schemas/N",
		"GET /deep": "nested more than 48 deep",
		"POST /big": "the schema of its required arguments has", "GET /name": "holds a control character",
		"GET /ab":    "no control characters",
		"GET /param": "holds a control character", "GET /h": "none of a header",
		"GET /x{y": "a brace without its partner", "GET /x/{y}": "no such path parameter",
		"GET /unused": "is not in the path", "GET /in": "no such place as moon",
		"GET /style":     "the style matrix is none of a query",
		"GET /elsewhere": "its server is https://evil.test: allow that with Options.Servers",
		"GET relative":   "must begin with a slash",
	} {
		if got := problemOf(api, op); !strings.Contains(got, want) || !strings.Contains(got, "no tool") {
			t.Errorf("%s: %s", op, got)
		}
	}
	if got := problemOf(api, "POST /cut"); !strings.Contains(got, "optional arguments are not shown") {
		t.Error(got)
	}
	if n := len(api.Tools()); n != 2 {
		t.Errorf("%d tools", n)
	}
	for _, tool := range api.Tools() {
		if len(tool.InputSchema) > maxToolSchema {
			t.Errorf("%s: %d bytes", tool.Operation, len(tool.InputSchema))
		}
	}
}

// TestTexts: what hides in a text is taken out.
func TestTexts(t *testing.T) {
	api := mustLoad(t,
		docOf(
			`"/p":{"get":{"summary":"a\u0000b\u202ec\u200b\u001b[31m\udb40\udc41 d",`+
				`"operationId":"x\u202ey","parameters":[{"in":"query","name":"q",`+
				`"description":"e\u0007f\r\n\n\ng"}]}}`), nil)
	tool := only(t, api)
	if tool.Description != "abc[31m d" || tool.Name != "x_y" ||
		!strings.Contains(string(tool.InputSchema), `"description":"ef"`) {
		t.Errorf("%q %q %s", tool.Description, tool.Name, tool.InputSchema)
	}
}

// TestYAML: YAML is the same as the JSON that it means.
func TestYAML(t *testing.T) {
	const doc = "openapi: 3.0.3\ninfo: {title: t, version: 1.0}\npaths:\n  /p:\n    get: &get\n" +
		"      operationId: list\n      parameters: &params\n" +
		"      - {in: query, name: v, schema: {type: integer, maximum: 0x10, default: 1_000, enum: " +
		"[1.50, !!str 7, yes, true, ~, 2020-01-02]}}\n" +
		"      responses:\n        200: {description: |\n            ok}\n    post:\n      <<: *get\n" +
		"      operationId: make\n      description: >-\n        a\n        b\n"
	for _, indented := range []string{doc, "\ufeff" + doc} {
		api := mustLoad(t,
			[]byte(strings.ReplaceAll(indented, "{description: |\n            ok}", "{description: ok}")), nil)
		if n := len(api.Tools()); n != 2 {
			t.Fatal(n, api.Problems())
		}
		for _, tool := range api.Tools() {
			if want := `"v":{"type":"integer","enum":[1.50,"7","yes",true,null,"2020-01-02"],"maximum":16,` +
				`"default":1000}`; !strings.Contains(string(tool.InputSchema), want) {
				t.Errorf("%s", tool.InputSchema)
			}
		}
		if d := api.Tools()[1].Description; d != "a b" {
			t.Errorf("%q", d)
		}
	}
}

// TestOpen: row 41. A document may have files below its folder, and no others.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		name = filepath.Join(dir, filepath.FromSlash(name))
		os.MkdirAll(filepath.Dir(name), 0o700)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("secret.json", `{"in":"query","name":"secret"}`)
	write("api/openapi.yaml",
		"openapi: 3.0.3\npaths:\n  /p:\n    $ref: paths/p.yaml\n  /q:\n"+
			"    get: {$ref: 'paths/p.yaml#/get'}\n")
	write("api/paths/p.yaml", "get:\n  parameters:\n  - $ref: ../params.json#/v\n")
	write("api/params.json",
		`{"v":{"in":"query","name":"v","schema":{"$ref":"#/s"}},"s":{"type":"array",`+
			`"items":{"$ref":"#/s"}}}`)
	o := &Options{BaseURL: "https://a.test"}
	api, err := Open(filepath.Join(dir, "api", "openapi.yaml"), o)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(api.Tools()); n != 2 ||
		!strings.Contains(string(api.Tools()[0].InputSchema), `"$defs":{"s_`) {
		t.Errorf("%d tools, %s", n, api.Tools()[0].InputSchema)
	}
	var files []string
	for _, name := range api.Files() {
		name, _ = filepath.Rel(dir, name)
		files = append(files, filepath.ToSlash(name))
	}
	if got := strings.Join(files, " "); got != "api/openapi.yaml api/params.json api/paths/p.yaml" {
		t.Errorf("the files are %s", got)
	}
	os.Symlink(filepath.Join(dir, "secret.json"), filepath.Join(dir, "api", "link.json"))
	for _, to := range []string{
		"../secret.json", "/etc/passwd", "file:///etc/passwd", "link.json",
		"%2e%2e/secret.json", "https://a.test/x", "//a.test/x", "gone.json", `..\\secret.json`,
	} {
		write("api/bad.json", string(docOf(`"/p":{"get":{"parameters":[{"$ref":"`+to+`"}]}}`)))
		if _, err := Open(filepath.Join(dir, "api", "bad.json"), o); err == nil ||
			!strings.Contains(err.Error(), "the reference") {
			t.Errorf("%s: %v", to, err)
		}
	}
	if _, err := Open(filepath.Join(dir, "gone.json"), o); err == nil {
		t.Error("a file that is not there was opened")
	}
}

// TestServers: rows 32 and 33. Where the API is, and who may say so.
func TestServers(t *testing.T) {
	server := func(url string) string { return `"servers":[{"url":"` + url + `"}]` }
	for _, test := range []struct {
		doc  string
		o    Options
		want string // the base, or what the error says
	}{
		{server("https://api.example.test/v1/"), Options{}, "https://api.example.test/v1"},
		{
			server("https://api.example.test"),
			Options{BaseURL: "http://10.0.0.1:80/x"},
			"http://10.0.0.1:80/x",
		},
		{
			`"servers":[{"url":"https://{region}.example.test/{v}","variables":{"region":{"default":"eu"},` +
				`"v":{"default":"1"}}}]`,
			Options{Variables: map[string]string{"region": "us"}},
			"https://us.example.test/1",
		},
		{`"x":1`, Options{}, "set Options.BaseURL"},
		{server("/v1"), Options{}, "set Options.BaseURL"},
		{
			server("https://api.example.test"),
			Options{Header: http.Header{"X-Key": {"k"}}},
			"Options.Header and Authorizer need Options.BaseURL",
		},
		{server("https://10.0.0.1"), Options{Client: http.DefaultClient}, "a private address"},
		{server("https://u:p@api.example.test"), Options{}, "no user"},
		{server("http://api.example.test"), Options{}, "it must be https"},
		{server("http://localhost:6379"), Options{}, "a loopback address"},
		{server("https://127.0.0.1"), Options{}, "a loopback address"},
		{server("https://10.1.2.3"), Options{}, "a private address"},
		{server("https://10.1.2.3"), Options{AllowPrivate: true}, "https://10.1.2.3"},
		{
			server("https://169.254.169.254"),
			Options{AllowPrivate: true},
			"a link-local or reserved address",
		},
		{server("https://[::ffff:7f00:1]"), Options{}, "a loopback address"},
		{server("ftp://api.example.test"), Options{}, "must be https:// or http://"},
		{`"x":1`, Options{BaseURL: "api.example.test"}, "Options.BaseURL"},
		{`"x":1`, Options{BaseURL: "https://a.test", Servers: []string{"b.test"}}, "Options.Servers"},
	} {
		api, err := New(docOf(`"/p":{"get":{}}`, test.doc), &test.o)
		if err != nil {
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %v", test.doc, err)
			}
			continue
		}
		if got := only(t, api).plan.base.String(); got != test.want {
			t.Errorf("%s: %s", test.doc, got)
		}
	}
	paths := `"/a":{"servers":[{"url":"https://up.example.test/files"}],"get":{}},` +
		`"/b":{"get":{"servers":[{"url":"https://api.example.test/v2"}]}},` +
		`"/c":{"get":{"servers":[{"url":"//api.example.test/v1"}]}}`
	api := mustLoad(t, docOf(paths, server("https://api.example.test/v1")),
		&Options{BaseURL: "https://proxy.test/api", Servers: []string{"https://UP.example.test:443"}})
	var bases []string
	for _, tool := range api.Tools() {
		bases = append(bases, tool.plan.base.String())
	}
	if got := strings.Join(bases,
		" "); got != "https://up.example.test/files https://proxy.test/v2 https://proxy.test/api" {
		t.Error(got, api.Problems())
	}
}

// TestFetch: a document of the web may name servers of the same origin.
func TestFetch(t *testing.T) {
	doc := ""
	api := serveAPI(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/openapi.json":
			w.Write([]byte(doc))
		case "/gone":
			http.NotFound(w, r)
		default:
			echo(w, r)
		}
	})
	doc = string(docOf(`"/p":{"get":{"operationId":"op"}}`, `"servers":[{"url":"/v1"}]`))
	a, err := Fetch(t.Context(), api.URL+"/openapi.json", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := textOf(callTool(t, dialAPI(t, a), "op", `{}`)); got != "GET /v1/p\n" {
		t.Error(got)
	}
	doc = string(docOf(`"/p":{"get":{}}`, `"servers":[{"url":"https://other.test/v1"}]`))
	if _, err := Fetch(t.Context(), api.URL+"/openapi.json", nil); err == nil ||
		!strings.Contains(err.Error(), `set Options.BaseURL to "https://other.test/v1"`) {
		t.Error(err)
	}
	doc = string(docOf(`"/p":{"$ref":"/other.json"}`))
	if _, err := Fetch(t.Context(), api.URL+"/openapi.json", &Options{BaseURL: api.URL}); err == nil ||
		!strings.Contains(err.Error(), "bundle") {
		t.Error(err)
	}
	for _, address := range []string{
		api.URL + "/gone", "http://example.test/x", "%",
		"ftp://a.test/",
	} {
		if _, err := Fetch(t.Context(), address, nil); err == nil {
			t.Errorf("%s was fetched", address)
		}
	}
}

// FuzzNew: whatever a document says, it is refused, or makes tools with names and schemas that are
// valid.
func FuzzNew(f *testing.F) {
	f.Add(
		[]byte(`{"openapi":"3.0.3","paths":{"/p/{id}":{"get":{"parameters":[{"in":"path","name":"id","schema":{"type":"integer","nullable":true}}]}}}}`))
	f.Add(
		[]byte("openapi: 3.1.0\npaths:\n  /p: {post: {requestBody: {content: {application/json: {schema: {$ref: '#/components/schemas/A'}}}}}}\ncomponents: {schemas: {A: {allOf: [{$ref: '#/components/schemas/A'}, {properties: {a: {oneOf: [{const: 1}]}}}]}}}\n"))
	f.Add(
		[]byte(`{"swagger":"2.0","paths":{"/p":{"post":{"parameters":[{"in":"body","schema":{"type":"object","properties":{"a":{"readOnly":true}}}},{"in":"formData","name":"f","type":"file"}]}}}}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		api, err := New(doc, &Options{
			BaseURL: "https://a.test", InlineRefs: len(doc)%2 == 0,
			OptionalHeaders: true,
		})
		if err != nil {
			return
		}
		for _, tool := range api.Tools() {
			if _, err := validate.Compile(tool.InputSchema, validate.Limits{}); err != nil ||
				!validName(tool.Name) || len(tool.Name) > 48 || len(tool.InputSchema) > maxToolSchema {
				t.Errorf("%q: %v: %s", tool.Name, err, tool.InputSchema)
			}
			values := make([][]byte, len(tool.plan.args))
			for i := range values {
				values[i] = []byte(`"x"`)
			}
			if r, err := tool.plan.request(t.Context(), values); err == nil &&
				(r.URL.Host != "a.test" || r.URL.Scheme != "https") {
				t.Errorf("%s leads to %s", tool.Operation, r.URL)
			}
		}
	})
}
