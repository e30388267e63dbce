package admin

import (
	"testing"
	"time"
)

func TestVisible(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain":                  "plain",
		"two\r\n\tlines":         "two\n\tlines",
		"\x1b[1;31mred\x1b[0m":   "red",
		"\x1b[999":               "U+001B[999",
		"a\u202eb\u2066c":        "aU+202EbU+2066c",
		"family 👩\u200d👩":        "family 👩\u200d👩",
		"bad \xff\xe2\x82 utf-8": "bad \ufffd\ufffd\ufffd utf-8",
		"real \ufffd":            "real \ufffd",
		"ééééééééééééééééééééé":     "éééééééééééééééééééé …",
		"\u2028next \u0085 \x7f ok": "U+2028next U+0085 U+007F ok",
	} {
		if got := visible(in, 20); got != want {
			t.Errorf("visible(%+q) = %+q, want %+q", in, got, want)
		}
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64][2]string{
		0: {"0", "0"}, 999: {"999", "999"}, 1000: {"1,000", "1,000"}, 999999: {"999,999", "999,999"},
		1234567: {"1,234,567", "1.23 M"}, 12345678: {"12,345,678", "12.3 M"}, 123456789: {"123,456,789", "123 M"},
		1234567890: {"1,234,567,890", "1.23 G"}, 1 << 50: {"1,125,899,906,842,624", "1,125,899,906,842,624"},
	} {
		if got := [2]string{count(n), short(n)}; got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		0: "–", 420 * time.Microsecond: "0.42 ms", 12 * time.Millisecond: "12 ms", 61 * time.Second: "61.0 s",
	} {
		if got := took(d); got != want {
			t.Errorf("took(%v) = %q, want %q", d, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		-time.Second: "0 s", 59 * time.Second: "59 s", 61 * time.Second: "1 min 01 s", 3*time.Hour + 4*time.Minute: "3 h 04 min", 76 * time.Hour: "3 d 04 h",
	} {
		if got := ago(noon.Add(-d), noon); got != want {
			t.Errorf("ago(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestStates(t *testing.T) {
	t.Parallel()
	s := Status{}
	for _, state := range []string{"up", "up", "idle", "down", "open", "starting", "", "disabled"} {
		s.Upstreams = append(s.Upstreams, UpstreamStatus{State: state})
	}
	v := newView(&s, noon, "")
	if want := "1 breaker open, 1 down, 1 starting, 2 up, 1 disabled, 1 idle, 1 unknown"; v.States != want {
		t.Errorf("got %q, want %q", v.States, want)
	}
	if v.Up != 2 || v.Troubled != 2 || len(v.Trouble) != 2 {
		t.Errorf("%d up, %d in trouble, %d of them named", v.Up, v.Troubled, len(v.Trouble))
	}
}
