package refs

import (
	_ "embed"
	"strings"
)

// A kind says what a text in a message is, and so what is done with it.
type kind uint8

const (
	kindNone     kind = iota // undecided: left alone
	kindName                 // of a tool, a prompt or a group: NAME__x
	kindURI                  // or a URI template: LABEL+x and ui://LABEL+/x
	kindID                   // an id that is unique at one server only: LABEL+x
	kindArgument             // anything that a caller gives to a tool: a URI is stripped, at any depth
	// the gateway's own in each hop: cursors, tokens, task ids. Left alone here
	kindOwn
	kindKept    // no reference to anything of the server, or none that may be changed
	kindDropped // true of the server's own address only: removed for the client
)

// kinds has the kinds as places.txt writes them.
var kinds = map[string]kind{
	"name": kindName, "uri": kindURI, "id": kindID, "argument": kindArgument,
	"own": kindOwn, "kept": kindKept, "dropped": kindDropped,
}

// A direction says who receives a message.
type direction uint8

const (
	toClient direction = iota
	toServer
)

var directions = map[string][]direction{
	"client": {toClient}, "server": {toServer}, "both": {toClient, toServer},
}

// revisions is a set of revisions, the oldest in the lowest bit.
type revisions uint8

var revisionSets = map[string]revisions{
	"all":     0b11111,
	"from3rd": 0b11100, // 2025-06-18 and later
	"from4th": 0b11000, // 2025-11-25 and later
	"only4th": 0b01000,
	"upTo4th": 0b01111,
	"newest":  0b10000,
}

// placesText has a line for each place, or for several that are alike. It describes its form.
//
//go:embed places.txt
var placesText string

// A row is a line of placesText. That of a shape has no revisions and no directions.
type row struct {
	revs   revisions
	method string // or a shape
	dirs   []direction
	path   string
	what   string // a kind, or a shape
}

func rowsOf(text string) (rows []row) {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		switch f := strings.Fields(line); len(f) {
		case 5:
			rows = append(rows, row{revisionSets[f[0]], f[1], directions[f[2]], f[3], f[4]})
		case 3:
			rows = append(rows, row{method: f[0], path: f[1], what: f[2]})
		}
	}
	return rows
}
