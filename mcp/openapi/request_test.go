package openapi

import (
	"net/http"
	"strings"
	"testing"
)

// TestRequests calls tools of an API that answers with what it got.
func TestRequests(t *testing.T) {
	api := serveAPI(t, echo)
	const ok = `"responses":{"200":{"description":"ok"}}`
	param := func(in, name, schema, more string) string {
		return `{"in":"` + in + `","name":"` + name + `","schema":` + schema + more + `}`
	}
	op := func(params string) string {
		return `{"operationId":"op","parameters":[` + params + `],` + ok + `}`
	}
	body := func(media, schema, more string) string {
		return `{"operationId":"op","requestBody":{"required":true,"content":{"` + media +
			`":{"schema":` + schema + more + `}}},` + ok + `}`
	}
	const (
		str  = `{"type":"string"}`
		list = `{"type":"array","items":{"type":"string"}}`
		obj  = `{"type":"object"}`
		free = `{}`
	)
	rgb, colours := `{"v":{"R":100,"G":200}}`, `{"v":["blue","b/k"]}`
	file := `{"type":"string","format":"binary"}`
	for _, test := range []struct {
		row, path, method, op, args, want string
	}{
		{
			"3 one name in four places", "/p/{id}", "put",
			`{"operationId":"op","parameters":[` + param("path", "id", str, "") + "," +
				param("query", "id", str, "") +
				`],"requestBody":{"content":{"application/json":{"schema":{"type":"object",` +
				`"properties":{"id":{"type":"integer"}}}}}},` + ok + `}`,
			`{"id":"a","query_id":"b","body_id":3}`,
			"PUT /v1/p/a?id=b\nContent-Type: application/json\n{\"id\":3}",
		},
		{
			"5 one segment", "/p/{v}/x", "get", op(param("path", "v", str, "")), `{"v":"a/b c?d#e%2f+ü"}`,
			"GET /v1/p/a%2Fb%20c%3Fd%23e%252f%2B%C3%BC/x\n",
		},
		{
			"5 dots in a name", "/p/{v}", "get", op(param("path", "v", str, "")), `{"v":"a..b"}`,
			"GET /v1/p/a..b\n",
		},
		{
			"5 part of a segment", "/p/{v}.json", "get", op(param("path", "v", str, "")), `{"v":"x"}`,
			"GET /v1/p/x.json\n",
		},

		{
			"6 path simple", "/p/{v}", "get", op(param("path", "v", list, "")), colours,
			"GET /v1/p/blue,b%2Fk\n",
		},
		{
			"6 path simple object", "/p/{v}", "get", op(param("path", "v", obj, "")), rgb,
			"GET /v1/p/R,100,G,200\n",
		},
		{
			"6 path simple explode", "/p/{v}", "get", op(param("path", "v", obj, `,"explode":true`)), rgb,
			"GET /v1/p/R=100,G=200\n",
		},
		{
			"6 path label", "/p/{v}", "get", op(param("path", "v", list, `,"style":"label"`)), colours,
			"GET /v1/p/.blue,b%2Fk\n",
		},
		{
			"6 path label explode", "/p/{v}", "get",
			op(param("path", "v", list, `,"style":"label","explode":true`)), colours,
			"GET /v1/p/.blue.b%2Fk\n",
		},
		{
			"6 path label object explode", "/p/{v}", "get",
			op(param("path", "v", obj, `,"style":"label","explode":true`)), rgb, "GET /v1/p/.R=100.G=200\n",
		},
		{
			"6 path matrix", "/p/{v}", "get", op(param("path", "v", list, `,"style":"matrix"`)), colours,
			"GET /v1/p/;v=blue,b%2Fk\n",
		},
		{
			"6 path matrix explode", "/p/{v}", "get",
			op(param("path", "v", list, `,"style":"matrix","explode":true`)), colours,
			"GET /v1/p/;v=blue;v=b%2Fk\n",
		},
		{
			"6 path matrix object", "/p/{v}", "get", op(param("path", "v", obj, `,"style":"matrix"`)), rgb,
			"GET /v1/p/;v=R,100,G,200\n",
		},
		{
			"6 path matrix object explode", "/p/{v}", "get",
			op(param("path", "v", obj, `,"style":"matrix","explode":true`)), rgb,
			"GET /v1/p/;R=100;G=200\n",
		},
		{
			"6 query form", "/p", "get", op(param("query", "v", list, "")), colours,
			"GET /v1/p?v=blue&v=b%2Fk\n",
		},
		{
			"6 query form, no explode", "/p", "get", op(param("query", "v", list, `,"explode":false`)),
			colours, "GET /v1/p?v=blue,b%2Fk\n",
		},
		{
			"6 query form object", "/p", "get", op(param("query", "v", obj, "")), rgb,
			"GET /v1/p?R=100&G=200\n",
		},
		{
			"6 query form object, no explode", "/p", "get", op(param("query", "v", obj, `,"explode":false`)),
			rgb, "GET /v1/p?v=R,100,G,200\n",
		},
		{
			"6 query space", "/p", "get", op(param("query", "v", list, `,"style":"spaceDelimited"`)),
			colours, "GET /v1/p?v=blue%20b%2Fk\n",
		},
		{
			"6 query pipe", "/p", "get", op(param("query", "v", list, `,"style":"pipeDelimited"`)), colours,
			"GET /v1/p?v=blue%7Cb%2Fk\n",
		},
		{
			"6 query deepObject", "/p", "get", op(param("query", "v", obj, `,"style":"deepObject"`)), rgb,
			"GET /v1/p?v[R]=100&v[G]=200\n",
		},
		{
			"6 query reserved", "/p", "get", op(param("query", "v", str, `,"allowReserved":true`)),
			`{"v":"a/b:c&d=e#f"}`, "GET /v1/p?v=a/b:c%26d%3De%23f\n",
		},
		{
			"6 header", "/p", "get", op(param("header", "X-V", list, `,"required":true`)),
			`{"X-V":["a","b"]}`, "GET /v1/p\nX-V: a,b\n",
		},
		{
			"6 header object explode", "/p", "get",
			op(param("header", "X-V", obj, `,"required":true,"explode":true`)), `{"X-V":{"R":1,"G":2}}`,
			"GET /v1/p\nX-V: R=1,G=2\n",
		},
		{
			"6 null and empty", "/p", "get",
			op(param("query", "v", free, "") + "," + param("query", "w", list, "")), `{"v":null,"w":[]}`,
			"GET /v1/p\n",
		},
		{
			"7 deepObject that nests", "/p", "get", op(param("query", "v", obj, `,"style":"deepObject"`)),
			`{"v":{"a":{"b":[1,{"c":"x y"}]}}}`, "GET /v1/p?v[a][b][]=1&v[a][b][][c]=x%20y\n",
		},
		{
			"8 content", "/p", "get",
			op(`{"in":"query","name":"v","content":{"application/json":{"schema":{"type":"object"}}}}`),
			`{"v":{"a": [1, "x"]}}`, "GET /v1/p?v=%7B%22a%22%3A%5B1%2C%22x%22%5D%7D\n",
		},
		{
			"9 odd names", "/p", "get",
			op(param("query", "id[]", list, "") + "," + param("query", "Date<", str, "") + "," +
				param("query", "Date>", str, "") + "," + param("query", "$filter", str, "")),
			`{"id":["1"],"Date_lt":"a","Date_gt":"b","filter":"c"}`,
			"GET /v1/p?id%5B%5D=1&Date%3C=a&Date%3E=b&%24filter=c\n",
		},
		{
			"11 cookie", "/p", "get",
			op(param("cookie", "c", list, `,"required":true,"explode":false`) + "," +
				param("cookie", "d", str, `,"required":true`)), `{"c":["a","b"],"d":"e"}`,
			"GET /v1/p\nCookie: c=a,b; d=e\n",
		},

		{
			"12 object", "/p", "post",
			body("application/json",
				`{"type":"object","required":["a"],"properties":{"a":{"type":"number"},"b":{"type":"string"}}}`,
				""), `{"a":12345678901234567890.10,"b":"ü\n"}`,
			"POST /v1/p\nContent-Type: application/json\n{\"a\":12345678901234567890.10,\"b\":\"ü\\n\"}",
		},
		{
			"13 array", "/p", "post", body("application/json", list, ""), `{"body":["a"]}`,
			"POST /v1/p\nContent-Type: application/json\n[\"a\"]",
		},
		{
			"13 map", "/p", "post",
			body("application/json", `{"type":"object","additionalProperties":{"type":"integer"}}`, ""),
			`{"body":{"x":1}}`, "POST /v1/p\nContent-Type: application/json\n{\"x\":1}",
		},
		{
			"13 body and a parameter of that name", "/p", "post",
			`{"operationId":"op","parameters":[` + param("query", "body", str, "") +
				`],"requestBody":{"content":{"application/json":{"schema":` + list + `}}},` + ok + `}`,
			`{"body":"q","request_body":["a"]}`,
			"POST /v1/p?body=q\nContent-Type: application/json\n[\"a\"]",
		},
		{
			"14 no body", "/p", "post",
			`{"operationId":"op","requestBody":{"content":{"application/json":{"schema":{"type":"object",` +
				`"required":["a"],"properties":{"a":{"type":"string"}}}}}},` + ok + `}`, `{}`, "POST /v1/p\n",
		},
		{
			"14 required body without members", "/p", "post",
			body("application/json", `{"type":"object","properties":{"a":{"type":"string"}}}`, ""), `{}`,
			"POST /v1/p\nContent-Type: application/json\n{}",
		},
		{
			"15 JSON is preferred", "/p", "post",
			`{"operationId":"op","requestBody":{"content":{"text/plain":{},` +
				`"application/x-www-form-urlencoded":{},` +
				`"application/vnd.api+json":{"schema":{"type":"object",` +
				`"properties":{"a":{"type":"string"}}}}}},` + ok + `}`, `{"a":"b"}`,
			"POST /v1/p\nContent-Type: application/vnd.api+json\n{\"a\":\"b\"}",
		},
		{
			"15 anything is JSON", "/p", "post",
			body("*/*", `{"type":"object","properties":{"a":{"type":"string"}}}`, ""), `{"a":"b"}`,
			"POST /v1/p\nContent-Type: application/json\n{\"a\":\"b\"}",
		},
		{
			"15 text", "/p", "post", body("text/plain", str, ""), `{"body":"a\nb"}`,
			"POST /v1/p\nContent-Type: text/plain\na\nb",
		},
		{
			"16 form", "/p", "post", body("application/x-www-form-urlencoded",
				`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"array","items":{}},`+
					`"c":{"type":"object"},"d":{"type":"object"},"e":{"type":"array","items":{}}}}`,
				`,"encoding":{"d":{"style":"deepObject","explode":true},"e":{"style":"deepObject",`+
					`"explode":true}}`),
			`{"a":"x&y=z","b":[1,2],"c":{"k":"v"},"d":{"k":{"l":[true]}},"e":["f"]}`,
			"POST /v1/p\nContent-Type: application/x-www-form-urlencoded\n" +
				"a=x%26y%3Dz&b=1&b=2&c=%7B%22k%22%3A%22v%22%7D&d[k][l][]=true&e[]=f",
		},
		{
			"16 form of several forms", "/p", "post",
			body("application/x-www-form-urlencoded", `{"anyOf":[{"type":"object"}]}`, ""),
			`{"body":{"a":"b","c":[1,2]}}`,
			"POST /v1/p\nContent-Type: application/x-www-form-urlencoded\na=b&c=1&c=2",
		},
		{
			"17 multipart", "/p", "post",
			body("multipart/form-data",
				`{"type":"object","properties":{"f":`+file+`,"g":{"type":"array","items":`+file+
					`},"n":{"type":"integer"},"o":{"type":"object"}}}`,
				`,"encoding":{"g":{"contentType":"image/png"}}`),
			`{"f":{"data":"AGE=","filename":"a\"\r\nb","mime_type":"image/gif"},"g":[{"data":"Yg=="},` +
				`{"data":"Yw=="}],"n":5,"o":{"k":1}}`,
			"POST /v1/p\npart f (a%22%0D%0Ab) image/gif: \x00a\npart g (file) image/png: b\n" +
				"part g (file) image/png: c\npart n () : 5\npart o () application/json: {\"k\":1}\n",
		},
		{
			"17 binary", "/p", "post", body("application/octet-stream", file, ""),
			`{"body":{"data":"AGI="}}`, "POST /v1/p\nContent-Type: application/octet-stream\n\x00b",
		},
		{
			"17 an image", "/p", "put", body("image/*", file, ""),
			`{"body":{"data":"AA==","mime_type":"image/webp"}}`,
			"PUT /v1/p\nContent-Type: image/webp\n\x00",
		},
		{
			"29 numbers keep their text", "/p/{v}", "get",
			op(param("path", "v", `{"type":"integer","format":"int64"}`, "") + "," +
				param("query", "w", `{"type":"number"}`, "")), `{"v":9007199254740993,"w":1.10}`,
			"GET /v1/p/9007199254740993?w=1.10\n",
		},
		{
			"40 fragment and query", "/p?action=a&b=c#d", "get", op(param("query", "v", str, "")),
			`{"v":"x"}`, "GET /v1/p?action=a&b=c&v=x\n",
		},
	} {
		t.Run(test.row, func(t *testing.T) {
			a := mustLoad(t, docOf(`"`+test.path+`":{"`+test.method+`":`+test.op+`}`),
				&Options{BaseURL: api.URL + "/v1/"})
			if len(a.Tools()) != 1 {
				t.Fatal(a.Problems())
			}
			r := callTool(t, dialAPI(t, a), "op", test.args)
			if got := textOf(r); r.IsError || strings.ToValidUTF8(got, "\ufffd") != test.want {
				t.Errorf("got\n%q\nwant\n%q\nschema %s", got, test.want, a.Tools()[0].InputSchema)
			}
		})
	}
}

