package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall/gateway/internal/route"
	"github.com/farcall-dev/farcall/gateway/internal/upstream"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/share"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
)

const (
	maxResults = 64 << 20 // bytes, of one server
	maxResult  = 1 << 20
)

// results has those of the tools of one server that only read and are idempotent, for a time. A
// call of any other tool of the server makes all of them old.
type results struct {
	ttl    time.Duration
	public bool // what one owner has got, others get who look the same to the server

	mu     sync.Mutex
	table  *share.Table[resultKey, keptResult] // by owner
	writes uint64                              // calls of other tools that have begun or ended
}

// A resultKey is a hash of everything that a result may depend on.
type resultKey [sha256.Size]byte

type keptResult struct {
	upstream.Result

	until  time.Time
	writes uint64
}

// newResults returns nil where nothing is to be kept.
func newResults(c *Upstream) *results {
	if c.Cache.TTL <= 0 {
		return nil
	}
	return &results{
		ttl: c.Cache.TTL, public: c.Cache.Public,
		table: share.NewTable[resultKey, keptResult](share.Bounds{Total: maxResults}),
	}
}

// callTool makes a call of a tool, or answers it with a result of before.
func (e *endpoint) callTool(w *calling, t *route.Target) (upstream.Result, error) {
	s := e.g.plan.Load().byName[t.Source]
	if s == nil || s.results == nil {
		return e.forward(w, t.Source)
	}
	c := s.results
	if !onlyReads(t.Item) {
		c.wrote()
		defer c.wrote()
		return e.forward(w, t.Source)
	}
	header, err := s.forwarded(w)
	if err != nil {
		return upstream.Result{}, err
	}
	if relay.TaskOf(w) != relay.NoTask || scan.Member(w.Params, "requestState") != nil ||
		scan.Member(w.Params, "inputResponses") != nil {
		return e.forward(w, t.Source)
	}
	if wants, err := s.wantsSignIn(w); wants || err != nil {
		return e.forward(w, t.Source) // a principal that has signed out gets no earlier results
	}
	scope := s.mcp.Scope(w.Caller)
	if !c.public {
		scope = w.Caller.Owner.Text() + " " + scope
	}
	key := keyOfCall(scope, t.Name, w.Params, header)
	w.refs = e.refs(t.Source)
	if r, ok := c.get(key); ok {
		return w.down(r, nil)
	}
	w.asked = new(atomic.Bool)
	writes := c.count()
	r, err := e.forwardAsItIs(w, t.Source)
	if err == nil && !w.asked.Load() { // what a client answers is its own
		c.put(w.Caller.Owner, key, writes, r)
	}
	return w.down(r, err)
}

// onlyReads reports whether a tool says that it changes nothing and may be called again.
func onlyReads(tool jsonrpc.Raw) bool {
	hints := scan.Member(tool, "annotations")
	return string(scan.Member(hints, "readOnlyHint")) == "true" &&
		string(scan.Member(hints, "idempotentHint")) == "true"
}

// keyOfCall makes a key of a call. Members of _meta count but those of the protocol and of traces,
// which differ in each call.
func keyOfCall(scope, tool string, params jsonrpc.Raw, header map[string][]string) (k resultKey) {
	h := sha256.New()
	addParts(h, []byte(scope), []byte(tool), scan.Member(params, "arguments"))
	for key, value := range scan.Members(scan.Member(params, "_meta")) {
		name := string(key)
		switch name {
		case "progressToken", "traceparent", "tracestate", "baggage", spec.MetaProtocolVersion,
			spec.MetaClientInfo, spec.MetaClientCapabilities, spec.MetaLogLevel:
		default:
			addParts(h, []byte(name), value)
		}
	}
	for _, name := range sortedKeys(header) {
		addParts(h, []byte(name), []byte(strings.Join(header[name], "\n")))
	}
	h.Sum(k[:0])
	return k
}

// addParts writes parts with their lengths, so that none of them can be a part of another.
func addParts(h hash.Hash, parts ...[]byte) {
	var n [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write(p)
	}
}

func (c *results) get(k resultKey) (r upstream.Result, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept, _, ok := c.table.Get(k)
	switch {
	case !ok:
		return r, false
	case kept.writes != c.writes || !time.Now().Before(kept.until):
		c.table.Remove(k)
		return r, false
	}
	return kept.Result, true
}

// put keeps a result, unless it is an error or no result yet, or something was written since its
// call began.
func (c *results) put(o owner.Key, k resultKey, writes uint64, r upstream.Result) {
	kind := scan.Member(r.Raw, "resultType")
	if len(r.Raw) > maxResult || scan.Member(r.Raw, "task") != nil ||
		string(scan.Member(r.Raw, "isError")) == "true" ||
		kind != nil && string(kind) != `"complete"` {
		return
	}
	r.Raw = append(jsonrpc.Raw(nil), r.Raw...) // it may be a part of a larger message
	c.mu.Lock()
	defer c.mu.Unlock()
	if writes == c.writes {
		c.table.Put(o, k, keptResult{r, time.Now().Add(c.ttl), writes}, len(r.Raw)+len(k))
	}
}

// wrote makes every result old.
func (c *results) wrote() {
	c.mu.Lock()
	c.writes++
	c.mu.Unlock()
}

func (c *results) count() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writes
}

// ownCode gives an error of the gateway itself about the way to a server the code that the registry
// has for a revision. What a server has answered stays as it is: it has no cause, and neither has
// what was made of it for the address of the client.
func ownCode(err error, rev *era.Revision) error {
	wire, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || wire.Code != jsonrpc.Unavailable || rev == nil || !modernCodes(rev) ||
		wire.Cause == nil {
		return err
	}
	if answer, ok := errors.AsType[*jsonrpc.Error](wire.Cause); ok && answer.Cause == nil {
		return err
	}
	own := *wire
	own.Code = wire.Code.Condition().Modern
	return &own
}

// Describe implements relay.Relay.
func (e *endpoint) Describe(ctx context.Context) (*relay.Description, error) {
	d, err := e.describe(ctx)
	if err != nil {
		if c := mcp.ClientFrom(ctx); c != nil {
			err = ownCode(err, era.Lookup(c.Revision))
		}
		return nil, err
	}
	return d, nil
}

// Forward implements relay.Relay.
func (e *endpoint) Forward(
	ctx context.Context, rev *era.Revision, method string, params jsonrpc.Raw,
) (jsonrpc.Raw, *era.Revision, error) {
	raw, in, err := e.forwarded(ctx, rev, method, params)
	return raw, in, ownCode(err, rev)
}
