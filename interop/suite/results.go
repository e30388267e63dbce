package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// check is one check of a scenario, as the suite writes it.
type check struct {
	ID           string `json:"id"`
	Status       string `json:"status"`
	ErrorMessage string `json:"errorMessage"`
	Details      any    `json:"details"`
}

// result is what became of a scenario.
type result struct {
	succeeded int
	failed    []check
	skipped   []string
	log       string // what the client wrote
}

// passed reports whether something was checked, and nothing failed. A scenario
// with all checks skipped was not really run.
func (r result) passed() bool { return len(r.failed) == 0 && r.succeeded > 0 }

func (r result) onlySkipped() bool {
	return len(r.failed) == 0 && r.succeeded == 0 && len(r.skipped) > 0
}

// said returns what the client wrote.
func (r result) said() string {
	return "the client says: " + strings.ReplaceAll(strings.TrimSpace(r.log), "\n", "\n        ")
}

func (r result) failures() (lines []string) {
	for _, c := range r.failed {
		details, _ := json.Marshal(c.Details)
		lines = append(lines,
			fmt.Sprintf("    %s %s: %s %.600s", c.Status, c.ID, c.ErrorMessage, details))
	}
	if r.log != "" {
		lines = append(lines, "    "+r.said())
	}
	return lines
}

// A directory is named [server-]SCENARIO-TIME.
var directory = regexp.MustCompile(`^(.+)-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d+Z$`)

// readResults reads what the suite wrote into dir. A warning counts as a failure,
// as the suite itself has it on the client's side.
func readResults(dir, side string) (map[string]result, error) {
	results := map[string]result{}
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil || filepath.Base(path) != "checks.json" {
			return err
		}
		rel, err := filepath.Rel(dir, filepath.Dir(path))
		if err != nil {
			return err
		}
		m := directory.FindStringSubmatch(filepath.ToSlash(rel))
		if m == nil {
			return fmt.Errorf("%s: unknown name of a directory of results", rel)
		}
		name := m[1]
		if side == "server" {
			name = strings.TrimPrefix(name, "server-")
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var checks []check
		if err := json.Unmarshal(data, &checks); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		var r result
		for _, c := range checks {
			switch {
			case c.Status == "FAILURE", c.Status == "WARNING":
				r.failed = append(r.failed, c)
			case c.Status == "SUCCESS":
				r.succeeded++
			case c.Status == "SKIPPED":
				r.skipped = append(r.skipped, c.ID)
			}
		}
		stderr, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "stderr.txt"))
		r.log = string(stderr)
		results[name] = r
		return nil
	})
	return results, err
}
