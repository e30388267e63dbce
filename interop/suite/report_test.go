package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestJudge(t *testing.T) {
	good := result{succeeded: 1}
	bad := result{succeeded: 1, failed: []check{{ID: "c", Status: "WARNING"}}}
	skipped := result{skipped: []string{"c"}}
	later := unwritten[0]
	for _, test := range []struct {
		name     string
		required string
		results  map[string]result
		expected map[string]string
		line     string
		ok       bool
		note     string // part of the last note
	}{
		{"all pass", "a b", map[string]result{"a": good, "b": good}, nil, "server all 2/2", true, ""},
		{
			"one fails", "a b",
			map[string]result{"a": good, "b": bad},
			nil, "server all 1/2", false,
			"b failed",
		},
		{
			"one is skipped", "a",
			map[string]result{"a": skipped},
			nil, "server all 0/1", false,
			"a failed",
		},
		{"one did not run", "a", nil, nil, "server all 0/1", false, "a did not run"},
		{
			"one fails as expected", "a",
			map[string]result{"a": bad},
			map[string]string{"server a": "why"},
			"server all 0/1 (1 expected to fail)", true, "",
		},
		{
			"another side is expected to fail", "a",
			map[string]result{"a": bad},
			map[string]string{"client a": "why"},
			"server all 0/1", false, "a failed",
		},
		{
			"one passes unexpectedly", "a",
			map[string]result{"a": good},
			map[string]string{"server a": "why"},
			"server all 1/1", false, "expected.txt",
		},
		{
			"one without a score", "a",
			map[string]result{"a": good, "b": good},
			nil,
			"server all 1/1, not scored 1/1", true, "",
		},
		{
			"one without a score fails", "a",
			map[string]result{"a": good, "b": bad},
			nil,
			"server all 1/1, not scored 0/1", false, "b failed",
		},
		{
			"one is not written", later,
			map[string]result{later: skipped},
			nil,
			"server all 1/1 (with what the suite itself skips: " + later + ")", true, "",
		},
		{
			"one is written now", later,
			map[string]result{later: good},
			nil, "server all 0/1", false,
			"is written now",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &suite{expected: test.expected}
			r := s.judge(leg{side: "server", what: "all"}, strings.Fields(test.required), test.results)
			if r.line != test.line || r.ok != test.ok {
				t.Errorf("judge: %q, ok %t; want %q, %t", r.line, r.ok, test.line, test.ok)
			}
			if note := strings.Join(r.notes, "\n"); test.note == "" && note != "" ||
				!strings.Contains(note, test.note) {
				t.Errorf("the notes are %q; want %q", note, test.note)
			}
		})
	}
}

func TestReadResults(t *testing.T) {
	dir := t.TempDir()
	for name, checks := range map[string]string{
		"server-server-initialize-2026-11-21T08-16-47-190Z": `[{"id":"x","status":"SUCCESS"},{"id":"i",` +
			`"status":"INFO"}]`,
		"server-ping-2026-11-21T08-16-47-190Z": `[{"id":"x","status":"FAILURE"},{"id":"w",` +
			`"status":"WARNING"},{"id":"s","status":"SKIPPED"}]`,
		"server-auth/x-2026-11-21T08-16-47-190Z": `[]`,
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, "checks.json"), []byte(checks), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	results, err := readResults(dir, "server")
	if err != nil {
		t.Fatal(err)
	}
	if r := results["server-initialize"]; !r.passed() {
		t.Errorf("server-initialize: %+v", r)
	}
	if r := results["ping"]; r.passed() || len(r.failed) != 2 ||
		!slices.Equal(r.skipped, []string{"s"}) {
		t.Errorf("ping: %+v", r)
	}
	if r, ran := results["auth/x"]; !ran || r.passed() {
		t.Errorf("auth/x: %+v, ran: %t", r, ran)
	}
}
