//go:build unix

package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A proxyTo is a way from one engine to another, which can be cut.
type proxyTo struct {
	net.Listener
	to string

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]struct{}
	wait  sync.WaitGroup
}

func newProxyTo(t *testing.T) *proxyTo {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxyTo{Listener: l, conns: map[net.Conn]struct{}{}}
	t.Cleanup(func() { l.Close(); p.set(true); p.wait.Wait() })
	return p
}

func (p *proxyTo) run() {
	for {
		in, err := p.Accept()
		if err != nil {
			return
		}
		p.wait.Go(func() {
			out, err := net.Dial("tcp", p.to)
			if err != nil {
				in.Close()
				return
			}
			p.mu.Lock()
			refused := p.cut
			p.conns[in], p.conns[out] = struct{}{}, struct{}{}
			p.mu.Unlock()
			if refused {
				in.Close()
				out.Close()
			}
			p.wait.Go(func() { _, _ = io.Copy(out, in); out.Close(); in.Close() })
			_, _ = io.Copy(in, out)
			in.Close()
			out.Close()
			p.mu.Lock()
			delete(p.conns, in)
			delete(p.conns, out)
			p.mu.Unlock()
		})
	}
}

// set cuts the way, or mends it.
func (p *proxyTo) set(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
	for c := range p.conns {
		if cut {
			c.Close()
		}
	}
}

// A faultLab is a cluster of real processes with faults.
type faultLab struct {
	t           *testing.T
	size        int
	dirs, addrs []string
	webs        []string
	disks       []string // tmpfs, with room that a file can take; "": it may not be mounted
	ways        map[[2]int]*proxyTo
	log         string
	old         []bool // nodes of the other version
	faulty      string // the program that can have a wrong clock and a slow disk; "": there is none
	skew        time.Duration
	all         []*served
	faults      map[string]int
	pauses      bool // of clients, between calls
}

const faultConfig = `
cluster:
  listen: %s
  peers: [%s]
  key: file:cluster.key
  skew: %v
guard:
  keys: [{id: local, hash: %q}]
  signatures: [{id: ci, secret: "file:ci.key"}]
  resource: {url: "https://rpc.example"}
  allow: [{calls: ["*"]}]
upstreams:
  c:
    command: [%q]
    env: {FARCALL_TEST_MCP: cluster, FARCALL_TEST_CHILD_LOG: %q}
  t:
    command: [%q, serve, --stdio, --log, "off"]
    env: {%s: "1"}
`

