package openapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const answerDoc = `"/p":{"get":{"operationId":"a","responses":{"200":{"content":{"application/json":{"schema":{"$ref":"#/components/schemas/A"}}}},"404":{"content":{"application/json":{}}}}}},
	"/list":{"get":{"responses":{"200":{"content":{"application/json":{"schema":{"type":"array"}}}}}}},
	"/two":{"get":{"responses":{"200":{"content":{"application/json":{"schema":{"type":"object"}}}},"204":{}}}},
	"/text":{"get":{"responses":{"200":{"content":{"application/json":{"schema":{"type":"object"}},"text/csv":{}}}}}}`

const answerSchemas = `"components":{"schemas":{"A":{"required":["id","b","w"],"properties":{"id":{"type":"integer","readOnly":true},
	"w":{"type":"string","writeOnly":true},"old":{"type":"string","deprecated":true},"b":{"$ref":"#/components/schemas/B"}}},"B":{"type":"string"}}}`

// TestOutputSchemas: row 34. Schemas of answers are shown when that is asked for, and hold then.
func TestOutputSchemas(t *testing.T) {
	answer := ""
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(answer))
	}))
	defer api.Close()
	doc := docOf(answerDoc, answerSchemas)
	for _, tool := range mustLoad(t, doc, &Options{BaseURL: api.URL}).Tools() {
		if tool.OutputSchema != nil {
			t.Errorf("%s has an output schema without being asked for", tool.Name)
		}
	}
	all := mustLoad(t, doc, &Options{BaseURL: api.URL, OutputSchemas: true})
	for _, tool := range all.Tools() {
		want := ""
		if tool.Name == "a" {
			want = `{"type":"object","required":["id","b"],"properties":{"id":{"type":"integer"},` +
				`"old":{"type":"string"},"b":{"$ref":"#/$defs/B"}},"$defs":{"B":{"type":"string"}}}`
		}
		if got := string(tool.OutputSchema); got != want {
			t.Errorf("%s: %s", tool.Name, got)
		}
	}
	c := dialAPI(t, all)
	for body, want := range map[string]string{
		`{"id":1,"b":"x"}`: "", `{"id":"1","b":"x"}`: "not what its document says",
		`[1]`: "not what its document says", `no`: "it is no JSON object",
	} {
		answer = body
		r := callTool(t, c, "a", `{}`)
		if want == "" && (r.IsError || string(r.StructuredContent) != body) || want != "" &&
			(!r.IsError || !strings.Contains(r.Content[0].Text, want) || r.Content[1].Text != body) {
			t.Errorf("%s: %+v", body, r)
		}
	}
}
