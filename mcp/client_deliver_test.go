package mcp_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// An answer to a question of the server is sent again when a balancer in between does not reach the
// server: otherwise the call would wait until its time is over.
func TestAnswerIsSentAgain(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(http.ResponseWriter){
		"bad gateway": func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadGateway) },
		"reset":       func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			s := mcp.NewServer("asks", "1", nil)
			mcp.AddTool(s, mcp.Tool{Name: "ask"}, func(ctx context.Context, _ struct{}) (string, error) {
				form, err := mcp.Elicit[struct {
					Name string `json:"name"`
				}](ctx, "Who?")
				return form.Name, err
			})
			h := mcphttp.NewHandler(s, nil)
			var answers atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if bytes.Contains(body, []byte(`"action"`)) && answers.Add(1) <= 2 {
					refuse(w)
					return
				}
				r.Body = io.NopCloser(bytes.NewReader(body))
				h.ServeHTTP(w, r)
			}))
			defer server.Close()
			defer h.Shutdown(t.Context())
			c, err := mcp.Dial(t.Context(), server.URL, &mcp.ClientOptions{
				Era: era.LatestLegacy().Name,
				Elicit: func(context.Context, *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
					return &spec.ElicitResult{Action: "accept", Content: []byte(`{"name":"Ada"}`)}, nil
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			result, err := c.CallTool(t.Context(), "ask", nil)
			if err != nil || len(result.Content) != 1 || result.Content[0].Text != "Ada" ||
				answers.Load() != 3 {
				t.Errorf("%+v, %v, after %d answers", result, err, answers.Load())
			}
		})
	}
}
