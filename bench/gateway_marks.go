package main

func gatewayMarks() []mark {
	all := []mark{
		{
			gatewayLoad + ": calls per second, in times of supergateway", -15, "",
			overSuper(func(farcall, other *result) float64 {
				return ratio(other, farcall)
			}, true),
		},
		{gatewayLoad + ": CPU time, in times of supergateway", 1.0 / 12, "", overSuper(cpuRatio, false)},
		{
			gatewayLoad + ": resident memory, in times of supergateway", 1.0 / 6, "",
			overSuper(memoryRatio, false),
		},
		{gatewaySingle + ": added to the median call", 60, " µs", func(rs results) float64 {
			added := addedBy(rs, "farcall")
			if added == nil {
				return notWanted
			}
			return median(added) / 1000
		}},
		{gatewaySingle + ": added, in times of supergateway", 1.0 / 4, "", func(rs results) float64 {
			farcall, other := addedBy(rs, "farcall"), addedBy(rs, "supergateway")
			switch {
			case farcall == nil:
				return notWanted
			case other == nil:
				return notMeasured
			}
			return ratios(farcall, other)
		}},
	}
	for _, way := range []struct{ client, child string }{
		{olderRevision, legacyRevision},
		{modernRevision, legacyRevision},
		{legacyRevision, modernRevision},
	} {
		name := between(way.client, way.child)
		all = append(all, mark{
			"gateway from " + name + ": its CPU time, in times of no translation",
			1.25, "", func(rs results) float64 {
				a, b := rs.find(gatewayEras, name), rs.find(gatewayEras, passing(way.client))
				if a == nil || b == nil {
					return notWanted
				}
				return cpuRatio(a, b)
			},
		})
	}
	return append(all, mark{gatewayIdle + ": memory of 1,000", 5, " MB", func(rs results) float64 {
		each := float64(notWanted)
		for _, r := range rs {
			if r.behind != nil {
				each = max(each, r.behind.each())
			}
		}
		if each == notWanted {
			return notWanted
		}
		return each * 1000 / 1e6
	}})
}

// overSuper compares with what of supergateway is nearest to farcall: a
// different way of using it may be the better one in each figure.
func overSuper(compare func(farcall, other *result) float64, least bool) func(results) float64 {
	return func(rs results) float64 {
		farcall := rs.find(gatewayLoad, "farcall")
		if farcall == nil {
			return notWanted
		}
		value := float64(notMeasured)
		for _, way := range superWays {
			other := rs.find(gatewayLoad, way)
			if other == nil {
				continue
			}
			v := compare(farcall, other)
			if value == notMeasured || least == (v < value) {
				value = v
			}
		}
		return value
	}
}

func memoryRatio(a, b *result) float64 { return ratios(a.memory, b.memory) }

// addedBy is how much longer the median call takes by way of a gateway, in ns,
// pass by pass.
func addedBy(rs results, name string) []float64 {
	r, child := rs.find(gatewaySingle, name), rs.find(gatewaySingle, direct)
	if r == nil || child == nil {
		return nil
	}
	added := make([]float64, len(r.p50))
	for i := range added {
		added[i] = r.p50[i] - child.p50[i]
	}
	return added
}
