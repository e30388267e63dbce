package main

import "strconv"

const gatewayIdle = "gateway, idle sessions on one child"

// A gatewayIdleResult is what sessions that are not used take of a gateway.
type gatewayIdleResult struct {
	sessions      int
	before, after int // resident memory of the gateway's process
}

func (r *gatewayIdleResult) each() float64 {
	return float64(max(r.after-r.before, 0)) / float64(r.sessions)
}

// measureGatewaySessions begins sessions with a gateway to one child, a call in
// each, and looks at the gateway when there are so many, and so many. A session
// with many calls comes first, so that what calls leave behind is not taken for
// sessions. Some of them fit into memory that is free; the last number tells
// what each takes beyond that.
func measureGatewaySessions(numbers ...int) (results, error) {
	p, err := programs(buildPrograms).farcallGateway(farcallChild)()
	if err != nil {
		return nil, err
	}
	defer p.stop()
	conn, err := dialWeb(p.address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	headers, err := conn.openSession(legacyRevision)
	if err != nil {
		return nil, err
	}
	request := conn.request(legacyCall, headers)
	for range numbers[len(numbers)-1] {
		if _, err := conn.call(request); err != nil {
			return nil, err
		}
	}
	gateway := residentOf(p.cmd.Process.Pid)
	before, err := gateway()
	if err != nil {
		return nil, err
	}
	var rs results
	open := 0
	for _, n := range numbers {
		if err := conn.useSessions(n - open); err != nil {
			return nil, err
		}
		open = n
		after, err := gateway()
		if err != nil {
			return nil, err
		}
		rs = append(rs,
			result{
				group: gatewayIdle, name: "farcall",
				behind: &gatewayIdleResult{sessions: n, before: before, after: after},
			})
	}
	return rs, nil
}

// gatewayIdleTable can be empty, like idleTable.
func gatewayIdleTable(all results) *table {
	t := &table{head: []string{gatewayIdle, "number", "gateway's memory before", "after", "each"}}
	for _, r := range all {
		if s := r.behind; s != nil {
			t.add(r.name, strconv.Itoa(s.sessions), size(float64(s.before)), size(float64(s.after)),
				size(s.each()))
		}
	}
	return t
}
