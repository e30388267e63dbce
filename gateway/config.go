package gateway

import (
	"fmt"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/mcp"
)

// A Config says what a gateway offers and what stands behind it. The zero value
// of a field is its default, but for Upstreams. It must not change while a
// gateway uses it.
type Config struct {
	// Name is what the gateway calls itself, "farcall" by default. Title and Instructions are
	// shown to clients of the aggregate.
	Name, Title, Instructions string
	// Listen are the addresses: host:port, unix:PATH. The command line counts first.
	Listen []string
	// Hosts are the DNS names of the gateway: "tools.example.com", "*.example.com", "*" for all. Where
	// callers need no credentials, requests over HTTP that ask for another name are refused; IP
	// addresses, localhost and the host of Guard.Resource.URL are always allowed.
	Hosts []string
	// TrustedProxies are addresses and networks of proxies, or "unix", that are believed when they say
	// who their client is, in X-Forwarded-For, Forwarded and the header of the PROXY protocol. They
	// are for farcall serve: a program that serves a Gateway has its own listeners.
	TrustedProxies []string
	// TLS are files in PEM: the certificate and its private key with which farcall serves TLS, and the
	// authorities that sign the certificates of clients. The command line counts first.
	TLS struct{ Cert, Key, ClientCA string }
	// Namespace says how names and URIs of the upstreams are shown where all are one server: "always"
	// (the default: in the qualified form, NAME__tool, LABEL+uri, ui://LABEL+/x), "auto" (deprecated:
	// names when two have the same, URIs when there are several upstreams), "never" (as they are; what
	// two have is not shown).
	Namespace string
	// Upstreams are what stands behind the gateway, in the order in which lists show them.
	Upstreams []*Upstream
	// Search shows search_tools and call_tool at /mcp in place of the list of tools. Nil: tools are
	// listed.
	Search *Search
	// Endpoints are virtual servers: each has an address, /mcp/NAME, and a choice of what the
	// upstreams have.
	Endpoints []*Endpoint
	// Lock is the path of farcall.lock; "" for none.
	Lock string
	// Sessions says where the sessions of MCP over HTTP are.
	Sessions Sessions
	// Tasks are stored in Dir, so that they outlive the process (see mcp.ServerOptions.Tasks): those
	// of each address in a directory below it, which belongs to one gateway at a time. "": in memory.
	// TTL is how long a task is kept, 1 hour by default, MaxBytes how much each address stores, 1 GiB
	// by default. It takes effect when the gateway is started.
	Tasks struct {
		Dir      string
		TTL      time.Duration
		MaxBytes int64
	}
	// Idempotency says how calls of tools are made once. A call that has a key, as idempotencyKey in
	// its _meta, in the header Idempotency-Key, or in the argument with this name, is executed once;
	// its answer is kept for TTL, 24 hours by default.
	Idempotency struct {
		Argument string
		TTL      time.Duration
	}
	// Cluster says over which engine gateways share state: a URL of NATS or Valkey, or engines in the
	// gateways themselves. It takes effect when the gateway is started. It is for farcall serve, which
	// opens the engine; a program gives Options.Shared.
	Cluster clusterConfig
	// SignIn says how principals sign in to upstreams with Credentials that have the type sign_in. It
	// takes effect when the gateway is started. URL is where browsers reach the gateway: https://host.
	// Tokens are kept in Dir, sealed with Keys of 32 random bytes each in base64 or hex: the first one
	// seals, each one opens. Without Dir they are in the store of a cluster, sealed with Keys, or else
	// with a key from the secret of the cluster; without a cluster they are in memory. Browser says
	// which browser may sign in for a principal: "link", that which has opened the link, or
	// "principal", one that shows the credentials of the principal, such as a client certificate or a
	// token that a proxy adds. The default is principal where the Guard accepts client certificates,
	// and otherwise link.
	SignIn signInConfig
	// Trace is for farcall serve, where the environment asks for traces. Parent says what the span of
	// a caller is for the gateway's: "remote" (the default), its parent, or "link", a link of the
	// first span of a new trace. Calls that take longer than Slow are kept although they are not
	// sampled; 0: no call is. Listeners has the Parent of those addresses of Listen that have another
	// one. Payloads adds the arguments and results of calls to their spans, redacted
	// as the params in the audit of the Guard are.
	Trace struct {
		Parent    string
		Listeners map[string]string
		Slow      time.Duration
		Payloads  bool
	}
	// Log is for farcall serve: the level of the log, info by default, and of those of its Components
	// that have another one. The names are those of levels.Standard and levels.Names.
	Log logConfig
	// Capture says what is recorded of the calls. It takes effect when the gateway is started.
	Capture captureConfig
	// MaxSuspended bounds the calls that wait for an answer of their client,
	// 1000 by default; SuspendTimeout is how long each may, 5 minutes by default.
	MaxSuspended   int
	SuspendTimeout time.Duration
	// DrainTimeout is how long calls in flight may take when the gateway stops
	// or an upstream leaves it, 10 seconds by default.
	DrainTimeout time.Duration
	// Limits bound what all connections have together. They take effect when the gateway
	// is started. It is for the program that listens to see to them.
	Limits struct {
		// Memory bounds the bytes of all messages of more than 64 KiB while they arrive and while
		// they are handled, and MemoryUnauthenticated those of connections that are not
		// authenticated: see farcall.NewBudget.
		Memory, MemoryUnauthenticated int64
		// FrameTimeout is how long a message may take once it has begun, and a second more for each
		// 100 KB of it, 30 s by default.
		FrameTimeout time.Duration
		// Connections, Accepted, AcceptRate and Idle are as in guard.Config.Limits, and count before
		// those.
		Connections, Accepted, AcceptRate int
		Idle                              time.Duration
	}
	// PageSize is the number of items on a page of a list, 100 by default.
	PageSize int
	// Guard says who may call what. Nil: everybody may call everything.
	Guard *guard.Config
	// Hooks are programs that are asked about calls of tools, before those of the upstreams.
	Hooks []Hook
	// Errors says what clients learn when a server cannot be reached or fails:
	// "details" (the default) has the reason, and the last lines that a command
	// wrote to its standard error; "plain" has neither.
	Errors string

	notices []Problem
	files   []string
	digest  []byte                 // of what all nodes of a cluster have alike; nil: there is no file
	near    func(path string) spot // where things are in the file; nil without one
}

