package audit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
)

// eventually calls f for at most ten seconds, until it returns true.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !f(); {
		if time.Now().After(end) {
			t.Fatal("it never happens: ", what)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// A store that is full deletes nothing: calls are refused, and those under way have their outcomes.
// There is room again when files are moved away.
func TestStoreIsFull(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, &Options{File: path, MaxSize: 20_000, Keep: 2})
	running, err := l.Write(owner.Named("bob"), example())
	if err != nil {
		t.Fatal(err)
	}
	ended := 1
	eventually(t, "the store is full", func() bool {
		n, err := fill(t, l, owner.Named("ada"))
		ended += n
		_, missing := os.Stat(path + ".2")
		return errors.Is(err, ErrFull) && missing == nil
	})
	l.End(&Outcome{Of: running, Status: "ok"})
	eventually(t, "the outcomes are written", func() bool {
		names, _ := Files(path)
		n := 0
		for _, name := range names {
			raw, _ := os.ReadFile(name)
			n += bytes.Count(raw, []byte(`"outcome":"ok"`))
		}
		return n == ended
	})
	if err := os.Rename(path+".2", path+".moved"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "there is room again", func() bool { return write(l) == nil })
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := os.Rename(path+".moved", path+".9"); err != nil {
		t.Fatal(err)
	}
	if r := verify(t, path, nil); len(r.Findings) > 0 || r.Open != 1 || r.First != 1 {
		t.Errorf("%+v", r)
	}
	l = open(t, &Options{File: path, MaxSize: 1, Keep: 1})
	if err := write(l); !errors.Is(err, ErrFull) {
		t.Errorf("a store that is full from the beginning takes a decision: %v", err)
	}
}

// Refusals cannot fill a store: the last fifth is for calls that are allowed.
func TestStoreIsLow(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.log")
	const size = 3_000_000
	l := open(t, &Options{File: path, MaxSize: size / 3, Keep: 2})
	low := func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.outlets[0].low
	}
	eventually(t, "the store is low", func() bool {
		for i := range 1000 {
			l.Refuse(owner.Named("bob"), refusal(fmt.Sprint("call/", i)), false)
		}
		return low()
	})
	for i := range 1000 {
		l.Refuse(owner.Named("bob"), refusal(fmt.Sprint("call/", i)), false)
	}
	if err := errors.Join(write(l), l.Close()); err != nil {
		t.Errorf("a call is refused because of refusals: %v", err)
	}
	written := int64(0)
	names, _ := Files(path)
	for _, name := range names {
		if info, err := os.Stat(name); err == nil {
			written += info.Size()
		}
	}
	if r := verify(t, path, nil); len(r.Findings) > 0 || written > size || written < size*8/10 {
		t.Errorf("%d bytes of %d, %+v", written, size, r.Findings)
	}
}

// Files go when they are old, and that is on record before.
func TestStoreForgetsByAge(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.log")
	fill := func() {
		l := open(t, &Options{File: path, MaxSize: 2000, Keep: 10, KeepFor: 24 * time.Hour})
		for range 12 {
			if err := write(l); err != nil {
				t.Error(err)
			}
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	fill()
	before, _ := Files(path)
	if len(before) < 3 {
		t.Fatal(before)
	}
	past := time.Now().Add(-25 * time.Hour)
	for _, name := range before[:2] {
		if err := os.Chtimes(name, past, past); err != nil {
			t.Fatal(err)
		}
	}
	fill()
	r := verify(t, path, nil)
	if len(r.Findings) > 0 || r.First == 1 {
		t.Errorf("%+v", r)
	}
	// A file that the log has not deleted is missing.
	names, _ := Files(path)
	if err := os.Remove(names[0]); err != nil {
		t.Fatal(err)
	}
	if r := verify(t, path, nil); len(r.Findings) == 0 {
		t.Errorf("a file was deleted, and nothing is found: %+v", r)
	}
}

// A file with a first line that is too old is followed by another one, though it is not large.
func TestStoreBeginsByAge(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.log")
	now := time.Now().Add(-2 * time.Hour)
	for range 2 {
		l := open(t, &Options{File: path, KeepFor: time.Hour, Now: func() time.Time { return now }})
		if err := errors.Join(write(l), l.Close()); err != nil {
			t.Fatal(err)
		}
		now = now.Add(2 * time.Hour)
	}
	if names, _ := Files(path); len(names) != 2 {
		t.Error(names)
	}
	if r := verify(t, path, nil); len(r.Findings) > 0 {
		t.Errorf("%+v", r)
	}
}

// recorder is a sink that keeps what it takes, and can fail.
type recorder struct {
	mu    sync.Mutex
	lines bytes.Buffer
	err   error
	ended bool
}

func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return 0, r.err
	}
	return r.lines.Write(p)
}

