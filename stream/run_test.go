//go:build unix

package stream

import (
	"context"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

func runShell(ctx context.Context, script, input string, most int) (string, error) {
	b, err := Run(ctx, exec.Command("/bin/sh", "-c", script), []byte(input), most)
	return string(b), err
}

// What a child writes is what Run returns, whether it reads its input or not.
func TestRun(t *testing.T) {
	large := strings.Repeat("0123456789abcdef", 20_000)
	for script, want := range map[string]string{
		"cat": large, "exit 0": "",
		"echo one; exec 1>&-; cat >/dev/null": "one\n", "tr -d 1-9a-f | wc -c": "20000\n",
	} {
		if got, err := runShell(t.Context(), script, large, 1<<20); err != nil ||
			strings.TrimLeft(got, " ") != want {
			t.Errorf("%s: %.40q %v", script, got, err)
		}
	}
	_, err := runShell(t.Context(), "echo no >&2; exit 3", "", 10)
	exit, ok := errors.AsType[*ExitError](err)
	if !ok || exit.State.ExitCode() != 3 || exit.Stderr != "no\n" {
		t.Errorf("%v", err)
	}
	if _, err = runShell(t.Context(), "cat", "12345678901", 10); !errors.Is(err, ErrTooMuchOutput) {
		t.Errorf("output beyond the bound: %v", err)
	}
	if _, err = Run(t.Context(), exec.Command("/nowhere"), nil, 10); err == nil {
		t.Error("a program that is not there has run")
	}
}

// A child that does not end is killed with all that it has started, when the context ends or its
// output is too much.
func TestRunKillsGroup(t *testing.T) {
	for name, script := range map[string]string{
		"hangs":          "sleep 1000 & echo $! >&2; wait",
		"closes":         "sleep 1000 & echo $! >&2; exec 1>&-; wait",
		"floods":         "sleep 1000 & echo $! >&2; yes",
		"leaves a child": "sleep 1000 & echo $! >&2",
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			said := &firstLine{then: func() {
				if name == "hangs" || name == "closes" {
					cancel()
				}
			}}
			cmd := exec.Command("/bin/sh", "-c", script)
			cmd.Stderr = said
			_, err := Run(ctx, cmd, nil, 1<<20)
			if (err == nil) != (name == "leaves a child") {
				t.Error(err)
			}
			pid, err := strconv.Atoi(strings.TrimSpace(said.text))
			if err != nil {
				t.Fatal(err)
			}
			mustBeGone(t, pid)
		})
	}
}

// firstLine keeps what is written first, and does something then.
type firstLine struct {
	text string
	then func()
}

func (l *firstLine) Write(b []byte) (int, error) {
	if l.text == "" {
		l.text = string(b)
		l.then()
	}
	return len(b), nil
}
