package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// unwritten are the scenarios that check nothing: the suite marks them skipped,
// whatever is tested, and counts them as passed.
var unwritten = []string{"tasks-status-notifications"}

// report is what became of a leg.
type report struct {
	line  string
	notes []string
	ok    bool
}

func (r *report) fail(format string, args ...any) {
	r.ok = false
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// judge holds the results of a leg against what is expected of it. required are
// the scenarios that count for the score.
func (s *suite) judge(l leg, required []string, results map[string]result) *report {
	r := &report{ok: true}
	var passed, unscored, unscoredPassed, known int
	var skipped []string
	all := slices.Concat(required,
		slices.DeleteFunc(slices.Sorted(maps.Keys(results)), func(name string) bool {
			return slices.Contains(required, name)
		}))
	for i, name := range all {
		scored := i < len(required)
		if !scored {
			unscored++
		}
		switch s.judgeScenario(r, l, name, results) {
		case failed:
			continue
		case failedAsExpected:
			known++
			continue
		case notWritten:
			skipped = append(skipped, name)
		}
		if scored {
			passed++
		} else {
			unscoredPassed++
		}
	}
	r.line = fmt.Sprintf("%s %d/%d", l, passed, len(required))
	if unscored > 0 {
		r.line += fmt.Sprintf(", not scored %d/%d", unscoredPassed, unscored)
	}
	if known > 0 {
		r.line += fmt.Sprintf(" (%d expected to fail)", known)
	}
	if len(skipped) > 0 {
		r.line += " (with what the suite itself skips: " + strings.Join(skipped, ", ") + ")"
	}
	return r
}

type verdict int

const (
	failed verdict = iota
	failedAsExpected
	succeeded
	notWritten
)

// judgeScenario says what became of a scenario, and notes what should not be so.
func (s *suite) judgeScenario(r *report, l leg, name string, results map[string]result) verdict {
	res, ran := results[name]
	reason := s.expected[l.expectation()+" "+name]
	if s.verbose && ran && len(res.failed) == 0 {
		if len(res.skipped) > 0 {
			r.notes = append(r.notes, name+" skipped: "+strings.Join(res.skipped, ", "))
		}
		if res.log != "" {
			r.notes = append(r.notes, name+": "+res.said())
		}
	}
	switch {
	case ran && slices.Contains(unwritten, name):
		if res.onlySkipped() {
			return notWritten
		}
		r.fail("%s is written now: take it out of unwritten", name)
		return failed
	case ran && res.passed() && reason != "":
		r.fail("%s passes; expected.txt says that it fails: %s", name, reason)
		return succeeded
	case ran && res.passed():
		return succeeded
	case reason != "":
		return failedAsExpected
	case !ran:
		r.fail("%s did not run", name)
		return failed
	}
	r.fail("%s failed", name)
	if s.verbose {
		r.notes = append(r.notes, res.failures()...)
	}
	return failed
}
