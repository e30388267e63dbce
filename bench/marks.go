package main

import "fmt"

// A mark is what farcall promises, as a bound on one figure of a run.
type mark struct {
	what  string
	most  float64 // the figure must not be greater; a negative bound is a least
	unit  string
	value func(results) float64 // negative: not measured in this run
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

const notMeasured = -1

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
				return notMeasured
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
		times := timesOf(g, "net/http echo")
		all = append(all, mark{g + ": calls per second, in times of the echo", -0.85, "", func(rs results) float64 {
			if v := times(rs); v > 0 {
				return 1 / v
			}
			return notMeasured
		}})
	}
	return append(all,
		mark{"idle WebSocket connections: memory of each", 25, " KB", idleOf("ws farcall")},
		mark{"idle TCP connections: memory of each", 8, " KB", idleOf("tcp farcall")},
	)
}

// allocsOf is farcall's allocations for one operation, to the nearest tenth:
// the runtime allocates a little now and then by itself.
func allocsOf(group string) func(results) float64 {
	return func(rs results) float64 {
		r := rs.find(group, "farcall")
		if r == nil {
			return notMeasured
		}
		return float64(int(median(r.allocs)*10+0.5)) / 10
	}
}

func timesOf(group, base string) func(results) float64 {
	return func(rs results) float64 {
		if v := ratio(rs.find(group, "farcall"), rs.find(group, base)); v > 0 {
			return v
		}
		return notMeasured
	}
}

func idleOf(kind string) func(results) float64 {
	return func(rs results) float64 {
		r := rs.find(idleGroup(kind), "farcall")
		if r == nil {
			return notMeasured
		}
		return r.idle.worst() / 1000
	}
}
