package mcptest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
)

// updateEnv makes Golden write its files. A flag would be state of the package,
// and go test ./... would fail in each package that does not import this one.
const updateEnv = "MCPTEST_UPDATE"

// Golden compares what a client and s send each other with the files
// dir/REVISION.txt, so that a change of what clients see shows up in a review.
// With MCPTEST_UPDATE=1 in the environment it writes the files instead:
//
//	MCPTEST_UPDATE=1 go test ./...
//
// It runs a subtest for each revision that o.Era selects, by default all five:
// the subtest connects a client of that revision with s in memory, as [Client]
// does, and talk uses the client. o may be nil. s is the same for all revisions,
// and so is what it remembers.
//
// A file has a line for each frame, as it went over the wire, behind > (the
// client sends it) or < (the server does). Placeholders stand for what differs
// between runs: <requestState 1>, and likewise with the other members that hold
// random values (cursor, elicitationId, nextCursor, progressToken, sessionId,
// subscriptionId, taskId), numbered in the order in which their values appear, and
// <time> for each RFC 3339 time.
//
// The order of the frames is part of the file. Only a sequential talk has the
// same order each time: make one call after the other, do not cancel calls, and
// wait for each notification that you cause. A talk that fails is not compared
// and writes no file.
func Golden(t *testing.T, s *mcp.Server, dir string, o *mcp.ClientOptions, talk func(t *testing.T, c *mcp.Client)) {
	t.Helper()
	var opts mcp.ClientOptions
	if o != nil {
		opts = *o
	}
	modern, legacy, err := era.Select(opts.Era)
	if err != nil {
		t.Fatalf("mcptest: %v", err)
	}
	for _, rev := range slices.Concat(legacy, modern) {
		opts.Era = rev.Name
		t.Run(rev.Name, func(t *testing.T) {
			near, far := farcall.Pipe()
			r := &recorder{Transport: near}
			t.Cleanup(func() { // when the client and the server have ended
				if !t.Failed() && !t.Skipped() {
					compare(t, filepath.Join(dir, rev.Name+".txt"), r.transcript())
				}
			})
			talk(t, connect(t, s, r, far, &opts))
		})
	}
}

// recorder records the frames of a client. It hides the optional halves of its
// transport, for which farcall has substitutes.
type recorder struct {
	farcall.Transport

	mu     sync.Mutex
	frames []recorded
}

// recorded is a frame behind its mark.
type recorded struct {
	mark byte
	text []byte
}

// Read implements farcall.Transport.
func (r *recorder) Read() ([]byte, error) {
	frame, err := r.Transport.Read()
	if err == nil {
		r.record('<', frame)
	}
	return frame, err
}

// Write implements farcall.Transport. It records first, since the answer may
// arrive before it returns.
func (r *recorder) Write(frames ...[]byte) error {
	r.record('>', frames...)
	return r.Transport.Write(frames...)
}

func (r *recorder) record(mark byte, frames ...[]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, frame := range frames {
		r.frames = append(r.frames, recorded{mark, bytes.Clone(frame)})
	}
}

// transcript returns the frames with placeholders, a line each.
func (r *recorder) transcript() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out strings.Builder
	names := placeholders{}
	for _, f := range r.frames {
		fmt.Fprintf(&out, "%c %s\n", f.mark, names.replace(string(bytes.TrimSpace(f.text))))
	}
	return out.String()
}

// placeholders are the placeholders of one transcript, by member and value.
type placeholders map[string]map[string]string

var (
	scalar = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|[-+.0-9A-Za-z]+`)
	moment = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
	random = map[string]bool{
		`"cursor"`: true, `"elicitationId"`: true, `"nextCursor"`: true, `"progressToken"`: true, `"requestState"`: true,
		`"sessionId"`: true, `"subscriptionId"`: true, `"taskId"`: true,
	}
)

// replace puts placeholders into a frame and keeps every other byte, except that
// a line break between two tokens becomes a space.
func (p placeholders) replace(frame string) string {
	var out strings.Builder
	key, from := "", 0
	for _, at := range scalar.FindAllStringIndex(frame, -1) {
		between := frame[from:at[0]]
		out.WriteString(strings.NewReplacer("\r", " ", "\n", " ").Replace(between))
		from = at[1]
		token := frame[at[0]:at[1]]
		isValue := strings.HasSuffix(strings.TrimSpace(between), ":")
		switch {
		case isValue && random[key]:
			token = p.of(key, token)
		case token[0] == '"':
			token = moment.ReplaceAllLiteralString(token, "<time>")
		}
		if key = token; isValue {
			key = ""
		}
		out.WriteString(token)
	}
	out.WriteString(frame[from:])
	return out.String()
}

// of returns the placeholder of a value of a member. A cursor is what was
// nextCursor before.
func (p placeholders) of(member, value string) string {
	member = strings.Trim(member, `"`)
	if member == "nextCursor" {
		member = "cursor"
	}
	if p[member] == nil {
		p[member] = map[string]string{}
	}
	name, ok := p[member][value]
	if !ok {
		name = fmt.Sprintf(`"<%s %d>"`, member, len(p[member])+1)
		p[member][value] = name
	}
	return name
}

// compare checks a transcript against its file, or writes the file.
func compare(tb testing.TB, file, got string) {
	tb.Helper()
	text, err := os.ReadFile(file) // when it is written, too: the test cache depends on what a test reads
	want := strings.ReplaceAll(string(text), "\r\n", "\n")
	switch update := os.Getenv(updateEnv); {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		tb.Errorf("mcptest: %v", err)
	case err == nil && got == want:
	case update != "" && update != "0":
		if err = os.MkdirAll(filepath.Dir(file), 0o750); err == nil {
			err = os.WriteFile(file, []byte(got), 0o600)
		}
		if err != nil {
			tb.Errorf("mcptest: %v", err)
		}
	case err != nil:
		tb.Errorf("mcptest: %s does not exist: run the test with %s=1 in the environment to write it", file, updateEnv)
	default:
		tb.Errorf("mcptest: %s:%s\nIf this is intended, run the test with %s=1 in the environment to write the file.", file, difference(want, got), updateEnv)
	}
}

// difference describes the first line that differs: its number, and the part of
// it where it differs.
func difference(want, got string) string {
	wants, gots := strings.Split(want, "\n"), strings.Split(got, "\n")
	n := 0
	for n < len(wants)-1 && n < len(gots)-1 && wants[n] == gots[n] {
		n++
	}
	a, b := wants[n], gots[n]
	at := 0
	for at < len(a) && at < len(b) && a[at] == b[at] {
		at++
	}
	return fmt.Sprintf("%d: the frames differ\n\twant %s\n\tgot  %s", n+1, around(a, at), around(b, at))
}

// around returns what a person needs to see of a line that differs at a byte.
func around(line string, at int) string {
	const before, after = 60, 100
	if line == "" {
		return "no frame"
	}
	out := line[max(0, at-before):min(len(line), at+after)]
	if at > before {
		out = line[:2] + "…" + out
	}
	if at+after < len(line) {
		out += "…"
	}
	return strings.ToValidUTF8(out, "")
}
