package main

import (
	"strings"
	"testing"
	"time"
)

// What a server says of itself cannot break the table, and columns are as wide as what is in them.
func TestStatsTable(t *testing.T) {
	t.Parallel()
	o := &statsOptions{operated: operated{remote: &remote{env: &env{}}}, sort: "errors"}
	now := &status{
		Name: "g\x1b[2J", Since: time.Now().Add(-50 * time.Hour), Calls: 1,
		Upstreams: []serverStatus{
			{Name: "a", State: "up", Calls: 1200, P50: 0.25, P99: 1234.5},
			{
				Name: "names\nof lines", State: "open", Errors: 3,
				LastError: strings.Repeat("ä", 100) + "\x1b[31m\nmore",
			},
		},
	}
	was := &status{Upstreams: []serverStatus{{Name: "a", Calls: 200}}}
	got := o.table(now, was, 4*time.Second)
	lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
	if len(lines) != 4 || strings.Contains(got, "\x1b") || strings.Contains(got, "more") ||
		!strings.Contains(lines[0], "up 2d2h: 0 sessions, 0 calls in flight") {
		t.Fatalf("%q", got)
	}
	if !strings.HasPrefix(lines[2], "names of lines  open ") || !strings.HasSuffix(lines[2], "ä…") {
		t.Errorf("%q", lines[2])
	}
	if want := "a               up             0       0    250.0       0.0  0.2ms  1234ms          " +
		"0         0"; lines[3] != want {
		t.Errorf("%q, want\n%q", lines[3], want)
	}
}

func TestRounded(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0s", 59 * time.Second: "59s", 61 * time.Second: "1m1s", 3*time.Hour + 5*time.Minute: "3h5m",
		26 * time.Hour: "1d2h",
	} {
		if got := rounded(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}
