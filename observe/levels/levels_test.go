package levels_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/leak"
	"github.com/farcall-dev/farcall/observe/levels"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// A component has its own level or the base level, also a logger that was made before the change.
func TestLevels(t *testing.T) {
	l := levels.New("gateway", "guard")
	var out bytes.Buffer
	all := &slog.HandlerOptions{Level: slog.LevelDebug}
	log := slog.New(l.Handler(slog.NewTextHandler(&out, all)))
	loggers := map[string]*slog.Logger{
		"":        log,
		"gateway": log.With(levels.Key, "gateway"),
		"guard":   log.With("x", 1, levels.Key, "guard").With("y", 2),
		"other":   log.With(levels.Key, "other"),
		"group":   log.WithGroup("g").With(levels.Key, "guard"), // g.component is another attribute
	}
	for _, step := range []struct{ set, state, debug, info, warn string }{
		{"info", "info", "", "  gateway guard group other", ""},
		{"guard=debug", "info,guard=debug", "guard", "gateway group other", ""},
		{"warn, guard = error", "warn,guard=error", "", "", "gateway group other"},
		{"gateway=info,guard=default", "warn,gateway=info", "", "gateway", "guard group other"},
		{"debug", "debug,gateway=info", "guard group other", "gateway", ""},
	} {
		if err := l.Set(step.set); err != nil {
			t.Fatal(err)
		}
		if l.String() != step.state {
			t.Errorf("after %q: %q, want %q", step.set, l.String(), step.state)
		}
		for name, log := range loggers {
			if name == "" {
				continue
			}
			want := slog.LevelError
			for text, level := range map[string]slog.Level{
				step.debug: slog.LevelDebug, step.info: slog.LevelInfo, step.warn: slog.LevelWarn,
			} {
				if strings.Contains(" "+text+" ", " "+name+" ") {
					want = level
				}
			}
			for _, level := range []slog.Level{
				slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError,
			} {
				out.Reset()
				log.Log(t.Context(), level, "line")
				if got := out.Len() > 0; got != (level >= want) {
					t.Errorf("after %q: a line of %s at %v is logged: %v", step.set, name, level, got)
				}
			}
		}
	}
	if err := l.Replace("error,guard=warn"); err != nil || l.String() != "error,guard=warn" {
		t.Error(err, l)
	}
}

// A text that is wrong in part changes nothing, and its error names what there is.
func TestWrong(t *testing.T) {
	l := levels.New("gateway", "guard")
	for text, want := range map[string]string{
		"":                  "level",
		"loud":              "level",
		"debug,loud":        "level",
		"debug,guards=info": "component",
		"=info":             "component",
		"guard=":            "level",
		"default":           "level",
		"guard=debug=x":     "level",
		"debug,,":           "level",
	} {
		for _, set := range []func(string) error{l.Set, l.Replace} {
			e, ok := errors.AsType[*levels.Error](set(text))
			if !ok || e.What != want || !strings.Contains(e.Error(), e.Candidates[1]) {
				t.Errorf("%q: %v", text, e)
			}
		}
		if l.String() != "info" {
			t.Fatalf("%q has changed the levels to %s", text, l)
		}
	}
}

// FuzzSet gives Set any text: what it takes it can write, and read again.
func FuzzSet(f *testing.F) {
	f.Add("warn,guard=debug")
	f.Add("a=b=c,=,,")
	f.Fuzz(func(t *testing.T, text string) {
		l := levels.New("gateway", "guard")
		if l.Set(text) != nil {
			return
		}
		again := levels.New("gateway", "guard")
		if err := again.Set(l.String()); err != nil || again.String() != l.String() {
			t.Errorf("%q: %v, %s is not %s", text, err, again, l)
		}
	})
}

// A line that is not logged costs no allocation.
func TestAllocations(t *testing.T) {
	h := levels.New("guard").Handler(slog.NewTextHandler(t.Output(), nil))
	log := slog.New(h).With(levels.Key, "guard")
	n := testing.AllocsPerRun(100, func() { log.LogAttrs(t.Context(), slog.LevelDebug, "line") })
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
