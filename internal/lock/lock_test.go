package lock

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/internal/leak"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

func TestSet(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	set, err := NewSet([]Lock{
		{Principal: "a"},
		{Key: "k"},
		{JTI: "j", Expires: now.Add(time.Hour)},
		{Session: "s", Expires: now},
		{Principal: "long", Expires: now},
		{Principal: "long", Expires: now.Add(time.Hour)},
		{Principal: "long", Expires: now.Add(time.Minute)},
		{Principal: "ever"},
		{Principal: "ever", Expires: now},
	})
	if err != nil {
		t.Fatal(err)
	}
	for target, test := range map[string]struct {
		who  Subject
		want bool
	}{
		"principal":     {Subject{Principal: "a"}, true},
		"second key":    {Subject{Principal: "x", Keys: []string{"y", "k"}}, true},
		"jti":           {Subject{JTI: "j"}, true},
		"expired":       {Subject{Session: "s"}, false},
		"another kind":  {Subject{Principal: "k", JTI: "a", Session: "j"}, false},
		"no target":     {Subject{}, false},
		"longest":       {Subject{Principal: "long"}, true},
		"without end":   {Subject{Principal: "ever"}, true},
		"a part of one": {Subject{Principal: "eve"}, false},
	} {
		if _, got := set.Find(&test.who, now); got != test.want {
			t.Errorf("%s: %v", target, got)
		}
	}
	for _, l := range []Lock{{}, {Principal: "a", JTI: "b"}, {Reason: "x"}} {
		if _, err := NewSet([]Lock{l}); err == nil {
			t.Errorf("%+v is a lock", l)
		}
	}
}

func TestFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.jsonl")
	if _, err := Read(path); !errors.Is(err, fs.ErrNotExist) ||
		!strings.Contains(err.Error(), "farcall lock add") {
		t.Error(err)
	}
	first := Lock{
		Principal: "a", Reason: "x\n{\"principal\":\"b\"}",
		Expires: time.Unix(2_000_000_000, 0).UTC(),
	}
	if err := Add(path, &first); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info, err)
	}
	text, _ := os.ReadFile(path)
	if err := os.WriteFile(path, append([]byte("# mine\n"), text[:len(text)-1]...),
		0o600); err != nil {
		// no line feed at the end
		t.Fatal(err)
	}
	second := Lock{JTI: "j"}
	if err := Add(path, &second); err != nil {
		t.Fatal(err)
	}
	all, err := Read(path)
	if err != nil || !reflect.DeepEqual(all, []Lock{first, second}) {
		t.Errorf("%+v, %v", all, err)
	}
	if n, err := Remove(path, func(l *Lock) bool { return l.Same(&Lock{Principal: "a"}) }); n != 1 ||
		err != nil {
		t.Error(n, err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "# mine\n{\"jti\":\"j\"}\n" {
		t.Errorf("%q, %v", text, err)
	}
	if err := os.WriteFile(path, []byte("{\"jti\":\"j\"}\n{\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"Add": Add(path, &second), "Read": func() error {
		_, err := Read(path)
		return err
	}()} {
		if err == nil || !strings.Contains(err.Error(), "locks.jsonl: line 2: ") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("# c\n{\"principal\":\"a\",\"reason\":\"r\",\"expires\":\"2030-01-31T00:00:00Z\"}\n"))
	f.Add([]byte("{\"jti\":\"a\",\"jti\":\"b\"}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := Parse(text)
		if err != nil {
			return
		}
		if _, err := NewSet(all); err != nil {
			t.Errorf("%q: what was read is not valid: %v", text, err)
		}
		var out []byte
		for i := range all {
			if out, err = all[i].appendLine(out); err != nil {
				t.Fatal(err)
			}
		}
		if again, err := Parse(out); err != nil || len(again) != len(all) {
			t.Errorf("%q became %q: %v", text, out, err)
		}
	})
}
