package main

import "fmt"

// A mark is what farcall promises, as a bound on one figure of a run.
type mark struct {
	what  string
	most  float64 // the figure must not be greater; a negative bound is a least
	unit  string
	value func(results) float64 // or notWanted or notMeasured
}

func (m mark) ok(v float64) bool {
	if m.most < 0 {
		return v >= -m.most
	}
	return v <= m.most
}

func (m mark) want() string {
	if m.most < 0 {
		return fmt.Sprintf(">= %.4g%s", -m.most, m.unit)
	}
	return fmt.Sprintf("<= %.4g%s", m.most, m.unit)
}

const (
	notWanted   = -1 // this run leaves the group out
	notMeasured = -2 // this machine lacks the peer
)

func marks() []mark {
	small, big, encode := "decode small request", "decode 10 MB string", "encode small response"
	tcp := callGroup("TCP", 1)
	all := []mark{
		{"decode small request: allocations", 0, "", allocsOf(small)},
		{"decode small request: time, in times of json v2", 1.0 / 5, "", timesOf(small, "json v2")},
		{"decode small request: time, in times of jrpc2", 1.0 / 25, "", timesOf(small, "jrpc2")},
		{"decode 10 MB string", -3, " GB/s", func(rs results) float64 {
			r := rs.find(big, "farcall")
			if r == nil {
				return notWanted
			}
			return float64(r.bytes) / median(r.ns)
		}},
		{"encode small response: allocations", 0, "", allocsOf(encode)},
		{"call over TCP: allocations of both ends", 8, "", allocsOf(tcp)},
	}
	for _, seq := range []struct {
		channel string
		most    float64
	}{{"in-memory pipe", 1.3}, {"os pipe", 1.3}, {"unix socket", 1.15}, {"TCP", 1.15}} {
		g := callGroup(seq.channel, 1)
		all = append(all, mark{g + ": time, in times of the floor", seq.most, "", timesOf(g, "floor")})
	}
	for _, ch := range channels {
		g := callGroup(ch.name, inFlight)
		all = append(all, mark{g + ": time, in times of the floor", 1.0, "", timesOf(g, "floor")})
	}
	for _, workers := range []int{1, inFlight} {
		g := httpGroup(workers)
		all = append(all,
			mark{g + ": calls per second, in times of the echo", -0.85, "", speedOf(g, "net/http echo")})
	}
	all = append(all, rpcMarks()...)
	all = append(all, mcpMarks()...)
	all = append(all, gatewayMarks()...)
	all = append(all, guardMarks()...)
	all = append(all, observeMarks()...)
	all = append(all, captureMarks()...)
	return append(all,
		mark{"idle WebSocket connections: memory of each", 25, " KB", idleOf("ws farcall")},
		mark{"idle TCP connections: memory of each", 8, " KB", idleOf("tcp farcall")},
	)
}

func mcpMarks() []mark {
	return []mark{
		{mcpWork + ": time, in times of mcp-go", 1.0 / 4, "", timesOf(mcpWork, "mcp-go")},
		{mcpWork + ": time, in times of go-sdk", 1.0 / 30, "", timesOf(mcpWork, "go-sdk")},
		{mcpWork + ": allocations", 25, "", allocsOf(mcpWork)},
		{mcpWork + ": allocated", 2048, " bytes", func(rs results) float64 {
			r := rs.find(mcpWork, "farcall")
			if r == nil {
				return notWanted
			}
			return median(r.allocBytes)
		}},
		{mcpHTTP + ": calls per second, in times of mcp-go", -2.6, "", speedOf(mcpHTTP, "mcp-go")},
		{mcpHTTP + ": calls per second, in times of go-sdk", -13, "", speedOf(mcpHTTP, "go-sdk")},
		{mcpHTTP + ": CPU time, in times of mcp-go", 0.3, "", cpuTimesOf(mcpHTTP, "mcp-go")},
		{mcpHTTP + ": calls per second, in times of TypeScript", -7, "", speedOf(mcpHTTP, "TypeScript")},
		{
			mcpStdioLoad + ": CPU time, in times of mcp-go", 1.0 / 4, "",
			cpuTimesOf(mcpStdioLoad, "mcp-go"),
		},
		{
			mcpStdioLoad + ": CPU time, in times of go-sdk", 1.0 / 25, "",
			cpuTimesOf(mcpStdioLoad, "go-sdk"),
		},
		{idleSessions + ": memory of each", 3, " KB", sessionsOf(func(s *sessionResult) float64 {
			return s.rss / 1000
		})},
		{idleSessions + ": goroutines", 0, "", sessionsOf(func(s *sessionResult) float64 {
			return float64(max(s.goroutines, 0))
		})},
	}
}

// allocsOf is farcall's allocations for one operation, to the nearest tenth:
// the runtime allocates a little now and then on its own.
func allocsOf(group string) func(results) float64 {
	return func(rs results) float64 {
		r := rs.find(group, "farcall")
		if r == nil {
			return notWanted
		}
		return float64(int(median(r.allocs)*10+0.5)) / 10
	}
}

// timesOf is farcall's time, in times of another's.
func timesOf(group, base string) func(results) float64 { return against(group, base, ratio) }

// speedOf is farcall's number of calls in a time, in times of another's.
func speedOf(group, base string) func(results) float64 {
	return against(group, base, func(farcall, other *result) float64 { return ratio(other, farcall) })
}

// cpuTimesOf is farcall's CPU time, in times of another's.
func cpuTimesOf(group, base string) func(results) float64 { return against(group, base, cpuRatio) }

func against(
	group, base string, compare func(farcall, other *result) float64,
) func(results) float64 {
	return func(rs results) float64 {
		a, b := rs.find(group, "farcall"), rs.find(group, base)
		switch {
		case a == nil:
			return notWanted
		case b == nil:
			return notMeasured
		}
		return compare(a, b)
	}
}

func idleOf(kind string) func(results) float64 {
	return func(rs results) float64 {
		r := rs.find(idleGroup(kind), "farcall")
		if r == nil {
			return notWanted
		}
		return r.idle.worst() / 1000
	}
}

func sessionsOf(figure func(*sessionResult) float64) func(results) float64 {
	return func(rs results) float64 {
		r := rs.find(idleSessions, "farcall")
		if r == nil {
			return notWanted
		}
		return figure(r.sessions)
	}
}
