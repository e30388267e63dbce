// Package beneath answers one question: what can a transport do beyond the interface, for what is
// put around it?
package beneath

import "github.com/farcall-dev/farcall"

// A Transport passes on what the transport beneath it can do. What is put around it embeds it, and
// adds TryWrite where there is one.
type Transport struct {
	farcall.Transport

	keeper   farcall.Keeper
	buffered farcall.Buffered
}

// Of returns what passes on all of t but a TryWrite.
func Of(t farcall.Transport) Transport {
	b := Transport{Transport: t}
	b.keeper, _ = t.(farcall.Keeper)
	b.buffered, _ = t.(farcall.Buffered)
	return b
}

// Busy is that of the transport, if it has one: see package accept.
func (t *Transport) Busy(f func() bool) {
	if b, ok := t.Transport.(interface{ Busy(f func() bool) }); ok {
		b.Busy(f)
	}
}

// Keep implements farcall.Keeper: what is no Keeper keeps every frame.
func (t *Transport) Keep() {
	if t.keeper != nil {
		t.keeper.Keep()
	}
}

// Buffered implements farcall.Buffered: false promises nothing.
func (t *Transport) Buffered() bool { return t.buffered != nil && t.buffered.Buffered() }
