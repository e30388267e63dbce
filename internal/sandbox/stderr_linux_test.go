package sandbox

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// pseudoterminal returns both ends of one.
func pseudoterminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudoterminal here:", err)
	}
	t.Cleanup(func() { _ = master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudoterminal here:", err)
	}
	t.Cleanup(func() { _ = slave.Close() })
	return master, slave
}

// A command must not be able to set the title of the terminal, to fill its clipboard, or to
// turn text around, through its standard error.
func TestStderrOfTerminal(t *testing.T) {
	master, slave := pseudoterminal(t)
	cmd := exec.CommandContext(t.Context(), "printf",
		`\033]0;title\a\033[31mred\033[0m\302\233\342\200\256`)
	cmd.Stderr = stderrOf(slave)
	cmd.Stdout = cmd.Stderr
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1000)
	n, err := master.Read(b)
	if want := `\u001b]0;title\u0007red\u009b\u202e`; err != nil || string(b[:n]) != want {
		t.Errorf("%q, %v; want %q", b[:n], err, want)
	}
}

func TestStderrOfFile(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, f := range []*os.File{file, null} {
		if got := stderrOf(f); got != f {
			t.Errorf("%s: the bytes are changed", f.Name())
		}
	}
}
