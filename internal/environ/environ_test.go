package environ

import (
	"slices"
	"testing"
)

// gateway.TestEnviron has what a command gets, and what it does not.
func TestChildReplaces(t *testing.T) {
	from := []string{"PATH=/bin", "A=from", "B_1=x", "GITHUB_TOKEN=x"}
	got := Child(from, []string{"A", "B_*"}, map[string]string{"A": "own", "PATH": "/own"})
	if want := []string{"B_1=x", "A=own", "PATH=/own"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestWithheldIsNotGiven(t *testing.T) {
	from := []string{
		"PIP_INDEX_URL=https://me:pw@host/", "UV_INDEX=https://host/",
		"npm_config_token=t",
	}
	held, given := Withheld(from, []string{"npm_*"}, nil), Child(from, []string{"npm_*"}, nil)
	if want := []string{"PIP_INDEX_URL"}; !slices.Equal(held, want) {
		t.Errorf("withheld %q, want %q", held, want)
	}
	if want := from[1:]; !slices.Equal(given, want) {
		t.Errorf("given %q, want %q", given, want)
	}
}