func (r *recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	return nil
}

func (r *recorder) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

func (r *recorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lines.String()
}

// Two sinks get the same lines. One that works is enough; when none does, calls are refused.
func TestSinks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		other := &recorder{}
		d := &disk{free: 1 << 30}
		l := open(t, &Options{File: "-", Stderr: d, Sinks: []Sink{other}, Buffer: 10_000})
		wait := func() { <-time.After(time.Second); synctest.Wait() }
		_ = write(l)
		wait()
		if got := other.text(); got == "" || got != d.lines.String() {
			t.Errorf("got %q and %q", got, d.lines.String())
		}
		other.fail(errors.New("no connection"))
		taken := 0
		for range 100 { // more than its buffer holds
			if err := write(l); err != nil {
				t.Fatalf("one sink fails: %v", err)
			}
			taken++
			<-time.After(100 * time.Millisecond)
		}
		other.fail(fmt.Errorf("quota: %w", ErrFull))
		wait()
		d.grow(-d.free)
		for range 100 {
			if write(l) == nil {
				taken++
			}
			<-time.After(100 * time.Millisecond)
		}
		if err := write(l); !errors.Is(err, ErrFull) && !errors.Is(err, errBuffer) {
			t.Errorf("both sinks fail: %v", err)
		}
		d.grow(1 << 30)
		other.fail(nil)
		wait()
		if err := errors.Join(write(l), l.Close()); err != nil {
			t.Error(err)
		}
		if r := verifyText(t, d.lines.String(), nil); len(r.Findings) > 0 || r.Lines != taken+4 {
			t.Errorf("%d taken: %+v", taken, r)
		}
		if r := verifyText(t, other.text(), nil); len(r.Findings) != 1 ||
			!strings.Contains(r.Findings[0].Message, "missing") || !other.ended {
			t.Errorf("the gap of the sink that failed: %+v", r)
		}
	})
}

// A sink that is full takes no decision from then on, and outcomes still.
func TestSinkIsFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		only := &recorder{}
		l := open(t, &Options{Sinks: []Sink{only}})
		seq, err := l.Write(owner.Named("ada"), example())
		only.fail(ErrFull)
		<-time.After(time.Second)
		if err != nil || !errors.Is(write(l), ErrFull) {
			t.Error(err)
		}
		l.End(&Outcome{Of: seq, Status: "ok"})
		l.Refuse(owner.Named("x"), example(), false)
		only.fail(nil)
		<-time.After(time.Second)
		if err := errors.Join(write(l), l.Close()); err != nil {
			t.Error(err)
		}
		if text := only.text(); !strings.Contains(text, `"outcome":"ok"`) ||
			!strings.Contains(text, `"unwritten":1`) {
			t.Error(text)
		}
	})
}

