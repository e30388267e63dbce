package gateway_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/internal/validate"
	"github.com/farcall-dev/farcall/observe/levels"
)

// Each answer, of reads and of changes, and each problem is as the OpenAPI document says.
func TestOperatorAnswersFit(t *testing.T) {
	l := newLabOf(t,
		&gateway.Options{LogLevels: levels.New(levels.Standard()...), Reload: func() ([]string, error) {
			return []string{"lock"}, nil
		}}, &gateway.Config{
			Namespace: "always", Upstreams: []*gateway.Upstream{child("a", "ok"), child("b", "ok")},
			Guard: guarded(allow("ops", "*")),
		})
	l.enter(t, "/mcp", "ops", "legacy")
	var doc struct {
		Components json.RawMessage `json:"components"`
		Paths      map[string]map[string]struct {
			Responses map[string]struct {
				Content map[string]struct {
					Schema json.RawMessage `json:"schema"`
				} `json:"content"`
			} `json:"responses"`
		} `json:"paths"`
	}
	l.read(t, "/openapi.json", &doc, as("ops"))
	fits := func(op operation, schema json.RawMessage, body string) {
		whole := strings.TrimSuffix(string(schema), "}") + `,"components":` + string(doc.Components) + "}"
		s, err := validate.Compile([]byte(whole), validate.Limits{})
		if err != nil {
			t.Fatalf("%v: %v", op, err)
		}
		if err := s.Validate([]byte(strings.TrimSpace(body))); err != nil {
			t.Errorf("%v: %v: %s", op, err, body)
		}
	}
	answered := 0
	for _, op := range l.operations(t, as("ops")) {
		path := pathOf(op)
		if op.path == "/explain" {
			path += "?call=a/echo"
		}
		got := l.ask(t, op.method, path, bodyOf(op), as("ops"))
		if got.status != http.StatusOK {
			fits(op, json.RawMessage(`{"$ref":"#/components/schemas/Problem"}`), got.body)
			continue
		}
		answered++
		fits(op,
			doc.Paths[op.path][strings.ToLower(
				op.method)].Responses["200"].Content["application/json"].Schema, got.body)
	}
	if answered < 10 {
		t.Errorf("%d operations have answered with success", answered)
	}
	t.Logf("%d operations have answered with success", answered)
}