// TestSwaggerRequests: row 42. Swagger 2.0 says otherwise how values are written.
func TestSwaggerRequests(t *testing.T) {
	api := serveAPI(t, echo)
	list := func(in, name, format string) string {
		return `{"in":"` + in + `","name":"` + name +
			`","type":"array","items":{"type":"string"},"collectionFormat":"` + format + `"}`
	}
	doc := docOf(`"/p":{"post":{"operationId":"op","parameters":[`+list("query", "a", "csv")+`,`+
		list("query", "b", "ssv")+`,`+list("query", "c", "tsv")+`,`+list("query", "d", "pipes")+`,`+
		list("query", "e", "multi")+`,`+
		list("formData", "f", "multi")+
		`,{"in":"formData","name":"g","type":"string"}]},"put":{"operationId":"file",`+
		`"parameters":[{"in":"formData","name":"f","type":"file"}]},"patch":{"operationId":"odd",`+
		`"parameters":[`+list("query", "a", "odd")+`]}}`,
		`"swagger":"2.0"`, `"host":"api.example.test"`,
		`"consumes":["application/x-www-form-urlencoded"]`)
	a := mustLoad(t, doc, &Options{BaseURL: api.URL})
	c := dialAPI(t, a)
	two := `["x","y"]`
	got := textOf(
		callTool(t, c, "op",
			`{"a":`+two+`,"b":`+two+`,"c":`+two+`,"d":`+two+`,"e":`+two+`,"f":`+two+`,"g":"z"}`))
	if want := "POST /p?a=x,y&b=x%20y&c=x%09y&d=x%7Cy&e=x&e=y\n" +
		"Content-Type: application/x-www-form-urlencoded\nf=x&f=y&g=z"; got != want {
		t.Errorf("%q", got)
	}
	if got := textOf(callTool(t, c, "file", `{"f":{"data":"YQ=="}}`)); got !=
		"PUT /p\npart f (file) application/octet-stream: a\n" {
		t.Errorf("%q", got)
	}
	if got := problemOf(a, "PATCH /p"); !strings.Contains(got,
		"the optional parameter a is left out: there is no collectionFormat odd") {
		t.Error(got)
	}
}

