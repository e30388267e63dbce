package edits_test

import (
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/edits"
)

func TestDistance(t *testing.T) {
	long := strings.Repeat("x", 1000)
	for _, test := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "abc", 3},
		{"upstreams", "upstreams", 0},
		{"upstreams", "upstream", 1},
		{"upstreams", "upsteams", 1},
		{"upstreams", "upsterams", 1}, // neighbours that have changed places
		{"kitten", "sitting", 3},
		{long, "x", 63},
		{long, long + "y", 0},
	} {
		for _, words := range [][2]string{{test.a, test.b}, {test.b, test.a}} {
			if got := edits.Distance(words[0], words[1]); got != test.want {
				t.Errorf("Distance(%.20q, %.20q) = %d, want %d", words[0], words[1], got, test.want)
			}
		}
	}
}
