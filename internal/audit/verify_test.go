package audit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/owner"
)

// verify verifies the files of a log.
func verify(t *testing.T, path string, o *VerifyOptions) *Report {
	t.Helper()
	names, err := Files(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []Text
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		all = append(all, Text{filepath.Base(name), f})
	}
	r, err := Verify(all, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// verifyText verifies a text as one file.
func verifyText(tb testing.TB, text string, o *VerifyOptions) *Report {
	tb.Helper()
	r, err := Verify([]Text{{"a", strings.NewReader(text)}}, o)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// sample is a log of 8 lines: opened, six decisions, closed.
func sample(tb testing.TB, key []byte) string {
	tb.Helper()
	var out bytes.Buffer
	l, err := Open(&Options{File: "-", Stderr: &out, Key: key})
	if err != nil {
		tb.Fatal(err)
	}
	for i := range 6 {
		e := example()
		e.Call = fmt.Sprint("call/", i)
		if _, err := l.Write(owner.Named("ada"), e); err != nil {
			tb.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		tb.Fatal(err)
	}
	return out.String()
}

var secret = []byte("0123456789abcdef0123456789abcdef")

// Each way to change a log is found, at its line.
func TestVerifyFinds(t *testing.T) {
	t.Parallel()
	lines := func(text string) []string { return strings.SplitAfter(text, "\n")[:8] }
	for _, tt := range []struct {
		name   string
		change func(all []string) []string
		want   string // FILE:LINE: a part of the message
	}{
		{"nothing", func(all []string) []string { return all }, ""},
		{"changed", func(all []string) []string {
			all[3] = strings.Replace(all[3], "alice", "mallory", 1)
			return all
		}, "a:4: it was changed"},
		{"one byte", func(all []string) []string {
			all[3] = strings.Replace(all[3], "call/2", "call/3", 1)
			return all
		}, "a:4: it was changed"},
		{"missing", func(all []string) []string {
			return slices.Delete(all, 3, 4)
		}, "a:4: a line is missing before it: it is number 5, and the one before is 3"},
		{"two missing", func(all []string) []string {
			return slices.Delete(all, 3, 5)
		}, "a:4: 2 lines are missing"},
		{"first missing", func(all []string) []string {
			return all[2:]
		}, "a:1: lines 1 to 2 are missing before it"},
		{"reordered", func(all []string) []string {
			all[3], all[4] = all[4], all[3]
			return all
		}, "a:4: a line is missing before it"},
		{"repeated", func(all []string) []string {
			return slices.Insert(all, 4, all[3])
		}, "a:5: it is not in its place"},
		{"cut", func(all []string) []string {
			all[3] = all[3][:50] + "\n"
			return all
		}, "a:4: it has no seal"},
		{"put in", func(all []string) []string {
			return slices.Insert(all, 4, `{"decision":"allowed"}`+"\n")
		}, "a:5: it has no seal"},
		{"empty line", func(all []string) []string {
			return slices.Insert(all, 4, "\n")
		}, "a:5: it has no seal"},
		{"joined", func(all []string) []string {
			all[3] = strings.TrimSuffix(all[3], "\n")
			return all
		}, "a:4: it was changed"},
		{"too long", func(all []string) []string {
			return slices.Insert(all, 4, strings.Repeat("x", 3*maxLine)+"\n")
		}, "a:5: it is too long"},
		{"the hash", func(all []string) []string {
			all[3] = strings.Replace(all[3], `"hash":"`, `"hash":"A`, 1)
			return all
		}, "a:4: it has no seal"},
		{"of another log", func(all []string) []string {
			all[3] = lines(sample(t, nil))[3]
			return all
		}, "a:3: it was replaced: line 4 of a"},
		{"another log after it", func(all []string) []string {
			return append(all, lines(sample(t, nil))...)
		}, "a:9: it is not in its place"},
		{"lines before it", func(all []string) []string {
			return slices.Insert(all, 0, "x\n", "y\n")
		}, "a:1: lines without a seal"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, key := range [][]byte{nil, secret} {
				if key != nil && (strings.Contains(tt.name, "another log") || tt.name == "the hash") {
					continue
				}
				r := verifyText(t, strings.Join(tt.change(lines(sample(t, key))), ""), &VerifyOptions{Key: key})
				if tt.want == "" {
					if len(r.Findings)+len(r.Notes) != 0 || r.Lines != 8 || r.First != 1 || r.Last != 8 ||
						r.Head.Seq != 8 || r.Open != 6 {
						t.Errorf("%+v", r)
					}
				} else if len(r.Findings) == 0 || !strings.HasPrefix(where(r.Findings[0]), tt.want) {
					t.Errorf("%+v, want %s", r.Findings, tt.want)
				}
			}
		})
	}
}

func where(f Finding) string { return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Message) }

// Who has no key cannot make a line, nor a log without one.
func TestVerifyKey(t *testing.T) {
	t.Parallel()
	text := sample(t, secret)
	for _, tt := range []struct {
		name, text string
		key        []byte
		want       string
	}{
		{"right", text, secret, ""},
		{"another key", text, append([]byte("x"), secret...), "it was changed"},
		{"no key", text, nil, "8 lines are sealed with a key"},
		{"sealed without it", sample(t, nil), secret, "it is sealed without the key"},
	} {
		r := verifyText(t, tt.text, &VerifyOptions{Key: tt.key})
		if tt.want == "" && len(r.Findings) > 0 ||
			tt.want != "" && (len(r.Findings) == 0 || !strings.Contains(r.Findings[0].Message, tt.want)) {
			t.Errorf("%s: %+v", tt.name, r.Findings)
		}
	}
}

// A line that was noted elsewhere proves that the end is there, and stands for what was moved away.
func TestVerifySince(t *testing.T) {
	t.Parallel()
	all := strings.SplitAfter(sample(t, nil), "\n")
	at := func(i int) *VerifyOptions {
		s, _, _ := readSeal([]byte(strings.TrimSuffix(all[i-1], "\n")))
		return &VerifyOptions{Since: &Checkpoint{s.seq, s.hash}}
	}
	for _, tt := range []struct {
		text string
		o    *VerifyOptions
		good bool
	}{
		{strings.Join(all, ""), at(5), true},
		{strings.Join(all[5:], ""), at(5), true},
		{strings.Join(all[:7], ""), at(7), true},
		{strings.Join(all[:6], ""), at(7), false}, // the end was cut off
		{strings.Join(all[6:], ""), at(5), false},
		{strings.Join(all, ""), &VerifyOptions{Since: &Checkpoint{5, at(6).Since.Hash}}, false},
		{"", at(5), false},
	} {
		if r := verifyText(t, tt.text, tt.o); len(r.Findings) == 0 != tt.good {
			t.Errorf("%+v", r)
		}
	}
}

// A log goes on over restarts, files and kills, as one chain.
func TestChainGoesOn(t *testing.T) {
	t.Parallel()
	for _, key := range [][]byte{nil, secret} {
		path := filepath.Join(t.TempDir(), "audit.log")
		for range 5 {
			l := open(t, &Options{File: path, MaxSize: 1500, Key: key})
			for range 6 {
				if err := write(l); err != nil {
					t.Fatal(err)
				}
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		r := verify(t, path, &VerifyOptions{Key: key})
		if names, _ := Files(path); len(r.Findings)+len(r.Notes) != 0 || r.Lines != 40 || len(names) < 5 {
			t.Errorf("%d files, %+v", len(names), r)
		}
	}
}

// A process that is killed in the middle of a line leaves one that is seen as what it is: at once,
// after the next start, and when that begins another file.
func TestKilled(t *testing.T) {
	t.Parallel()
	whole := sample(t, nil)
	for _, tt := range []struct {
		name string
		left int // bytes of the log
		size int64
	}{
		{"in the first line", 20, 0},
		{"in a line", len(whole) - 300, 0},
		{"in a line, and the next file begins", len(whole) - 300, 300},
		{"before a line feed", strings.Index(whole, "\n"), 0},
		{"between lines", strings.Index(whole, "\n") + 1, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "audit.log")
			if err := os.WriteFile(path, []byte(whole[:tt.left]), 0o600); err != nil {
				t.Fatal(err)
			}
			if r := verify(t, path, nil); len(r.Findings) > 0 || len(r.Notes) == 0 {
				t.Errorf("before the next start: %+v", r)
			}
			for range 2 {
				l := open(t, &Options{File: path, MaxSize: tt.size})
				if err := errors.Join(write(l), l.Close()); err != nil {
					t.Fatal(err)
				}
			}
			r := verify(t, path, nil)
			if len(r.Findings) > 0 || len(r.Notes) == 0 {
				t.Errorf("%+v", r)
			}
			for i := range tt.left { // any other cut is none
				if i > 0 && i < tt.left-1 && tt.size == 0 && tt.name == "in a line" {
					raw, _ := os.ReadFile(path)
					text := string(raw[:i]) + string(raw[i+1:])
					if r := verifyText(t, text, nil); len(r.Findings) == 0 {
						t.Fatalf("byte %d is missing, and nothing is found", i)
					}
				}
			}
		})
	}
}

// A file that is no audit is refused as it is, and can be opened again: nothing holds it.
func TestNoAudit(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.log")
	const text = "guard:\n  keys: []\n  audit:"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time would find a lock
		if _, err := Open(&Options{File: path}); err == nil ||
			!strings.Contains(err.Error(), "it is no audit; name another file, or move it away") {
			t.Fatal(err)
		}
	}
	if names, err := Files(path); err != nil || len(names) != 1 {
		t.Error(names, err)
	}
	if raw, err := os.ReadFile(path); err != nil || string(raw) != text {
		t.Errorf("%q %v", raw, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if l, err := Open(&Options{File: path}); err != nil {
		t.Error(err)
	} else if err := errors.Join(write(l), l.Close()); err != nil {
		t.Error(err)
	}
}

// What is noted to be compared later is a number and a hash.
func TestParseCheckpoint(t *testing.T) {
	t.Parallel()
	hash := strings.Repeat("A", 43)
	if c, err := ParseCheckpoint("17:" + hash); err != nil || c != (Checkpoint{17, hash}) {
		t.Error(c, err)
	}
	for _, text := range []string{
		"", "17", "17:", "17:abc", "x:" + hash, "-1:" + hash, "0:" + hash,
		"+1:" + hash, "17:" + hash + "A", "17:" + hash[1:] + "*", "17:" + hash[1:] + "B",
	} {
		if c, err := ParseCheckpoint(text); err == nil {
			t.Errorf("%q is %v", text, c)
		}
	}
}

// Two processes cannot write one file.
func TestOneWriter(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.log")
	open(t, &Options{File: path})
	if l, err := Open(&Options{File: path}); err == nil {
		_ = l.Close()
		t.Skip("this system has no locks")
	} else if !strings.Contains(err.Error(), "another process") {
		t.Error(err)
	}
}

// FuzzVerify verifies foreign bytes, and a log in which they stand somewhere: then they are found.
func FuzzVerify(f *testing.F) {
	whole := sample(f, secret)
	f.Add([]byte(whole), uint16(0), uint16(0))
	f.Add([]byte("x"), uint16(300), uint16(1))
	f.Add([]byte("\n"), uint16(300), uint16(0))
	f.Add(
		[]byte(`{"event":"opened","torn":5,"seq":1,"prev":"","hash":"`+strings.Repeat("A", 43)+"\"}\n"), uint16(0), uint16(0))
	f.Add([]byte(`,"seq":18446744073709551615,"prev":"","mac":"`+strings.Repeat("A", 43)+`"}`),
		uint16(9), uint16(2000))
	f.Fuzz(func(t *testing.T, p []byte, at, cut uint16) {
		if r := verifyText(t, string(p), nil); r.Lines > bytes.Count(p, []byte("\n"))+1 {
			t.Fatalf("%d lines of %q", r.Lines, p)
		}
		start := int(at) % len(whole)
		end := min(start+int(cut), len(whole))
		text := whole[:start] + string(p) + whole[end:]
		r := verifyText(t, text, &VerifyOptions{Key: secret})
		complete := text[:strings.LastIndexByte(text, '\n')+1]
		if len(r.Findings) == 0 && r.Last > 0 && !strings.HasPrefix(whole, complete) {
			t.Fatalf("%q after %d in the place of %d bytes is not found: %+v", p, start, end-start, r)
		}
	})
}