func newFaultLab(t *testing.T, size int, faulty string) *faultLab {
	t.Helper()
	ways := map[[2]int]*proxyTo{} // they keep their ports: the addresses have others
	for from := range size {
		for to := range size {
			if to != from {
				ways[[2]int{from, to}] = newProxyTo(t)
			}
		}
	}
	addresses := freeAddresses(t, 2*size)
	for way, p := range ways {
		p.to = addresses[way[1]]
		p.wait.Go(p.run)
	}
	l := &faultLab{
		t: t, size: size, addrs: addresses[:size], webs: addresses[size:], all: make([]*served, size),
		old:  make([]bool, size),
		ways: ways, log: filepath.Join(t.TempDir(), "log"), faults: map[string]int{},
		faulty: faulty, skew: time.Second,
	}
	if faulty != "" {
		l.skew = maxTestSkew
	}
	key, err := program(t, "cluster", "key").Output()
	if err != nil {
		t.Fatal(err)
	}
	for i := range size {
		l.dirs = append(l.dirs, t.TempDir())
		peers := []string{l.addrs[i]}
		for to := range size {
			if to != i {
				peers = append(peers, l.ways[[2]int{i, to}].Addr().String())
			}
		}
		config := fmt.Sprintf(faultConfig, l.addrs[i], strings.Join(peers, ", "), l.skew,
			hashOf([]byte("fc_local")), os.Args[0], l.log, os.Args[0], execVar)
		for name, text := range map[string]string{
			"cluster.key": string(key), "ci.key": clusterSecret,
			"farcall.yaml": config,
		} {
			if err := os.WriteFile(filepath.Join(l.dirs[i], name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		l.disks = append(l.disks, smallDisk(t, filepath.Join(l.dirs[i], "cluster")))
	}
	var wg sync.WaitGroup
	for i := range size {
		wg.Go(func() { l.start(i, 0) })
	}
	wg.Wait()
	l.healed()
	return l
}

// slow is the file that makes the disk of a node slow.
func (l *faultLab) slow(i int) string { return filepath.Join(l.dirs[i], "slow") }

// start starts a node with a clock that is wrong by skew, and waits until it is ready.
func (l *faultLab) start(i int, skew time.Duration) {
	cmd := program(l.t, "serve")
	switch {
	case l.old[i]:
		cmd.Path = os.Getenv(oldVar)
	case l.faulty != "":
		cmd.Path = l.faulty
		cmd.Env = append(cmd.Env, slowVar+"="+l.slow(i),
			fmt.Sprintf("%s=%d", skewVar, int(skew.Seconds())))
	}
	l.all[i] = serveProgram(l.t, cmd, "--config", filepath.Join(l.dirs[i], "farcall.yaml"), "--listen",
		l.webs[i])
}

// healed waits until all nodes know all others, and their stores decide.
func (l *faultLab) healed() {
	l.t.Helper()
	for i := range l.size {
		until(l.t, fmt.Sprintf("%d present of %d nodes\n", l.size, l.size), func() string {
			r, err := http.NewRequestWithContext(l.t.Context(), http.MethodGet,
				"http://"+l.webs[i]+"/readyz", nil)
			if err != nil {
				return err.Error()
			}
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				return err.Error()
			}
			defer resp.Body.Close()
			text, _ := io.ReadAll(resp.Body)
			return string(text)
		})
	}
}

// fault disturbs the cluster as a seed says, and mends what it has done. It returns what that was.
func (l *faultLab) fault(seed uint64, rng *rand.Rand, longest time.Duration) (what string) {
	i := rng.IntN(l.size)
	pause := func(most time.Duration) {
		<-time.After(most/8 + time.Duration(rng.Int64N(int64(most))))
	}
	kinds := []string{"kill", "stop", "partition", "restart", "disk"}
	if l.faulty != "" {
		kinds = append(kinds, "clock", "slow")
	}
	what = kinds[seed%uint64(len(kinds))]
	if what == "disk" && l.disks[i] == "" {
		what = "partition"
	}
	pause(300 * time.Millisecond)
	switch what {
	case "kill":
		l.end(i, syscall.SIGKILL)
		pause(time.Second)
		l.start(i, 0)
	case "stop":
		l.all[i].signal(l.t, syscall.SIGSTOP)
		<-time.After(time.Second + time.Duration(rng.Int64N(int64(longest))))
		l.all[i].signal(l.t, syscall.SIGCONT)
	case "partition":
		for way, p := range l.ways {
			p.set(way[0] == i || way[1] == i)
		}
		pause(longest)
		for _, p := range l.ways {
			p.set(false)
		}
	case "restart": // as an upgrade does: one node after another
		for n := range l.size {
			l.end(n, syscall.SIGTERM)
			l.old[n] = !l.old[n] && os.Getenv(oldVar) != ""
			l.start(n, 0)
			l.healed()
		}
	case "disk":
		fill(l.t, l.disks[i])
		pause(2 * time.Second)
		_ = os.Remove(filepath.Join(l.disks[i], "full"))
		l.end(i, syscall.SIGTERM) // an engine that could not write begins again
		l.start(i, 0)
	case "clock": // of one node and another, which differ by as much as the configuration allows
		half := time.Duration(rng.Int64N(int64(l.skew/2))) + 1
		for n, skew := range map[int]time.Duration{i: half, (i + 1) % l.size: -half} {
			l.end(n, syscall.SIGTERM)
			l.start(n, skew)
			l.healed()
		}
		pause(longest)
		for _, n := range []int{i, (i + 1) % l.size} {
			l.end(n, syscall.SIGTERM)
			l.start(n, 0)
			l.healed()
		}
	case "slow": // of one node or all
		for n := range l.size {
			if n == i || rng.IntN(2) == 0 {
				if err := os.WriteFile(l.slow(n), make([]byte, 20+rng.IntN(480)), 0o600); err != nil {
					l.t.Error(err)
				}
			}
		}
		pause(longest)
		for n := range l.size {
			_ = os.Remove(l.slow(n))
		}
	}
	return what
}

// end ends a node.
func (l *faultLab) end(i int, signal syscall.Signal) {
	l.all[i].signal(l.t, signal)
	l.all[i].wait(l.t)
}

// fill takes all room of a disk.
func fill(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "full"))
	if err != nil {
		return // it is full
	}
	defer f.Close()
	for part := make([]byte, 1<<20); ; {
		if _, err := f.Write(part); err != nil {
			return
		}
	}
}
