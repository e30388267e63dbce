//go:build !unix

package faulty

import "os/exec"

func ownSession(*exec.Cmd) {}
