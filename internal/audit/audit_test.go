package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/internal/leak"
	"github.com/farcall-dev/farcall/internal/owner"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

func open(t *testing.T, o *Options) *Log {
	t.Helper()
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func example() *Entry {
	return &Entry{
		Time: time.Date(2026, 3, 1, 12, 0, 0, 5000, time.UTC), Principal: "alice", Kind: "user",
		Method: "jwt", Issuer: "https://idp.example",
		Address: "192.0.2.7:5123", Transport: "http", Call: "tools/call github/search",
		Upstream: "github", Decision: "allowed",
		Policies: []string{"builders", "allow[1]"}, Reason: "allowed by builders",
		Latency: 1500 * time.Nanosecond, Error: -32002,
		Params: []byte(`{"name":"search","arguments":{"q":"x","password":"hunter2"}}`),
	}
}

func TestLine(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, &Options{File: path, Params: true})
	if _, err := l.Write(owner.Named("ada"), example()); err != nil {
		t.Fatal(err)
	}
	l.End(&Outcome{
		Of: 2, Status: "error", Error: -32000, IsError: true,
		Duration: 1500 * time.Nanosecond, Request: 7, Result: 12,
	})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Write(owner.Named("ada"), example()); err == nil || l.Close() != nil {
		t.Errorf("after Close: %v", err)
	}
	got, _ := os.ReadFile(path)
	all := strings.Split(string(got), "\n")
	if len(all) != 5 || !strings.Contains(all[0], `"event":"opened","seq":1,"prev":"","hash":"`) ||
		!strings.Contains(all[3], `"event":"closed","seq":4,`) ||
		!strings.HasSuffix(cutSeal(all[2]),
			`"outcome":"error","of":2,"error":-32000,"isError":true,"durationMicros":2,"requestBytes":7,`+
				`"resultBytes":12}`) {
		t.Errorf("%s", got)
	}
	want := `{"time":"2026-03-01T12:00:00.000005Z","decision":"allowed","principal":"alice",` +
		`"kind":"user","method":"jwt",` +
		`"issuer":"https://idp.example","address":"192.0.2.7:5123","transport":"http",` +
		`"call":"tools/call github/search","upstream":"github",` +
		`"policies":["builders","allow[1]"],"reason":"allowed by builders","error":-32002,` +
		`"latencyMicros":2,` +
		`"params":{"name":"search","arguments":{"q":"x","password":"[redacted]"}}}`
	if cutSeal(all[1]) != want {
		t.Errorf("got\n%s\nwant\n%s", all[1], want)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// cutSeal is a line without its seal.
func cutSeal(line string) string {
	body, _, _ := strings.Cut(line, `,"seq":`)
	return body + "}"
}

// write writes an example.
func write(l *Log) error {
	_, err := l.Write(owner.Named("ada"), example())
	return err
}

// A file that others may read is closed to them, and a line that a process did not
// finish does not spoil the next one.
func TestTorn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.log")
	if err := errors.Join(os.WriteFile(path, []byte(`{"time":"20`), 0o644),
		os.Chmod(path, 0o644)); err != nil {
		t.Fatal(err)
	}
	l := open(t, &Options{File: path})
	if err := errors.Join(write(l), l.Close()); err != nil {
		t.Fatal(err)
	}
	got, _ := os.ReadFile(path)
	lines := strings.Split(string(got), "\n")
	if len(lines) != 5 || lines[0] != `{"time":"20` ||
		!strings.Contains(lines[1], `"event":"opened","torn":11,`) || !json.Valid([]byte(lines[2])) {
		t.Errorf("%q", got)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Error(info.Mode())
	}
}

func TestRotation(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, &Options{File: path, MaxSize: 1000, Keep: 3, Rotate: true})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 10 {
				if _, err := l.Write(owner.Key{},
					&Entry{
						Decision: "denied", Call: fmt.Sprintf("c/%d/%d", g, i),
						Reason: strings.Repeat("x", 100),
					}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := open(t, &Options{File: path, MaxSize: 1000, Keep: 3, Rotate: true}).Close(); err != nil {
		// deletes what is too much
		t.Fatal(err)
	}
	names, _ := filepath.Glob(path + "*")
	if len(names) > 5 { // what is too much goes with the next write
		t.Fatal(names)
	}
	for _, name := range names {
		text, _ := os.ReadFile(name)
		info, _ := os.Stat(name)
		if len(text) > 1000 || len(text) < 150 || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %d bytes, %v", name, len(text), info.Mode())
		}
		for line := range strings.Lines(string(text)) {
			if !json.Valid([]byte(line)) {
				t.Errorf("%s: %q", name, line)
			}
		}
	}
}

// Where files cannot be renamed nothing is lost, and it is logged.
func TestRotationFails(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.log")
	if err := os.MkdirAll(path+".1/x", 0o700); err != nil {
		t.Fatal(err)
	}
	faults := make(chan error, 100)
	l := open(t, &Options{File: path, MaxSize: 300, Keep: 1, Rotate: true, OnFault: func(err error) {
		faults <- err
	}})
	for range 10 {
		if err := write(l); err != nil {
			t.Error(err)
		}
	}
	err := l.Close()
	text, _ := os.ReadFile(path)
	if n := bytes.Count(text, []byte("\n")); n != 12 || err == nil || len(faults) != 1 {
		t.Errorf("%d lines, %d faults, %v", n, len(faults), err)
	}
}

// disk is a writer that can be full, or slow.
type disk struct {
	mu    sync.Mutex
	free  int
	lines bytes.Buffer
}

func (d *disk) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := min(len(p), d.free)
	d.free -= n
	d.lines.Write(p[:n])
	if n < len(p) {
		return n, errors.New("no space left on device")
	}
	return n, nil
}

