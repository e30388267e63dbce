package control

import (
	"time"

	"github.com/farcall-dev/farcall/internal/keep"
)

// An Overview is the gateway as a whole.
type Overview struct {
	Name      string         `json:"name"`
	Version   string         `json:"version"`
	Since     time.Time      `json:"since" doc:"when the gateway started"`
	Listen    []string       `json:"listen"`
	Draining  bool           `json:"draining" doc:"whether the gateway is about to stop and takes no new calls"`
	Sessions  int            `json:"sessions" doc:"sessions of MCP, of all callers"`
	InFlight  int            `json:"inFlight" doc:"calls under way"`
	Suspended int            `json:"suspended" doc:"calls that wait for an answer of their client"`
	Calls     int64          `json:"calls" doc:"calls of clients since the start"`
	Errors    int64          `json:"errors" doc:"calls of clients that were refused, or answered by an error or a failed tool, since the start"`
	Upstreams map[string]int `json:"upstreams" doc:"how many upstreams are in each state"`
	Caller    string         `json:"caller,omitempty" doc:"the principal who asks; absent without a guard"`
}

// A Cluster is what gateways share.
type Cluster struct {
	Engine string    `json:"engine,omitempty" doc:"that has what is shared; absent: nothing is shared"`
	Node   string    `json:"node,omitempty" doc:"this gateway"`
	Size   int       `json:"size,omitempty" doc:"how many nodes are configured; absent: that is not known"`
	Nodes  []Node    `json:"nodes" doc:"that are present, this one included, by name"`
	Lost   time.Time `json:"lost,omitzero" doc:"since when the store does not decide; absent: it does"`
	Reason string    `json:"reason,omitempty" doc:"why it does not"`
	Differ []string  `json:"differ,omitempty" doc:"the nodes with another configuration than this one, but for listen and cluster"`
	Shared []string  `json:"shared" doc:"by all nodes"`
	Own    []string  `json:"own" doc:"what each node has for itself"`
}

// A Node is one of the gateways that share state.
type Node struct {
	Name    string    `json:"name"`
	Version string    `json:"version"`
	Since   time.Time `json:"since" doc:"when it started"`
	Calls   string    `json:"calls,omitempty" doc:"where it takes requests that other nodes forward; absent: nowhere"`
	// Draining: its sealed sessions, and new ones, go to other nodes.
	Draining  bool `json:"draining,omitempty" doc:"whether it takes nothing new"`
	Sessions  int  `json:"sessions" doc:"sessions of MCP that it has in memory, as it said in the last seconds"`
	Suspended int  `json:"suspended" doc:"calls there that wait for an answer of their client"`
	Children  int  `json:"children" doc:"child processes"`
}

// An Upstream is one server behind the gateway.
type Upstream struct {
	Name        string    `json:"name"`
	State       string    `json:"state" doc:"idle, starting, up, down, open (the circuit breaker is), draining or disabled"`
	Reason      string    `json:"reason,omitempty" doc:"why it is draining or disabled"`
	Since       time.Time `json:"since,omitzero" doc:"when the state began"`
	Target      string    `json:"target" doc:"its command or address, without secrets"`
	Profile     string    `json:"profile"`
	Lifetime    string    `json:"lifetime" doc:"who shares a connection"`
	Server      string    `json:"server" doc:"the name and version that it has said"`
	Revision    string    `json:"revision" doc:"of MCP"`
	Connections int       `json:"connections"`
	Processes   int       `json:"processes"`
	Restarts    int       `json:"restarts" doc:"processes that replaced one which had ended unexpectedly"`
	InFlight    int       `json:"inFlight" doc:"calls under way, those that are being drained included"`
	Queued      int       `json:"queued" doc:"calls that wait for a connection"`
	Calls       int64     `json:"calls" doc:"calls that were made to it"`
	Errors      int64     `json:"errors" doc:"calls that it did not answer, or that got no connection to it"`
	P50         float64   `json:"p50Ms" doc:"median latency in milliseconds; 0: not known"`
	P99         float64   `json:"p99Ms"`
	LastError   string    `json:"lastError"`
	Tools       int       `json:"tools" doc:"tools that are known of it"`
	Blocked     int       `json:"blocked" doc:"definitions that are withheld because they are not as they were pinned"`
}

