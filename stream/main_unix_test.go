//go:build unix

package stream

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// playParent plays children that have children.
func playParent(mode string) int {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childMode+"=hang")
	cmd.Stdout = os.Stdout // says its process id there
	switch mode {
	case "fork": // waits for the end of its input
		if err := cmd.Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 5
		}
		_, _ = os.Stdin.Read(make([]byte, 1))
		return 0
	case "fork-and-exit", "fork-away-and-exit":
		if mode == "fork-away-and-exit" {
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		}
		pipe, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 5
		}
		_ = pipe
		return 7
	case "middle": // has its own child and is killed
		cmd.Stdout = nil
		t, err := Command(cmd, NDJSON, nil)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 5
		}
		frame, err := t.Read()
		fmt.Printf("%s\n", frame)
		if err != nil {
			return 6
		}
		_, _ = t.Read()
		return 0
	default:
		fmt.Fprintln(os.Stderr, "no such mode:", mode)
		return 2
	}
}
