//go:build !linux || (!amd64 && !arm64)

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"time"
)

func probe() kernel { return kernel{} }

func probeOpen() kernel { return kernel{} }

// Protect is for Linux.
func Protect() error {
	return &MissingError{Parts: []string{"memory: sandboxes are for Linux on amd64 and arm64"}}
}

// Run is as on Linux: a strict sandbox is refused, and best effort runs the command without one.
func Run(_ []string, r *Rules, command, env []string, warn func(string)) (code int, err error) {
	if len(command) == 0 {
		return 0, errNoCommand
	}
	if !r.Open {
		if err := r.admit(probe(), warn); err != nil {
			return 0, err
		}
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt)
	defer signal.Stop(signals)
	file, err := exec.LookPath(command[0])
	if err != nil {
		return 0, fmt.Errorf("sandbox: %w", err)
	}
	cmd := &exec.Cmd{
		Path: file, Args: command, Env: env, Stdin: os.Stdin, Stdout: os.Stdout,
		Stderr: stderrOf(os.Stderr), WaitDelay: time.Second,
	}
	exit := (*exec.ExitError)(nil)
	if err = cmd.Run(); errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), nil
	} else if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		// a process that goes on holds the stream
		return 0, fmt.Errorf("sandbox: %w", err)
	}
	return 0, nil
}

// Exec is for Linux.
func Exec(r *Rules, _, _ []string) error { return &MissingError{Parts: Missing(r)} }
