package seal

import (
	"bytes"
	"encoding/base64"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func box(tb testing.TB, purpose string, keys ...string) *Box {
	tb.Helper()
	var all [][]byte
	for _, k := range keys {
		all = append(all, bytes.Repeat([]byte(k), KeySize)[:KeySize])
	}
	b, err := New(all, purpose)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func later() time.Time { return time.Now().Add(time.Minute) }

func TestOpens(t *testing.T) {
	b := box(t, "test")
	for _, text := range []string{"", "x", strings.Repeat("s", 1000)} {
		sealed := b.Seal([]byte(text), "ann", later())
		if got, err := b.Open(sealed, "ann", len(text)); err != nil || string(got) != text {
			t.Errorf("%d bytes: opened to %d bytes, %v", len(text), len(got), err)
		}
		if b.Seal([]byte(text), "ann", later()) == sealed {
			t.Error("the same text is sealed to the same twice")
		}
		if _, err := b.Open(sealed, "bob", len(text)); !errors.Is(err, ErrForged) {
			t.Errorf("bound to another: %v", err)
		}
	}
	if _, err := b.Open(b.Seal(make([]byte, 100), "", later()), "", 90); !errors.Is(err, ErrForged) {
		t.Errorf("larger than allowed: %v", err)
	}
	for _, c := range b.Seal(bytes.Repeat([]byte{0xff}, 1000), "", later()) {
		if c < 0x21 || c > 0x7e {
			t.Fatalf("%q is not visible ASCII", c)
		}
	}
}

func TestPurposesAreApart(t *testing.T) {
	sealed := box(t, "one", "k").Seal(nil, "", later())
	if _, err := box(t, "other", "k").Open(sealed, "", 0); !errors.Is(err, ErrForged) {
		t.Errorf("opened for another purpose: %v", err)
	}
}

func TestEveryChangeIsRefused(t *testing.T) {
	b := box(t, "test", "k")
	sealed := b.Seal([]byte("text"), "ann", later())
	raw, _ := base64.RawURLEncoding.DecodeString(sealed)
	try := func(what, text string) {
		t.Helper()
		if _, err := b.Open(text, "ann", 100); !errors.Is(err, ErrForged) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i := range sealed {
		try("cut off", sealed[:i])
		try("line break", sealed[:i]+"\n"+sealed[i:])
	}
	for i := range raw {
		for bit := range 8 {
			raw[i] ^= 1 << bit
			try("bit flipped", base64.RawURLEncoding.EncodeToString(raw))
			raw[i] ^= 1 << bit
		}
	}
}

func TestExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := box(t, "test", "k")
		sealed, forever := b.Seal(nil, "", later()), b.Seal(nil, "", time.UnixMilli(math.MaxInt64))
		<-time.After(time.Minute - time.Millisecond)
		if _, err := b.Open(sealed, "", 0); err != nil {
			t.Errorf("before its end: %v", err)
		}
		<-time.After(time.Millisecond)
		if _, err := b.Open(sealed, "", 0); !errors.Is(err, ErrExpired) {
			t.Errorf("at its end: %v", err)
		}
		<-time.After(100 * 365 * 24 * time.Hour)
		if _, err := b.Open(forever, "", 0); err != nil {
			t.Errorf("without an end: %v", err)
		}
	})
}

func TestRotation(t *testing.T) {
	old, both, fresh := box(t, "test", "old"), box(t, "test", "new", "old"), box(t, "test", "new")
	if _, err := both.Open(old.Seal(nil, "", later()), "", 0); err != nil {
		t.Errorf("the old key does not open any more: %v", err)
	}
	if _, err := fresh.Open(both.Seal(nil, "", later()), "", 0); err != nil {
		t.Errorf("the new key does not seal: %v", err)
	}
	if _, err := fresh.Open(old.Seal(nil, "", later()), "", 0); !errors.Is(err, ErrForged) {
		t.Errorf("a key that is gone opens: %v", err)
	}
	both.keys[0].id = both.keys[1].id
	if _, err := both.Open(old.Seal(nil, "", later()), "", 0); err != nil {
		t.Errorf("two keys of one id: %v", err)
	}
	if _, err := New([][]byte{make([]byte, 16)}, "test"); err == nil ||
		!strings.Contains(err.Error(), "16 bytes") {
		t.Errorf("a short key: %v", err)
	}
}

func FuzzOpen(f *testing.F) {
	b := box(f, "test") // a key of this process: each one that fuzzes has its own
	sealed := b.Seal([]byte("text"), "ann", later())
	f.Add(sealed)
	f.Add("")
	f.Add(sealed[1:])
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := b.Open(text, "ann", 1<<10); err == nil && text != sealed {
			t.Errorf("%q opened to %q", text, got)
		}
	})
}
