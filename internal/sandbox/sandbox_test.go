package sandbox

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestStrictness: what a kernel lacks decides, and is reported.
func TestStrictness(t *testing.T) {
	all := kernel{known: true, landlock: 7, seccomp: true, children: true}
	with := func(change func(*kernel)) kernel { k := all; change(&k); return k }
	for _, c := range []struct {
		name    string
		k       kernel
		network []string
		want    []string // how the parts begin
	}{
		{"all there is", all, []string{"443"}, nil},
		{"another system", kernel{}, nil, []string{"everything"}},
		{"no Landlock", with(func(k *kernel) { k.landlock = 0 }), nil, []string{"files"}},
		{"Linux 5.19", with(func(k *kernel) { k.landlock = 2 }), nil, []string{"files: the Landlock"}},
		{"Linux 6.2", with(func(k *kernel) { k.landlock = 3 }), nil, nil},
		{"Linux 6.2, ports", with(func(k *kernel) { k.landlock = 3 }), []string{"443"}, nil},
		{"no supervisor", with(func(k *kernel) {
			k.notify = os.ErrPermission
		}), []string{"443"}, []string{"network: connections cannot be supervised (permission denied"}},
		{"no supervisor, no network", with(func(k *kernel) { k.notify = os.ErrPermission }), nil, nil},
		{"no namespaces, destinations", with(func(k *kernel) {
			k.namespaces = os.ErrPermission
		}), []string{"10.0.0.0/8:443"}, []string{"network: connections", "processes: "}},
		{"Linux 6.2, all", with(func(k *kernel) { k.landlock = 3 }), []string{"all"}, nil},
		{"no seccomp", with(func(k *kernel) { k.seccomp = false }), nil, []string{"network and kernel"}},
		{"no namespaces", with(func(k *kernel) {
			k.namespaces = os.ErrPermission
		}), nil, []string{"processes: no user and process namespaces (permission denied; a container's"}},
		{"no children", with(func(k *kernel) { k.children = false }), nil, []string{"memory"}},
		{
			"nothing",
			kernel{known: true, namespaces: os.ErrPermission},
			[]string{"80"},
			[]string{"files", "network and", "processes"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &Rules{Network: c.network}
			var warned []string
			warn := func(s string) { warned = append(warned, s) }
			err := r.admit(c.k, warn)
			missing := (*MissingError)(nil)
			switch {
			case c.want == nil && err != nil:
				t.Fatal(err)
			case c.want != nil && !errors.As(err, &missing):
				t.Fatal("strict starts:", err)
			case missing != nil:
				begins(t, missing.Parts, c.want, "")
				if text := err.Error(); !strings.Contains(text, "nothing was started") ||
					!strings.Contains(text, "best-effort") {
					t.Error(text)
				}
			}
			if warned != nil {
				t.Error("strict warns:", warned)
			}
			r.BestEffort = true
			if err := r.admit(c.k, warn); err != nil {
				t.Error("best effort:", err)
			}
			begins(t, warned, c.want, "the sandbox is not complete: ")
		})
	}
}

func begins(t *testing.T, got, want []string, prefix string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %q, wanted %q", got, want)
	}
	for i := range got {
		if !strings.HasPrefix(got[i], prefix+want[i]) {
			t.Errorf("got %q, wanted %q", got[i], prefix+want[i])
		}
	}
}

func TestCommand(t *testing.T) {
	r := &Rules{
		BestEffort: true, Read: []string{"/a", "--b"}, Write: []string{"/c"}, Execute: []string{"/d"},
		Network: []string{"443", "53"},
		Memory:  1 << 20, Processes: 3, Files: 4, CPU: 90 * time.Second,
	}
	got := Command([]string{"farcall", "sandbox"}, r, []string{"node", "--read", "x"})
	want := strings.Fields(
		"farcall sandbox --mode=best-effort --read=/a --read=--b --write=/c --execute=/d --network=443 " +
			"--network=53 --memory=1048576 --processes=3 --files=4 --cpu=1m30s --keep-env -- node --read x")
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwanted %q", got, want)
	}
	if got := Command([]string{"l"}, &Rules{}, []string{"c"}); !slices.Equal(got,
		[]string{"l", "--keep-env", "--", "c"}) {
		t.Error(got)
	}
}

