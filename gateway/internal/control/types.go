package control

import "time"

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
	Server      string    `json:"server,omitempty" doc:"the name and version that it has said"`
	Revision    string    `json:"revision,omitempty" doc:"of MCP"`
	Connections int       `json:"connections"`
	Processes   int       `json:"processes"`
	Restarts    int       `json:"restarts" doc:"processes that replaced one which had ended unexpectedly"`
	InFlight    int       `json:"inFlight" doc:"calls under way, those that are being drained included"`
	Queued      int       `json:"queued" doc:"calls that wait for a connection"`
	Calls       int64     `json:"calls" doc:"calls that were made to it"`
	Errors      int64     `json:"errors" doc:"calls that it did not answer, or that got no connection to it"`
	P50         float64   `json:"p50Ms" doc:"median latency in milliseconds; 0: not known"`
	P99         float64   `json:"p99Ms"`
	LastError   string    `json:"lastError,omitempty"`
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

// A Call is one of a client that has failed, was refused or took long.
type Call struct {
	At               time.Time `json:"at" doc:"when it began"`
	Outcome          string    `json:"outcome" enum:"error,tool_error,refused,slow"`
	Method           string    `json:"method" doc:"as the client wrote it: any text"`
	Name             string    `json:"name,omitempty" doc:"of the tool or prompt, or the URI of the resource, as the client wrote it: any text"`
	Upstream         string    `json:"upstream,omitempty"`
	Code             int       `json:"code,omitzero" doc:"of the error that was answered"`
	Error            string    `json:"error,omitempty" doc:"what was answered, with its private cause"`
	Took             float64   `json:"tookMs"`
	Queued           float64   `json:"queuedMs,omitzero" doc:"how much of it was spent waiting for a connection to the upstream"`
	Attempts         int       `json:"attempts,omitzero" doc:"how often it was made at the upstream"`
	Principal        string    `json:"principal,omitempty"`
	Decision         string    `json:"decision,omitempty" doc:"of the guard"`
	Client           string    `json:"client,omitempty" doc:"the name and version that the client says it has: any text"`
	Session          string    `json:"session,omitempty" doc:"as listSessions has it"`
	Address          string    `json:"address,omitempty"`
	Transport        string    `json:"transport"`
	Revision         string    `json:"revision,omitempty" doc:"of MCP, which the client speaks"`
	UpstreamRevision string    `json:"upstreamRevision,omitempty"`
	Trace            string    `json:"trace,omitempty" doc:"the id of its trace"`
}

// Calls are the calls that were kept.
type Calls struct {
	Calls []Call  `json:"calls" doc:"the newest first"`
	All   bool    `json:"all" doc:"whether these are the calls of all callers"`
	Slow  float64 `json:"slowMs" doc:"a call is slow when it takes longer: trace.slow of the configuration, or 5 seconds"`
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
	File      string         `json:"file" doc:"the lock file"`
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
	Call      string   `json:"call" doc:"as in rules: tools/call files/read, or files/read"`
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
