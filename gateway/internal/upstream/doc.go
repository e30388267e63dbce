// Package upstream answers one question: over which connection does a call reach
// an MCP server?
//
// An [Upstream] is one server. It has a pool of connections, each with a process or a
// session behind it. Which of them a call may use depends on its owner and on what its
// caller can be asked, so that no caller gets the question, answer, log, roots or state
// of another one.
//
// # Parts
//
// Three types decide, and each answers a part of the question:
//
//   - pool: which connection may this owner's call use? (pool.go, owner.go)
//   - queue: which call is next, and is that fair? (queue.go)
//   - connection: is it dialing, ready, draining or closed, and which calls are on it?
//     (connection.go)
//
// They do no I/O and have no lock: [Upstream] has the one lock, which guards all of them,
// and does what they decide: calls (call.go), starts (starting.go), the end (upstream.go),
// questions of the server (asked.go), roots (roots.go) and subscriptions (watch.go).
//
// A connection has these states. Only pool.move changes them.
//
//	 start
//	   │
//	dialing ──── it was not reached, or no call waits  ───┐
//	   │ arrived                                          │
//	 ready ──── retired, with calls ──── draining         │
//	   │                                    │ the last    │
//	   │ retired, unused                    │ call ended  │
//	   └──────────────── closing ◄──────────┴─────────────┘
//	                        │ the client is closed
//	                     closed
//
// # Lock
//
// A method with a name that ends in Locked needs the lock and does not touch it, and so do all
// methods of pool, queue and connection. Any other method of Upstream takes the lock itself
// or does not need it. TestLocks reads the source for that.
package upstream
