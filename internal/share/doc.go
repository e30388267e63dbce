// Package share answers one question: how much of a bounded thing may one owner hold?
//
// Each table that foreign input can fill is bounded in total and per owner, so that what one caller
// does never takes the room of another. There are three kinds:
//
//   - A [Ledger] counts what must be kept once it is taken (tasks, nonces). An owner
//     may hold as much as is left free, or Ratio times that: who comes first can never take all,
//     who comes later always finds room, and with n greedy owners each has a fair share of it. The
//     rule is known as dynamic thresholds (Choudhury and Hahne, 1998).
//   - [Places] count running calls, which end soon: the rule also leaves room for owners that
//     called lately and will again.
//   - A [Table] is a map of what may be dropped to make room (sessions, event tails, cached lists).
//     When it is full, the owner that holds most loses its oldest entry that is not in use.
//
// Owners are counted twice: on their own and by their group (see [owner.Key.Group]), so that many
// sessions of one address have one share together, and fair shares of that among themselves.
//
// Nothing here is safe for concurrent use: the lock of the table's user guards it.
package share
