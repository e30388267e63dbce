package main

import (
	"os"
	"syscall"
	"testing"
)

// smallDisk mounts a tmpfs that has little room at a path. "": it may not.
func smallDisk(t *testing.T, dir string) string {
	t.Helper()
	if os.MkdirAll(dir, 0o700) != nil ||
		syscall.Mount("none", dir, "tmpfs", 0, "size=64m,mode=700") != nil {
		return ""
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}
