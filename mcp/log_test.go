package mcp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
)

// chatty has a tool that reports progress and logs, ten times each, and its
// levels.
func chatty() *Server {
	s := NewServer("calc", "1.0", nil)
	AddTool(s, Tool{Name: "chat"}, func(ctx context.Context, _ struct{}) (string, error) {
		for i := range 10 {
			if err := Progress(ctx, float64(i), 10, "step"); err != nil {
				return "", err
			}
			if err := Log(ctx, "info", "chat", map[string]int{"i": i}); err != nil {
				return "", err
			}
		}
		return "done", nil
	})
	AddTool(s, Tool{Name: "levels"}, func(ctx context.Context, _ struct{}) (string, error) {
		for _, level := range []string{"debug", "info", "warning", "emergency"} {
			if err := Log(ctx, level, "", level); err != nil {
				return "", err
			}
		}
		return "done", nil
	})
	AddTool(s, Tool{Name: "wrong"}, func(ctx context.Context, _ struct{}) (string, error) {
		if err := Log(ctx, "loud", "", nil); err == nil {
			return "", fmt.Errorf("a level that there is not")
		}
		return "", Log(ctx, "emergency", "", func() {})
	})
	return s
}

// TestInOrder wants all that a handler tells before its result, in order: the
// notifications that others lose.
func TestInOrder(t *testing.T) {
	check := func(t *testing.T, got []string) {
		t.Helper()
		if len(got) != 21 {
			t.Fatalf("%d frames, want 21: %v", len(got), got)
		}
		for i := range 10 {
			wantJSON(t, "progress", got[2*i],
				fmt.Sprintf(
					`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"tok\u0041",`+
						`"progress":%d,"total":10,"message":"step"}}`, i))
			wantJSON(t, "log", got[2*i+1],
				fmt.Sprintf(
					`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","logger":"chat",`+
						`"data":{"i":%d}}}`, i))
		}
		if !strings.Contains(got[20], `"text":"done"`) {
			t.Error(got[20])
		}
	}
	const token = `"progressToken":"tok\u0041"`
	t.Run("modern", func(t *testing.T) {
		check(t,
			exchange(t, chatty(),
				modernFrameWith("1", "tools/call", `"name":"chat"`, "{}",
					`,`+token+`,"io.modelcontextprotocol/logLevel":"info"`)))
	})
	for _, revision := range legacyNames[1:] { // the first one has no messages in progress
		t.Run(revision, func(t *testing.T) {
			got := exchange(t, chatty(), hello(revision), initialized,
				legacyFrame("1", "tools/call", `{"name":"chat","_meta":{`+token+`}}`))
			check(t, got[1:])
		})
	}
	got := exchange(t, chatty(), hello("2024-11-05"), initialized,
		legacyFrame("1", "tools/call", `{"name":"chat","_meta":{`+token+`}}`))
	wantJSON(t, "2024-11-05", got[1],
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"tok\u0041",`+
			`"progress":0,"total":10}}`)
}

func TestLogLevels(t *testing.T) {
	levels := func(frames []string) string {
		var all []string
		for _, f := range frames {
			if _, level, ok := strings.Cut(f, `"level":"`); ok {
				all = append(all, level[:strings.IndexByte(level, '"')])
			}
		}
		return strings.Join(all, " ")
	}
	for level, want := range map[string]string{
		"": "", "debug": "debug info warning emergency", "notice": "warning emergency",
		"emergency": "emergency",
	} {
		meta := ""
		if level != "" {
			meta = `,"io.modelcontextprotocol/logLevel":"` + level + `"`
		}
		if got := levels(
			exchange(t, chatty(), modernFrameWith("1", "tools/call", `"name":"levels"`, "{}", meta))); got !=
			want {
			t.Errorf("modern %q: %s", level, got)
		}
		frames := []string{hello(legacyName), initialized}
		if level == "" {
			want = "info warning emergency"
		} else {
			frames = append(frames, legacyFrame("1", "logging/setLevel", `{"level":"`+level+`"}`))
		}
		if got := levels(
			exchange(t, chatty(),
				append(frames, legacyFrame("2", "tools/call", `{"name":"levels"}`))...)); got != want {
			t.Errorf("legacy %q: %s", level, got)
		}
	}
}

func TestLogMisuse(t *testing.T) {
	got := exchange(t, chatty(),
		modernFrameWith("1", "tools/call", `"name":"wrong"`, "{}",
			`,"io.modelcontextprotocol/logLevel":"debug"`))
	if len(got) != 1 || !strings.Contains(got[0], "the data of a log message cannot be marshalled") {
		t.Error(got)
	}
	if err := Log(t.Context(), "info", "", "x"); err != nil {
		t.Error("outside of a handler:", err)
	}
	if err := Progress(t.Context(), 1, 0, ""); err != nil {
		t.Error("outside of a handler:", err)
	}
}

// TestLevelOfSession changes the level while a handler runs.
func TestLevelOfSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer("calc", "1.0", nil)
		goOn := make(chan struct{})
		AddTool(s, Tool{Name: "wait"}, func(ctx context.Context, _ struct{}) (string, error) {
			<-goOn
			return "", Log(ctx, "debug", "", "late")
		})
		w := serve(t, s)
		defer w.close()
		w.open(legacyName)
		w.send(legacyFrame("1", "tools/call", `{"name":"wait"}`))
		w.ask(legacyFrame("2", "logging/setLevel", `{"level":"debug"}`))
		close(goOn)
		if got := w.rest(); len(got) != 2 || !strings.Contains(got[0], `"late"`) {
			t.Error(got)
		}
	})
}

// What a handler logs and reports after it has returned is lost: that is an error.
func TestLogAfterReturn(t *testing.T) {
	synctest.Test(t, testLogAfterReturn)
}

func testLogAfterReturn(t *testing.T) {
	var kept context.Context
	s := NewServer("x", "1", nil)
	AddTool(s, Tool{Name: "keep"}, func(ctx context.Context, _ struct{}) (string, error) {
		kept = ctx //nolint:fatcontext // the test is about that
		return "", nil
	})
	sendModern(t, s, canNothing, "tools/call", `{"name":"keep"}`)
	if err := Progress(kept, 1, 2, ""); !errors.Is(err, errReturned) {
		t.Errorf("progress: %v", err)
	}
	if err := Log(kept, "info", "", "late"); !errors.Is(err, errReturned) {
		t.Errorf("log, of a client that wants none: %v", err)
	}
	w := serve(t, s)
	defer w.close()
	w.open(legacyName)
	w.ask(legacyFrame("1", "tools/call", `{"name":"keep"}`))
	if err := Log(kept, "info", "", "late"); !errors.Is(err, errReturned) {
		t.Errorf("log: %v", err)
	}
}
