package gateway

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const someEntry = `{id: ci, hash: "sha256:00"}`

func TestAmend(t *testing.T) {
	for name, test := range map[string][2]string{
		"empty":    {"", "guard:\n  keys:\n    - ENTRY\n"},
		"comment":  {"# mine\n", "# mine\nguard:\n  keys:\n    - ENTRY\n"},
		"no guard": {"listen: 127.0.0.1:1\n", "listen: 127.0.0.1:1\nguard:\n  keys:\n    - ENTRY\n"},
		"no end":   {"listen: 127.0.0.1:1", "listen: 127.0.0.1:1\nguard:\n  keys:\n    - ENTRY\n"},
		"null":     {"guard:\nlisten: a\n", "guard:\n  keys:\n    - ENTRY\nlisten: a\n"},
		"no keys": {
			"guard:\n    # who\n    anonymous: true # yes\n",
			"guard:\n    # who\n    keys:\n      - ENTRY\n    anonymous: true # yes\n",
		},
		"null keys": {
			"guard:\n  keys: # none yet\n  anonymous: true\n",
			"guard:\n  keys: # none yet\n    - ENTRY\n  anonymous: true\n",
		},
		"one": {
			"guard:\n  keys:\n    - {id: a, hash: x} # first\n\n  # next\n  anonymous: true\n",
			"guard:\n  keys:\n    - {id: a, hash: x} # first\n    - ENTRY\n\n  # next\n  anonymous: true\n",
		},
		"not indented": {
			"guard:\n  keys:\n  - id: a\n    hash: x\n  - id: b\n\n    hash: y\n  allow: []\n",
			"guard:\n  keys:\n  - id: a\n    hash: x\n  - id: b\n\n    hash: y\n  - ENTRY\n  allow: []\n",
		},
		"at the end": {
			"guard:\n  keys:\n    - id: a\n      hash: x",
			"guard:\n  keys:\n    - id: a\n      hash: x\n    - ENTRY\n",
		},
		"flow": {
			"guard:\n  keys: [{id: a, hash: x}] # one\n",
			"guard:\n  keys: [{id: a, hash: x}, ENTRY] # one\n",
		},
		"empty flow": {"guard:\n  keys: []\n", "guard:\n  keys: [ENTRY]\n"},
		"ends of DOS": {
			"guard:\r\n  keys:\r\n    - {id: a, hash: x}\r\n",
			"guard:\r\n  keys:\r\n    - {id: a, hash: x}\r\n    - ENTRY\r\n",
		},
		"comments of DOS": {
			"# mine\r\nguard:\r\n  # who\r\n  keys:\r\n    # first\r\n    - {id: a}\r\n",
			"# mine\r\nguard:\r\n  # who\r\n  keys:\r\n    # first\r\n    - {id: a}\r\n    - ENTRY\r\n",
		},
		"anchors": {
			"x-a: &a {anonymous: true}\nguard:\n  <<: *a\n  keys:\n    - {id: a}\n",
			"x-a: &a {anonymous: true}\nguard:\n  <<: *a\n  keys:\n    - {id: a}\n    - ENTRY\n",
		},
	} {
		got, err := amend([]byte(test[0]), "keys", someEntry)
		if want := strings.ReplaceAll(test[1], "ENTRY", someEntry); err != nil || string(got) != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, got, want)
		}
	}
}

// A file that the entry would change otherwise stays as it is.
func TestAmendRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"guard:\n  keys:\n    - {id: ci, hash: x}\n": "guard.keys[0] has the " +
			"id ci already",
		"guard:\n  keys:\n    - {id: x}\n    - {hash: 'sha256:00'}\n": "guard.keys[1] has the hash " +
			"sha256:00 already",
		"guard: {anonymous: true}\n":                    "by hand",
		"{guard: {}}\n":                                 "by hand",
		"guard: &g\n  keys: &k\n    - {id: a}\nx: *k\n": "by hand",
		"a: 1\n---\nb: 2\n":                             "by hand",
		"a: 1\rguard:\r  keys: []\r":                    "by hand",
		"guard: [\n":                                    "correct it first",
		"- a\n":                                         "correct it first",
	} {
		if got, err := amend([]byte(text), "keys", someEntry); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q became %q, %v; want %q", text, got, err, want)
		}
	}
}

func TestAmendGuard(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "guard.yaml"), filepath.Join(dir, "link.yaml")
	if err := os.Symlink("guard.yaml", link); err != nil {
		t.Skip(err)
	}
	if err := AmendGuard(path, "keys", someEntry); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("a new file: %v, %v", info, err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := AmendGuard(link, "signatures", `{id: p, public: "x"}`); err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(link)
	if err != nil || info.Mode().IsRegular() {
		t.Errorf("the link was replaced: %v, %v", info, err)
	}
	info, err = os.Stat(path)
	text, _ := os.ReadFile(path)
	if err != nil || info.Mode().Perm() != 0o640 ||
		!strings.Contains(string(text), "signatures:\n    - {id: p") ||
		!strings.Contains(string(text), "keys:\n    - {id: ci") {
		t.Errorf("%v, %v\n%s", info.Mode(), err, text)
	}
	if err := AmendGuard(path, "keys", someEntry); err == nil {
		t.Error("it is there twice")
	}
	if err := AmendGuard(filepath.Join(dir, "a.json"), "keys", someEntry); err == nil {
		t.Error("JSON was written as YAML")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("something is left: %v, %v", entries, err)
	}
}

func FuzzAmend(f *testing.F) {
	for _, text := range []string{
		"", "guard:\n  keys:\n    - {id: a}\n  x: 1\n",
		"guard:\n  keys: [{id: a}]\n", "# c\nguard:\n", "a: |\n  guard:\n    keys:\n", " \rguard:",
		"a: 1\rguard:\r  keys: []\r\n", "#\r\nguard:",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, old []byte) {
		if len(old) > 10_000 {
			return
		}
		text, err := amend(old, "keys", someEntry)
		if err != nil {
			return
		}
		// Every line that was there is there, in its order; only one may have grown.
		rest := strings.Replace(string(text), someEntry, "", 1)
		for line := range strings.Lines(string(old)) {
			line = strings.TrimSpace(line)
			i := strings.Index(rest, line)
			if i < 0 && !strings.Contains(line, "]") {
				t.Fatalf("%q lost the line %q: %q", old, line, text)
			}
			rest = rest[max(i, 0):]
		}
	})
}
