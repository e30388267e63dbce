package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// startTime is how long a gateway has until it listens, and until it has ended.
const startTime = 20 * time.Second

// processes are a gateway and all that it has started.
type processes struct {
	cmd     *exec.Cmd
	in      io.Closer // supergateway ends when its input does
	address string
	pids    []int // the gateway first
}

// A programs builds what is started, and returns the directory where it is.
type programs func() (string, error)

// buildPrograms builds the command as it is released, but for the symbols that
// perf wants, and the children.
func buildPrograms() (string, error) {
	dir, err := filepath.Abs(filepath.Join("..", "out", "bench"))
	if err != nil {
		return "", err
	}
	for _, from := range [][]string{
		{"..", "./cmd/farcall"},
		{".", "./stdio-farcall", "./stdio-gosdk"},
	} {
		cmd := exec.Command("go", append([]string{"build", "-trimpath", "-o", dir + "/"}, from[1:]...)...)
		cmd.Dir = from[0]
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w: %s", cmd, err, text)
		}
	}
	return dir, nil
}

// farcallGateway starts farcall in front of a child.
func (build programs) farcallGateway(child string, flags ...string) func() (*processes, error) {
	return func() (*processes, error) {
		dir, err := build()
		if err != nil {
			return nil, err
		}
		args := append([]string{"bridge", "127.0.0.1:0", "--log", "off"}, flags...)
		return build.farcallListening(append(args, "--", filepath.Join(dir, child))...)
	}
}

// farcallListening starts farcall, which says where it listens.
func (build programs) farcallListening(args ...string) (*processes, error) {
	dir, err := build()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(filepath.Join(dir, "farcall"), args...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	p := &processes{cmd: cmd}
	if err := p.start(); err != nil {
		return nil, err
	}
	out := bufio.NewReader(stderr)
	line, _ := out.ReadString('\n')
	address, ready := strings.CutPrefix(strings.TrimSpace(line), "farcall: ready http://")
	if !ready {
		rest, _ := out.ReadString(0)
		p.stop()
		return nil, fmt.Errorf("%s said %q, and not where it listens", cmd, line+rest)
	}
	p.address = address
	go io.Copy(os.Stderr, out)
	return p, nil
}

// superGateway starts supergateway, in the mode in which a child stays: the
// other one starts a child for each call.
func (build programs) superGateway(child string) func() (*processes, error) {
	return func() (*processes, error) {
		node, err := findNode("supergateway")
		if err != nil {
			return nil, err
		}
		dir, err := build()
		if err != nil {
			return nil, err
		}
		l, err := net.Listen("tcp", "127.0.0.1:0") // it does not say which port it has been given
		if err != nil {
			return nil, err
		}
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err = errors.Join(err, l.Close()); err != nil {
			return nil, err
		}
		cmd := exec.Command(node,
			filepath.Join("node", "node_modules", "supergateway", "dist", "index.js"),
			"--stdio", "exec '"+filepath.Join(dir, child)+"'", "--outputTransport", "streamableHttp",
			"--stateful", "--logLevel", "none", "--port", port)
		cmd.Stderr = os.Stderr
		p := &processes{cmd: cmd, address: net.JoinHostPort("127.0.0.1", port)}
		if err := p.start(); err != nil {
			return nil, err
		}
		if err := p.awaitListener(); err != nil {
			p.stop()
			return nil, err
		}
		return p, nil
	}
}

// findNode returns Node.js when it and a package are there.
func findNode(pkg string) (string, error) {
	node, err := exec.LookPath("node")
	if err != nil {
		return "", fmt.Errorf("%w: there is no Node.js on this machine", errSkip)
	}
	if _, err := os.Stat(filepath.Join("node", "node_modules", filepath.FromSlash(pkg))); err != nil {
		return "", fmt.Errorf("%w: %s is not installed; 'npm ci --prefix bench/node' installs it",
			errSkip, pkg)
	}
	return node, nil
}

func (p *processes) start() error {
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return err
	}
	p.in = in
	return p.cmd.Start()
}

func (p *processes) awaitListener() error {
	for end := time.Now().Add(startTime); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", p.address)
		if err == nil {
			return conn.Close()
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s does not listen: %w", p.cmd, err)
		}
	}
}

// stop ends the gateway, which ends the others.
func (p *processes) stop() {
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.in.Close()
	kill := time.AfterFunc(startTime, func() { p.cmd.Process.Kill() })
	defer kill.Stop()
	p.cmd.Wait()
}

// findAll finds all processes that there are by now.
func (p *processes) findAll() error {
	p.pids = []int{p.cmd.Process.Pid}
	for i := 0; i < len(p.pids); i++ {
		lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", p.pids[i]))
		if err != nil {
			return err
		}
		for _, file := range lists {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			for field := range strings.FieldsSeq(string(text)) {
				pid, err := strconv.Atoi(field)
				if err != nil {
					return err
				}
				p.pids = append(p.pids, pid)
			}
		}
	}
	if len(p.pids) < 2 {
		return fmt.Errorf("%s has started no process", p.cmd)
	}
	return nil
}

// cpuTime is what all of them have computed so far.
func (p *processes) cpuTime() (time.Duration, error) {
	var sum time.Duration
	for _, pid := range p.pids {
		t, err := cpuTimeOf(pid)
		if err != nil {
			return 0, err
		}
		sum += t
	}
	return sum, nil
}

// resident is the resident memory of all of them. What they share is counted
// for each.
func (p *processes) resident() (int, error) {
	sum := 0
	for _, pid := range p.pids {
		n, err := residentMemory(strconv.Itoa(pid))
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

func residentOf(pid int) func() (int, error) {
	return func() (int, error) { return residentMemory(strconv.Itoa(pid)) }
}
