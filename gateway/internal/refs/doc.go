// Package refs answers one question: where does a message name something of an upstream, and how is
// that name written when several upstreams share an address?
//
// A [Server] writes and reads the qualified form of a name, a URI or a URI template: pure functions
// of the upstream's name and label, so what clients see does not depend on which other upstreams
// there are. [Server.Down] and [Server.Up] apply them to every reference in a message, by one table
// of the places (places.txt). They work on bytes in the canonical form, that of the newest
// revision: Down runs before a message is translated for the client, Up after one is translated for
// the upstream.
package refs
