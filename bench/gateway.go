package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// The groups in which gateways put a stdio server on HTTP.
var (
	gatewayLoad   = gatewayLoadOf(farcallChild)
	gatewaySingle = "gateway to " + farcallChild + ", sequential"
	gatewayEras   = fmt.Sprintf("gateway between revisions, %d in flight", inFlight)
)

// The children are their own programs, which take less memory than this one.
const (
	farcallChild = "stdio-farcall"
	goSDKChild   = "stdio-gosdk"
)

func gatewayLoadOf(child string) string {
	return fmt.Sprintf("gateway to %s, %d in flight", child, inFlight)
}

// supergateway has a child for each session, so it is measured with many
// sessions and with one that everybody shares. Marks compare with what is
// better for it.
const (
	superMany = "supergateway, 64 sessions"
	superOne  = "supergateway, 1 session"
)

var superWays = []string{superMany, superOne}

// direct is the child without a gateway.
const direct = "the child on stdio"

func gatewayGroups() []group {
	build := programs(sync.OnceValues(buildPrograms))
	var groups []group
	for _, child := range []string{farcallChild, goSDKChild} {
		groups = append(groups, group{
			name: gatewayLoadOf(child), workers: inFlight, longer: 4, base: "farcall",
			cpuOf: "CPU time, all processes",
			subjects: []subject{
				{"farcall", gatewayRun{start: build.farcallGateway(child), sessions: inFlight}.loaded},
				{"farcall, 1 session", gatewayRun{start: build.farcallGateway(child), sessions: 1}.loaded},
				{
					superMany,
					gatewayRun{start: build.superGateway(child), sessions: inFlight, warm: warmUp}.loaded,
				},
				{superOne, gatewayRun{start: build.superGateway(child), sessions: 1, warm: warmUp}.loaded},
			},
		})
	}
	groups = append(groups,
		group{
			name: gatewaySingle, workers: 1, longer: 2, base: direct, cpuOf: "CPU time, all processes",
			subjects: []subject{
				{direct, build.stdioAlone},
				{"the child over HTTP", webAlone},
				{"farcall", gatewayRun{start: build.farcallGateway(farcallChild), sessions: 1}.sequential},
				{
					"supergateway",
					gatewayRun{start: build.superGateway(farcallChild), sessions: 1, warm: warmUp}.sequential,
				},
			},
		})
	eras := group{
		name: gatewayEras, workers: inFlight, longer: 2, base: passing(legacyRevision),
		cpuOf: "gateway's CPU time",
	}
	for _, way := range []struct{ client, child string }{
		{legacyRevision, legacyRevision},
		{modernRevision, legacyRevision},
		{modernRevision, modernRevision},
		{legacyRevision, modernRevision},
		{olderRevision, olderRevision},
		{olderRevision, legacyRevision},
	} {
		run := gatewayRun{
			start:    build.farcallGateway(farcallChild, "--era", way.child),
			revision: way.client, sessions: inFlight,
		}
		eras.subjects = append(eras.subjects, subject{between(way.client, way.child), run.alone})
	}
	return append(groups, eras)
}

// olderRevision has no structured output, which a gateway has to take out of
// what a newer server answers.
const olderRevision = "2025-03-26"

// between names a client's revision and a server's.
func between(client, child string) string { return client + " to " + child }

func passing(revision string) string { return between(revision, revision) }

// warmUp is how many calls JavaScript is given before it is measured, until its
// compiler has seen what is hot.
const warmUp = 3000

// A gatewayRun is a gateway under load.
type gatewayRun struct {
	start    func() (*processes, error)
	revision string // of the client; "": legacyRevision
	sessions int
	warm     int
}

// loaded has 64 callers, and counts all processes.
func (g gatewayRun) loaded() (*running, error) {
	p, r, err := g.open(inFlight)
	if err != nil {
		return nil, err
	}
	r.cpu, r.memory = p.cpuTime, p.resident
	return r, nil
}

// alone counts the gateway's own process.
func (g gatewayRun) alone() (*running, error) {
	p, r, err := g.open(inFlight)
	if err != nil {
		return nil, err
	}
	p.pids = p.pids[:1]
	r.cpu, r.memory = p.cpuTime, p.resident
	return r, nil
}

// sequential has one caller, who looks at the clock.
func (g gatewayRun) sequential() (*running, error) {
	p, r, err := g.open(1)
	if err != nil {
		return nil, err
	}
	r.cpu = p.cpuTime
	return r.timed(), nil
}

func (g gatewayRun) open(workers int) (*processes, *running, error) {
	p, err := g.start()
	if err != nil {
		return nil, nil, err
	}
	revision := g.revision
	if revision == "" {
		revision = legacyRevision
	}
	clients, err := openCallers(p.address, revision, workers, g.sessions)
	if err != nil {
		p.stop()
		return nil, nil, err
	}
	r := &running{worker: clients.worker(), warm: g.warm, stop: func() {
		clients.close()
		p.stop()
	}}
	if err = spread(r, workers)(workers); err == nil { // starts what is started when it is needed
		err = p.findAll()
	}
	if err != nil {
		r.stop()
		return nil, nil, err
	}
	return p, r, nil
}

// webAlone calls the child where it serves HTTP on its own.
func webAlone() (*running, error) {
	c, err := startChild("mcp farcall")
	if err != nil {
		return nil, err
	}
	clients, err := openCallers(c.address, legacyRevision, 1, 1)
	if err != nil {
		c.stop()
		return nil, err
	}
	r := &running{worker: clients.worker(), cpu: c.cpuTime, stop: func() {
		clients.close()
		c.stop()
	}}
	return r.timed(), nil
}

// stdioAlone calls the child with a client that reads each answer where it has
// written the call, so that nothing but the child takes time.
func (build programs) stdioAlone() (*running, error) {
	dir, err := build()
	if err != nil {
		return nil, err
	}
	c, err := start(exec.Command(filepath.Join(dir, farcallChild)))
	if err != nil {
		return nil, err
	}
	l := &lines{child: c}
	if err := l.begin(); err != nil {
		c.stop()
		return nil, err
	}
	worker := func() func(int) error {
		frame := newCallFrame([]byte(legacyCall+"\n"), 0)
		return func(n int) error {
			for range n {
				if _, err := c.in.Write(frame.next()); err != nil {
					return err
				}
				line, err := c.out.ReadSlice('\n')
				if err != nil {
					return err
				}
				if !isCallResult(line) {
					return fmt.Errorf("answered %q", line)
				}
			}
			return nil
		}
	}
	r := &running{worker: worker, stop: c.stop, cpu: c.cpuTime}
	return r.timed(), nil
}

// timed makes one caller note how long each call took.
func (r *running) timed() *running {
	var took []time.Duration
	inner := r.worker
	r.worker = func() func(int) error {
		call := inner()
		return func(n int) error {
			for range n {
				began := time.Now()
				if err := call(1); err != nil {
					return err
				}
				took = append(took, time.Since(began))
			}
			return nil
		}
	}
	r.p50 = func() float64 {
		defer func() { took = took[:0] }()
		if len(took) == 0 {
			return 0
		}
		slices.Sort(took)
		return float64(took[len(took)/2].Nanoseconds())
	}
	return r
}
