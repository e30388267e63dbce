package openapi

import (
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/mcp"
)

// only returns the one tool of a document.
func only(t *testing.T, api *API) *Tool {
	t.Helper()
	if len(api.Tools()) != 1 {
		t.Fatalf("%d tools, %v", len(api.Tools()), api.Problems())
	}
	return api.Tools()[0]
}

// schemaOf returns the schema of the argument v, and the rest of the tool's schema after the
// arguments.
func schemaOf(t *testing.T, schema, more string, o *Options) (v, rest string) {
	t.Helper()
	doc := docOf(`"/p":{"get":{"parameters":[{"in":"query","name":"v","schema":`+schema+`}]}}`,
		strings.Fields(more)...)
	text := string(only(t, mustLoad(t, doc, o)).InputSchema)
	text = strings.TrimPrefix(text, `{"type":"object","properties":{"v":`)
	v, rest, _ = strings.Cut(text, `},"additionalProperties":false`)
	return v, strings.TrimSuffix(rest, "}")
}

// TestSchemas: rows 18 and 21 to 29 of the decisions about constructs.
func TestSchemas(t *testing.T) {
	v31 := `"openapi":"3.1.0"`
	comp := func(s string) string { return `"components":{"schemas":{` + s + `}}` }
	for _, test := range []struct{ row, schema, more, want, rest string }{
		{
			"18 references", `{"$ref":"#/components/schemas/A"}`,
			comp(`"A":{"type":"object","properties":{"b":{"$ref":"#/components/schemas/B"}}},` +
				`"B":{"type":"integer"},"C":{}`),
			`{"$ref":"#/$defs/A"}`,
			`,"$defs":{"A":{"type":"object","properties":{"b":{"$ref":"#/$defs/B"}}},` +
				`"B":{"type":"integer"}}`,
		},
		{
			"18 recursion", `{"$ref":"#/components/schemas/A"}`,
			comp(`"A":{"type":"array","items":{"$ref":"#/components/schemas/A"}}`),
			`{"$ref":"#/$defs/A"}`, `,"$defs":{"A":{"type":"array","items":{"$ref":"#/$defs/A"}}}`,
		},
		{
			"18 references anywhere", `{"$ref":"#/components/schemas/A/properties/b~1c"}`,
			comp(`"A":{"properties":{"b/c":{"type":"string"}}}`),
			`{"$ref":"#/$defs/b_1c_9e6944db"}`, `,"$defs":{"b_1c_9e6944db":{"type":"string"}}`,
		},
		{
			"21 allOf below the root",
			`{"type":"array","items":{"allOf":[{"additionalProperties":false},` +
				`{"additionalProperties":false}]}}`, "",
			`{"type":"array","items":{"allOf":[{"additionalProperties":false},` +
				`{"additionalProperties":false}]}}`, "",
		},
		{
			"22 discriminator",
			`{"oneOf":[{"$ref":"#/components/schemas/A"},{"$ref":"#/components/schemas/B"}],` +
				`"discriminator":{"propertyName":"k","mapping":{"a":"#/components/schemas/A","b":"B"}}}`,
			comp(`"A":{},"B":{}`),
			`{"oneOf":[{"$ref":"#/$defs/A","properties":{"k":{"enum":["a"]}},"required":["k"]},` +
				`{"$ref":"#/$defs/B","properties":{"k":{"enum":["b"]}},"required":["k"]}]}`,
			`,"$defs":{"A":{},"B":{}}`,
		},
		{
			"22 discriminator without mapping",
			`{"oneOf":[{"$ref":"#/components/schemas/A"}],"discriminator":{"propertyName":"k"}}`,
			comp(`"A":{}`),
			`{"oneOf":[{"$ref":"#/$defs/A","properties":{"k":{"enum":["A"]}},"required":["k"]}]}`,
			`,"$defs":{"A":{}}`,
		},
		{
			"23 nullable", `{"type":"string","nullable":true,"enum":["a"]}`, "",
			`{"type":["string","null"],"enum":["a",null]}`, "",
		},
		{
			"23 nullable reference", `{"$ref":"#/components/schemas/A","nullable":true}`, comp(`"A":{}`),
			`{"anyOf":[{"$ref":"#/$defs/A"},{"type":"null"}]}`, `,"$defs":{"A":{}}`,
		},
		{
			"23 nullable union", `{"nullable":true,"oneOf":[{"type":"string"}]}`, "",
			`{"anyOf":[{"oneOf":[{"type":"string"}]},{"type":"null"}]}`, "",
		},
		{
			"23 nullable in 3.1", `{"type":["string"],"nullable":true}`, v31,
			`{"type":["string","null"]}`, "",
		},
		{
			"24 exclusive bounds of 3.0",
			`{"type":"integer","minimum":1,"exclusiveMinimum":true,"maximum":9,"exclusiveMaximum":false}`,
			"", `{"type":"integer","exclusiveMinimum":1,"maximum":9}`, "",
		},
		{
			"24 what is not JSON Schema",
			`{"type":"string","example":"x","xml":{"name":"a"},"x-go":1,"externalDocs":{},"title":"T",` +
				`"deprecated":false,"readOnly":false}`, "", `{"type":"string"}`, "",
		},
		{
			"24 what JSON Schema does not allow",
			`{"type":"strange","minLength":"1","required":true,"enum":[],"allOf":[],"pattern":"(?<!a)b",` +
				`"properties":[],"multipleOf":0}`, "", `{}`, "",
		},
		{
			"25 constants",
			`{"oneOf":[{"const":1,"title":"One"},{"const":2,"description":"Two things."}],"type":"integer"}`,
			v31, `{"enum":[1,2],"description":"1: One; 2: Two things"}`, "",
		},
		{
			"26 dynamic references", `{"$ref":"#/components/schemas/A"}`,
			comp(`"A":{"$dynamicAnchor":"n","$id":"x","properties":{"a":{"$dynamicRef":"#n"}}}`) + " " + v31,
			`{"$ref":"#/$defs/A"}`, `,"$defs":{"A":{"properties":{"a":{"$ref":"#/$defs/A"}}}}`,
		},
		{
			"26 recursive references", `{"$ref":"#/components/schemas/A"}`,
			comp(`"A":{"$recursiveAnchor":true,"items":{"$recursiveRef":"#"}}`) + " " + v31,
			`{"$ref":"#/$defs/A"}`, `,"$defs":{"A":{"items":{"$ref":"#/$defs/A"}}}`,
		},
		{
			"27 what is only read",
			`{"type":"object","required":["id","n"],"properties":{"id":{"type":"integer","readOnly":true},` +
				`"n":{"writeOnly":true},"r":{"$ref":"#/components/schemas/R"}}}`, comp(`"R":{"readOnly":true}`),
			`{"type":"object","required":["n"],"properties":{"n":{}}}`, "",
		},
		{"28 default", `{"type":"integer","default":5}`, "", `{"type":"integer","default":5}`, ""},
		{
			"28 long default", `{"type":"string","default":"` + strings.Repeat("x", 200) + `"}`, "",
			`{"type":"string"}`, "",
		},
		{
			"29 formats",
			`{"anyOf":[{"type":"string","format":"date-time"},{"type":"integer","format":"int64"},` +
				`{"type":"string","format":"byte"}]}`, "",
			`{"anyOf":[{"type":"string","format":"date-time"},{"type":"integer"},{"type":"string",` +
				`"contentEncoding":"base64"}]}`, "",
		},
		{
			"30 deprecated property",
			`{"type":"object","required":["b"],"properties":{"a":{"deprecated":true},` +
				`"b":{"deprecated":true}}}`, "", `{"type":"object","required":["b"],"properties":{"b":{}}}`,
			"",
		},
		{
			"tuples of before 3.1", `{"type":"array","items":[{"type":"string"}],"additionalItems":false}`,
			"", `{"type":"array","prefixItems":[{"type":"string"}],"items":false}`, "",
		},
	} {
		t.Run(test.row, func(t *testing.T) {
			if v, rest := schemaOf(t, test.schema, test.more, nil); v != test.want || rest != test.rest {
				t.Errorf("got\n%s\n%s\nwant\n%s\n%s", v, rest, test.want, test.rest)
			}
		})
	}
	if v, _ := schemaOf(t, `{"type":"string","example":"x","title":"T","format":"odd"}`, "",
		&Options{Slim: SlimOff}); v != `{"type":"string","title":"T","format":"odd","examples":["x"]}` {
		t.Errorf("SlimOff: %s", v)
	}
	if v, _ := schemaOf(t, `{"type":"string","minLength":1,"pattern":"a","enum":["a"]}`, "",
		&Options{Slim: SlimHard}); v != `{"type":"string","enum":["a"]}` {
		t.Errorf("SlimHard: %s", v)
	}
}

