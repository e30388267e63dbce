package capture_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/capture"
)

// pieces are what random values, names and filters are made of.
var pieces = []string{
	"etc", "/etc", `\/etc`, `\u0065tc`, "Git", "git_log", "é", `\u00e9`, "\uFFFD", "a*c", `\"`, `\\`,
	`\n`, "path", `p\u0061th`, "17", "u", `\\u0065tc`, "K", "\u212a", "",
}

func piece(r *rand.Rand) string {
	var text strings.Builder
	text.WriteString(pieces[r.IntN(len(pieces))])
	for r.IntN(3) == 0 {
		text.WriteString(pieces[r.IntN(len(pieces))])
	}
	return text.String()
}

// randomFrame returns the text of a message with values under params.
func randomFrame(r *rand.Rand) string {
	value := func() string {
		switch r.IntN(4) {
		case 0:
			return fmt.Sprint(r.IntN(30))
		case 1:
			return `["` + piece(r) + `",{"path":"` + piece(r) + `"}]`
		case 2:
			return `{"` + piece(r) + `":"` + piece(r) + `"}`
		}
		return `"` + piece(r) + `"`
	}
	names := []string{"path", `p\u0061th`, "etc", `\/etc`, "é", "git_log"}
	var frame strings.Builder
	fmt.Fprintf(&frame, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{`, r.IntN(3))
	for i := range 1 + r.IntN(3) {
		name := names[r.IntN(len(names))]
		frame.WriteString(strings.Repeat(",", min(i, 1)) + `"` + name + `":` + value())
	}
	return frame.String() + "}}"
}

func randomFilter(r *rand.Rand) string {
	term := func() string {
		names := []string{"path", "etc", "/etc", "é", "git_log", "path.1.path", "path.0"}
		path := "params." + names[r.IntN(len(names))]
		text := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(piece(r))
		switch r.IntN(8) {
		case 0:
			return `"` + text + `"`
		case 1:
			return "has:" + path
		case 2:
			return path + `=~"^(?i)git|` + path[:1] + `"`
		case 3:
			return path + `=~"^` + []string{"/etc", "etc", "git", "é", "a.c", "(?i)GIT"}[r.IntN(6)] + `"`
		case 4:
			return path + ">10"
		}
		return path + []string{":", "=", "!="}[r.IntN(3)] + `"` + text + `"`
	}
	var filter strings.Builder
	filter.WriteString(term())
	for range r.IntN(3) {
		filter.WriteString([]string{" ", " or ", " not ", " -"}[r.IntN(4)] + term())
	}
	return filter.String()
}

// A filter selects the same frames whether it looks at the line of a record or at the bytes of the
// frame.
func TestFilterOfLines(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(19, 7))
	var frames []string
	for range 120 {
		frames = append(frames, randomFrame(r))
	}
	frames = append(frames, "\xff\"etc\"", "[]", "", `"etc"`)
	data := record(t, &capture.Options{Raw: true}, func(rec *capture.Recorder) {
		for _, f := range frames {
			rec.Frame(1, true, []byte(f))
		}
	})
	// Other programs write lines with other escapes.
	data = append(data, bytes.ReplaceAll(data, []byte("etc"), []byte(`\u0065t\u0063`))...)
	all := read(t, data)
	matches := 0
	for range 250 {
		text := randomFilter(r)
		f, err := capture.ParseFilter(text)
		if err != nil {
			continue // a regular expression of pieces
		}
		for _, rec := range all {
			plain := rec.Clone()
			if data, err := rec.Data(); err == nil && data != nil {
				plain.SetData(bytes.Clone(data))
			}
			got := f.Match(rec)
			if got != f.Match(plain) {
				t.Fatalf("%s: %v of the line, not of the frame: %s", text, got, rec.Append(nil))
			}
			if got {
				matches++
			}
		}
	}
	if matches < 500 {
		t.Errorf("only %d matches: the filters select nothing", matches)
	}
}

// A match leaves its record and those before it as they are: they share no memory.
func TestMatchChangesNothing(t *testing.T) {
	t.Parallel()
	f, err := capture.ParseFilter(`params.path="etc"`)
	if err != nil {
		t.Fatal(err)
	}
	data := record(t, &capture.Options{Raw: true}, func(rec *capture.Recorder) {
		for n := range 40 { // without an escape, and with one
			rec.Frame(1, true, bytes.Repeat([]byte("path etc 1 "), 40-n/2))
			rec.Frame(1, true, []byte(`{"params":{"path":"etc"}}`))
		}
	})
	all := read(t, data)
	var before []string
	for _, rec := range all {
		before = append(before, string(rec.Append(nil)))
	}
	for i, rec := range all {
		f.Match(rec)
		for j, rec := range all[:i+1] {
			if got := string(rec.Append(nil)); got != before[j] {
				t.Fatalf("after a match of record %d, record %d is %s", i, j, got)
			}
		}
	}
}

// A line is read in the same way by what expects the form of a recorder, and member by member.
func TestMembersInOrder(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(19, 8))
	data := record(t, &capture.Options{}, func(rec *capture.Recorder) {
		for n := range 100 {
			rec.FrameOf(uint64(n%3), uint64(n%2), n%2 == 0, []byte(randomFrame(r)), 10000*(n%4))
		}
	})
	broken := 0
	for line := range bytes.Lines(data) {
		if !bytes.HasPrefix(line, []byte(`{"type":"frame"`)) {
			continue
		}
		for range 10 {
			changed := bytes.Clone(line)
			for range r.IntN(3) {
				at := r.IntN(len(changed) - 1)
				change := []byte(`0917,":{}\e- `)[r.IntN(13)]
				if r.IntN(2) == 0 {
					changed = slices.Insert(changed, at, change)
				} else {
					changed[at] = change
				}
			}
			quick, quickErr := readLine(changed)
			slow, slowErr := readLine(append([]byte(" "), changed...))
			if quickErr != nil {
				broken++
			}
			if quick != slow || (quickErr == nil) != (slowErr == nil) {
				t.Fatalf("%s\n%s %v\n%s %v", changed, quick, quickErr, slow, slowErr)
			}
		}
	}
	if broken < 50 {
		t.Errorf("only %d lines were broken", broken)
	}
}

// readLine returns a line of a capture as it is written again.
func readLine(line []byte) (string, error) {
	head := []byte(`{"v":1,"type":"capture"}` + "\n")
	r, err := capture.NewReader(bytes.NewReader(append(head, line...)))
	if err != nil {
		return "", err
	}
	defer r.Close()
	if _, err = r.Next(); err != nil {
		return "", err
	}
	rec, err := r.Next()
	if err != nil {
		return "", err
	}
	return string(rec.Append(nil)), nil
}
