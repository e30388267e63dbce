package guard

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// Options adjust a Guard. The zero value, and nil, mean the defaults.
type Options struct {
	// Nonces remembers what was used. Default: in memory, of this process.
	Nonces NonceStore
	// HTTP fetches keys. Default: a client that reaches no private addresses from
	// public issuers.
	HTTP *http.Client
	// Authenticate is asked first, for ways of your own: nil and no error means that
	// it has nothing to say.
	Authenticate func(*http.Request) (*Principal, error)
	// Schema returns the JSON Schema of a call's params (or of a tool's arguments), nil for none.
	// Annotations returns those of a tool, as JSON.
	Schema, Annotations func(ctx context.Context, method, name string) jsonrpc.Raw
	// Details tells callers why they were refused, when they have this role. Default: nobody.
	Details string
	// Logger takes what an operator should know. Default: nothing is logged.
	Logger *slog.Logger
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// A NonceStore remembers nonces. Those who share one refuse each other's replays. It must
// be safe for concurrent use.
type NonceStore interface {
	// Use remembers a nonce until a time and reports whether it is new. An error
	// refuses the request.
	Use(ctx context.Context, nonce string, until time.Time) (fresh bool, err error)
}

// A Conn is what is known of a connection that carries messages.
type Conn struct {
	// Transport names it: "stdio", "tcp", "unix", "ws".
	Transport string
	// Remote is the address of the other end; Local that it is on this machine.
	Remote string
	Local  bool
	// TLS has its certificates. Nil: it is in the clear.
	TLS *tls.ConnectionState
	// Principal is who was found out to be there, by the handshake of a WebSocket.
	Principal *Principal
}

// A Call is what is to be decided.
type Call struct {
	Method   string // "tools/call", "math/add"
	Upstream string // of a gateway; "" otherwise
	// Name is the tool, the URI or the prompt; "" when the method is all there is.
	Name   string
	Params jsonrpc.Raw
	// Arguments are what Schema is about: those of a tool, or the params.
	Arguments, Schema jsonrpc.Raw
	// Annotations are those of the tool, from a server that is trusted to say so.
	Annotations jsonrpc.Raw
	// Modern numbers errors as MCP of the newest revision does, MCP as all others do.
	MCP, Modern bool
}

// An Explanation says how a call was decided.
type Explanation struct {
	Allowed bool
	// Policies decided: names of rules, or ids of Cedar policies.
	Policies []string
	// Reason is a sentence for the operator.
	Reason string
	// Scopes are what the caller would need besides.
	Scopes []string
	// Limits would count the call: one line for each.
	Limits []string
}

// A Problem is something in a Config that will not do, or not what one may think.
type Problem struct {
	Path    string // as in a configuration: policy.allow[0].calls
	Message string
	Hint    string
	Warning bool // it works all the same
}

// A Guard authenticates, decides, limits and writes down. Its methods may be called by any
// number of goroutines at once.
type Guard struct{}

var errTodo = errors.New("guard: not built yet")

// New returns a guard. Its error tells everything that is wrong with the configuration.
func New(c *Config, o *Options) (*Guard, error) { return nil, errTodo }

// Check returns what is wrong with a configuration: also rules that never count and
// rules that contradict each other, as warnings.
func (c *Config) Check() []Problem { return nil }

// Reload puts another configuration in the place of this one. Nonces, buckets and keys that are in both
// stay. When it is not valid nothing changes.
func (g *Guard) Reload(c *Config) error { return errTodo }

// Close ends what runs in the background, and writes the audit out.
func (g *Guard) Close() error { return nil }

// HTTP authenticates each request before h gets it, with the [Principal] in its context, and answers
// those that may not pass. It serves the metadata of the resource.
func (g *Guard) HTTP(h http.Handler) http.Handler { return h }

// Listener bounds the connections of l.
func (g *Guard) Listener(l net.Listener) net.Listener { return l }

// Interceptor finds out who calls, and lets pass what may. For messages over HTTP behind
// [Guard.HTTP] c is nil.
func (g *Guard) Interceptor(c *Conn) farcall.Interceptor { return nil }

// Identify is Interceptor without the decision, for those who ask Begin.
func (g *Guard) Identify(c *Conn) farcall.Interceptor { return nil }

// Begin decides whether a call of the principal in ctx may proceed, and counts it. done is to be called
// when it has ended, with its error. A refusal is a *jsonrpc.Error.
func (g *Guard) Begin(ctx context.Context, c *Call) (done func(error), err error) {
	return nil, errTodo
}

// Visible reports whether the principal in ctx may use something, for lists.
func (g *Guard) Visible(ctx context.Context, c *Call) bool { return false }

// Explain says what would become of a call, and why. It counts nothing.
func (g *Guard) Explain(ctx context.Context, p *Principal, c *Call) Explanation { return Explanation{} }
