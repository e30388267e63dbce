package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/observe"
)

func TestClipped(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"abc", "abc"},
		{"äöü", "äöü"},
		{"abcd", "abc… (1 more bytes)"},
		{"äöüä", "äöü… (2 more bytes)"},
		{"\xff\xfe\xfd\xfc", "\xff\xfe\xfd… (1 more bytes)"},
	} {
		if got := clipped(c.text, 3); got != c.want {
			t.Errorf("%q: %q, wanted %q", c.text, got, c.want)
		}
	}
}

func FuzzClipped(f *testing.F) {
	f.Add("äbc", 2)
	f.Fuzz(func(t *testing.T, text string, most int) {
		most = max(0, most%1000)
		got := clipped(text, most)
		head, cut, is := strings.Cut(got, "… (")
		if got == text {
			if utf8.RuneCountInString(text) > most && len(text) > most {
				t.Fatalf("%q is not cut at %d", text, most)
			}
		} else if !is || cut == "" ||
			utf8.RuneCountInString(head) > most && !strings.Contains(text, "… (") {
			t.Fatalf("%q cut at %d is %q", text, most, got)
		}
	})
}

// TestLogIsBounded: whatever a caller sends, the line of its call is short, in both formats.
func TestLogIsBounded(t *testing.T) {
	long := strings.Repeat("ä\n\x1b", 5<<20/4)
	for _, format := range []string{"text", "json"} {
		var out strings.Builder
		log, err := (&logFlags{log: format}).newLogger(t.Context(), &out)
		if err != nil {
			t.Fatal(err)
		}
		c := &observe.Call{
			ID: jsonrpc.StringID(long), Method: long, Conn: long, Transport: long, Tool: long,
			Principal: long,
			Err:       errors.New("there is no " + long),
		}
		callLog(log, false).End(t.Context(), c)
		log.Warn(long, "text", long, "error", fmt.Errorf("wrapped: %w", c.Err))
		if n := len(out.String()); n == 0 || n > 100_000 {
			t.Errorf("%s: %d bytes", format, n)
		}
		if line, _, _ := strings.Cut(out.String(), "\n"); len(line) > 40_000 ||
			!strings.Contains(line, "more bytes)") {
			t.Errorf("%s: the line of a call has %d bytes", format, len(line))
		}
	}
}

// lineCount counts the lines that have a text.
func lineCount(out, text string) int { return strings.Count(out, text) }

// TestLogRate: a caller that causes many lines leaves room for those of others and of farcall, on
// however many connections it comes, and what was left out is counted.
func TestLogRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		w := &lockedWriter{w: &out} // the line about what was left out comes from another goroutine
		text := func() string {
			w.mu.Lock()
			defer w.mu.Unlock()
			return out.String()
		}
		log, err := (&logFlags{log: "text", logRate: 100}).newLogger(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		say := func(name, conn, address string, n int) {
			ctx := context.WithValue(t.Context(), owner.ConnKey{},
				&owner.Conn{Name: conn, Owner: owner.Connection(conn, address)})
			for range n {
				callLog(log, false).End(ctx, &observe.Call{Method: name})
			}
		}
		for i := range 50 {
			say("loud", fmt.Sprint("tcp-", i), "192.0.2.1:1", 100)
		}
		say("quiet", "tcp-100", "192.0.2.2:1", 10)
		log.Error("own")
		if loud, quiet := lineCount(text(), "loud"), lineCount(text(), "quiet"); loud < 40 || loud > 50 ||
			quiet != 10 || lineCount(text(), "own") != 1 {
			t.Errorf("%d and %d lines:\n%s", loud, quiet, text())
		}
		loud := lineCount(text(), "loud")
		<-time.After(1500 * time.Millisecond)
		synctest.Wait()
		if want := fmt.Sprintf("left out: there were too many in a second\" lines=%d\n",
			5000-loud); !strings.HasSuffix(text(), want) {
			t.Errorf("no %s in the end of:\n%s", want, text())
		}
		w.mu.Lock()
		out.Reset()
		w.mu.Unlock()
		say("again", "tcp-1", "192.0.2.1:1", 10)
		if n := lineCount(text(), "again"); n != 10 || strings.Contains(text(), "left out") {
			t.Errorf("the next second:\n%s", text())
		}
		for range 500 {
			log.Info("own")
		}
		if n := lineCount(text(), "own"); n != 100 {
			t.Errorf("%d lines of farcall", n)
		}
	})
}

// TestLogRateOfManyCallers: together they have no more than the rate.
func TestLogRateOfManyCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pace{out: slog.DiscardHandler, most: 100}
		taken := 0
		for i := range 10_000 {
			if p.take(owner.Address(fmt.Sprintf("192.0.%d.%d", i/250, i%250)), time.Now()) {
				taken++
			}
		}
		if taken != 100 {
			t.Errorf("%d lines", taken)
		}
	})
}

// TestLogRateOff: without a bound no line is left out, and a negative one is refused.
func TestLogRateOff(t *testing.T) {
	var out strings.Builder
	log, err := (&logFlags{log: "text"}).newLogger(t.Context(), &out)
	if err != nil {
		t.Fatal(err)
	}
	for range 5000 {
		log.InfoContext(
			context.WithValue(t.Context(), owner.ConnKey{}, &owner.Conn{Owner: owner.Named("x")}), "line")
	}
	if n := lineCount(out.String(), "msg=line"); n != 5000 {
		t.Errorf("%d lines", n)
	}
	if _, err := (&logFlags{log: "text", logRate: -1}).newLogger(t.Context(), &out); err == nil {
		t.Error("a rate below 0 is taken")
	}
}

// TestCallLevels: a client that cancels its call or leaves does nothing wrong. A server that
// cancels a call does.
func TestCallLevels(t *testing.T) {
	server := &jsonrpc.Error{Code: jsonrpc.Cancelled, Message: "cancelled"}
	for name, c := range map[string]struct {
		call observe.Call
		want slog.Level
	}{
		"an answer": {observe.Call{}, slog.LevelInfo},
		"the client leaves": {
			observe.Call{Code: jsonrpc.Cancelled, Err: fmt.Errorf("a call: %w", context.Canceled)},
			slog.LevelInfo,
		},
		"the server cancels": {observe.Call{Code: jsonrpc.Cancelled, Err: server}, slog.LevelWarn},
		"out of time": {
			observe.Call{Code: jsonrpc.Timeout, Err: context.DeadlineExceeded},
			slog.LevelWarn,
		},
		"bad params": {observe.Call{Code: jsonrpc.InvalidParams}, slog.LevelWarn},
		"our fault":  {observe.Call{Code: jsonrpc.InternalError}, slog.LevelError},
		"of ours": {
			observe.Call{Outgoing: true, Code: jsonrpc.InternalError},
			slog.LevelDebug,
		},
	} {
		if got := callLevel(&c.call); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
