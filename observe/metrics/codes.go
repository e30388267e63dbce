package metrics

import (
	"strconv"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/observe"
	"github.com/farcall-dev/farcall/observe/internal/words"
)

// code is what metrics say of an error code.
type code struct {
	name    string // of error_type
	refusal string // why farcall refuses with it; "": it does not
}

// codes are those of plain JSON-RPC, and those of MCP, where some numbers have another meaning.
type codes struct{ plain, mcp map[jsonrpc.Code]code }

// codeTable has each code of the registry. Codes that are not in it may be chosen by the other end.
func codeTable() codes {
	all := codes{map[jsonrpc.Code]code{}, map[jsonrpc.Code]code{}}
	for _, row := range jsonrpc.Conditions() {
		why := ""
		if row.Plain.Condition().Name == row.Name {
			why = refusal(&row)
		}
		add := func(to map[jsonrpc.Code]code, c jsonrpc.Code) {
			if _, there := to[c]; c != 0 && !there {
				to[c] = code{strconv.Itoa(int(c)), why}
			}
		}
		add(all.plain, row.Plain)
		add(all.mcp, row.Legacy)
		add(all.mcp, row.Modern)
	}
	return all
}

func refusal(row *jsonrpc.Condition) string {
	switch row.Plain {
	case jsonrpc.ParseError:
		return "syntax"
	case jsonrpc.InvalidRequest:
		return "message"
	case jsonrpc.Overloaded:
		return "overload"
	case jsonrpc.TooLarge:
		return "size"
	case jsonrpc.RateLimited:
		return "rate"
	}
	if row.Category == "auth" {
		return "denied"
	}
	return ""
}

// code returns what is known of the code of a call that has failed.
func (m *Metrics) code(c *observe.Call) code {
	all := m.codes.plain
	if c.MCP {
		all = m.codes.mcp
	}
	if known, found := all[c.Code]; found {
		return known
	}
	return code{name: words.Other}
}