func TestRules(t *testing.T) {
	for _, c := range []struct {
		text []string
		want network
		ok   bool
	}{
		{nil, network{none: true}, true},
		{[]string{"none"}, network{none: true}, true},
		{[]string{"all"}, network{all: true}, true},
		{[]string{"443", "53"}, network{ports: []uint16{443, 53}}, true},
		{
			[]string{"all", "169.254.169.254:80"},
			network{
				all:   true,
				named: []destination{{prefix: netip.MustParsePrefix("169.254.169.254/32"), port: 80}},
			},
			true,
		},
		{[]string{"all", "443"}, network{}, false},
		{[]string{"none", "443"}, network{}, false},
		{[]string{"all", "none"}, network{}, false},
		{[]string{"0"}, network{}, false},
		{[]string{"65536"}, network{}, false},
		{[]string{"-1"}, network{}, false},
		{[]string{""}, network{}, false},
	} {
		got, err := (&Rules{Network: c.text}).network()
		if (err == nil) != c.ok || c.ok && !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: %v %v", c.text, got, err)
		}
	}
	for _, r := range []*Rules{{Memory: -1}, {Processes: -1}, {Files: -1}, {CPU: -1}} {
		if _, err := r.filled(); err == nil {
			t.Errorf("%+v is accepted", r)
		}
	}
	if r, err := (&Rules{}).filled(); err != nil || r.Memory != 1<<30 || r.Processes != 64 ||
		r.Files != 256 || r.CPU != 0 {
		t.Error(r, err)
	}
}

// TestProgram: a script takes its interpreter with it, also through env, and a virtual environment
// its libraries.
func TestProgram(t *testing.T) {
	if filepath.Separator != '/' {
		t.Skip("there are no such scripts")
	}
	dir := t.TempDir()
	put := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		return file
	}
	python := put("venv/bin/python", "\x7fELF")
	tool := put("tools/tool", "#!/usr/bin/env -S A=b python -x\n")
	direct := put("venv/bin/direct", "#! "+python+" -u\n")
	loop := put("loop", "#!"+filepath.Join(dir, "loop")+"\n")
	path := filepath.Join(dir, "tools") + ":.:" + filepath.Join(dir, "venv/bin")
	lib := filepath.Join(dir, "venv/lib")

	p, err := program("tool", path)
	if err != nil || p.file != tool ||
		!slices.Equal(p.executes, []string{tool, "/usr/bin/env", python}) ||
		!slices.Contains(p.reads, lib) {
		t.Error(p, err)
	}
	p, err = program(direct, "")
	if err != nil || p.file != direct || !slices.Equal(p.executes, []string{direct, python}) ||
		!slices.Contains(p.reads, lib) {
		t.Error(p, err)
	}
	if p, err = program(loop, ""); err != nil || len(p.executes) != maxInterpreters {
		t.Error(p, err)
	}
	for _, name := range []string{"", "nothing", filepath.Join(dir, "nothing"), dir} {
		if _, err := program(name, path); err == nil {
			t.Errorf("%q is a program", name)
		}
	}
	if got := belonging("/usr/../bin/sh"); slices.Contains(got, "/lib") {
		t.Error(got)
	}
}

func FuzzShebang(f *testing.F) {
	f.Add([]byte("#!/bin/sh -e\n"))
	f.Add([]byte("#!/usr/bin/env -S A=b node --x\nrest"))
	f.Add([]byte("#!"))
	f.Add([]byte("#! relative x"))
	f.Add([]byte("\x7fELF"))
	file := filepath.Join(f.TempDir(), "script")
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		interpreter, argument := shebang(file)
		if interpreter != "" && !filepath.IsAbs(interpreter) {
			t.Errorf("%q is not absolute", interpreter)
		}
		if strings.ContainsAny(interpreter+argument, " \t\n") || interpreter == "" && argument != "" {
			t.Errorf("%q %q", interpreter, argument)
		}
	})
}

func TestEnvironmentOf(t *testing.T) {
	env := []string{"A=1", "A=2", "AB=3"}
	if got := variable(env, "A"); got != "2" {
		t.Error(got)
	}
	if got := with(env, "A", "4"); !slices.Equal(got, []string{"AB=3", "A=4"}) {
		t.Error(got)
	}
	for path, want := range map[string]bool{
		"/a/b": true, "/a/b/c": true, "/a/bc": false, "/a": false,
		"/a/..b": false, "/a/b/..c": true,
	} {
		if within(path, []string{"/a/b"}) != want {
			t.Error(path)
		}
	}
}
