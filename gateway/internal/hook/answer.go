package hook

import (
	"errors"
	"fmt"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

const (
	maxDepth  = 256
	maxReason = 1 << 10 // bytes that callers get
)

// answer is what a hook says.
type answer struct {
	deny   bool
	reason string
	value  jsonrpc.Raw // the changed arguments, or the changed result; nil: nothing is changed
}

// parse reads the answer of a hook with a value that has the name member, of a call of JSON-RPC or
// of a tool. Every error is a failure of the hook.
func parse(b []byte, member string, rpc bool) (a answer, err error) {
	if at, fault := scan.Text(b, maxDepth); fault != scan.OK {
		return a, fmt.Errorf("the answer is no JSON: %v at byte %d", fault, at)
	}
	b = b[scan.Space(b, 0):]
	if b[0] != '{' {
		return a, errors.New("the answer is no JSON object")
	}
	seen := map[string]bool{}
	var decision string
	for key, value := range scan.Members(b) {
		name := string(key)
		if seen[name] {
			return answer{}, fmt.Errorf("the answer has the member %.40q twice", name)
		}
		seen[name] = true
		switch name {
		case "decision":
			decision, err = textOf(value, name)
		case "reason":
			a.reason, err = textOf(value, name)
		case member:
			switch {
			case value[0] == '{', rpc && name == "result":
			case rpc && name == "params":
				if value[0] != '[' {
					err = errors.New(`the member "params" of the answer is no object and no array`)
				}
			default:
				err = fmt.Errorf("the member %q of the answer is no object", name)
			}
			a.value = value
		default:
			err = fmt.Errorf("the answer has a member %.40q, which has no meaning here", name)
		}
		if err != nil {
			return answer{}, err
		}
	}
	switch {
	case decision == "deny":
		return answer{deny: true, reason: cut(a.reason)}, nil
	case decision == "allow":
		return answer{value: a.value}, nil
	case !seen["decision"]:
		return answer{}, errors.New("the answer has no decision")
	}
	return answer{}, fmt.Errorf("the decision is %.40q; allow and deny are possible", decision)
}

// textOf returns the text that a member is.
func textOf(value []byte, name string) (string, error) {
	if value[0] != '"' {
		return "", fmt.Errorf("the member %q of the answer is no text", name)
	}
	return string(scan.Unquote(value)), nil
}

// cut bounds a reason.
func cut(text string) string {
	if len(text) <= maxReason {
		return text
	}
	n := maxReason
	for n > 0 && text[n]&0xC0 == 0x80 { // not within a letter
		n--
	}
	return text[:n]
}
