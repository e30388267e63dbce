package skills

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/yamljson"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// The limits of the specification of Agent Skills (agentskills.io/specification), in characters,
// and our own of the frontmatter, in bytes.
const (
	maxName          = 64
	maxDescription   = 1024
	maxCompatibility = 500
	maxFrontmatter   = 64 << 10
)

// skillName is what a skill may be called.
var skillName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// frontmatter is the YAML at the beginning of a SKILL.md.
type frontmatter struct {
	raw               jsonrpc.Raw // the whole of it, as a JSON object
	name, description string
}

// parseFrontmatter reads what is between the first line, ---, and the next such line.
func parseFrontmatter(document []byte) (*frontmatter, error) {
	line, rest := cutLine(bytes.TrimPrefix(document, []byte("\ufeff")))
	if line != "---" {
		return nil, errors.New("it must begin with frontmatter: YAML between two lines of ---, with name and description")
	}
	head := rest
	for {
		if len(rest) == 0 {
			return nil, errors.New("its frontmatter has no end: a second line of --- is missing")
		}
		begin := len(head) - len(rest)
		if line, rest = cutLine(rest); line == "---" {
			head = head[:begin]
			break
		}
	}
	if len(head) > maxFrontmatter {
		return nil, fmt.Errorf("its frontmatter has %d bytes; %d are allowed", len(head), maxFrontmatter)
	}
	raw, err := yamljson.JSON(head)
	if err != nil {
		return nil, fmt.Errorf("its frontmatter: %w", err)
	}
	return newFrontmatter(raw)
}

// cutLine returns the first line of a text, without the white space at its end, and what follows.
func cutLine(text []byte) (line string, rest []byte) {
	head, rest, _ := bytes.Cut(text, []byte("\n"))
	return strings.TrimRight(string(head), " \t\r"), rest
}

// newFrontmatter reads a frontmatter that is JSON already.
func newFrontmatter(raw jsonrpc.Raw) (*frontmatter, error) {
	if len(raw) == 0 || raw[0] != '{' || len(raw) > 4*maxFrontmatter {
		return nil, fmt.Errorf("its frontmatter must be a map of at most %d bytes, with name and description", maxFrontmatter)
	}
	f := &frontmatter{raw: raw}
	for _, field := range []struct {
		name string
		to   *string
	}{{"name", &f.name}, {"description", &f.description}} {
		value := scan.Member(raw, field.name)
		if len(value) == 0 || value[0] != '"' {
			return nil, fmt.Errorf("its frontmatter: %s must be a text (got %.40s)", field.name, orNothing(value))
		}
		*field.to = string(scan.Unquote(value))
	}
	return f, nil
}

func orNothing(value []byte) string {
	if len(value) == 0 {
		return "nothing"
	}
	return string(value)
}

// check holds the frontmatter of a skill in a folder of that name against the specification.
func (f *frontmatter) check(folder string) error {
	switch n := utf8.RuneCountInString(f.description); {
	case len(f.name) > maxName || !skillName.MatchString(f.name):
		return fmt.Errorf("its frontmatter: name must be 1 to %d of a-z, 0-9 and single hyphens between them (got %.80q)", maxName, f.name)
	case f.name != folder:
		return fmt.Errorf("its frontmatter: name must be that of its folder, %.80q (got %q)", folder, f.name)
	case strings.TrimSpace(f.description) == "" || n > maxDescription:
		return fmt.Errorf("its frontmatter: description must have 1 to %d characters (got %d)", maxDescription, n)
	}
	if raw := scan.Member(f.raw, "compatibility"); raw != nil {
		if raw[0] != '"' || utf8.RuneCount(scan.Unquote(raw)) > maxCompatibility {
			return fmt.Errorf("its frontmatter: compatibility must be a text of at most %d characters", maxCompatibility)
		}
	}
	return nil
}

// values returns the frontmatter as Go values.
func (f *frontmatter) values() (map[string]any, error) {
	var all map[string]any
	err := jsonv2.Unmarshal(f.raw, &all)
	return all, err
}
