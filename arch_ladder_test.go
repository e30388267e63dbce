package farcall_test

// archLadder is the architecture: what each package may import, and how many
// names it may export. Imports go down only. A package without a row fails.
var archLadder = map[string]archRow{
	// 35 and four: Transport's three optional halves (Keeper, Buffered, TryWriter) and Waiting are for
	// those who write one, and OnProgress gives a call its progress and its result. Two more: Budget
	// and NewBudget, which all transports take; and OnAnswer, for interceptors that record outcomes;
	// PassOn, for relays. Six are for subscriptions: HandleSubscription, HandleTopic and Topic to
	// serve them, Subscribe, Subscription and GapError to have them. WithMetadata and MetadataFrom,
	// for a caller and its handler. WorkDone, ReportWorkDone and OnWorkDone, LSP's progress of a call,
	// which is apart from its partial results. Trace and WithTraceHeader, for the rules of a trace
	// context in one place.
	".": {
		ours: "jsonrpc internal/beginning internal/budget internal/callctx internal/cancel " +
			"internal/jsonv2 internal/late internal/owner internal/permit internal/remote internal/scan " +
			"internal/schema internal/share internal/validate observe", names: 59,
	},
	// 10 and four: Decision, Reading and the kind Queue, which a gateway and its guard tell; Span,
	// which traces and logs share.
	"observe": {ours: "internal/callctx jsonrpc", names: 10},
	// Only who wants metrics links Prometheus: the libraries do not import it
	// (observe/metrics.TestImports).
	"observe/metrics": {
		ours: "jsonrpc observe observe/internal/words store",
		outside: "github.com/prometheus/client_golang github.com/prometheus/client_model " +
			"github.com/prometheus/common", names: 4,
	},
	// Likewise OpenTelemetry.
	"observe/traces": {
		ours: ". internal/audit internal/callctx internal/scan jsonrpc mcp/spec observe " +
			"observe/internal/telemetry observe/internal/words", outside: "go.opentelemetry.io/otel",
		names: 5,
	},
	// Likewise OpenTelemetry, and its bridge from Prometheus.
	"observe/metrics/otlp": {
		ours:    "observe/metrics observe/internal/telemetry",
		outside: "go.opentelemetry.io/otel go.opentelemetry.io/contrib/bridges/prometheus", names: 3,
	},
	"observe/internal/words": {pure: true},
	"observe/levels":         {names: 7},
	// Likewise OpenTelemetry, and its bridge from log/slog.
	"observe/logs": {
		ours:    "observe/internal/telemetry",
		outside: "go.opentelemetry.io/otel go.opentelemetry.io/contrib/bridges/otelslog", names: 3,
	},
	"observe/internal/telemetry": {outside: "go.opentelemetry.io/otel"},
	"jsonrpc":                    {ours: "internal/scan", names: 25, pure: true},
	"stream":                     {ours: ". jsonrpc internal/budget internal/slow", names: 14},
	"httprpc": {
		ours: "internal/onhttp internal/backoff . jsonrpc internal/budget internal/callctx " +
			"internal/oneway internal/origin internal/owner internal/scan internal/slow " +
			"internal/sse observe", names: 8,
	},
	"wsrpc": {
		ours:    ". jsonrpc internal/budget internal/origin internal/slow",
		outside: "github.com/coder/websocket", names: 6,
	},
	"mcp/spec": {ours: "jsonrpc internal/jsonv2 internal/scan"},
	"mcp/era":  {ours: "jsonrpc internal/jsonv2 internal/scan mcp/spec", names: 10},
	// Configured brings the policy of a backend to any handler, Resumer and Resumable its sessions to
	// any replica
	"mcp/mcphttp": {
		ours: "internal/backoff internal/onhttp . jsonrpc internal/budget internal/callctx " +
			"internal/cancel internal/jsonv2 internal/late internal/oneway internal/origin internal/owner " +
			"internal/remote internal/seal internal/share internal/stack internal/scan internal/slow " +
			"internal/sse internal/wirelog mcp/era mcp/spec mcp/internal/object " +
			"mcp/internal/observed observe", names: 20,
	},
	"mcp": {
		ours: ". internal/backoff internal/beneath jsonrpc stream internal/accept internal/callctx " +
			"internal/cancel internal/http1 internal/target internal/jsonv2 internal/late internal/owner " +
			"internal/permit internal/port internal/remote internal/scan internal/schema internal/seal " +
			"internal/share internal/uritemplate internal/validate mcp/era mcp/internal/inbound " +
			"mcp/internal/object mcp/internal/arguments mcp/internal/trie mcp/mcphttp mcp/relay mcp/spec " +
			"store internal/wirelog mcp/internal/observed observe", names: 60,
	},
	"mcp/mcpauth": {
		ours: "internal/fetch internal/filelock internal/jsonv2 internal/replace internal/scan jsonrpc " +
			"mcp/mcphttp", outside: "github.com/lestrrat-go/jwx/v3 github.com/zalando/go-keyring", names: 18,
	},
	// Extension, MIMEType, Model, App, Page, AddPage, WithPage, Shown
	"mcp/apps": {ours: "mcp", names: 8},
	// New, and what it describes: File, Package, Transport, Input
	"mcp/registry": {ours: ". internal/jsonv2 mcp mcp/spec", names: 5},
	// Add and its Options to serve skills; List, Get, Skill and ErrChanged to use them.
	"mcp/skills": {
		ours:  ". internal/jsonv2 internal/scan internal/yamljson jsonrpc mcp mcp/spec",
		names: 6,
	},
	// Host, New, Options and Server to have one; State with its four values and Status; List and Item;
	// ErrUnknown and ErrNotReady.
	"mcp/host": {
		ours: "internal/backoff . jsonrpc stream internal/environ internal/glob internal/target " +
			"internal/visible mcp mcp/mcphttp mcp/spec", names: 15,
	},
	// 10: what reads a document (New, Open, Fetch), what it makes (API, Tool, Problem) and how
	// (Options, Slim and its three values).
	"mcp/openapi": {
		ours: ". internal/backoff jsonrpc internal/fetch internal/jsonv2 internal/scan " +
			"internal/validate internal/yamljson mcp mcp/mcphttp mcp/spec", names: 12,
	},
	"guard": {
		ours: ". jsonrpc guard/internal/limit guard/internal/policy guard/internal/replay " +
			"guard/internal/sign guard/internal/token internal/accept internal/audit internal/budget " +
			"internal/callctx internal/forwarded internal/jsonv2 internal/lock internal/origin " +
			"internal/owner internal/permit internal/port internal/scan internal/share internal/validate " +
			"mcp/spec observe observe/levels store",
		// Asked is what the audit has of a hook; Past is what an audit knows of a call that is decided
		// again
		names: 24,
	},
	"guard/internal/limit": {ours: "internal/owner internal/share"},
	"guard/internal/policy": {
		ours:    "internal/edits internal/glob internal/scan",
		outside: "github.com/cedar-policy/cedar-go",
	},
	"guard/internal/replay": {ours: "internal/share"},
	"guard/internal/sign": {
		ours:    "internal/forwarded internal/jsonv2 internal/scan internal/validate",
		outside: "github.com/dunglas/httpsfv",
	},
	"guard/internal/token": {
		ours:    "internal/fetch internal/jsonv2 internal/owner internal/scan internal/share",
		outside: "github.com/lestrrat-go/jwx/v3",
	},
	// Record with its Redactions; Open, NewReader and Reader; New, Recorder and Options; ParseFilter
	// and Filter.
	"capture": {
		ours:    "internal/audit internal/callctx internal/filelock internal/glob internal/scan observe",
		outside: "github.com/klauspost/compress", names: 10,
	},
	"capture/tap": {ours: "capture", names: 4},
	// Part says which side of a hop, and Compare compares two Scripts.
	"capture/mock": {
		ours: ". capture capture/diff internal/owner internal/scan internal/share jsonrpc", names: 11,
	},
	// New, Options and Comparer; Finding with Level and its three values; AppendCanonical.
	"capture/diff": {ours: "internal/scan", names: 9},
	// Write with its Options, and Formats.
	"capture/export": {ours: "capture internal/scan", names: 3},
	"internal/keep": {
		ours: "internal/health internal/owner internal/scan jsonrpc mcp/mcphttp mcp/spec observe",
	},
	"internal/audit":    {ours: "internal/glob internal/owner internal/scan internal/share"},
	"internal/edits":    {pure: true},
	"internal/environ":  {},
	"internal/fetch":    {},
	"internal/glob":     {pure: true},
	"internal/size":     {pure: true},
	"internal/visible":  {},
	"internal/lock":     {ours: "internal/jsonv2 internal/replace"},
	"internal/filelock": {outside: "golang.org/x/sys"},
	"internal/lint":     {ours: "internal/scan internal/validate jsonrpc"},
	// Records, Record and five errors; Local, Options, New and Open. Eleven for what processes share:
	// Store, and Once, Counter, Queue, Item, Bus and Message in it, with two errors; Memory and
	// NewMemory.
	"store": {ours: "internal/filelock internal/owner internal/share", names: 22},
	// Open, Options and Store; StartServer, ServerOptions and Server for an engine in the process.
	// Only what names it links NATS (store/natsstore.TestImports).
	"store/natsstore": {
		ours:    "internal/owner internal/share store store/internal/process",
		outside: "github.com/nats-io/nats-server/v2 github.com/nats-io/nats.go", names: 6,
	},
	// Transport for clients of HTTP; Listen, Options and Server. Only what names it links NATS.
	"natsrpc": {
		ours:    ". jsonrpc internal/budget internal/owner internal/share",
		outside: "github.com/nats-io/nats.go", names: 4,
	},
	// Open, Options and Store. Only what names it links go-redis (store/valkeystore.TestImports).
	"store/valkeystore": {
		ours:    "store store/internal/process",
		outside: "github.com/redis/go-redis/v9", names: 3,
	},
	"store/internal/process": {},
	"internal/cluster": {
		ours: "internal/forwarded internal/jsonv2 internal/onhttp internal/slow store",
	},
	"internal/ledger": {
		ours: "internal/backoff internal/jsonv2 internal/owner internal/share store",
	},
	// Only what names it links the engines.
	"internal/cluster/engine": {
		ours: "internal/cluster internal/filelock store store/natsstore store/valkeystore",
	},
	"internal/storetest": {ours: "store", outside: "github.com/anishathalye/porcupine"},
	"internal/onhttp": {
		ours: ". jsonrpc internal/budget internal/scan internal/slow internal/sse observe",
	},
	"internal/health": {ours: ". internal/jsonv2 jsonrpc"},
	"internal/seal":   {},
	"internal/sandbox": {
		ours:    "internal/fetch internal/visible",
		outside: "github.com/landlock-lsm/go-landlock golang.org/x/sys",
	},
	"internal/validate":    {ours: "internal/scan"},
	"internal/uritemplate": {pure: true},
	"internal/jsonc":       {ours: "internal/scan"},
	"internal/replace":     {},
	"internal/yamljson":    {ours: "internal/scan", outside: "github.com/goccy/go-yaml"},
	// A fake model and a fake user with their answers are seven of them.
	"mcp/mcptest":       {ours: ". mcp mcp/era mcp/spec internal/jsonv2", names: 10},
	"internal/wirelog":  {ours: ". internal/beneath jsonrpc internal/visible"},
	"internal/markdown": {pure: true, names: 1},
	"internal/mcptest":  {outside: "github.com/santhosh-tekuri/jsonschema"},
	"internal/scan":     {pure: true},
	"internal/http1":    {ours: "internal/callctx internal/late"},
	"internal/http1/http1test": { // a helper of tests
		ours: "internal/http1",
	},
	"internal/beneath": {ours: "."},
	"internal/chain":   {pure: true},
	"internal/late":    {ours: "internal/chain"},
	"internal/oneway":  {},
	"internal/owner":   {pure: true},
	"internal/permit":  {}, // what a guard answers once the handler knows what is subscribed to
	"internal/remote":  {ours: "jsonrpc", pure: true},
	"internal/share":   {ours: "internal/chain internal/owner", pure: true},
	"internal/accept":  {},
	"internal/budget":  {ours: "jsonrpc internal/chain internal/owner internal/share"},
	"internal/slow":    {ours: "jsonrpc"},
	"internal/callctx": {},
	"internal/cancel":  {ours: "internal/scan"},
	"internal/sse":     {ours: "internal/budget"},
	"internal/leak":    {},
	"internal/backoff": {},
	"internal/stack":   {},
	"internal/full":    {},
	"internal/binary":  {},
	"internal/race":    {ours: "internal/full"},
	// Seven to dial; ListenAndServe, Server, NewServer, ServeOptions and ServeError to serve; and what
	// a server asks of those that it does not import: Guard, Policy, MCP, Service and Accepted.
	"rpc": {
		ours: "internal/backoff internal/onhttp . httprpc jsonrpc stream wsrpc internal/accept " +
			"internal/budget internal/certificate internal/forwarded internal/http1 internal/origin " +
			"internal/owner internal/port internal/target internal/watch observe/levels", names: 17,
	},
	"internal/fault": {
		ours:    "internal/backoff internal/glob internal/sse jsonrpc",
		outside: "github.com/coder/websocket",
	},
	"internal/certificate": {},
	"internal/watch":       {},
	"internal/beginning":   {ours: "jsonrpc internal/scan", pure: true},
	"internal/target":      {ours: ". stream httprpc wsrpc internal/npipe"},
	"internal/npipe":       {outside: "github.com/Microsoft/go-winio"},
	"internal/port": {
		ours: "internal/beneath . jsonrpc internal/http1 internal/jsonv2 internal/npipe mcp/spec",
	},
	"internal/forwarded": {outside: "github.com/pires/go-proxyproto"},
	"internal/origin":    {ours: "internal/forwarded internal/callctx"},
	"internal/schema":    {ours: "internal/jsonv2 internal/scan"},
	"internal/jsonv2":    {ours: "internal/scan", outside: "github.com/go-json-experiment/json"},
	"cmd/farcall": {
		ours: ". internal/edits internal/size natsrpc capture capture/diff capture/export capture/mock " +
			"capture/tap jsonrpc stream httprpc wsrpc mcp mcp/era mcp/mcphttp mcp/mcpauth mcp/spec " +
			"gateway guard observe observe/levels observe/logs observe/metrics observe/metrics/otlp " +
			"observe/traces rpc store internal/audit internal/cluster internal/cluster/engine " +
			"internal/health internal/jsonv2 internal/keep internal/lint internal/lock internal/owner " +
			"internal/port internal/sandbox internal/share internal/visible internal/watch " +
			"cmd/farcall/internal/clients cmd/farcall/internal/playground cmd/farcall/internal/conform " +
			"cmd/farcall/internal/prompt cmd/farcall/internal/scaffold internal/target " +
			"cmd/farcall/internal/load internal/fault inspect internal/environ internal/origin",
		outside: "github.com/spf13/cobra github.com/spf13/pflag golang.org/x/sys",
	},
	// 12 and five: AmendGuard writes a line for farcall key (YAML is known here only), NewUpstream
	// reads a TARGET as a user types it, LoadGuard the guard of what has no upstreams, and Sandbox and
	// Credentials are what an Upstream has of them. LoadPolicyTest, PolicyTest and PolicyCase are
	// files of calls with expected decisions, which the reader of configurations reads, so that errors
	// have a line and column. Search says how the tools of an address are found. Hook, the programs
	// that are asked about calls.
	"gateway": {
		ours: ". internal/onhttp internal/edits internal/size capture guard jsonrpc rpc stream httprpc " +
			"wsrpc internal/budget internal/callctx internal/certificate internal/cluster " +
			"internal/environ internal/fetch internal/forwarded internal/glob internal/health " +
			"internal/jsonc internal/jsonv2 internal/keep internal/ledger internal/origin internal/owner " +
			"internal/port internal/replace internal/sandbox internal/scan internal/seal internal/share " +
			"mcp mcp/apps mcp/era mcp/host mcp/mcpauth mcp/mcphttp mcp/openapi mcp/relay mcp/spec observe " +
			"observe/levels store inspect gateway/internal/control gateway/internal/hook " +
			"gateway/internal/pin gateway/internal/raw gateway/internal/refs gateway/internal/route " +
			"gateway/internal/signin gateway/internal/supervise gateway/internal/tails " +
			"gateway/internal/toolsearch gateway/internal/upstream internal/target internal/validate " +
			"internal/slow", outside: "github.com/goccy/go-yaml github.com/pelletier/go-toml/v2", names: 26,
	},
	"gateway/internal/control": {
		ours: "internal/jsonv2 internal/keep internal/origin internal/schema",
	},
	"gateway/internal/faulty": {ours: "jsonrpc internal/scan mcp/era"},
	"gateway/internal/hook": {
		ours: "internal/owner internal/scan internal/share jsonrpc stream",
	},
	"gateway/internal/pin": {
		ours: "jsonrpc internal/jsonv2 internal/replace internal/scan store",
	},
	"gateway/internal/latency": {},
	"gateway/internal/wording": {},
	"gateway/internal/raw": {
		ours: "gateway/internal/latency gateway/internal/wording internal/backoff internal/beginning . " +
			"httprpc jsonrpc internal/jsonv2 internal/owner internal/scan internal/share " +
			"internal/visible stream",
	},
	"gateway/internal/refs":  {ours: "jsonrpc internal/scan"},
	"gateway/internal/route": {ours: "gateway/internal/refs jsonrpc internal/glob internal/scan"},
	"gateway/internal/signin": {
		ours: "internal/filelock internal/jsonv2 internal/owner internal/replace internal/scan " +
			"internal/seal internal/share jsonrpc mcp/mcpauth store",
	},
	"gateway/internal/toolsearch": {ours: "jsonrpc internal/scan"},
	"gateway/internal/supervise": {
		ours: ". internal/backoff internal/beginning stream internal/scan internal/visible",
	},
	"gateway/internal/tails": {ours: "internal/owner internal/share store"},
	"gateway/internal/upstream": {
		ours: "gateway/internal/latency gateway/internal/wording . jsonrpc internal/backoff " +
			"internal/jsonv2 internal/owner internal/scan internal/share internal/visible mcp mcp/apps " +
			"mcp/era mcp/mcphttp mcp/relay mcp/spec stream",
	},
	"inspect/internal/traffic": {ours: "internal/glob internal/scan jsonrpc capture"},
	// New, its Options and the Servers that an Inspector offers. The gateway has it for its page.
	"inspect": {
		ours: ". capture capture/diff capture/mock inspect/internal/traffic internal/filelock " +
			"internal/jsonv2 internal/onhttp internal/origin internal/scan internal/sse internal/target " +
			"internal/validate internal/visible internal/watch internal/wirelog jsonrpc mcp mcp/apps " +
			"mcp/era mcp/mcpauth mcp/mcphttp mcp/spec rpc stream wsrpc internal/lint", names: 6,
	},
	"cmd/farcall/internal/playground": {ours: ". jsonrpc mcp mcp/spec"},
	"cmd/farcall/internal/prompt":     {outside: "golang.org/x/term"},
	"cmd/farcall/internal/load": {
		ours:    "jsonrpc",
		outside: "github.com/HdrHistogram/hdrhistogram-go golang.org/x/sys",
	},
	"cmd/farcall/internal/scaffold": {},
	"cmd/farcall/internal/conform": {
		ours:    ". jsonrpc mcp/era mcp/spec stream httprpc wsrpc",
		outside: "github.com/coder/websocket",
	},
	"cmd/farcall/internal/clients": {
		ours:    "internal/jsonc internal/jsonv2 internal/replace internal/scan",
		outside: "github.com/pelletier/go-toml/v2",
	},
	"examples/lsp":             {ours: ". stream"},
	"examples/mcp/everything":  {ours: "mcp mcp/spec"},
	"examples/mcp/hello":       {ours: "mcp"},
	"examples/mcp/host":        {ours: "gateway jsonrpc mcp mcp/host mcp/spec"},
	"examples/mcp/memory":      {ours: "mcp mcp/spec"},
	"examples/mcp/middleware":  {ours: "mcp mcp/spec"},
	"examples/mcp/ratelimit":   {ours: "mcp mcp/spec"},
	"examples/mcp/transport":   {ours: ". mcp"},
	"examples/mcp/elicitation": {ours: "mcp"},
	"examples/mcp/sampling":    {ours: "jsonrpc mcp mcp/spec"},
	"examples/mcp/tasks":       {ours: "mcp mcp/spec"},
	"examples/mcp/auth":        {ours: ". guard mcp mcp/mcphttp"},
	"examples/mcp/openapi":     {ours: "mcp mcp/openapi"},
	"examples/mcp/distributed": {ours: "mcp"},
	"examples/pubsub":          {ours: ". jsonrpc rpc"},
	"examples/service":         {ours: ". jsonrpc rpc"},

	"mcp/relay": {
		ours:  "jsonrpc internal/scan mcp/era mcp/spec mcp/internal/inbound",
		names: 15,
	},
	"mcp/internal/inbound":  {ours: "jsonrpc"},
	"mcp/internal/observed": {ours: ". mcp/spec observe"},
	"mcp/internal/trie":     {ours: ""},
	"mcp/internal/object":   {ours: "jsonrpc internal/jsonv2 internal/scan"},
	"mcp/internal/arguments": {
		ours: "jsonrpc internal/jsonv2 internal/scan internal/schema internal/validate mcp/spec " +
			"mcp/internal/object",
	},
}

type archRow struct {
	ours    string // packages of this module, "." is the root
	outside string // other modules, as prefixes of import paths
	names   int    // exported names at most; 0: not counted
	pure    bool   // no I/O, no encoding/json, no goroutine
}

// archImpure is what a pure package must not import.
var archImpure = []string{"net", "os", "encoding/json", "log", "context", "time"}
