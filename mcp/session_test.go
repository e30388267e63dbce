package mcp

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/farcall-dev/farcall/mcp/spec"
)

var legacyNames = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}

func TestInitialize(t *testing.T) {
	for _, tt := range []struct{ asked, got string }{
		{"2024-11-05", "2024-11-05"},
		{"2025-03-26", "2025-03-26"},
		{"2025-06-18", "2025-06-18"},
		{"2025-11-25", "2025-11-25"},
		{"2026-07-28", "2025-11-25"},
		{"1900-01-01", "2025-11-25"},
	} {
		s := calculator(&ServerOptions{Instructions: "Add."})
		got := exchange(t, s, hello(tt.asked))
		wantJSON(t, tt.asked, result(t, got[0]),
			`{"protocolVersion":"`+tt.got+`","serverInfo":{"name":"calc","version":"1.0"},
			"capabilities":{"tools":{"listChanged":true},"logging":{}},"instructions":"Add."}`)
	}
}

func TestSession(t *testing.T) {
	for _, tt := range []struct{ name, frame, want string }{
		{"initialize again", hello(legacyName), `"code":-32600`},
		{"ping", legacyFrame("1", "ping", "{}"), `"result":{}`},
		{"list", legacyFrame("1", "tools/list", "{}"), `"result":{"tools":[{"name":"add"`},
		{"unknown", legacyFrame("1", "x/y", "{}"), `"code":-32601`},
		{"discover", legacyFrame("1", "server/discover", "{}"), `"code":-32601`},
		{"listen", legacyFrame("1", "subscriptions/listen", "{}"), `"code":-32601`},
		{"level", legacyFrame("1", "logging/setLevel", `{"level":"debug"}`), `"result":{}`},
		{"bad level", legacyFrame("1", "logging/setLevel", `{"level":"loud"}`), `"code":-32602`},
		{"no level", legacyFrame("1", "logging/setLevel", `{}`), `"code":-32602`},
		{"batch", `[` + legacyFrame("1", "ping", "{}") + `]`, `"code":-32600`},
		{"no prompts", legacyFrame("1", "prompts/list", "{}"), `"code":-32601`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := exchange(t, calculator(nil), hello(legacyName), initialized, tt.frame)
			if len(got) != 2 || !strings.Contains(got[1], tt.want) ||
				strings.Contains(got[1], "resultType") {
				t.Errorf("got %v, want %s", got, tt.want)
			}
		})
	}
}

func TestSessionBefore(t *testing.T) {
	x := calculator(nil).Accept(t.Context(), nil)
	defer x.Close()
	if x.Revision() != nil {
		t.Error("a revision before initialize")
	}
	_, err := x.ServeRPC(t.Context(), newRequest("tools/list", "{}"))
	if err == nil ||
		!strings.Contains(err.Error(), "the first request of a session must be initialize") {
		t.Error(err)
	}
	if _, err := x.ServeRPC(t.Context(), newRequest("ping", "")); err != nil {
		t.Error(err)
	}
	for _, params := range []string{
		``, `{}`, `{"protocolVersion":1}`,
		`{"protocolVersion":"2025-11-25","capabilities":1}`,
	} {
		if _, err := x.ServeRPC(t.Context(), newRequest("initialize", params)); err == nil ||
			!strings.Contains(err.Error(), "-32602") {
			t.Errorf("initialize %s: %v", params, err)
		}
	}
	if x.Revision() != nil {
		t.Error("a revision after a failed initialize")
	}
}

func TestBatch(t *testing.T) {
	batch := `[` + legacyFrame("1", "ping", "{}") + `,` +
		legacyFrame("2", "tools/call", `{"name":"add","arguments":{"a":1,"b":1}}`) + `]`
	for _, revision := range legacyNames {
		got := exchange(t, calculator(nil), hello(revision), initialized, batch)
		if len(got) != 2 {
			t.Fatal(revision, got)
		}
		if ok := strings.Contains(got[1], `{\"sum\":2}`); ok != (revision == "2025-03-26") {
			t.Errorf("%s: %s", revision, got[1])
		}
	}
	got := exchange(t, calculator(nil), `[`+hello("2025-03-26")+`]`)
	if len(got) != 1 || !strings.Contains(got[0], "initialize must not be part of a batch") {
		t.Error(got)
	}
}

// TestSessionRace initializes a session twice at the same time: one wins.
func TestSessionRace(t *testing.T) {
	s := calculator(nil)
	x := s.Accept(t.Context(), nil)
	defer x.Close()
	errs := make(chan error, 2)
	for _, revision := range []string{"2025-06-18", "2025-11-25"} {
		go func() {
			_, err := x.ServeRPC(context.Background(),
				newRequest("initialize",
					`{"protocolVersion":"`+revision+
						`","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`))
			errs <- err
		}()
	}
	if a, b := <-errs, <-errs; (a == nil) == (b == nil) {
		t.Error(a, b)
	}
}

func TestRequestsBeforeInitialized(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := serve(t, calculator(nil))
		defer w.close()
		w.ask(hello(legacyName))
		if got := w.ask(legacyFrame("1", "tools/list", "{}")); !strings.Contains(got, `"tools":[`) {
			t.Error(got)
		}
	})
}

// TestExecution shows taskSupport to the one revision that has it, and
// declares tasks as each revision has them.
func TestExecution(t *testing.T) {
	s := calculator(nil)
	AddTool(s, Tool{Name: "work", Execution: &spec.ToolExecution{TaskSupport: spec.TaskOptional}}, add)
	for _, revision := range legacyNames {
		got := exchange(t, s, hello(revision), legacyFrame("1", "tools/list", "{}"))
		has := revision == "2025-11-25"
		if strings.Contains(got[0], `"tasks":{`) != has ||
			strings.Contains(got[1], `"execution":{"taskSupport":"optional"}`) != has ||
			strings.Contains(got[0], "extensions") {
			t.Errorf("%s: %v", revision, got)
		}
	}
	got := exchange(t, s, modernFrame("1", "server/discover", ""), modernFrame("2", "tools/list", ""))
	if !strings.Contains(got[0], `"extensions":{"io.modelcontextprotocol/tasks":{}}`) ||
		strings.Contains(got[0], `"tasks":{"`) || strings.Contains(got[1], "execution") {
		t.Error(got)
	}
}