// An Endpoint is a virtual server of a gateway: a choice of what its upstreams have, at its own
// address. It only narrows: what Config.Guard forbids stays forbidden. The guard, the audit and the
// lock file go by the upstreams' names.
type Endpoint struct {
	// Name stands in the path: /mcp/NAME, and /sse/NAME for clients of HTTP+SSE. No upstream has it.
	Name string
	// Title and Instructions are what clients are notified. "": no title, and the instructions of the
	// upstreams.
	Title, Instructions string
	// Tools, Resources and Prompts are patterns of UPSTREAM/NAME with * and ?, where NAME is as the
	// upstream has it (of a resource: its URI). Without Tools it is all tools of all upstreams;
	// without Resources, or Prompts, all of those of the upstreams in Tools. An empty list that is not
	// nil is none. Deny are patterns of tools, and goes before.
	Tools, Deny, Resources, Prompts []string
	// Namespace counts before that of the upstreams and of the Config.
	Namespace string
	// A principal needs one of Roles or ByRole: for any other the endpoint is not there. Both empty:
	// no role is needed.
	Roles []string
	// ByRole has what is left of the endpoint for a role; one in Roles has all of it. A principal with
	// several roles has what any of them has. The patterns are as those of the endpoint; a resource
	// that is of a template must match itself.
	ByRole map[string]struct{ Tools, Deny, Resources, Prompts []string }
	// Overrides say in which form tools are shown, by UPSTREAM/NAME. Wrap is not for files, and must
	// be nil.
	Overrides map[string]mcp.Transform
	// Forms say more of tools in Overrides: annotations, and arguments that come from the caller.
	Forms map[string]toolForm
	// Search shows search_tools and call_tool in place of the list of tools. Nil: tools are listed.
	Search *Search
}

