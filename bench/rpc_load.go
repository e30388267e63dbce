package main

import "fmt"

// rpcHTTP names calls of JSON-RPC by POST to servers in their own processes, by clients that do
// next to nothing.
func rpcHTTP(workers int) string {
	if workers == 1 {
		return "JSON-RPC over HTTP, sequential"
	}
	return fmt.Sprintf("JSON-RPC over HTTP, %d in flight", workers)
}

func rpcLoadGroups() []group {
	var groups []group
	for _, workers := range []int{1, inFlight} {
		g := group{name: rpcHTTP(workers), workers: workers, longer: 4, base: "net/http echo"}
		for _, s := range []struct{ name, server string }{
			{"net/http echo", "net/http echo"},
			{"fasthttp echo", "fasthttp echo"},
			{"farcall", "farcall, rpc.Server"},
			{"farcall, net/http", "farcall, net/http"},
		} {
			g.subjects = append(g.subjects, subject{s.name, func() (*running, error) {
				return rpcServer(s.server, workers)
			}})
		}
		groups = append(groups, g)
	}
	return groups
}

func rpcServer(name string, workers int) (*running, error) {
	c, err := startChild("mcp " + name)
	if err != nil {
		return nil, err
	}
	clients := &callers{}
	stop := func() {
		clients.close()
		c.stop()
	}
	for i := range workers {
		conn, err := dialWeb(c.address)
		if err != nil {
			stop()
			return nil, err
		}
		conn.path = "/rpc"
		clients.conns = append(clients.conns, conn)
		clients.frames = append(clients.frames, newCallFrame(conn.request(guardCall, nil), i))
	}
	r := &running{worker: clients.worker(), cpu: c.cpuTime, stop: stop}
	if workers == 1 {
		return r.timed(), nil
	}
	return r, nil
}

func rpcMarks() []mark {
	return []mark{
		{
			rpcHTTP(inFlight) + ": calls per second, in times of the echo", -1.6, "",
			speedOf(rpcHTTP(inFlight), "net/http echo"),
		},
		{
			rpcHTTP(1) + ": the median call, in times of the echo", 0.9, "",
			against(rpcHTTP(1), "net/http echo", func(farcall, other *result) float64 {
				return ratios(farcall.p50, other.p50)
			}),
		},
	}
}
