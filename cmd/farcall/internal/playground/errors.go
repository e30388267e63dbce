package playground

import "github.com/farcall-dev/farcall/jsonrpc"

// The application errors of the playground. The numbers are its own choice
// from the range that JSON-RPC leaves to servers (section 5.1).
const (
	errFailed     jsonrpc.Code = -32000
	errValidation jsonrpc.Code = -32001
	errPermission jsonrpc.Code = -32002
	errTimeout    jsonrpc.Code = -32003
	errDependency jsonrpc.Code = -32004
)

// fault makes an error with the data that the caller may see: an object of the given
// names and texts.
func fault(code jsonrpc.Code, message string, data ...string) error {
	raw := jsonrpc.Raw{'{'}
	for i, text := range data {
		switch {
		case i%2 == 1:
			raw = append(raw, ':')
		case i > 0:
			raw = append(raw, ',')
		}
		raw = jsonrpc.AppendString(raw, text)
	}
	return &jsonrpc.Error{Code: code, Message: message, Data: append(raw, '}')}
}

// invalid refuses params that have the right type and a value the method
// cannot work with.
func invalid(member, reason string) error {
	return fault(errValidation, "Invalid user data", "member", member, "reason", reason)
}
