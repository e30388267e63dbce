//go:build !race

package jsonv2_test

import (
	"testing"

	"github.com/farcall-dev/farcall/internal/jsonv2"
)

func TestAppendAllocs(t *testing.T) {
	dst := make([]byte, 0, 1024)
	for name, test := range map[string]struct {
		v    any
		most float64
	}{
		"float64":        {1.5, 0},
		"string":         {"hello", 0},
		"struct pointer": {&outer{A: 1, B: 2}, 0},
		"struct":         {outer{A: 1, B: 2}, 1}, // the library needs it addressable
		"slice":          {[]float64{1, 2, 3}, 1},
	} {
		got := testing.AllocsPerRun(200, func() {
			if _, err := jsonv2.Append(dst, test.v); err != nil {
				t.Fatal(err)
			}
		})
		t.Logf("%s: %v allocations", name, got)
		if got > test.most {
			t.Errorf("%s: %v allocations, %v allowed", name, got, test.most)
		}
	}
}
