//go:build !unix

package stream

import "os/exec"

type signal int

const (
	terminate signal = iota
	kill

	zombies = false
)

func ownGroup(*exec.Cmd) {}

func awaitExit(int) {}

func signalGroup(cmd *exec.Cmd, _ signal) { _ = cmd.Process.Kill() }