// Upstreams are all servers behind the gateway.
type Upstreams struct {
	Upstreams []Upstream `json:"upstreams" doc:"in the order of the configuration"`
}

// UpstreamDetails are an upstream with what it has written last.
type UpstreamDetails struct {
	Upstream Upstream `json:"upstream"`
	Stderr   []string `json:"stderr" doc:"the last lines of its standard error, oldest first"`
	Warnings []string `json:"warnings,omitempty" doc:"what is wrong with its lists, or what the configuration names and they do not have"`
}

// A Usage is what became of the calls of clients to an upstream.
type Usage struct {
	Upstream   string    `json:"upstream"`
	Since      time.Time `json:"since" doc:"when the gateway started"`
	Latency    []Bucket  `json:"latency" doc:"a histogram of how long the calls took"`
	Errors     []Kind    `json:"errors" doc:"the calls that failed, by kind"`
	Tools      []Used    `json:"tools" doc:"by tool, that with the most calls first"`
	Principals []Used    `json:"principals" doc:"by principal, likewise"`
	All        bool      `json:"all" doc:"whether these are all principals"`
}

// A Bucket is a part of a histogram.
type Bucket struct {
	Most  float64 `json:"mostMs,omitzero" doc:"the calls of this part took up to this, and more than the part before; absent: no bound"`
	Calls int64   `json:"calls"`
}

// A Kind is one way in which calls fail.
type Kind struct {
	Kind  string `json:"kind" doc:"the code of the error that was answered, or: denied, limited, tool error, cancelled"`
	Calls int64  `json:"calls"`
}

// A Used is the usage of a tool, or by a principal.
type Used struct {
	Name   string  `json:"name" doc:"any text"`
	Calls  int64   `json:"calls"`
	Errors int64   `json:"errors"`
	Mean   float64 `json:"meanMs" doc:"how long a call took, on average"`
}

// A Tool is one tool of an upstream.
type Tool struct {
	Name        string `json:"name" doc:"as the upstream has it: any text"`
	Shown       string `json:"shown" doc:"as clients see it; empty: they do not, or it is the same"`
	Description string `json:"description" doc:"any text"`
	Blocked     string `json:"blocked,omitempty" doc:"why clients do not see it"`
	Diff        string `json:"diff,omitempty" doc:"what changed since it was pinned, a line each: - is pinned, + is listed now"`
}

// Tools are those of an upstream.
type Tools struct {
	Tools []Tool `json:"tools" doc:"by name"`
}

// A Restart says how an upstream is restarted.
type Restart struct {
	Graceful bool `json:"graceful,omitempty" doc:"let the calls under way end first, for as long as drain_timeout; new calls go to the new process at once"`
}

// Nothing is the body of a change that needs none.
type Nothing struct{}

// A Session is one of MCP.
type Session struct {
	ID        string    `json:"id" doc:"a name for it here; it is not the id that its client has"`
	Path      string    `json:"path" doc:"where its client connects, as /mcp"`
	Principal string    `json:"principal,omitempty" doc:"who began it; absent without a guard, or when another replica has begun it"`
	Client    string    `json:"client" doc:"the name and version that its client has said: any text"`
	Revision  string    `json:"revision" doc:"of MCP"`
	Address   string    `json:"address,omitempty" doc:"from where it was begun"`
	Since     time.Time `json:"since,omitzero" doc:"when it began here"`
}

// Sessions are those that the caller may see.
type Sessions struct {
	Sessions []Session `json:"sessions" doc:"the oldest first"`
	All      bool      `json:"all" doc:"whether these are the sessions of all callers"`
}

type (
	// A Call is one that was kept.
	Call = keep.Call
	// Calls are those that were kept.
	Calls = keep.Calls
)

// A SignIn is of a principal that has signed in to an upstream.
type SignIn struct {
	Principal string `json:"principal" doc:"any text"`
	Upstream  string `json:"upstream"`
}