// The calls of a log that is retired have their outcomes before it ends.
func TestRetire(t *testing.T) {
	t.Parallel()
	only := &recorder{}
	l := open(t, &Options{Sinks: []Sink{only}})
	seq, err := l.Write(owner.Named("ada"), example())
	l.Retire()
	if err != nil || write(l) == nil {
		t.Error("a log that is retired takes a decision")
	}
	l.End(&Outcome{Of: seq, Status: "ok"})
	eventually(t, "it ends", func() bool { only.mu.Lock(); defer only.mu.Unlock(); return only.ended })
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if r := verifyText(t, only.text(), nil); len(r.Findings)+len(r.Notes) > 0 || r.Open != 0 ||
		r.Lines != 4 {
		t.Errorf("%+v", r)
	}
}

func refusal(call string) *Entry {
	return &Entry{Decision: "denied", Principal: "bob", Call: call, Reason: "no", Error: -32002}
}

// Refusals that are equal are folded until a minute has passed, one differs, or the log ends.
func TestFold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		only := &recorder{}
		l := open(t, &Options{Sinks: []Sink{only}})
		bob, ada := owner.Named("bob"), owner.Named("ada")
		began := time.Now().UTC().Format(time.RFC3339Nano)
		for range 413 {
			l.Refuse(bob, refusal("a"), false)
		}
		l.Refuse(ada, refusal("a"), false) // another owner's is not like it
		<-time.After(2 * time.Minute)
		for range 3 {
			l.Refuse(bob, refusal("a"), false) // the minute is over: a line
		}
		l.Refuse(bob, refusal("b"), false) // it differs: the count of a, and a line
		l.Refuse(bob, refusal("c"), true)  // beyond the rate
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		var got []string
		for line := range strings.Lines(only.text()) {
			_, line, _ = strings.Cut(cutSeal(line), `Z",`)
			got = append(got, strings.ReplaceAll(strings.TrimSuffix(line, "}"), began, "T"))
		}
		call := func(name string) string {
			return `"decision":"denied","principal":"bob","call":"` + name + `","reason":"no","error":-32002`
		}
		more := func(name string) string {
			return strings.Replace(call(name), `"reason":"no",`, "", 1) + `,"of":`
		}
		want := []string{
			`"event":"opened"`, call("a"), call("a"), more("a") + `2,"repeats":412,"first":"T","last":"T"`,
			call("a"),
			more("a") + `5,"repeats":2,"first":`, call("b"), more("b") + `7,"repeats":0,"first":`,
			`"event":"closed"`,
		}
		for i, w := range want {
			if i >= len(got) || !strings.HasPrefix(got[i], w) {
				t.Fatalf("line %d:\n%s\nwant %s", i+1, strings.Join(got, "\n"), w)
			}
		}
		if !strings.HasSuffix(got[7], `,"unwritten":1`) {
			t.Error(got[7])
		}
	})
}

// However many owners there are, and however long what they send, what is kept of them is bounded,
// and every refusal is in a line or in a count.
func TestFoldIsBounded(t *testing.T) {
	t.Parallel()
	only := &recorder{}
	l := open(t, &Options{Sinks: []Sink{only}, Buffer: 1 << 30})
	long := strings.Repeat("x", 5000)
	bob := owner.Named("bob")
	l.Refuse(bob, refusal("a"), false)
	for i := range maxFolds + 1000 {
		o := owner.Session(fmt.Sprint(i), "192.0.2.1")
		l.Refuse(o, refusal(long), false)
		l.Refuse(o, refusal(long), false)
	}
	if n := l.folding.table.Len(); n > maxFolds {
		t.Errorf("%d folds", n)
	}
	if f, ok := l.folding.table.Find(bob, bob); !ok || f.more.n != 0 {
		t.Error("a flood of others has ended the fold of an owner")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(only.text(), "\n"); n != 2*(maxFolds+1000)+3 {
		t.Errorf("%d lines", n)
	}
	for line := range strings.Lines(only.text()) {
		if len(line) > 2000 {
			t.Fatalf("a line of %d bytes", len(line))
		}
	}
}