// TestRows: the other rows, each with an operation of GET /p, or what stands for it.
func TestRows(t *testing.T) {
	load := func(t *testing.T, paths string, more ...string) *API {
		return mustLoad(t, docOf(paths, more...), nil)
	}
	has := func(t *testing.T, got, want string) {
		t.Helper()
		if !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	lacks := func(t *testing.T, got, without string) {
		t.Helper()
		if strings.Contains(got, without) {
			t.Errorf("got %s, with %s", got, without)
		}
	}
	t.Run("2 descriptions", func(t *testing.T) {
		tool := only(t, load(t, `"/p":{"get":{"summary":"List pets.","description":"All [of `+
			`them](https://x.test/y) that\nyou <b>own</b>.\n\nMore."}}`))
		if tool.Description != "List pets. All of them that you own." || tool.Title != "List pets." {
			t.Errorf("%q %q", tool.Description, tool.Title)
		}
		tool = only(t,
			load(t, `"/p/{id}":{"get":{"tags":["pets"],"parameters":[{"in":"path","name":"id"}]}}`))
		if tool.Description != "GET /p/{id} (pets)" {
			t.Errorf("%q", tool.Description)
		}
		tool = only(t, load(t, `"/p":{"get":{"description":"`+strings.Repeat("word ", 200)+`"}}`))
		if len(tool.Description) > 402 {
			t.Errorf("%d", len(tool.Description))
		}
	})
	t.Run("4 parameters of the path item", func(t *testing.T) {
		tool := only(t,
			load(t,
				`"/p":{"parameters":[{"in":"query","name":"a","schema":{"type":"string"}},{"in":"query",`+
					`"name":"b"}],"get":{"parameters":[{"in":"query","name":"a","schema":{"type":"integer"}}]}}`))
		has(t, string(tool.InputSchema), `"properties":{"a":{"type":"integer"},"b":{}}`)
	})
	t.Run("10 headers", func(t *testing.T) {
		h := `"/p":{"get":{"parameters":[{"in":"header","name":"Accept","required":true},{"in":"header","name":"authorization","required":true},{"in":"header","name":"Host","required":true},{"in":"header","name":"X-Forwarded-For","required":true},
			{"in":"header","name":"X-Key","required":true},{"in":"header","name":"X-Opt"},{"in":"header","name":"X-Req","required":true}]}}`
		sec := `"components":{"securitySchemes":{"k":{"type":"apiKey","in":"header","name":"x-key"}}}`
		has(t, string(only(t, load(t, h, sec)).InputSchema),
			`"properties":{"X-Req":{}},"required":["X-Req"]`)
		has(t, string(only(t, mustLoad(t, docOf(h, sec), &Options{OptionalHeaders: true})).InputSchema),
			`"properties":{"X-Opt":{},"X-Req":{}}`)
	})
	t.Run("11 cookies", func(t *testing.T) {
		tool := only(t, load(t,
			`"/p":{"get":{"parameters":[{"in":"cookie","name":"a"},{"in":"cookie","name":"sid",`+
				`"required":true},{"in":"cookie","name":"b","required":true}]}}`,
			`"components":{"securitySchemes":{"k":{"type":"apiKey","in":"cookie","name":"sid"}}}`))
		has(t, string(tool.InputSchema), `"properties":{"b":{}}`)
	})
	t.Run("15 media type by operation", func(t *testing.T) {
		doc := docOf(
			`"/p":{"patch":{"requestBody":{"content":{"application/json":{},` +
				`"application/json-patch+json":{}}}}}`)
		tool := only(t,
			mustLoad(t, doc,
				&Options{MediaTypes: map[string]string{"PATCH /p": "application/json-patch+json"}}))
		has(t, tool.plan.body.media, "application/json-patch+json")
	})
	t.Run("15 media types that cannot be written", func(t *testing.T) {
		api := load(t,
			`"/p":{"post":{"requestBody":{"required":true,"content":{"application/xml":{}}}},`+
				`"put":{"requestBody":{"content":{"application/xml":{}}}}}`)
		has(t, problemOf(api, "POST /p"), "no tool: its body must be one of: application/xml")
		has(t, problemOf(api, "PUT /p"), "the optional body is left out")
	})
	t.Run("19 inlined references", func(t *testing.T) {
		param := func(schema string) string {
			return `"/p":{"get":{"parameters":[{"in":"query","name":"v","schema":` + schema + `}]}}`
		}
		inline := func(components, schema string) *API {
			return mustLoad(t, docOf(param(schema), `"components":{"schemas":{`+components+`}}`),
				&Options{InlineRefs: true})
		}
		has(t,
			string(
				only(t,
					inline(`"A":{"type":"object","properties":{"$ref":{"type":"integer"},`+
						`"b":{"$ref":"#/components/schemas/B"}}},"B":{"enum":[{"$ref":"#/$defs/A"}]}`,
						`{"$ref":"#/components/schemas/A","description":"It"}`)).InputSchema),
			`"v":{"description":"It","allOf":[{"type":"object","properties":{"$ref":{"type":"integer"},`+
				`"b":{"enum":[{"$ref":"#/$defs/A"}]}}}]}},"additionalProperties":false}`)
		has(t,
			string(
				only(t, inline(`"A":{"type":"array","items":{"$ref":"#/components/schemas/A"}}`,
					`{"$ref":"#/components/schemas/A"}`)).InputSchema),
			`"v":{"type":"array","items":{"type":"array","items":{"description":"as A above"}}}},`+
				`"additionalProperties":false}`)
		large := `"A":{"type":"object","properties":{` + strings.TrimSuffix(strings.Repeat(`"p":{},`, 2),
			",") + `,"x":{"enum":["` + strings.Repeat("x", 5000) + `"]}}}`
		api := inline(large, `{"$ref":"#/components/schemas/A"}`)
		has(t, string(only(t, api).InputSchema), `"$defs":{"A":`)
		has(t, problemOf(api, "GET /p"), "keeps references")
		// B is left out, as it is too large, so nothing is known of C.
		api = inline(
			`"A":{"items":{"$ref":"#/components/schemas/B"}},"B":{"enum":["`+strings.Repeat("x", 20_000)+
				`"],"items":{"$ref":"#/components/schemas/C"}},"C":{}`, `{"$ref":"#/components/schemas/A"}`)
		has(t, string(only(t, api).InputSchema), `"B":{"description":"…"}`)
	})
	t.Run("20 unions at the root", func(t *testing.T) {
		body := func(schema string) string {
			return string(
				only(t,
					load(t,
						`"/p":{"post":{"requestBody":{"required":true,"content":{"application/json":{"schema":`+
							schema+`}}}}}`,
						`"components":{"schemas":{"A":{"type":"object","required":["a"],`+
							`"properties":{"a":{"type":"string"}}},"B":{"type":"object",`+
							`"properties":{"b":{"type":"integer"},"a":{"minLength":1}}}}}`)).InputSchema)
		}
		has(t, body(`{"oneOf":[{"type":"object"}]}`),
			`{"type":"object","properties":{"body":{"oneOf":[{"type":"object"}]}},"required":["body"]`)
		has(t,
			body(`{"allOf":[{"$ref":"#/components/schemas/A"},{"$ref":"#/components/schemas/B"},`+
				`{"required":["b"]}]}`),
			`"properties":{"a":{"allOf":[{"type":"string"},{"minLength":1}]},"b":{"type":"integer"}},`+
				`"required":["a","b"]`)
		has(t, body(`{"allOf":[{"oneOf":[]},{"$ref":"#/components/schemas/B"}]}`),
			`"properties":{"body":`)
	})
	t.Run("30 deprecated operations", func(t *testing.T) {
		doc := docOf(
			`"/p":{"get":{"deprecated":true,"operationId":"old"},"post":{"operationId":"make",` +
				`"parameters":[{"in":"query","name":"a","deprecated":true}]}}`)
		api := mustLoad(t, doc, nil)
		has(t, problemOf(api, "GET /p"), "deprecated; name it in Allow")
		lacks(t, string(only(t, api).InputSchema), `"a"`)
		if n := len(mustLoad(t, doc, &Options{Allow: []string{"old", "make"}}).Tools()); n != 2 {
			t.Errorf("%d tools", n)
		}
		if n := len(mustLoad(t, doc, &Options{Allow: []string{"*"}}).Tools()); n != 1 {
			t.Errorf("%d tools", n)
		}
	})
	t.Run("31 security", func(t *testing.T) {
		api := load(t,
			`"/p":{"get":{},"post":{"security":[{"k":[],"t":[]},{"o":["read","write"]},{}]},`+
				`"put":{"security":[]}}`, `"security":[{"k":[]}]`)
		for i, want := range []string{"k", "k and t, or o(read write), or none", ""} {
			if got := api.Tools()[i].Security; got != want {
				t.Errorf("%s: %s", api.Tools()[i].Operation, got)
			}
		}
	})
	t.Run("36 event streams", func(t *testing.T) {
		api := load(t,
			`"/p":{"get":{"responses":{"200":{"description":"","content":{"text/event-stream":{}}}}},`+
				`"post":{"responses":{"200":{"description":"","content":{"text/event-stream":{},`+
				`"application/json":{}}}}}}`)
		has(t, problemOf(api, "GET /p"), "event stream only")
		only(t, api)
	})
	t.Run("38 what is no tool", func(t *testing.T) {
		tool := only(t,
			load(t, `"/p":{"get":{"callbacks":{"x":{"y":{"post":{}}}}},"trace":{},"options":{}}`,
				`"openapi":"3.1.0"`, `"webhooks":{"w":{"post":{}}}`))
		has(t, tool.Operation, "GET /p")
	})
	t.Run("38 links", func(t *testing.T) {
		api := load(t, `"/users":{"post":{"operationId":"create","responses":{"201":{"links":{
				"a":{"operationId":"get-user","parameters":{"path.id":"$response.body#/id"}},"b":{"operationRef":"#/paths/~1users~1{id}/delete"},
				"c":{"operationId":"unknown"},"d":{"$ref":"#/components/links/again"}}},"404":{"links":{"e":{"operationId":"create"}}}}}},
			"/users/{id}":{"get":{"operationId":"get-user","parameters":[{"in":"path","name":"id","required":true}]},"delete":{"operationId":"remove"}}`,
			`"components":{"links":{"again":{"operationId":"get-user",`+
				`"parameters":{"path.id":"$response.body#/id"}}}}`)
		for _, tool := range api.Tools() {
			want := ""
			if tool.Name == "create" {
				want = "\nThen: get_user(id = $response.body#/id); remove()"
			}
			if _, got, _ := strings.Cut(tool.Description,
				"/users"); strings.TrimPrefix(got, "/{id}") != want {
				t.Errorf("%s: %q", tool.Name, tool.Description)
			}
		}
	})
	t.Run("39 HEAD", func(t *testing.T) {
		api := load(t, `"/p":{"get":{},"head":{}},"/q":{"head":{}}`)
		has(t, problemOf(api, "HEAD /p"), "GET does")
		if n := len(api.Tools()); n != 2 {
			t.Errorf("%d tools", n)
		}
	})
	t.Run("42 Swagger 2.0", func(t *testing.T) {
		api := mustLoad(t,
			[]byte(`{"swagger":"2.0","host":"api.example.test","basePath":"/v2","schemes":["https"],"info":{"title":"t","version":"1"},"consumes":["application/json"],
			"definitions":{"P":{"type":"object","required":["n"],"properties":{"n":{"type":"string"}}}},
			"paths":{"/p":{"post":{"parameters":[{"in":"body","name":"p","required":true,"schema":{"$ref":"#/definitions/P"}},{"in":"query","name":"q","type":"array","items":{"type":"string"},"collectionFormat":"pipes","required":true}]}},
			"/f":{"post":{"consumes":["multipart/form-data"],"parameters":[{"in":"formData","name":"f","type":"file","required":true},{"in":"formData","name":"d","type":"string","description":"What"}]}}}}`), &Options{
				AllowPrivate: true,
			})
		has(t, string(api.Tools()[1].InputSchema),
			`{"type":"object","properties":{"q":{"type":"array","items":{"type":"string"}},`+
				`"n":{"type":"string"}},"required":["q","n"],"additionalProperties":false}`)
		has(t, string(api.Tools()[0].InputSchema), `"d":{"type":"string","description":"What"}`)
		has(t, api.Tools()[0].plan.base.String(), "https://api.example.test/v2")
		has(t, api.Problems()[0].String(), "Swagger 2.0")
	})
	t.Run("43 extensions", func(t *testing.T) {
		api := load(t,
			`"/p":{"get":{"x-mcp":{"skip":true}},"post":{"operationId":"a","x-mcp":{"name":"make pet","title":"T","description":"D","annotations":{"destructiveHint":false}}},
			"put":{"x-speakeasy-mcp":{"disabled":true}},"patch":{"x-speakeasy-mcp":{"name":"set","readOnlyHint":true}}}`)
		names := []string{
			api.Tools()[0].Name, api.Tools()[0].Title, api.Tools()[0].Description,
			api.Tools()[1].Name,
		}
		if !slices.Equal(names, []string{"make_pet", "T", "D", "set"}) ||
			*api.Tools()[0].Annotations.DestructiveHint || !api.Tools()[1].Annotations.ReadOnlyHint {
			t.Errorf("%q", names)
		}
		has(t, problemOf(api, "PUT /p"), "x-mcp")
	})
	t.Run("43 what is ignored", func(t *testing.T) {
		api := load(t,
			`"/p":{"get":{"x-mcp":{"name":"a","include":["x"]},"x-speakeasy-mcp":{"scopes":["read"],`+
				`"title":"T"},"x-fastmcp-tags":[],"x-mcp-tool-include-fields":["a"]}}`, `"x-mcp-server":{}`)
		has(t, problemOf(api, "GET /p"),
			"ignored: x-mcp.include, x-speakeasy-mcp.scopes, x-fastmcp-tags, x-mcp-tool-include-fields;")
		has(t, api.Problems()[0].String(), "ignored: x-mcp-server;")
	})
}

// TestAnnotations: what each method means.
func TestAnnotations(t *testing.T) {
	api := mustLoad(t, docOf(`"/p":{"get":{},"query":{},"post":{},"put":{},"patch":{},"delete":{}}`),
		nil)
	want := map[string][3]bool{ // read only, destructive, idempotent
		"GET": {true, false, true}, "QUERY": {true, false, true}, "POST": {false, true, false},
		"PUT": {false, true, true}, "PATCH": {false, true, false}, "DELETE": {false, true, true},
	}
	for _, tool := range api.Tools() {
		a := tool.Annotations
		method, _, _ := strings.Cut(tool.Operation, " ")
		if got := [3]bool{a.ReadOnlyHint, *a.DestructiveHint, a.IdempotentHint}; got != want[method] ||
			!*a.OpenWorldHint {
			t.Errorf("%s: %v", method, got)
		}
		delete(want, method)
	}
	if len(want) > 0 {
		t.Errorf("no tools: %v", want)
	}
}

// TestNames: row 1, and what happens to names that collide, are long, or are not allowed.
func TestNames(t *testing.T) {
	doc := docOf(
		`"/a/{id}":{"parameters":[{"in":"path","name":"id"}],"get":{"operationId":"repos/get-content"},"put":{},"post":{"operationId":"21st"},"delete":{"operationId":"call_tool"}},
		"/b":{"get":{"operationId":"list-Pets"},"post":{"operationId":"LIST_pets"},"put":{"operationId":"a_very_long_name_that_does_not_fit_into_the_limit_of_names"},"patch":{"operationId":"***"}}`)
	got := map[string]string{}
	for _, tool := range mustLoad(t, doc, nil).Tools() {
		got[tool.Operation] = tool.Name + " " + tool.Renamed
	}
	for op, want := range map[string]string{
		"GET /a/{id}":    "repos_get_content characters that are not allowed",
		"PUT /a/{id}":    "put_a_by_id there is no operationId",
		"POST /a/{id}":   "op_21st characters that are not allowed",
		"DELETE /a/{id}": "call_tool_" + hash8("DELETE /a/{id}") + " the name is reserved",
		"GET /b":         "list_Pets_" + hash8("GET /b") + " other operations have this name",
		"POST /b":        "LIST_pets_" + hash8("POST /b") + " other operations have this name",
		"PUT /b": "a_very_long_name_that_does_not_fit_into_" + hash8("PUT /b") +
			" longer than the limit",
		"PATCH /b": "patch_b characters that are not allowed",
	} {
		if got[op] != want {
			t.Errorf("%s: %q, want %q", op, got[op], want)
		}
	}
	_, err := New(doc, &Options{
		BaseURL: "https://a.test",
		Edit:    func(_ string, t *mcp.Tool) { t.Name = "same" },
	})
	if err == nil || !strings.Contains(err.Error(), "have the name same") {
		t.Error(err)
	}
}

// TestSelection: Allow, Deny, ReadOnly and MaxTools.
func TestSelection(t *testing.T) {
	doc := docOf(
		`"/repos":{"get":{"operationId":"list","tags":["repos"]},"post":{"operationId":"make",` +
			`"tags":["repos"]}},"/repos/{id}/issues":{"parameters":[{"in":"path","name":"id"}],` +
			`"get":{"operationId":"issues_list"},"delete":{"operationId":"issues_clear"}}`)
	for _, test := range []struct {
		o    Options
		want string
	}{
		{Options{}, "list make issues_list issues_clear"},
		{Options{Allow: []string{"tag:repos"}}, "list make"},
		{Options{Allow: []string{"GET /repos/**"}}, "issues_list"},
		{Options{Allow: []string{"* /repos*"}}, "list make"},
		{Options{Allow: []string{"issues_*"}, Deny: []string{"DELETE **"}}, "issues_list"},
		{Options{ReadOnly: true}, "list issues_list"},
	} {
		var names []string
		for _, tool := range mustLoad(t, doc, &test.o).Tools() {
			names = append(names, tool.Name)
		}
		if got := strings.Join(names, " "); got != test.want {
			t.Errorf("%v: %s", test.o.Allow, got)
		}
	}
	if _, err := New(doc, &Options{BaseURL: "https://a.test", MaxTools: 3}); err == nil ||
		!strings.Contains(err.Error(), "4 operations become tools, 3 are allowed") {
		t.Error(err)
	}
}
