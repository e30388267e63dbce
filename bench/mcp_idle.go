package main

const idleSessions = "idle MCP sessions"

// sessionServers are the servers with sessions that are measured.
var sessionServers = []string{"farcall", "mcp-go", "go-sdk, a session"}

// A sessionResult is what sessions take that are not used.
type sessionResult struct {
	sessions   int
	rss, heap  float64 // bytes for each: resident memory, and what of the heap is alive
	goroutines int     // more than before
}

// measureSessions begins n sessions in a child process, all over one
// connection, makes one call in each, and looks at the process before and after.
func measureSessions(name string, n int) (result, error) {
	r := result{group: idleSessions, name: name}
	c, err := startChild("mcp " + name)
	if err != nil {
		return r, err
	}
	defer c.stop()
	conn, err := dialWeb(c.address)
	if err != nil {
		return r, err
	}
	defer conn.Close()
	if err := conn.useSessions(1); err != nil { // the first one makes more than a session
		return r, err
	}
	before, err := c.size()
	if err != nil {
		return r, err
	}
	if err := conn.useSessions(n); err != nil {
		return r, err
	}
	after, err := c.size()
	r.sessions = &sessionResult{
		sessions:   n,
		rss:        float64(after.rss-before.rss) / float64(n),
		heap:       float64(after.heap-before.heap) / float64(n),
		goroutines: after.goroutines - before.goroutines,
	}
	return r, err
}

// useSessions begins sessions and makes a call in each.
func (c *webConn) useSessions(n int) error {
	for range n {
		headers, err := c.openSession(legacyRevision)
		if err != nil {
			return err
		}
		if _, err := c.call(c.request(legacyCall, headers)); err != nil {
			return err
		}
	}
	return nil
}

type figures struct{ rss, heap, goroutines int }

// size asks for the resident memory as it is, then for the heap after a
// collection, and for the number of goroutines.
func (c *child) size() (s figures, err error) {
	if s.rss, err = c.rss(); err != nil {
		return s, err
	}
	if s.heap, err = c.ask("heap"); err != nil {
		return s, err
	}
	s.goroutines, err = c.ask("goroutines")
	return s, err
}