// TestRefusedArguments: what would lead a request elsewhere does not leave the process.
func TestRefusedArguments(t *testing.T) {
	api := serveAPI(t, func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a request was sent: %s", r.RequestURI)
	})
	doc := docOf(
		`"/p/{v}/x":{"parameters":[{"in":"path","name":"v","schema":{"type":["string","array","null"]}},{"in":"header","name":"X-H","required":true,"schema":{}},
		{"in":"cookie","name":"c","required":true,"schema":{}}],"post":{"operationId":"op","requestBody":{"content":{"image/png":{}}}}}`)
	c := dialAPI(t, mustLoad(t, doc, &Options{BaseURL: api.URL + "/v1"}))
	for _, v := range []string{
		`""`, `".."`, `"."`, `"a/../b"`, `"..\\b"`, `"%2e%2E"`, `"a%2f..%2fb"`,
		`"a\u0000b"`, `"%0a"`, `"\n"`, `["a",".."]`, `[]`, `null`, `"%2e."`,
	} {
		r := callTool(t, c, "op", `{"v":`+v+`,"X-H":"a","c":"b"}`)
		if !r.IsError || !strings.Contains(textOf(r), "the argument v: it must") {
			t.Errorf("%s: %s", v, textOf(r))
		}
	}
	for args, want := range map[string]string{
		`{"v":"a","X-H":"a\r\nEvil: 1","c":"b"}`: "the argument " +
			"X-H: it must have no control characters",
		`{"v":"a","X-H":"a","c":"b; admin=1"}`: "the argument " +
			"c: it must have no semicolon",
		`{"v":"a","X-H":"a","c":"b","body":{"data":"!"}}`: "the argument " +
			"body: data must be base64",
		`{"v":"a","X-H":"a","c":"b","body":{"data":"AA==",` +
			`"mime_type":"a/b\r\nX: y"}}`: "mime_type must be one",
		`{"v":"a","X-H":"a","c":"b","other":1}`: "other",
		`{"v":"a"}`:                             "X-H",
	} {
		if r := callTool(t, c, "op", args); !r.IsError || !strings.Contains(textOf(r), want) {
			t.Errorf("%.100s: %s", args, textOf(r))
		}
	}
	if _, err := readFileArgument([]byte(`{"data":"` + strings.Repeat("A", 12<<20) + `"}`)); err ==
		nil || err.Error() != "the file has more than 8388608 bytes" {
		t.Error(err)
	}
}
