package refs

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/mcptest"
	"github.com/farcall-dev/farcall/mcp/era"
)

var update = flag.Bool("update", false,
	"write testdata/leaves.txt from the schemas in FARCALL_SPEC_DIR")

const leavesFile = "testdata/leaves.txt"

// never has the leaves that are no references to anything of a server, or must not be changed: a
// pattern of path.Match for their last steps, where a slash stands for the dot of a path.
var never = map[string]string{
	"icons[]/src":                   "the client fetches it itself",
	"serverInfo/*":                  "of each hop",
	"clientInfo/*":                  "of each hop",
	"prompts[]/arguments[]/name":    "of an argument, which belongs to its prompt",
	"resources[]/name":              "a label; nothing refers to it",
	"resourceTemplates[]/name":      "a label; nothing refers to it",
	"roots[]/name":                  "a label of the client's",
	"modelPreferences/hints[]/name": "of a model",
}

// TestSchemas fails when a revision has a leaf that looks like a reference, and neither a row of
// that revision nor never decides what becomes of it.
func TestSchemas(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(leavesFile)
	if err != nil {
		t.Fatal(err)
	}
	used, count := map[string]bool{}, map[string]int{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		revision, dir, method, leaf := f[0], toClient, f[2], f[3]
		if f[1] == "toServer" {
			dir = toServer
		}
		count[revision]++
		pattern := neverAs(leaf)
		used[pattern] = true
		if pattern == "" &&
			!decided(dir, method, leaf, 1<<slices.IndexFunc(oldestFirst(), func(r *era.Revision) bool {
				return r.Name == revision
			})) {
			t.Errorf(
				"nothing decides what becomes of %s of %s, %s, in revision %s: add a row to the table, or a "+
					"line to never", leaf, method, f[1], revision)
		}
	}
	for _, r := range era.Revisions() {
		if count[r.Name] < 30 {
			t.Errorf("there are %d leaves of revision %s: run this test with -update and FARCALL_SPEC_DIR",
				count[r.Name], r.Name)
		}
	}
	for pattern := range never {
		if !used[pattern] {
			t.Errorf("no leaf is %s: remove it from never", pattern)
		}
	}
}

func oldestFirst() []*era.Revision {
	return slices.SortedFunc(slices.Values(era.Revisions()), func(a, b *era.Revision) int {
		return strings.Compare(a.Name, b.Name)
	})
}

func neverAs(leaf string) string {
	steps := strings.Split(leaf, ".")
	for pattern := range never {
		n := strings.Count(pattern, "/") + 1
		if n > len(steps) {
			continue
		}
		end := strings.Join(steps[len(steps)-n:], "/")
		if ok, _ := path.Match(strings.ReplaceAll(pattern, "[]", `\[\]`), end); ok {
			return pattern
		}
	}
	return ""
}

// decided reports whether a row of the revision says what a leaf is.
func decided(dir direction, method, leaf string, revision revisions) bool {
	part, rest := partOf(leaf)
	n := places().of(dir, part, method)
	for n != nil && rest != "" {
		var step string
		step, rest = cutStep(rest)
		name := strings.TrimSuffix(step, "[]")
		if n.kind == kindKept || n.kind == kindOwn {
			break
		}
		if n = n.member([]byte(name)); n != nil && name != step {
			n = n.element()
		}
	}
	return n != nil && n.kind != kindNone && (n.revs == 0 || n.revs&revision != 0)
}

