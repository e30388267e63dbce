// Package size answers one question: how many bytes does a user mean by 10MB?
package size

import (
	"strconv"
	"strings"
)

// units are what a size may end in. The longer come first: most of them end in "b".
var units = []struct {
	suffix string
	bytes  float64
}{
	{"kib", 1 << 10},
	{"mib", 1 << 20},
	{"gib", 1 << 30},
	{"kb", 1e3},
	{"mb", 1e6},
	{"gb", 1e9},
	{"k", 1 << 10},
	{"m", 1 << 20},
	{"g", 1 << 30},
	{"b", 1},
}

// Parse reads a size in bytes: 1048576, 10MB, 512KiB, 1.5g, in upper or lower case. ok is false for
// what is no size, and for one that is below least or above most.
func Parse(text string, least, most int64) (bytes int64, ok bool) {
	number, unit := strings.ToLower(strings.TrimSpace(text)), 1.0
	for _, u := range units {
		if head, found := strings.CutSuffix(number, u.suffix); found {
			number, unit = strings.TrimSpace(head), u.bytes
			break
		}
	}
	n, err := strconv.ParseFloat(number, 64)
	n *= unit
	if err != nil || !(n >= float64(least) && n <= float64(most)) {
		return 0, false
	}
	return int64(n), true
}