// A Search lets clients search the tools of an address, so that a model does not get all of them in
// each prompt. A tool that is found is called with call_tool, or directly; the guard, the audit and
// the lock file see the tool itself. Names are always in their qualified form.
type Search struct {
	// Mode is "always", the default, or "auto": a caller with no more than 40 tools in 40 KiB gets the
	// list.
	Mode string
	// Always are patterns of UPSTREAM/NAME of tools that are listed as well, up to ten. Those with an
	// Apps page should be: hosts take it from the list.
	Always []string
	// Limit is how many tools an answer has unless the caller says so, 6 by default and 20 at most.
	Limit int
	// Split adds call_tool_read, which hosts may call without asking: it refuses tools that are not
	// marked read-only. The mark is what the upstream says.
	Split bool
}

// An Upstream is one server behind a gateway: a command, a URL, or a server of this process.
// The zero value of a field is its default.
type Upstream struct {
	// Name is letters, digits, "-" and "_", at most 64, and stands in paths.
	Name string

	// Command is a program and its arguments, run without a shell. Env is added to its environment,
	// which is otherwise a few harmless variables (see [Upstream.Environ]) and those that InheritEnv
	// names. Cwd is where it runs; "" is where the gateway does.
	Command    []string
	Env        map[string]string
	InheritEnv []string
	Cwd        string
	// Restart is about a command that has failed.
	Restart Restart

	// URL has the scheme http, https, ws, wss, tcp, tls or unix. Headers are sent with
	// each request over HTTP and with the handshake of a WebSocket.
	URL     string
	Headers map[string]string
	// TLS is for https, wss and tls: files in PEM, which are read again for each handshake, and a
	// name. CA has the authorities of the server in place of those of the system, Cert and Key are
	// what the gateway shows, ServerName is the name in the server's certificate where that is not the
	// host of URL.
	TLS struct{ CA, Cert, Key, ServerName string }
	// Proxy is for http, https, ws and wss: the URL of a proxy (http, https, socks5), or "none". "" is
	// what the environment says.
	Proxy string
	// ForwardHeaders are the names of headers that calls of MCP over http and https have as they came
	// with the request of the caller; lists, which callers share, have none. Those of credentials, of
	// connections and of the protocol are refused.
	ForwardHeaders []string
	// Transport is that of MCP over HTTP: "" finds out, "streamable", "sse".
	Transport string

	// Server is a server of this process, in place of a Command and a URL. It is called over
	// connections in memory, so that authorization, pins, limits and names work as for any upstream.
	// Its handlers see the gateway as their client, and the values of no caller's context. The gateway
	// does not close it. No file can have it.
	Server *mcp.Server
	// OpenAPI is an HTTP API with operations that are the tools, in place of a Command and a Server.
	// URL is the address of the API then; without one it is what the document says. Headers, TLS,
	// Proxy and Auth are those of requests to it, and need the URL. Tools.Allow and Tools.Deny also
	// take operations ("GET /repos/**") and tags ("tag:repos").
	OpenAPI *OpenAPI

	// Lifetime says who shares a connection (or a child process): "auto" (the default: all clients
	// that can be asked the same, and each session its own once the server asks something), "shared"
	// (one connection and one state for all, to which no roots are declared), "principal", "session",
	// "call". For the profile raw: "session" (the default: a connection of the client's own),
	// "shared".
	Lifetime string
	// Pool bounds the connections of one owner of requests without a session, 8 by default: one that
	// may be asked during a call needs the connection for itself.
	Pool int
	// IdleStop closes connections, and ends children, that were not used for so long; 0 never.
	IdleStop time.Duration

	// Timeout bounds a call, 60 seconds by default; QueueTimeout how long it
	// waits for its turn, 30 seconds by default; StartTimeout how long the server may
	// take to start and to answer the handshake, 60 seconds by default.
	Timeout, QueueTimeout, StartTimeout time.Duration
	// Preload starts the server with the gateway, and not with the first call. Required does so as
	// well, and /readyz is 503 while the server is not there. HealthCheck is how often it is asked
	// whether it is there, by a ping, and started when it is not: 30 seconds where it is required,
	// else never.
	Preload, Required bool
	HealthCheck       time.Duration
	// MaxInFlight bounds the calls in flight, MaxQueue those that wait, both 1024 by default.
	MaxInFlight, MaxQueue int
	// Breaker says when to stop trying.
	Breaker Breaker
	// MaxMessage bounds a message in bytes; 0 is the default of the transport.
	MaxMessage int64
	// FrameTimeout is how long a message over a byte stream or WebSocket may take once it has begun,
	// and a second more for each 100 KB of it, 30 seconds by default. Then the connection ends.
	FrameTimeout time.Duration

	// Profile is "mcp" for a server that is found as one of MCP only, "raw" for
	// any other JSON-RPC, or "auto" (the default) for both.
	Profile string
	// Framing is that of a byte stream: "line" (the default), "header" (Content-Length), or
	// "raw" (JSON texts one after another).
	Framing string
	// Era is which MCP is spoken: "auto" (the default) finds out, "modern", "legacy".
	Era string

	// Tools, Resources, Prompts choose what is shown. Resources go by their URIs.
	Tools, Resources, Prompts Filter
	// Namespace counts before that of the Config; "" is that of the Config.
	Namespace string
	// Label is the qualifier of URIs, in small letters, digits, dots and hyphens. "" is the name in
	// small letters with dots for underscores, and "n." before a digit at its beginning.
	Label string
	// Arguments of tools and prompts are "rewrite" (the default): one that is a URI which the gateway
	// has qualified for this upstream is given to it without the qualifier; or "opaque": they are
	// never changed.
	Arguments string
	// Web says how URIs of https:, http: and data: are shown: "bare" (the default), because clients
	// may fetch them, or "qualified" as all others are.
	Web string
	// Cache keeps the results of tools that say that they are read-only and idempotent, and answers
	// the same call of the same owner with them, for the time of TTL; 0: not at all. A call of any
	// other tool of the upstream makes all of them old. With Public one owner's results are those of
	// all who look the same to the server: with the same roots and abilities. A call with client was
	// asked something is not answered so.
	Cache struct {
		TTL    time.Duration
		Public bool
	}
	// Hooks are programs that are asked about calls of its tools, or, with the profile raw, of its
	// methods. Their Tools are names of this upstream, without its own.
	Hooks []Hook
	// Disabled leaves it out.
	Disabled bool

	// Sandbox confines the command. Nil: it may do what the gateway's user may, but cannot read the
	// gateway (see Options.Sandbox).
	Sandbox *Sandbox
	// Auth are the credentials that the gateway has there. Nil: Headers, if any.
	Auth *Credentials

	origins   map[string]string // where values come from, by "env.NAME", "headers.Name", "url"
	documents string            // a hash of the files of OpenAPI
	broken    bool              // what it is could not be read
	shown     []string          // the command as it was written, before ${ENV} was replaced
}

