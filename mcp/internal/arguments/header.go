package arguments

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/schema"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// maxSafe is the largest integer that every JSON implementation has.
const maxSafe = 1<<53 - 1

// Headers returns the headers that repeat arguments, or nil. The arguments that a tool's input
// schema marks with x-mcp-header are repeated, so that what is between client and server can route
// by them (2026-07-28, Streamable HTTP, "Custom Headers from Tool Parameters").
func Headers(marked []schema.Header, arguments jsonrpc.Raw) http.Header {
	if len(marked) == 0 {
		return nil
	}
	out := http.Header{}
	for i := range marked {
		h := &marked[i]
		value, err := mirrored(h, arguments)
		if text, ok := headerText(h, value); ok && err == nil {
			out.Set(spec.HeaderParam+h.Name, spec.EncodeHeader(text))
		}
	}
	return out
}

// CheckHeaders compares headers with the arguments that they repeat (there, "Server Behavior for
// Custom Headers"). The error names the header.
func CheckHeaders(marked []schema.Header, got http.Header, arguments jsonrpc.Raw) error {
	for i := range marked {
		h := &marked[i]
		name := spec.HeaderParam + h.Name
		value, err := mirrored(h, arguments)
		if err == nil {
			err = checkHeader(h, got.Values(name), value)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// mirrored returns the argument that a header repeats, or nil when it is absent or null. One that
// is given twice is an error: the router that read the header may have seen the other one.
func mirrored(h *schema.Header, arguments jsonrpc.Raw) (jsonrpc.Raw, error) {
	value := arguments
	for _, name := range h.Path {
		var found jsonrpc.Raw
		twice := false
		scan.Object(value, func(key, v []byte) bool {
			if string(key) != name {
				return true
			}
			twice = found != nil
			found = v
			return !twice
		})
		if twice {
			return nil, fmt.Errorf("the body has the argument %q more than once", name)
		}
		value = found
	}
	if string(value) == "null" {
		return nil, nil
	}
	return value, nil
}

// headerText returns the text of an argument in a header. There is none when it
// is of another type than it is declared to be.
func headerText(h *schema.Header, argument jsonrpc.Raw) (text string, ok bool) {
	switch {
	case len(argument) == 0:
		return "", false
	case h.Type == "string" && argument[0] == '"':
		return string(scan.Unquote(argument)), true
	case h.Type == "boolean" && (argument[0] == 't' || argument[0] == 'f'):
		return string(argument), true
	case h.Type != "integer":
		return "", false
	}
	// 42.0 and 4.2e1 are integers, too, and are written as 42.
	f, err := strconv.ParseFloat(string(argument), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > maxSafe {
		return "", false
	}
	return strconv.FormatInt(int64(f), 10), true
}

func checkHeader(h *schema.Header, values []string, argument jsonrpc.Raw) error {
	switch {
	case argument == nil && len(values) == 0:
		return nil
	case argument == nil:
		return errors.New("the argument is not in the body")
	case len(values) != 1:
		return fmt.Errorf("the argument is in the body, but the header is there %d times", len(values))
	}
	value, ok := spec.DecodeHeader(values[0])
	if !ok {
		return errors.New("the value has characters that a header must not have, or is not the Base64 that it says it is; encode it as =?base64?…?=")
	}
	if text, ok := headerText(h, argument); ok && (value == text || h.Type == "integer" && sameInteger(value, text)) || value == string(argument) {
		return nil
	}
	return errors.New("the header does not have the value of the argument in the body")
}

// sameInteger compares numbers, as it should be done with integers.
func sameInteger(a, b string) bool {
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	return errX == nil && errY == nil && x == y && math.Abs(x) <= maxSafe
}
