package cancel

import (
	"context"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

// The cause of an end is that of the context and of those that were derived before and after.
func TestCause(t *testing.T) {
	c, _ := newCtx(t)
	before, stop := context.WithCancel(c)
	defer stop()
	c.end.CancelCause(c.Context, errors.New("first"))
	c.end.CancelCause(c.Context, errors.New("second"))
	<-before.Done()
	after, stop := context.WithCancel(c)
	defer stop()
	for _, ctx := range []context.Context{c, before, after} {
		if ctx.Err() != context.Canceled || context.Cause(ctx).Error() != "first" {
			t.Errorf("%v, because %v", ctx.Err(), context.Cause(ctx))
		}
	}
	plain, cancel := newCtx(t)
	cancel()
	if context.Cause(plain) != context.Canceled { //nolint:errorlint // as package context has it
		t.Error(context.Cause(plain))
	}
}

func TestGiven(t *testing.T) {
	for raw, want := range map[string]string{
		``: "", `null`: "", `7`: "", `{"a":1}`: "", `""`: "", `"why\u0020not"`: "why not",
		`"` + strings.Repeat("x", 5000) + `"`: strings.Repeat("x", MaxReason),
	} {
		if got := Given([]byte(raw)); got != want {
			t.Errorf("%.40s: %q", raw, got)
		}
	}
}

func FuzzBound(f *testing.F) {
	f.Add("")
	f.Add(strings.Repeat("é", 600))
	f.Add("x" + strings.Repeat("\U0001F600", 300))
	f.Add(strings.Repeat("\x80", 2000))
	f.Fuzz(func(t *testing.T, text string) {
		got := Bound(text)
		if !utf8.ValidString(got) || len(got) > MaxReason || len(text) <= MaxReason && utf8.ValidString(text) && got != text {
			t.Errorf("%q: %q", text, got)
		}
	})
}
