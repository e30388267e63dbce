package main

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/internal/sandbox"
)

// TestSandboxFlags: the command line that the gateway makes of rules is read as these rules.
func TestSandboxFlags(t *testing.T) {
	want := sandbox.Rules{
		BestEffort: true, Read: []string{"/a", "--b", "c,d"}, Write: []string{"/c"},
		Execute: []string{"/d"}, Network: []string{"443", "53"},
		Memory: 1 << 20, Processes: 3, Files: 4, CPU: 90 * time.Second, KeepEnv: true,
	}
	command := []string{"node", "--read", "x", "--", "y"}
	line := sandbox.Command([]string{"farcall", "sandbox"}, &want, command)
	e := &env{stdout: new(bytes.Buffer), stderr: new(bytes.Buffer)}
	var f sandboxFlags
	cmd := f.command(e)
	if err := cmd.ParseFlags(line[2:]); err != nil {
		t.Fatal(err)
	}
	if err := f.read(); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(f.rules, want) || !reflect.DeepEqual(cmd.Flags().Args(), command) {
		t.Errorf("%q is read as %+v %q", line, f.rules, cmd.Flags().Args())
	}
}

func TestSandboxUsage(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"", "a COMMAND is needed"},
		{"--mode lax -- x", `no mode "lax"`},
		{"--memory lots -- x", `"lots" is not a size`},
		{"--memory -1 -- x", `"-1" is not a size`},
		{"--memory 9999999GiB -- x", "is not a size"},
		{"--files -1 -- x", "cannot be negative"},
		{"--cpu 10ms -- x", "counted in seconds"},
		{"--network http -- x", "--network http"},
		{"--network none --network 443 -- x", "--network none"},
		{"--network 65536 -- x", "--network 65536"},
	} {
		e := &env{stdout: new(bytes.Buffer), stderr: new(bytes.Buffer)}
		cmd := newSandboxCmd(e)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(strings.Fields(c.line))
		if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, wanted %q", c.line, err, c.want)
		}
	}
	for text, want := range map[string]int64{
		"5": 5, "512MB": 512e6, "1GiB": 1 << 30, "2 KiB": 2048,
		"3B": 3,
	} {
		f := &sandboxFlags{memory: text, mode: "strict"}
		if err := f.read(); err != nil || f.rules.Memory != want {
			t.Error(text, f.rules.Memory, err)
		}
	}
}

func TestSandboxHandsOn(t *testing.T) {
	got := strings.Join(handedOn([]string{"TOKEN", "B=2"},
		[]string{"HOME=/h", "TOKEN=t", "SECRET=s", "B=1", "LC_ALL=C"}), " ")
	if got != "HOME=/h TOKEN=t LC_ALL=C B=2" {
		t.Error(got)
	}
}