// TestLeaves compares the leaves that TestSchemas looks at with the schemas.
func TestLeaves(t *testing.T) {
	t.Parallel()
	dir := mcptest.Dir(t)
	var all []string
	for _, r := range oldestFirst() {
		text, err := os.ReadFile(filepath.Join(dir, r.Name, "schema.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, leaf := range leavesOf(t, text) {
			all = append(all, r.Name+" "+leaf+"\n")
		}
	}
	got := strings.Join(all, "")
	if *update {
		if err := os.WriteFile(leavesFile, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want, err := os.ReadFile(leavesFile); err != nil || string(want) != got {
		t.Errorf("%s is not as the schemas say (%v): run this test with -update", leavesFile, err)
	}
}

// leaves collects what looks like a reference in the messages of a schema.
type leaves struct {
	defs  map[string]map[string]any
	found map[string]bool
}

// leavesOf returns lines of direction, method and path.
func leavesOf(t *testing.T, schema []byte) []string {
	t.Helper()
	var doc struct {
		Old map[string]map[string]any `json:"definitions"`
		New map[string]map[string]any `json:"$defs"`
	}
	if err := json.Unmarshal(schema, &doc); err != nil {
		t.Fatal(err)
	}
	l := leaves{found: map[string]bool{}, defs: doc.New}
	if l.defs == nil {
		l.defs = doc.Old
	}
	for name, def := range l.defs {
		properties, _ := def["properties"].(map[string]any)
		constant, _ := properties["method"].(map[string]any)
		method, _ := constant["const"].(string)
		if method == "" {
			continue
		}
		for _, dir := range l.senders(name) {
			l.walk(dir+" "+method+" params", properties["params"], nil)
			answer := map[string]string{"toServer": "toClient", "toClient": "toServer"}[dir]
			base := strings.TrimSuffix(name, "Request")
			results := []string{base + "Result"}
			if method == "tools/call" {
				results = append(results, "CreateTaskResult", "InputRequiredResult")
			}
			for _, result := range results {
				if base != name && l.defs[result] != nil {
					l.walk(answer+" "+method+" result", map[string]any{"$ref": "/" + result}, nil)
				}
			}
		}
	}
	l.errorData(l.defs["URLElicitationRequiredError"])
	return slices.Sorted(maps.Keys(l.found))
}

// errorData looks for the schema of an error's data.
func (l *leaves) errorData(schema any) {
	switch s := schema.(type) {
	case map[string]any:
		if properties, ok := s["properties"].(map[string]any); ok && properties["data"] != nil {
			l.walk("toClient tools/call error.data", properties["data"], nil)
		}
		for _, sub := range s {
			l.errorData(sub)
		}
	case []any:
		for _, sub := range s {
			l.errorData(sub)
		}
	}
}

// senders returns who sends a message: the directions in which it goes.
func (l *leaves) senders(def string) (all []string) {
	for dir, unions := range map[string][]string{
		"toServer": {"ClientRequest", "ClientNotification"},
		"toClient": {"ServerRequest", "ServerNotification", "InputRequest"},
	} {
		for _, union := range unions {
			members, _ := l.defs[union]["anyOf"].([]any)
			for _, m := range members {
				ref, _ := m.(map[string]any)["$ref"].(string)
				if path.Base(ref) == def && !slices.Contains(all, dir) {
					all = append(all, dir)
				}
			}
		}
	}
	return all
}

var leafNames = []string{
	"uri", "uriTemplate", "name", "taskId", "cursor", "nextCursor", "elicitationId", "requestState",
	"progressToken",
	"requestId", "resourceSubscriptions", "resourceUri",
}

func (l *leaves) walk(at string, schema any, within []string) {
	s, ok := schema.(map[string]any)
	if !ok {
		return
	}
	if ref, ok := s["$ref"].(string); ok {
		def := ref[strings.LastIndex(ref, "/")+1:]
		if !slices.Contains(within, def) {
			l.walk(at, l.defs[def], append(slices.Clone(within), def))
		}
	}
	if format, _ := s["format"].(string); strings.HasPrefix(format, "uri") {
		l.found[at] = true
	}
	for _, key := range []string{"anyOf", "oneOf", "allOf"} {
		some, _ := s[key].([]any)
		for _, sub := range some {
			l.walk(at, sub, within)
		}
	}
	l.walk(at+"[]", s["items"], within)
	l.walk(at+".*", s["additionalProperties"], within)
	properties, _ := s["properties"].(map[string]any)
	for name, sub := range properties {
		step := name
		if strings.Contains(name, ".") {
			step = "'" + name + "'"
		}
		if slices.Contains(leafNames, name) {
			items := ""
			if one, _ := sub.(map[string]any); one["type"] == "array" {
				items = "[]"
			}
			l.found[at+"."+step+items] = true
		}
		l.walk(at+"."+step, sub, within)
	}
}
