package main

func guardMarks() []mark {
	return []mark{
		{
			guardRPC + ": server's CPU time with " + guardJWT + ", in times of none", 1.15, "",
			guardedCPU(guardRPC, tokenUnread),
		},
		{
			guardDecision + ": " + looksAtCall + ", more than " + noPolicies, 5, " µs",
			func(rs results) float64 {
				a, b := rs.find(guardDecision, looksAtCall), rs.find(guardDecision, noPolicies)
				if a == nil || b == nil {
					return notWanted
				}
				more := make([]float64, len(a.ns))
				for i := range more {
					more[i] = a.ns[i] - b.ns[i]
				}
				return median(more) / 1000
			},
		},
		{
			guardSignature + ": " + signedHMAC + ", with the memory of nonces", 5, " µs",
			func(rs results) float64 {
				r := rs.find(guardSignature, signedHMAC)
				if r == nil {
					return notWanted
				}
				return median(r.ns) / 1000
			},
		},
		{guardFair + ": their p99, in times of that without", 2, "", func(rs results) float64 {
			r := rs.find(guardFair, "farcall")
			if r == nil {
				return notWanted
			}
			return ratios(r.fair.p99[1], r.fair.p99[0])
		}},
		{guardReplay + ": of 1,000,000", 150, " MB", func(rs results) float64 {
			r := rs.find(guardReplay, "farcall")
			if r == nil {
				return notWanted
			}
			return max(r.nonces.heap, r.nonces.rss) / float64(r.nonces.nonces) * 1e6 / 1e6
		}},
	}
}

// guardedCPU compares the server's CPU time with that of one without a guard.
func guardedCPU(group, without string) func(results) float64 {
	return func(rs results) float64 {
		a, b := rs.find(group, guardJWT), rs.find(group, without)
		if a == nil || b == nil {
			return notWanted
		}
		return cpuRatio(a, b)
	}
}
