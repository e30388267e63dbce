package era

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestSelect(t *testing.T) {
	const everyLegacy = "2025-11-25 2025-06-18 2025-03-26 2024-11-05"
	for _, test := range []struct{ pin, modern, legacy string }{
		{"", "2026-07-28", everyLegacy},
		{"auto", "2026-07-28", everyLegacy},
		{"modern", "2026-07-28", ""},
		{"legacy", "", everyLegacy},
		{"2026-07-28", "2026-07-28", ""},
		{"2025-03-26", "", "2025-03-26"},
	} {
		modern, legacy, err := Select(test.pin)
		if err != nil || joined(modern) != test.modern || joined(legacy) != test.legacy {
			t.Errorf("%q: %s | %s, %v", test.pin, joined(modern), joined(legacy), err)
		}
	}
	_, _, err := Select("2025-11-26")
	if err == nil || !strings.Contains(err.Error(), `"2025-11-26"`) ||
		!strings.Contains(err.Error(), "2025-11-25") {
		t.Errorf("an unknown revision: %v", err)
	}
}

func joined(all []*Revision) string {
	var s []string
	for _, r := range all {
		s = append(s, r.Name)
	}
	return strings.Join(s, " ")
}

func TestTable(t *testing.T) {
	all := Revisions()
	if !slices.IsSortedFunc(all, func(a, b *Revision) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("the table is not in order")
	}
	for _, r := range all {
		if Lookup(r.Name) != r {
			t.Errorf("Lookup(%s) is another revision", r.Name)
		}
		if r.HTTPSSE == r.StreamableHTTP {
			t.Errorf("%s has no HTTP transport or two", r.Name)
		}
		if !r.Handshake && (r.SessionHeader || r.PingAllowed || r.Subscribe || r.SetLevel) {
			t.Errorf("%s is stateless and has a session", r.Name)
		}
		if r.ResourceNotFound == 0 || r.UnsupportedVersion == 0 {
			t.Errorf("%s has no codes", r.Name)
		}
	}
	if Latest() != all[len(all)-1] || Latest().Handshake || !LatestLegacy().Handshake {
		t.Error("Latest or LatestLegacy")
	}
	if Lookup("2025-11-26") != nil || Lookup("") != nil {
		t.Error("Lookup finds what is not there")
	}
	all[0] = nil
	if Revisions()[0] == nil {
		t.Error("a caller can change the table")
	}
	// A fact that is the same everywhere says nothing.
	for i := range reflect.TypeFor[Revision]().NumField() {
		first := reflect.ValueOf(*Revisions()[0]).Field(i)
		if !slices.ContainsFunc(Revisions(), func(r *Revision) bool {
			return !reflect.ValueOf(*r).Field(i).Equal(first)
		}) {
			t.Errorf("%s is %v in every revision", reflect.TypeFor[Revision]().Field(i).Name, first)
		}
	}
}
