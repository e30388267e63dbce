package port

import (
	"slices"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/beneath"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// mcpMethods are what a client of MCP may call.
var mcpMethods = []string{
	spec.MethodInitialize, spec.MethodServerDiscover, spec.MethodPing,
	spec.MethodToolsList, spec.MethodToolsCall,
	spec.MethodResourcesList, spec.MethodResourcesTemplatesList, spec.MethodResourcesRead,
	spec.MethodResourcesSubscribe, spec.MethodResourcesUnsubscribe, spec.MethodSubscriptionsListen,
	spec.MethodPromptsList, spec.MethodPromptsGet, spec.MethodCompletionComplete,
	spec.MethodLoggingSetLevel,
	spec.MethodTasksGet, spec.MethodTasksUpdate, spec.MethodTasksCancel, spec.MethodTasksResult,
	spec.MethodTasksList,
}

// SpeaksMCP tells by the first message of a connection whether it is one of MCP:
// by the method, or by a _meta that names a revision. Everything else, what is no
// message at all included, is plain JSON-RPC.
func SpeaksMCP(frame []byte) bool {
	var dec jsonrpc.Decoder
	var batch jsonrpc.Batch
	if err := dec.Decode(frame, &batch); err != nil || batch.Array {
		return false // no revision lets a client begin with a batch
	}
	m := &batch.Messages[0]
	if m.Kind != jsonrpc.Request && m.Kind != jsonrpc.Notification {
		return false
	}
	if slices.Contains(mcpMethods, string(m.Method)) {
		return true
	}
	var params struct {
		Meta map[string]jsonrpc.Raw `json:"_meta"`
	}
	return jsonv2.Unmarshal(m.Params, &params) == nil && params.Meta[spec.MetaProtocolVersion] != nil
}

// First reads the first frame of a connection, to tell what it speaks. again
// hands that out once more, the error included, and is t in everything else:
// it has the optional halves of t. The frame is valid until the second Read of
// again.
func First(t farcall.Transport) (again farcall.Transport, frame []byte, err error) {
	frame, err = t.Read()
	r := &rereading{Transport: beneath.Of(t), frame: frame, err: err, again: true}
	if w, ok := t.(farcall.TryWriter); ok {
		again = struct {
			*rereading
			farcall.TryWriter
		}{r, w}
		return again, frame, err
	}
	return r, frame, err
}

// rereading is for the goroutine that reads, as Read, Keep and Buffered are.
type rereading struct {
	beneath.Transport

	again bool // frame and err have not been handed out
	frame []byte
	err   error
}

// Read implements farcall.Transport.
func (r *rereading) Read() ([]byte, error) {
	if !r.again {
		return r.Transport.Read()
	}
	frame := r.frame
	r.again, r.frame = false, nil
	return frame, r.err
}

// Buffered implements farcall.Buffered.
func (r *rereading) Buffered() bool {
	return r.again || r.Transport.Buffered()
}