func (d *disk) grow(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.free += n
}

func TestFlush(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{free: 1 << 20}
		l := open(t, &Options{File: "-", Stderr: d})
		for i := range 5 {
			_ = write(l)
			<-time.After(time.Second)
			synctest.Wait()
			if n := strings.Count(d.lines.String(), "\n"); n != i+2 {
				t.Fatalf("after a second: %d lines", n)
			}
		}
		l.Close()
	})
}

// When the disk is full entries wait, and when the buffer is full they are refused. Nothing
// that was taken is lost once there is room.
func TestFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{free: 100}
		var faults atomic.Int64
		l := open(t, &Options{File: "-", Stderr: d, Buffer: 10_000, OnFault: func(error) {
			faults.Add(1)
		}})
		taken := 0
		var err error
		for err == nil {
			if err = write(l); err == nil {
				taken++
			}
			<-time.After(100 * time.Millisecond)
		}
		if !errors.Is(err, errBuffer) || !strings.Contains(err.Error(), "no space left") || taken < 20 {
			t.Errorf("%d taken: %v", taken, err)
		}
		if n := l.Backlog(); n < 8000 || n > 10_000 {
			t.Errorf("%d bytes wait", n)
		}
		began := faults.Load()
		for range 100 {
			_ = write(l)
			<-time.After(100 * time.Millisecond)
		}
		if n := faults.Load() - began; n < 9 || n > 11 {
			t.Errorf("told %d times in 10 s", n)
		}
		d.grow(1 << 20)
		<-time.After(time.Second)
		if n := l.Backlog(); n != 0 {
			t.Errorf("%d bytes wait though there is room", n)
		}
		if err := write(l); err != nil {
			t.Error(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if n := strings.Count(d.lines.String(), "\n"); n != taken+3 {
			t.Errorf("%d lines of %d", n, taken+3)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		l := open(t, &Options{File: "-", Stderr: &disk{}})
		_ = write(l)
		if err := l.Close(); err == nil || !strings.Contains(err.Error(), "could not be written") {
			t.Error(err)
		}
	})
}

func TestOff(t *testing.T) {
	t.Parallel()
	l, err := Open(nil)
	if err != nil || write(l) != nil || l.Close() != nil {
		t.Error(err)
	}
	if _, err := Open(&Options{File: t.TempDir()}); err == nil {
		t.Error("a directory")
	}
}

func TestBounded(t *testing.T) {
	t.Parallel()
	l := &Log{}
	l.settings.Store(&settings{params: true, rules: compile(nil)})
	big := strings.Repeat("\x01\u2028x\"", 1<<16)
	e := &Entry{
		Time: time.Now(), Principal: big, Kind: big, Method: big, Issuer: big, Address: big,
		Transport: big, Call: big, Upstream: big, Decision: big, Reason: big,
	}
	for range 1000 {
		e.Policies = append(e.Policies, big)
	}
	e.Params = []byte("[" + strings.Repeat(`{"a":[1,2,"`+strings.Repeat("y", 500)+`"]},`, 1000) + "1]")
	line := append(l.append(nil, e, new(walker), maxText), '}')
	if len(line) > 20<<10 || !json.Valid(line) {
		t.Errorf("%d bytes, valid: %v", len(line), json.Valid(line))
	}
}

func FuzzWrite(f *testing.F) {
	f.Add("alice", "tools/call x", "because\n{\"time\":1}", "a\u2028b\x80\x9b\u0085")
	f.Add("\"}\r\n{", "resources/read https://u:p@h/?access_token=x", "\xff\xfe", "\u202e")
	f.Fuzz(func(t *testing.T, principal, call, reason, policy string) {
		l := &Log{chain: newChain(nil)}
		l.settings.Store(&settings{rules: compile(nil)})
		line := l.append(nil,
			&Entry{
				Time: time.Unix(1, 0), Principal: principal, Call: call, Reason: reason,
				Policies: []string{policy},
			}, new(walker), maxText)
		line = l.chain.seal(line)
		if bytes.Count(line, []byte("\n")) != 1 || line[len(line)-1] != '\n' ||
			bytes.ContainsAny(line, "\r\u2028\u2029\u0085\x1b") {
			t.Fatalf("not one line: %q", line)
		}
		var got struct {
			Principal, Call, Reason string
			Policies                []string
		}
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		for _, p := range [][2]string{
			{principal, got.Principal},
			{policy, got.Policies[0]},
			{call, got.Call},
			{reason, got.Reason},
		} {
			// each byte that is not UTF-8 becomes U+FFFD
			want := strings.Map(func(r rune) rune { return r }, p[0])
			masked := p[0] == call || p[0] == reason
			if want != p[1] && len(want) < 150 && (!masked || !suspicious(want)) {
				t.Errorf("%q became %q", want, p[1])
			}
		}
	})
}

func BenchmarkWrite(b *testing.B) {
	for _, params := range []bool{false, true} {
		b.Run(fmt.Sprintf("params=%v", params), func(b *testing.B) {
			l, err := Open(&Options{File: "-", Stderr: &sink{}, Params: params, Buffer: 1 << 30})
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			e := example()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := l.Write(owner.Named("ada"), e); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

type sink struct{}

func (*sink) Write(p []byte) (int, error) { return len(p), nil }
