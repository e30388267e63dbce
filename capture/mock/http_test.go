package mock_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/capture"
	"github.com/farcall-dev/farcall/capture/mock"
)

const begin = `{"id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`

// asked is a capture of MCP with progress and a question within a call.
var asked = [][2]string{
	{"up", begin},
	{"down", `{"id":1,"result":{"protocolVersion":"2025-06-18","x":"é"}}`},
	{"up", `{"id":2,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":9}}}`},
	{"down", `{"method":"notifications/progress","params":{"progressToken":9,"progress":1}}`},
	{"down", `{"id":"q","method":"elicitation/create","params":{}}`},
	{"up", `{"id":"q","result":{"action":"accept"}}`},
	{"down", `{"result":{"content":[]},"id":2}`},
}

// A reply is closed at the end of its test.
type reply struct{ *http.Response }

// post sends a frame and returns the answer.
func post(t *testing.T, url, session, frame string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(frame))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "application/json, text/event-stream")
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return reply{resp}
}

// body checks an answer.
func body(t *testing.T, resp reply, status int, want string) {
	t.Helper()
	got, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status || string(got) != want {
		t.Errorf("status %d %s %v, want %d %s", resp.StatusCode, got, err, status, want)
	}
}

// web serves a script over HTTP. What it does not answer has status 418.
func web(t *testing.T, frames [][2]string) string {
	t.Helper()
	script, err := mock.Load(record(t, capture.Options{Raw: true}, frames), nil)
	if err != nil {
		t.Fatal(err)
	}
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		io.Copy(w, r.Body)
	})
	s := httptest.NewServer(script.Handler(next, nil))
	t.Cleanup(func() {
		s.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return s.URL
}

func TestHandler(t *testing.T) {
	t.Parallel()
	url := web(t, asked)
	for _, other := range []string{
		strings.Replace(begin, "2025-06-18", "2024-11-05", 1),
		`{"id":1,"method":"tools/list"}`, `no JSON`,
	} {
		body(t, post(t, url, "", other), http.StatusTeapot, other)
	}
	begun := post(t, url, "", begin)
	body(t, begun, http.StatusOK, `{"id":1,"result":{"protocolVersion":"2025-06-18","x":"é"}}`)
	session := begun.Header.Get("Mcp-Session-Id")
	body(t, post(t, url, session, `{"method":"notifications/initialized"}`), http.StatusAccepted, "")
	call := post(t, url, session,
		`{"id":7,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":"p"}}}`)
	events := make([]byte, len(
		`data: {"method":"notifications/progress","params":{"progressToken":"p","progress":1}}`+"\n\n"+
			`data: {"id":"q","method":"elicitation/create","params":{}}`+"\n\n"))
	_, err := io.ReadFull(call.Body, events)
	if err != nil || !strings.Contains(string(events), `{"id":"q"`) {
		t.Fatalf("%s %v", events, err)
	}
	answer := `{"id":"q","result":{"action":"decline"}}`
	body(t, post(t, url, session, answer), http.StatusAccepted, "")
	body(t, call, http.StatusOK, `data: {"result":{"content":[]},"id":7}`+"\n\n")
	body(t, post(t, url, session, `[{"id":1,"method":"ping"},{"method":"x"}]`), http.StatusOK,
		`[{"jsonrpc":"2.0","id":1,"result":{}}]`)
	for _, c := range []struct {
		method string
		status int
	}{{http.MethodGet, 405}, {http.MethodDelete, 200}, {http.MethodDelete, 418}} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Mcp-Session-Id", session)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != c.status {
			t.Errorf("%s: status %d, want %d", c.method, resp.StatusCode, c.status)
		}
	}
	body(t, post(t, url, session, answer), http.StatusTeapot, answer)
}

// TestHandlerPlain: a capture that is not one of MCP answers every client.
func TestHandlerPlain(t *testing.T) {
	t.Parallel()
	url := web(t, [][2]string{
		{"up", `{"id":1,"method":"m"}`},
		{"down", "{\n\"id\":1,\"result\":2}"},
	})
	resp := post(t, url, "", `{"id":"a","method":"m"}`)
	body(t, resp, http.StatusOK, "{\n\"id\":\"a\",\"result\":2}")
}

// TestHandlerBoundsSessions: sessions that are never ended make room for the newest one, and those
// of another address stay.
func TestHandlerBoundsSessions(t *testing.T) {
	t.Parallel()
	script, err := mock.Load(record(t, capture.Options{Raw: true}, asked), nil)
	if err != nil {
		t.Fatal(err)
	}
	h := script.Handler(http.NotFoundHandler(), nil)
	send := func(address, session, frame string) *httptest.ResponseRecorder {
		in := strings.NewReader(frame)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", in)
		r.Header.Set("Mcp-Session-Id", session)
		r.RemoteAddr = address
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	const many, other, ping = "192.0.2.1:1", "192.0.2.2:1", `{"id":1,"method":"ping"}`
	begins := func(address string) string {
		return send(address, "", begin).Header().Get("Mcp-Session-Id")
	}
	sessions := map[string]string{"other": begins(other), "first": begins(many)}
	for range 1024 {
		sessions["last"] = begins(many)
	}
	for name, want := range map[string]int{"other": 200, "first": 404, "last": 200} {
		if got := send(many, sessions[name], ping).Code; got != want {
			t.Errorf("the %s session has status %d, want %d", name, got, want)
		}
	}
}