// SignIns are those that the caller may see.
type SignIns struct {
	SignIns []SignIn `json:"signIns" doc:"by principal and upstream"`
	All     bool     `json:"all" doc:"whether these are the sign-ins of all principals"`
	Damaged int      `json:"damaged,omitzero" doc:"records that cannot be read: their principals have to sign in again"`
}

// EndSignIns chooses sign-ins.
type EndSignIns struct {
	Principal string `json:"principal,omitempty" doc:"those of the principal of this name"`
	Upstream  string `json:"upstream,omitempty" doc:"those to this upstream"`
	All       bool   `json:"all,omitempty" doc:"all of them"`
}

// EndedSignIns are what has ended.
type EndedSignIns struct {
	Ended    []SignIn `json:"ended"`
	Problems []string `json:"problems" doc:"which sign-ins have not ended, and why"`
}

// A LogLevel is from which level on lines are logged.
type LogLevel struct {
	Level      string            `json:"level,omitempty" enum:"debug,info,warn,error"`
	Components map[string]string `json:"components,omitempty" doc:"the levels of those components that have their own; to set one to default removes it"`
}

// Reloaded is what has come of a reload.
type Reloaded struct {
	Changes []string `json:"changes" doc:"the keys that have changed"`
}

// Dumped is what the flight recorder has written.
type Dumped struct {
	File string `json:"file" doc:"the capture, on the machine of the gateway"`
}

// Pins are what is pinned.
type Pins struct {
	File      string         `json:"file" doc:"where they are: the lock file, or the cluster"`
	Upstreams []UpstreamPins `json:"upstreams"`
}

// UpstreamPins are what is pinned of an upstream.
type UpstreamPins struct {
	Upstream string      `json:"upstream"`
	Pinned   int         `json:"pinned" doc:"definitions in the lock file"`
	Changes  []PinChange `json:"changes" doc:"what is known to differ: lists that no client has asked for are not compared"`
}

// A PinChange is how something that an upstream says differs from what is pinned.
type PinChange struct {
	What string `json:"what" doc:"tool, prompt, resource, template or server"`
	Name string `json:"name" doc:"as the upstream has it: any text"`
	Kind string `json:"kind" doc:"added, removed, changed or invalid"`
	Diff string `json:"diff" doc:"what differs, a line each: - is pinned, + is listed now"`
}

// PinChanges are all that differ, of one upstream.
type PinChanges struct {
	Upstream string      `json:"upstream"`
	File     string      `json:"file"`
	Digest   string      `json:"digest" doc:"of all that the upstream says now: to accept it"`
	Pinned   int         `json:"pinned" doc:"definitions that the upstream has now"`
	Changes  []PinChange `json:"changes"`
}

// AcceptPins says what is accepted.
type AcceptPins struct {
	Digest string `json:"digest" doc:"of the changes that were looked at"`
}

// A Question is about a call.
type Question struct {
	Call      string   `json:"call" doc:"as in rules: tools/call files/read, or files/read; of a tool also the name that clients see"`
	As        string   `json:"as,omitempty" doc:"the id of a principal of the configuration, or anonymous; default: the caller"`
	Roles     []string `json:"role,omitempty" doc:"roles of the principal, in place of those of the configuration"`
	Arguments string   `json:"arguments,omitempty" doc:"arguments of the call, an object in JSON"`
	Local     bool     `json:"local,omitempty" doc:"the call comes from the machine of the gateway"`
}

// An Explanation says what becomes of a call.
type Explanation struct {
	Allowed  bool     `json:"allowed"`
	Call     string   `json:"call"`
	As       string   `json:"as"`
	Kind     string   `json:"kind" doc:"of the principal: user, service, agent, process or anonymous"`
	Roles    []string `json:"roles"`
	Policies []string `json:"policies" doc:"that decide"`
	Reason   string   `json:"reason"`
	Scopes   []string `json:"scopes,omitempty" doc:"that the principal would need"`
	Limits   []string `json:"limits,omitempty" doc:"that would count the call"`
	Shadow   string   `json:"shadow,omitempty" doc:"what shadow mode changes"`
}