// A Hook is a program that is asked about calls of tools: see docs/hooks.md for what it gets and
// answers.
type Hook struct {
	// Name is for the log and the audit. "": where the hook stands in the configuration, as
	// "hooks[0]".
	Name string
	// On is "before" or "after" the call.
	On string
	// Tools are patterns of UPSTREAM/NAME with * and ?, by the upstreams' names for tools. Empty: all
	// tools.
	Tools []string
	// Command is a program and its arguments, which is run for each call with the environment of
	// [Upstream.Environ] and Env.
	Command []string
	Env     map[string]string
	// URL gets a POST for each call, with Headers. No redirect is followed. TLS is as in Upstream.
	URL     string
	Headers map[string]string
	TLS     struct{ CA, Cert, Key, ServerName string }
	// Timeout bounds the answer, 2 seconds by default.
	Timeout time.Duration
	// OnFailure says what becomes of a call when the hook fails: "deny" (the default), "allow".
	OnFailure string
	// MaxInFlight bounds how many calls it is asked about at once, 16 by default. Callers share them
	// fairly.
	MaxInFlight int
}

// A Sandbox says what a command may do (Linux). What is not named it may not.
type Sandbox struct {
	// Mode is "strict" (the default): a kernel that lacks a part is an error; "best-effort": it is a
	// warning; or "none": the command is started as it is, and may read what the gateway may.
	Mode string
	// Read, Write and Execute are files and directories with all below. Write implies Read. The
	// program itself, its interpreter and the system's libraries may be read and executed, and Cwd be
	// read, always.
	Read, Write, Execute []string
	// Network is "none" (the default), "all", or what TCP connections may be made to: a port of any
	// public address ("443"), or a destination ("db.internal:5432", "10.0.0.0/8:5432").
	Network []string
	// Memory in bytes, Processes and Files (open at once), CPU: time of the processor. 0: 1 GiB, 64,
	// 256, no bound.
	Memory           int64
	Processes, Files int
	CPU              time.Duration
}

