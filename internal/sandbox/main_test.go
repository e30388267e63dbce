//go:build linux && (amd64 || arm64)

package sandbox

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/farcall-dev/farcall/internal/leak"
)

// noNamespaces in the environment makes the launcher find none.
const noNamespaces = "SANDBOX_TEST_NO_NAMESPACES"

// ofLauncher begins variables that the launcher does not pass on.
const ofLauncher = "LAUNCHER_"

// TestMain makes the test self a launcher, a hostile program and its victim, too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "sandbox":
			os.Exit(playLauncher(os.Args[2:]))
		case "hostile":
			os.Exit(playHostile(os.Args[2:]))
		case "victim":
			// Where only a parent may debug a process, this one lets everybody.
			_ = unix.Prctl(unix.PR_SET_PTRACER, unix.PR_SET_PTRACER_ANY, 0, 0, 0)
			if len(os.Args) > 2 && Protect() != nil {
				os.Exit(1)
			}
			_, _ = os.Stdout.WriteString("ready\n")
			_, _ = os.Stdin.Read(make([]byte, 1)) // its end
			os.Exit(0)
		}
	}
	dir, err := os.MkdirTemp("", "farcall-sandbox-test")
	if err == nil {
		self, err = plain(dir)
	}
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = leak.Main(m)
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// self is the test self that plays the others.
var self string

// plain is this test self without the race detector, which takes more memory than a sandbox has.
func plain(dir string) (string, error) {
	info, _ := debug.ReadBuildInfo()
	if !slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		return os.Executable()
	}
	file := filepath.Join(dir, "sandbox.test")
	build := exec.Command("go", "test", "-c", "-o", file, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	var said bytes.Buffer
	build.Stdout, build.Stderr = &said, &said
	err := build.Start()
	if err == nil {
		late := time.AfterFunc(5*waitLimit, func() { _ = build.Process.Kill() })
		err = build.Wait()
		late.Stop()
	}
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, &said)
	}
	return file, nil
}

// playLauncher is what cmd/farcall does.
func playLauncher(args []string) int {
	var r Rules
	flags := flag.NewFlagSet("sandbox", flag.ExitOnError)
	list := func(dst *[]string, name string) {
		flags.Func(name, "", func(v string) error { *dst = append(*dst, v); return nil })
	}
	list(&r.Read, "read")
	list(&r.Write, "write")
	list(&r.Execute, "execute")
	list(&r.Network, "network")
	list(&r.Hide, "hide")
	list(&r.Never, "never")
	flags.Int64Var(&r.Memory, "memory", 0, "")
	flags.IntVar(&r.Processes, "processes", 0, "")
	flags.IntVar(&r.Files, "files", 0, "")
	flags.DurationVar(&r.CPU, "cpu", 0, "")
	flags.BoolVar(&r.KeepEnv, "keep-env", false, "")
	mode := flags.String("mode", "strict", "")
	inside := flags.Bool(strings.TrimPrefix(Inside, "--"), false, "")
	if flags.Parse(args) != nil {
		return 2
	}
	r.BestEffort, r.Open = *mode == "best-effort", *mode == "open"
	if *inside {
		runtime.LockOSThread() // so that the command is executed by another thread than the first one
		failed := make(chan error)
		go func() { failed <- Exec(&r, flags.Args(), os.Environ()) }()
		fmt.Fprintln(os.Stderr, <-failed)
		return 126
	}
	k := probe()
	if os.Getenv(noNamespaces) != "" {
		k.namespaces = errors.New("none in this test")
	}
	env := slices.DeleteFunc(os.Environ(), func(s string) bool {
		return strings.HasPrefix(s, ofLauncher)
	})
	code, err := run(k, []string{os.Args[0], "sandbox"}, &r, flags.Args(), env, func(s string) {
		fmt.Fprintln(os.Stderr, "warning:", s)
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 125
	}
	return code
}

// needs skips where the kernel cannot build what is tested.
func needs(t *testing.T, r *Rules) {
	t.Helper()
	if parts := Missing(r); len(parts) > 0 {
		t.Skip("this system lacks a part:", parts)
	}
}

// result is how a command ended.
type result struct {
	code     int
	out, err string
}

func (r result) String() string {
	return fmt.Sprintf("exit %d %s", r.code, strings.TrimSpace(r.out+" "+r.err))
}

// waitLimit bounds each wait for a command.
const waitLimit = time.Minute

// bounded is a command that is ended after that.
func bounded(t *testing.T, command ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.WaitDelay = waitLimit / 10
	return cmd
}

// begin starts a command that the test talks with.
func begin(t *testing.T, cmd *exec.Cmd) (in io.WriteCloser, lines *bufio.Reader) {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if pipe, ok := out.(*os.File); ok { // what it has started may hold it open
		_ = pipe.SetReadDeadline(time.Now().Add(waitLimit))
	}
	return in, bufio.NewReader(out)
}

// launch runs a command line to its end.
func launch(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// confined is the command line of a command in a sandbox of the test self.
func confined(t *testing.T, r *Rules, command ...string) *exec.Cmd {
	t.Helper()
	cmd := bounded(t, Command([]string{self, "sandbox"}, r, command)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "FARCALL_CHILD=cookie"}
	cmd.Dir = t.TempDir()
	return cmd
}

// tool is a program of the system; the test is skipped without it.
func tool(t *testing.T, name string) string {
	t.Helper()
	for _, dir := range []string{"/usr/bin", "/bin", "/usr/local/bin"} {
		if file, err := executable(filepath.Join(dir, name)); err == nil {
			return file
		}
	}
	file, err := exec.LookPath(name)
	if err != nil {
		t.Skip("there is no", name)
	}
	return file
}

// playHostile tries one thing, says what came of it and exits with 0 when it worked.
func playHostile(args []string) int {
	try, ok := attempts[args[0]]
	for _, more := range []map[string]func([]string) error{nativeAttempts, connectAttempts} {
		if !ok {
			try, ok = more[args[0]]
		}
	}
	if !ok {
		fmt.Println("there is no attempt", args[0])
		return 99
	}
	if err := try(args[1:]); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("it worked")
	return 0
}

// stay waits for the end of this process, whatever signals say.
func stay() error {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	for {
		if err := unix.Pause(); err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func pid(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}
