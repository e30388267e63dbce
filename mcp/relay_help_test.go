package mcp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A relay compares the headers that repeat arguments, as a server does that has
// the tool.
func TestRelayChecksHeaders(t *testing.T) {
	schema := headerSchema
	f := &fakeRelay{forward: func(
		ctx context.Context, _ *era.Revision, _ string, _ jsonrpc.Raw,
	) (jsonrpc.Raw, *era.Revision, error) {
		return jsonrpc.Raw(`{"content":[]}`), era.Latest(),
			relay.CheckHeaders(ctx, "run", jsonrpc.Raw(schema))
	}}
	s := relayServer(t, f, nil)
	url := serveRelayHTTP(t, s)
	post := func(region string) (int, string) {
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run",` +
			`"arguments":{"region":"eu"},` +
			`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
			`"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},` +
			`"io.modelcontextprotocol/clientCapabilities":{}}}}`
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{
			"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
			"Mcp-Protocol-Version": {rev2026}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"run"},
		}
		if region != "" {
			r.Header.Set("Mcp-Param-Region", region)
		}
		got, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer got.Body.Close()
		text, err := io.ReadAll(got.Body)
		if err != nil {
			t.Fatal(err)
		}
		return got.StatusCode, string(text)
	}
	if code, text := post("eu"); code != http.StatusOK {
		t.Errorf("%d %s", code, text)
	}
	for _, region := range []string{"", "us"} {
		if code, text := post(region); code != http.StatusBadRequest ||
			!strings.Contains(text, "-32020") || !strings.Contains(text, "the tool run in tools/list") {
			t.Errorf("%q: %d %s", region, code, text)
		}
	}
	for _, schema = range []string{`{"type":"object"}`, `{"x-mcp-header":"Root"}`, `x-mcp-header`} {
		// a client would not repeat these
		if code, text := post("us"); code != http.StatusOK {
			t.Errorf("%s: %d %s", schema, code, text)
		}
	}
	schema = headerSchema
	p := dialLegacy(t, s, rev2511, `{}`, nil)
	if r := sendLegacy(t, p, "tools/call",
		`{"name":"run","arguments":{"region":"eu"}}`); r.Error != nil {
		t.Errorf("legacy: %v", r.Error)
	}
	if err := relay.CheckHeaders(t.Context(), "run", jsonrpc.Raw(schema)); err != nil {
		t.Error(err)
	}
}

// The name of a question is there in the legacy era, too.
func TestQuestionName(t *testing.T) {
	names := make(chan string, 1)
	s := askServer(t, func(ctx context.Context) (string, error) {
		_, err := Elicit[askForm](relay.Named(ctx, "who \"is\" it"), "Who?")
		return "", err
	}, nil)
	p := dialLegacy(t, s, rev2511, canAll, func(_ context.Context, req *farcall.Request) (any, error) {
		names <- relay.QuestionName(req.Params)
		return jsonrpc.Raw(humanAnswers(req.Method, req.Params)), nil
	})
	if r := sendLegacy(t, p, "tools/call", `{"name":"ask"}`); r.Error != nil {
		t.Error(r.Error)
	}
	if name := <-names; name != `who "is" it` {
		t.Errorf("the name is %q", name)
	}
	for _, params := range []string{
		``, `{}`, `{"_meta":{}}`, `{"_meta":{"farcall.dev/name":""}}`, `{"_meta":{"farcall.dev/name":5}}`,
		`{"_meta":[]}`,
		`{"_meta":{"farcall.dev/name":"` + strings.Repeat("x", 100) + `"}}`,
	} {
		if name := relay.QuestionName(jsonrpc.Raw(params)); name != "" {
			t.Errorf("%s has the name %q", params, name)
		}
	}
}

func TestTaskOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := taskRelay(spec.TaskOptional, func(ctx context.Context) (string, error) {
			before := relay.TaskOf(ctx)
			if err := StartTask(ctx); err != nil {
				return "", err
			}
			return fmt.Sprint(before, relay.TaskOf(ctx)), nil
		})
		s := relayServer(t, f, nil)
		if r := sendModern(t, s, `{}`, "tools/call",
			`{"name":"work"}`); r.text() != fmt.Sprint(relay.NoTask, relay.NoTask) {
			t.Errorf("%s", r.raw)
		}
		r := sendModern(t, s, `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`, "tools/call",
			`{"name":"work"}`)
		synctest.Wait()
		g := sendTask(t, s, "tasks/get", r.Result.TaskID, "")
		if g.Result.Result.Content[0].Text != fmt.Sprint(relay.MayBecomeTask, relay.IsTask) {
			t.Errorf("%s", g.raw)
		}
		if got := relay.TaskOf(t.Context()); got != relay.NoTask {
			t.Errorf("outside of a handler: %d", got)
		}
	})
}

// The member task of a modern client means nothing, and nothing to a legacy server
// either.
func TestForwardDropsTask(t *testing.T) {
	all := legacyFake(nil)
	all["tools/call"], all["tools/list"] = `{"content":[]}`, `{"tools":[]}`
	c, f := mustPipe(t, all, &ClientOptions{Era: revLegacy})
	for rev, want := range map[string]string{
		revModern: `tools/call {"name":"x"}`,
		revLegacy: `tools/call {"name":"x","task":{}}`,
	} {
		if _, _, err := c.Forward(t.Context(),
			&relay.Forward{
				Method: "tools/call", Params: jsonrpc.Raw(`{"name":"x","task":{}}`),
				Revision: era.Lookup(rev),
			}); err != nil {
			t.Error(err)
		}
		f.mu.Lock()
		got := f.got[len(f.got)-1]
		f.mu.Unlock()
		if got != want {
			t.Errorf("from %s: %s", rev, got)
		}
	}
}

// A task that has ended when it is made, which the answer does not say the result
// of.
func TestForwardTaskEndedAtOnce(t *testing.T) {
	all := modernFake(nil)
	const task = `"taskId":"t","createdAt":"2026-01-01T00:00:00Z",` +
		`"lastUpdatedAt":"2026-01-01T00:00:00Z","ttlMs":60000,"pollIntervalMs":60000`
	all["tools/call"] = `{"resultType":"task","status":"completed",` + task + `}`
	all["tasks/get"] = `{"resultType":"complete","status":"completed",` + task +
		`,"result":{"resultType":"complete","content":[]}}`
	c, _ := mustPipe(t, all, &ClientOptions{Era: revModern})
	raw, _, err := c.Forward(t.Context(),
		&relay.Forward{Method: "tools/call", Params: jsonrpc.Raw(`{"name":"x"}`)})
	if err != nil || string(raw) != `{"resultType":"complete","content":[]}` {
		t.Errorf("%s, %v", raw, err)
	}
}
