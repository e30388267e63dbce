package validate

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestSuite runs the official test suite, when JSON_SCHEMA_SUITE names the
// directory of a clone of github.com/json-schema-org/JSON-Schema-Test-Suite.
func TestSuite(t *testing.T) {
	root := os.Getenv("JSON_SCHEMA_SUITE")
	if root == "" {
		t.Skip("JSON_SCHEMA_SUITE is not set")
	}
	// Formats and content are annotations here, and 1.0 is an integer in every draft.
	skip := []string{"content.json", "zeroTerminatedFloats.json", "format-assertion.json"}
	for dir, dialect := range map[string]string{
		"draft4":       "http://json-schema.org/draft-04/schema#",
		"draft6":       "http://json-schema.org/draft-06/schema#",
		"draft7":       "http://json-schema.org/draft-07/schema#",
		"draft2019-09": "https://json-schema.org/draft/2019-09/schema",
		"draft2020-12": "https://json-schema.org/draft/2020-12/schema",
	} {
		run, refused := 0, 0
		for _, pattern := range []string{"*.json", "optional/*.json"} {
			files, err := filepath.Glob(filepath.Join(root, "tests", dir, pattern))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				if !slices.Contains(skip, filepath.Base(file)) {
					r, x := runSuite(t, file, dialect)
					run, refused = run+r, refused+x
				}
			}
		}
		if t.Logf("%s: %d cases, %d schemas refused", dir, run, refused); run < 600 || refused > 30 {
			t.Errorf("that is wrong")
		}
	}
}

// runSuite runs the cases of a file. Schemas that need others, which are never
// fetched, are refused.
func runSuite(t *testing.T, file, dialect string) (run, refused int) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var groups []struct {
		Description string
		Schema      json.RawMessage
		Tests       []struct {
			Data  json.RawMessage
			Valid bool
		}
	}
	if err := json.Unmarshal(data, &groups); err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		if rest := bytes.TrimSpace(g.Schema[1:]); g.Schema[0] == '{' && len(rest) > 1 &&
			!bytes.Contains(rest, []byte(`"$schema"`)) {
			g.Schema = append([]byte(`{"$schema":"`+dialect+`",`), rest...)
		}
		s, err := Compile(g.Schema, Limits{})
		if err != nil {
			if refused++; !strings.Contains(err.Error(), "nothing is fetched") &&
				!strings.Contains(err.Error(), "is not supported") {
				t.Errorf("%s: %s: %v", file, g.Description, err)
			}
			continue
		}
		for _, c := range g.Tests {
			run++
			if err := s.Validate(c.Data); (err == nil) != c.Valid ||
				err != nil && !errors.As(err, new(*Error)) {
				t.Errorf("%s: %s: %s: got %v, want valid %v", file, g.Description, c.Data, err, c.Valid)
			}
		}
	}
	return run, refused
}
