package refs

import (
	"strings"
	"testing"
)

// TestWords fails when placesText has a line with an unknown word.
func TestWords(t *testing.T) {
	t.Parallel()
	shapes := map[string]bool{}
	all := rowsOf(placesText)
	for _, r := range all {
		shapes[r.method] = strings.HasPrefix(r.method, "<")
	}
	for _, r := range all {
		if kinds[r.what] == kindNone && !shapes[r.what] ||
			shapes[r.method] != (r.revs == 0 && r.dirs == nil) {
			t.Errorf("places.txt: %+v has a word that is not known", r)
		}
	}
	lines := 0
	for line := range strings.Lines(placesText) {
		if line, _, _ = strings.Cut(line, "#"); strings.TrimSpace(line) != "" {
			lines++
		}
	}
	if lines != len(all) || lines == 0 {
		t.Errorf("%d rows of %d lines", len(all), lines)
	}
}
