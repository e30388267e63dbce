package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"
)

// waitLimit is how long a server may take to be there, and to end.
const waitLimit = 10 * time.Second

// behind is a server behind the gateway, which speaks one revision only.
type behind struct {
	revision string
	http     bool
}

func (b *behind) String() string {
	if b.http {
		return "server of " + b.revision + " on HTTP"
	}
	return "server of " + b.revision + " on stdio"
}

// connections is how many of the calls below the gateway may keep at a time: the suite
// leaves calls that have asked for something, and does not come back.
const connections = "64"

// serve starts what legs of the server test: one server process, or the gateway
// with one behind it.
func (s *suite) serve(ctx context.Context, b *behind) error {
	if b == nil {
		address, err := s.listen(ctx, "auto")
		s.url = urlOf(address)
		return err
	}
	args := []string{"bridge", "127.0.0.1:0", "--log", "off"}
	if b.http {
		address, err := s.listen(ctx, b.revision)
		if err != nil {
			return err
		}
		args = append(args, urlOf(address))
	} else {
		args = append(args, "--pool", connections, "--", s.binaries["server"], "--stdio", "--eras",
			b.revision)
	}
	p, lines, err := s.start(ctx, "farcall", args...)
	if err != nil {
		return err
	}
	r := bufio.NewReader(lines)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return fmt.Errorf("the gateway ended before it was ready: %w", err)
		}
		if address, ok := strings.CutPrefix(strings.TrimSpace(line), "farcall: ready http://"); ok {
			s.url = urlOf(address)
			p.copying(r)
			return nil
		}
	}
}

func urlOf(address string) string {
	_, port, _ := strings.Cut(address, ":")
	return "http://localhost:" + port + "/mcp"
}

// listen starts a server on HTTP and returns its address.
func (s *suite) listen(ctx context.Context, eras string) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	address := l.Addr().String()
	_ = l.Close()
	p, stderr, err := s.start(ctx, "server", "--listen", address, "--eras", eras)
	if err != nil {
		return "", err
	}
	p.copying(stderr)
	for range waitLimit / (50 * time.Millisecond) {
		var d net.Dialer
		if conn, err := d.DialContext(ctx, "tcp", address); err == nil {
			_ = conn.Close()
			return address, nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	return "", fmt.Errorf("nothing listens on %s", address)
}

// process is one that serves.
type process struct {
	*exec.Cmd
	copied chan struct{} // closed when its standard error has ended
}

// start starts a binary. What it returns beside is its standard error.
func (s *suite) start(
	ctx context.Context, binary string, args ...string,
) (*process, io.Reader, error) {
	cmd := exec.CommandContext(ctx, s.binaries[binary], args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = waitLimit
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, nil, err
	}
	p := &process{Cmd: cmd}
	s.served = append(s.served, p)
	return p, stderr, nil
}

// copying shows what a process says.
func (p *process) copying(stderr io.Reader) {
	p.copied = make(chan struct{})
	go func() {
		defer close(p.copied)
		_, _ = io.Copy(os.Stderr, stderr)
	}()
}

// stop ends what serves.
func (s *suite) stop() {
	for len(s.served) > 0 {
		p := s.served[len(s.served)-1]
		s.served = s.served[:len(s.served)-1]
		_ = p.Process.Signal(os.Interrupt)
		kill := time.AfterFunc(waitLimit, func() { _ = p.Process.Kill() })
		if p.copied != nil {
			<-p.copied
		}
		err := p.Wait()
		kill.Stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, "suite: what was tested ended with:", err)
		}
	}
}
