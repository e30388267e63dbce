package farcall

import "github.com/farcall-dev/farcall/internal/budget"

// A Budget bounds the memory of large frames, over all transports that are given
// it: each frame of more than 64 KiB draws its bytes from it while it arrives and
// until it has been handled. A frame for which there is no room is refused at once
// with "overloaded" (-32010, over HTTP status 503); smaller ones go on.
//
// What a connection has not sent yet draws, too, from 1 MiB on and in steps of that. It exists
// already, so it may overdraw the budget: until there is room again, connections with so much
// unsent get "overloaded" for further requests.
//
// Without one, the budget of the process is used: 512 MiB, or half of
// GOMEMLIMIT where that is less. It is one for all because memory is the
// process's: servers that do not know each other cannot bound it apart.
//
// No owner holds more than it leaves free for the others: one alone half of the
// budget. Each connection is an owner, unless its transport was given a budget
// from the method Owner. Unauthenticated connections share the smaller budget that
// the method Unauthenticated returns, in which the oldest incomplete frame goes
// first.
//
// What a process takes in all is more: Go's garbage collector lets memory be
// reused some time after a frame is done, up to twice what is in use by default.
// GOMEMLIMIT bounds that.
type Budget = budget.Budget

// NewBudget returns a budget of so many bytes, and of so many for unauthenticated
// connections. 0 means the default: that of the process, and 64 MiB, or an eighth
// of the budget where that is less.
func NewBudget(bytes, unauthenticated int64) *Budget { return budget.New(bytes, unauthenticated) }