// Credentials are how the gateway shows who it is to a server, over HTTP.
type Credentials struct {
	// Type is "oauth" (what farcall login got), "client_credentials", "workload_identity" (a JWT of
	// the platform for a token, RFC 7523), "token_exchange" (RFC 8693: the caller's token for one of
	// the server), "principals" (headers for each), "passthrough": the caller's own token, or
	// "sign_in": each principal signs in with a browser.
	Type string
	// ClientID and Secret, or Key (a private key in PEM, for private_key_jwt), are the gateway's at
	// the authorization server.
	ClientID, Secret, Key string
	// MetadataURL is a client ID metadata document.
	MetadataURL string
	// Issuer is the authorization server; found out from the upstream by default. Audience and
	// Scopes are asked for.
	Issuer, Audience string
	Scopes           []string
	// DPoP binds tokens to a key of this process.
	DPoP bool
	// Store is the file with tokens of farcall login.
	Store string
	// AssertionFile has the workload's JWT, which the platform renews. Without Issuer only that
	// authorization server gets it which its aud names.
	AssertionFile string
	// Principals has the headers for each principal, by Principal.Name, or by "*" for all others.
	Principals map[string]map[string]string
}

// Restart says how long to wait before a command that has failed is started again.
type Restart struct {
	// Min and Max bound the wait, which doubles with each failure: 100 ms and 30 s by default.
	Min, Max time.Duration
	// Never leaves a command that has failed where it is.
	Never bool
}

// Breaker says when an upstream is left alone for a while.
type Breaker struct {
	After int           // failures of the connection in a row, 5 by default
	For   time.Duration // how long, 10 seconds by default
}

// A Filter chooses among the items of an upstream and changes how they are
// shown. Names are the upstream's own.
type Filter struct {
	// Allow and Deny are patterns with * and ?. An empty Allow allows all; Deny counts before Allow.
	Allow, Deny []string
	// Rename has the names that are shown, Describe the descriptions.
	Rename, Describe map[string]string
}

// A ConfigError has everything that is wrong with a configuration.
type ConfigError struct {
	File     string // "" when it was built in Go
	Problems []Problem
}

// A Problem is one thing that is wrong, and what to do about it. It has nothing
// of the values that came from the environment or from files.
type Problem struct {
	Line, Column int    // from 1; 0 when there is no file
	Path         string // upstreams.github.lifetime; "" for the whole
	Message      string
	Hint         string // what to do
}

// Error has a line for each problem.
func (e *ConfigError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.in(e.File)
	}
	return strings.Join(lines, "\n")
}

func (p Problem) in(file string) string {
	var b strings.Builder
	if file != "" {
		b.WriteString(file + ":")
	}
	if p.Line > 0 {
		fmt.Fprintf(&b, "%d:%d:", p.Line, p.Column)
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Message)
	if p.Hint != "" {
		b.WriteString("; " + p.Hint)
	}
	return b.String()
}

// String is the place and the problem, as in a line of [ConfigError].
func (p Problem) String() string { return p.in("") }

// Notices are what [Load] accepted and what has no effect, or another than one
// may think.
func (c *Config) Notices() []Problem { return c.notices }

// ProblemAt makes a problem of what a program has found at a path, with its place in the file.
func (c *Config) ProblemAt(path, message, hint string) Problem {
	p := Problem{Path: path, Message: message, Hint: hint}
	if c.near != nil {
		at := c.near(path)
		p.Line, p.Column = at.line, at.column
	}
	return p
}

// Files are those that [Load] has read: the configuration, and what it refers to.
func (c *Config) Files() []string { return c.files }

// The lifetimes with which a connection may be that of all clients.
const (
	lifetimeAuto   = "auto"
	lifetimeShared = "shared"
)

// forAll reports whether all callers may share a connection.
func (u *Upstream) forAll() bool {
	return u.Lifetime == "" || u.Lifetime == lifetimeAuto || u.Lifetime == lifetimeShared
}
