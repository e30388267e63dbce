package mcptest

import (
	"bytes"
	"context"
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
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
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
func Golden(
	t *testing.T, s *mcp.Server, dir string, o *mcp.ClientOptions,
	talk func(t *testing.T, c *mcp.Client),
) {
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
		`"cursor"`: true, `"elicitationId"`: true, `"nextCursor"`: true, `"progressToken"`: true,
		`"requestState"`: true,
		`"sessionId"`:    true, `"subscriptionId"`: true, `"taskId"`: true,
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
	// when it is written, too: the test cache depends on what a test reads
	text, err := os.ReadFile(file)
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
		tb.Errorf("mcptest: %s does not exist: run the test with %s=1 in the environment to write it",
			file, updateEnv)
	default:
		tb.Errorf("mcptest: %s:%s\nIf this is intended, run the test with %s=1 in the environment to "+
			"write the file.", file, difference(want, got), updateEnv)
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
	return fmt.Sprintf("%d: the frames differ\n\twant %s\n\tgot  %s", n+1, around(a, at),
		around(b, at))
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

// A Model is a fake language model for ClientOptions.Sample: it gives its answers in order and
// keeps what it was asked. Its methods may be called by any number of goroutines at once.
type Model struct {
	script[*spec.CreateMessageRequestParams, *spec.CreateMessageResult]
}

// NewModel returns a model with these answers: see [Says] and [UsesTool]. The test fails when the
// model is asked once more, with what it was asked, and when an answer is left at its end.
func NewModel(tb testing.TB, answers ...*spec.CreateMessageResult) *Model {
	tb.Helper()
	m := &Model{}
	m.begin(tb, "the model", answers)
	return m
}

// Sample gives the next answer. It has the type of ClientOptions.Sample.
func (m *Model) Sample(
	_ context.Context, p *spec.CreateMessageRequestParams,
) (*spec.CreateMessageResult, error) {
	return m.next(p)
}

// Says is the answer of a model that has written text and is done.
func Says(text string) *spec.CreateMessageResult {
	return &spec.CreateMessageResult{
		Role: spec.RoleAssistant, Model: fakeModel, StopReason: spec.StopEndTurn,
		Content: []mcp.Content{mcp.Text(text)},
	}
}

// UsesTool is the answer of a model that wants the result of a tool, which revisions from
// 2025-11-25 on have. id is what the result refers to; input marshals to an object, and panics
// otherwise.
func UsesTool(id, name string, input any) *spec.CreateMessageResult {
	return &spec.CreateMessageResult{
		Role: spec.RoleAssistant, Model: fakeModel, StopReason: spec.StopToolUse,
		Content: []mcp.Content{{Type: spec.TypeToolUse, ID: id, Name: name, Input: object(input)}},
	}
}

const fakeModel = "fake"

// A User is a fake user for ClientOptions.Elicit: they give their replies in order, to forms and to
// pages, and keep what they were asked. Its methods may be called by any number of goroutines at
// once.
type User struct {
	script[*spec.ElicitRequestParams, *spec.ElicitResult]
}

// NewUser returns a user with these replies: see [Accepts]; &spec.ElicitResult{Action:
// spec.ElicitDecline} refuses, and spec.ElicitCancel dismisses. The test fails as with [NewModel].
func NewUser(tb testing.TB, replies ...*spec.ElicitResult) *User {
	tb.Helper()
	u := &User{}
	u.begin(tb, "the user", replies)
	return u
}

// Elicit gives the next reply. It has the type of ClientOptions.Elicit.
func (u *User) Elicit(_ context.Context, p *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
	return u.next(p)
}

// Accepts is the reply of a user who has filled in a form with the members of values, which
// marshals to an object, and panics otherwise; nil agrees to visit a page, or leaves a form empty.
func Accepts(values any) *spec.ElicitResult {
	r := &spec.ElicitResult{Action: spec.ElicitAccept}
	if values != nil {
		r.Content = object(values)
	}
	return r
}

// object returns the JSON of an object.
func object(v any) []byte {
	raw, err := jsonv2.Append(nil, v)
	if err != nil || len(raw) == 0 || raw[0] != '{' {
		panic(fmt.Sprintf("mcptest: %T does not marshal to an object: %s, %v", v, raw, err)) //nolint:forbidigo // a mistake of the test
	}
	return raw
}

// A script gives answers in order.
type script[P, R any] struct {
	tb   testing.TB
	name string

	mu    sync.Mutex
	left  []R
	asked []P
}

func (s *script[P, R]) begin(tb testing.TB, name string, answers []R) {
	tb.Helper()
	s.tb, s.name, s.left = tb, name, slices.Clone(answers)
	tb.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if n := len(s.left); n > 0 && !tb.Failed() && !tb.Skipped() {
			tb.Errorf("mcptest: %s was asked %d times; answers left: %d", s.name, len(s.asked), n)
		}
	})
}

func (s *script[P, R]) next(p P) (answer R, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, p)
	if len(s.left) == 0 {
		raw, err := jsonv2.Append(nil, p)
		if err != nil {
			raw = []byte(err.Error())
		}
		s.tb.Errorf("mcptest: %s has no answer left for request %d: %.1000s", s.name, len(s.asked), raw)
		return answer, fmt.Errorf("%s has no answer left", s.name)
	}
	answer, s.left = s.left[0], s.left[1:]
	return answer, nil
}

// Asked returns what was asked so far, in order.
func (s *script[P, R]) Asked() []P {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}
