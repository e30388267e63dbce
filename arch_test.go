package farcall_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/farcall-dev/farcall/internal/race"
)

const archModule = "github.com/farcall-dev/farcall"

const (
	archFileLines = 600
	archFuncLines = 80
)

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
	".": {ours: "jsonrpc internal/beginning internal/budget internal/callctx internal/cancel internal/jsonv2 internal/late internal/owner internal/permit internal/remote internal/scan internal/schema internal/share internal/validate observe", names: 59},
	// 10 and four: Decision, Reading and the kind Queue, which a gateway and its guard tell; Span,
	// which traces and logs share.
	"observe": {ours: "internal/callctx jsonrpc", names: 10},
	// Only who wants metrics links Prometheus: the libraries do not import it
	// (observe/metrics.TestImports).
	"observe/metrics": {ours: "jsonrpc observe observe/internal/words store", outside: "github.com/prometheus/client_golang github.com/prometheus/client_model github.com/prometheus/common", names: 4},
	// Likewise OpenTelemetry.
	"observe/traces": {ours: ". internal/audit internal/callctx internal/scan jsonrpc mcp/spec observe observe/internal/telemetry observe/internal/words", outside: "go.opentelemetry.io/otel", names: 5},
	// Likewise OpenTelemetry, and its bridge from Prometheus.
	"observe/metrics/otlp":   {ours: "observe/metrics observe/internal/telemetry", outside: "go.opentelemetry.io/otel go.opentelemetry.io/contrib/bridges/prometheus", names: 3},
	"observe/internal/words": {pure: true},
	"observe/levels":         {names: 7},
	// Likewise OpenTelemetry, and its bridge from log/slog.
	"observe/logs":               {ours: "observe/internal/telemetry", outside: "go.opentelemetry.io/otel go.opentelemetry.io/contrib/bridges/otelslog", names: 3},
	"observe/internal/telemetry": {outside: "go.opentelemetry.io/otel"},
	"jsonrpc":                    {ours: "internal/scan", names: 25, pure: true},
	"stream":                     {ours: ". jsonrpc internal/budget internal/slow", names: 14},
	"httprpc":                    {ours: "internal/onhttp internal/backoff . jsonrpc internal/budget internal/callctx internal/oneway internal/origin internal/owner internal/scan internal/slow internal/sse observe", names: 8},
	"wsrpc":                      {ours: ". jsonrpc internal/budget internal/origin internal/slow", outside: "github.com/coder/websocket", names: 6},
	"mcp/spec":                   {ours: "jsonrpc internal/jsonv2 internal/scan"},
	"mcp/era":                    {ours: "jsonrpc internal/jsonv2 internal/scan mcp/spec", names: 10},
	"mcp/mcphttp":                {ours: "internal/backoff internal/onhttp . jsonrpc internal/budget internal/callctx internal/cancel internal/jsonv2 internal/late internal/oneway internal/origin internal/owner internal/remote internal/seal internal/share internal/stack internal/scan internal/slow internal/sse internal/wirelog mcp/era mcp/spec mcp/internal/object mcp/internal/observed observe", names: 20}, // Configured brings the policy of a backend to any handler, Resumer and Resumable its sessions to any replica
	"mcp":                        {ours: ". internal/backoff internal/beneath jsonrpc stream internal/accept internal/callctx internal/cancel internal/http1 internal/target internal/jsonv2 internal/late internal/owner internal/permit internal/port internal/remote internal/scan internal/schema internal/seal internal/share internal/uritemplate internal/validate mcp/era mcp/internal/inbound mcp/internal/object mcp/internal/arguments mcp/internal/trie mcp/mcphttp mcp/relay mcp/spec store internal/wirelog mcp/internal/observed observe", names: 60},
	"mcp/mcpauth":                {ours: "internal/fetch internal/filelock internal/jsonv2 internal/replace internal/scan jsonrpc mcp/mcphttp", outside: "github.com/lestrrat-go/jwx/v3 github.com/zalando/go-keyring", names: 18},
	// Extension, MIMEType, Model, App, Page, AddPage, WithPage, Shown
	"mcp/apps": {ours: "mcp", names: 8},
	// New, and what it describes: File, Package, Transport, Input
	"mcp/registry": {ours: ". internal/jsonv2 mcp mcp/spec", names: 5},
	// Add and its Options to serve skills; List, Get, Skill and ErrChanged to use them.
	"mcp/skills": {ours: ". internal/jsonv2 internal/scan internal/yamljson jsonrpc mcp mcp/spec", names: 6},
	// Host, New, Options and Server to have one; State with its four values and Status; List and Item;
	// ErrUnknown and ErrNotReady.
	"mcp/host": {ours: "internal/backoff . jsonrpc stream internal/environ internal/glob internal/target internal/visible mcp mcp/mcphttp mcp/spec", names: 15},
	// 10: what reads a document (New, Open, Fetch), what it makes (API, Tool, Problem) and how
	// (Options, Slim and its three values).
	"mcp/openapi": {ours: ". internal/backoff jsonrpc internal/fetch internal/jsonv2 internal/scan internal/validate internal/yamljson mcp mcp/mcphttp mcp/spec", names: 12},
	"guard": {
		ours:  ". jsonrpc guard/internal/limit guard/internal/policy guard/internal/replay guard/internal/sign guard/internal/token internal/accept internal/audit internal/budget internal/callctx internal/forwarded internal/jsonv2 internal/lock internal/origin internal/owner internal/permit internal/port internal/scan internal/share internal/validate mcp/spec observe observe/levels store",
		names: 24, // Asked is what the audit has of a hook; Past is what an audit knows of a call that is decided again
	},
	"guard/internal/limit":  {ours: "internal/owner internal/share"},
	"guard/internal/policy": {ours: "internal/edits internal/glob internal/scan", outside: "github.com/cedar-policy/cedar-go"},
	"guard/internal/replay": {ours: "internal/share"},
	"guard/internal/sign":   {ours: "internal/forwarded internal/jsonv2 internal/scan internal/validate", outside: "github.com/dunglas/httpsfv"},
	"guard/internal/token":  {ours: "internal/fetch internal/jsonv2 internal/owner internal/scan internal/share", outside: "github.com/lestrrat-go/jwx/v3"},
	// Record with its Redactions; Open, NewReader and Reader; New, Recorder and Options; ParseFilter
	// and Filter.
	"capture":     {ours: "internal/audit internal/callctx internal/filelock internal/glob internal/scan observe", outside: "github.com/klauspost/compress", names: 10},
	"capture/tap": {ours: "capture", names: 4},
	// Part says which side of a hop, and Compare compares two Scripts.
	"capture/mock": {ours: ". capture capture/diff internal/owner internal/scan internal/share jsonrpc", names: 11},
	// New, Options and Comparer; Finding with Level and its three values; AppendCanonical.
	"capture/diff": {ours: "internal/scan", names: 9},
	// Write with its Options, and Formats.
	"capture/export":    {ours: "capture internal/scan", names: 3},
	"internal/keep":     {ours: "internal/health internal/owner internal/scan jsonrpc mcp/mcphttp mcp/spec observe"},
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
	"store/natsstore": {ours: "internal/owner internal/share store store/internal/process", outside: "github.com/nats-io/nats-server/v2 github.com/nats-io/nats.go", names: 6},
	// Transport for clients of HTTP; Listen, Options and Server. Only what names it links NATS.
	"natsrpc": {ours: ". jsonrpc internal/budget internal/owner internal/share", outside: "github.com/nats-io/nats.go", names: 4},
	// Open, Options and Store. Only what names it links go-redis (store/valkeystore.TestImports).
	"store/valkeystore":      {ours: "store store/internal/process", outside: "github.com/redis/go-redis/v9", names: 3},
	"store/internal/process": {},
	"internal/cluster":       {ours: "internal/forwarded internal/jsonv2 internal/onhttp internal/slow store"},
	"internal/ledger":        {ours: "internal/backoff internal/jsonv2 internal/owner internal/share store"},
	// Only what names it links the engines.
	"internal/cluster/engine": {ours: "internal/cluster internal/filelock store store/natsstore store/valkeystore"},
	"internal/storetest":      {ours: "store", outside: "github.com/anishathalye/porcupine"},
	"internal/onhttp":         {ours: ". jsonrpc internal/budget internal/scan internal/slow internal/sse observe"},
	"internal/health":         {ours: ". internal/jsonv2 jsonrpc"},
	"internal/seal":           {},
	"internal/sandbox":        {ours: "internal/fetch internal/visible", outside: "github.com/landlock-lsm/go-landlock golang.org/x/sys"},
	"internal/validate":       {ours: "internal/scan"},
	"internal/uritemplate":    {pure: true},
	"internal/jsonc":          {ours: "internal/scan"},
	"internal/replace":        {},
	"internal/yamljson":       {ours: "internal/scan", outside: "github.com/goccy/go-yaml"},
	// A fake model and a fake user with their answers are seven of them.
	"mcp/mcptest":      {ours: ". mcp mcp/era mcp/spec internal/jsonv2", names: 10},
	"internal/wirelog": {ours: ". internal/beneath jsonrpc internal/visible"},
	"internal/mcptest": {outside: "github.com/santhosh-tekuri/jsonschema"},
	"internal/scan":    {pure: true},
	"internal/http1":   {ours: "internal/callctx internal/late"},
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
	"rpc":                  {ours: "internal/backoff internal/onhttp . httprpc jsonrpc stream wsrpc internal/accept internal/budget internal/certificate internal/forwarded internal/http1 internal/origin internal/owner internal/port internal/target internal/watch observe/levels", names: 17},
	"internal/fault":       {ours: "internal/backoff internal/glob internal/sse jsonrpc", outside: "github.com/coder/websocket"},
	"internal/certificate": {},
	"internal/watch":       {},
	"internal/beginning":   {ours: "jsonrpc internal/scan", pure: true},
	"internal/target":      {ours: ". stream httprpc wsrpc internal/npipe"},
	"internal/npipe":       {outside: "github.com/Microsoft/go-winio"},
	"internal/port":        {ours: "internal/beneath . jsonrpc internal/http1 internal/jsonv2 internal/npipe mcp/spec"},
	"internal/forwarded":   {outside: "github.com/pires/go-proxyproto"},
	"internal/origin":      {ours: "internal/forwarded internal/callctx"},
	"internal/schema":      {ours: "internal/jsonv2 internal/scan"},
	"internal/jsonv2":      {ours: "internal/scan", outside: "github.com/go-json-experiment/json"},
	"cmd/farcall":          {ours: ". internal/edits internal/size natsrpc capture capture/diff capture/export capture/mock capture/tap jsonrpc stream httprpc wsrpc mcp mcp/era mcp/mcphttp mcp/mcpauth mcp/spec gateway guard observe observe/levels observe/logs observe/metrics observe/metrics/otlp observe/traces rpc store internal/audit internal/cluster internal/cluster/engine internal/health internal/jsonv2 internal/keep internal/lint internal/lock internal/owner internal/port internal/sandbox internal/share internal/visible internal/watch cmd/farcall/internal/clients cmd/farcall/internal/playground cmd/farcall/internal/conform cmd/farcall/internal/prompt cmd/farcall/internal/scaffold internal/target cmd/farcall/internal/load internal/fault inspect internal/environ internal/origin", outside: "github.com/spf13/cobra github.com/spf13/pflag golang.org/x/sys"},
	// 12 and five: AmendGuard writes a line for farcall key (YAML is known here only), NewUpstream
	// reads a TARGET as a user types it, LoadGuard the guard of what has no upstreams, and Sandbox and
	// Credentials are what an Upstream has of them. LoadPolicyTest, PolicyTest and PolicyCase are
	// files of calls with expected decisions, which the reader of configurations reads, so that errors
	// have a line and column. Search says how the tools of an address are found. Hook, the programs
	// that are asked about calls.
	"gateway":                     {ours: ". internal/onhttp internal/edits internal/size capture guard jsonrpc rpc stream httprpc wsrpc internal/budget internal/callctx internal/certificate internal/cluster internal/environ internal/fetch internal/forwarded internal/glob internal/health internal/jsonc internal/jsonv2 internal/keep internal/ledger internal/origin internal/owner internal/port internal/replace internal/sandbox internal/scan internal/seal internal/share mcp mcp/apps mcp/era mcp/host mcp/mcpauth mcp/mcphttp mcp/openapi mcp/relay mcp/spec observe observe/levels store inspect gateway/internal/control gateway/internal/hook gateway/internal/pin gateway/internal/raw gateway/internal/refs gateway/internal/route gateway/internal/signin gateway/internal/supervise gateway/internal/tails gateway/internal/toolsearch gateway/internal/upstream internal/target internal/validate internal/slow", outside: "github.com/goccy/go-yaml github.com/pelletier/go-toml/v2", names: 26},
	"gateway/internal/control":    {ours: "internal/jsonv2 internal/keep internal/origin internal/schema"},
	"gateway/internal/faulty":     {ours: "jsonrpc internal/scan mcp/era"},
	"gateway/internal/hook":       {ours: "internal/owner internal/scan internal/share jsonrpc stream"},
	"gateway/internal/pin":        {ours: "jsonrpc internal/jsonv2 internal/replace internal/scan store"},
	"gateway/internal/latency":    {},
	"gateway/internal/wording":    {},
	"gateway/internal/raw":        {ours: "gateway/internal/latency gateway/internal/wording internal/backoff internal/beginning . httprpc jsonrpc internal/jsonv2 internal/owner internal/scan internal/share internal/visible stream"},
	"gateway/internal/refs":       {ours: "jsonrpc internal/scan"},
	"gateway/internal/route":      {ours: "gateway/internal/refs jsonrpc internal/glob internal/scan"},
	"gateway/internal/signin":     {ours: "internal/filelock internal/jsonv2 internal/owner internal/replace internal/scan internal/seal internal/share jsonrpc mcp/mcpauth store"},
	"gateway/internal/toolsearch": {ours: "jsonrpc internal/scan"},
	"gateway/internal/supervise":  {ours: ". internal/backoff internal/beginning stream internal/scan internal/visible"},
	"gateway/internal/tails":      {ours: "internal/owner internal/share store"},
	"gateway/internal/upstream":   {ours: "gateway/internal/latency gateway/internal/wording . jsonrpc internal/backoff internal/jsonv2 internal/owner internal/scan internal/share internal/visible mcp mcp/apps mcp/era mcp/mcphttp mcp/relay mcp/spec stream"},
	"inspect/internal/traffic":    {ours: "internal/glob internal/scan jsonrpc capture"},
	// New, its Options and the Servers that an Inspector offers. The gateway has it for its page.
	"inspect":                         {ours: ". capture capture/diff capture/mock inspect/internal/traffic internal/filelock internal/jsonv2 internal/onhttp internal/origin internal/scan internal/sse internal/target internal/validate internal/visible internal/watch internal/wirelog jsonrpc mcp mcp/apps mcp/era mcp/mcpauth mcp/mcphttp mcp/spec rpc stream wsrpc internal/lint", names: 6},
	"cmd/farcall/internal/playground": {ours: ". jsonrpc mcp mcp/spec"},
	"cmd/farcall/internal/prompt":     {outside: "golang.org/x/term"},
	"cmd/farcall/internal/load":       {ours: "jsonrpc", outside: "github.com/HdrHistogram/hdrhistogram-go golang.org/x/sys"},
	"cmd/farcall/internal/scaffold":   {},
	"cmd/farcall/internal/conform":    {ours: ". jsonrpc mcp/era mcp/spec stream httprpc wsrpc", outside: "github.com/coder/websocket"},
	"cmd/farcall/internal/clients":    {ours: "internal/jsonc internal/jsonv2 internal/replace internal/scan", outside: "github.com/pelletier/go-toml/v2"},
	"examples/lsp":                    {ours: ". stream"},
	"examples/mcp/everything":         {ours: "mcp mcp/spec"},
	"examples/mcp/hello":              {ours: "mcp"},
	"examples/mcp/host":               {ours: "gateway jsonrpc mcp mcp/host mcp/spec"},
	"examples/mcp/memory":             {ours: "mcp mcp/spec"},
	"examples/mcp/middleware":         {ours: "mcp mcp/spec"},
	"examples/mcp/ratelimit":          {ours: "mcp mcp/spec"},
	"examples/mcp/transport":          {ours: ". mcp"},
	"examples/mcp/elicitation":        {ours: "mcp"},
	"examples/mcp/sampling":           {ours: "jsonrpc mcp mcp/spec"},
	"examples/mcp/tasks":              {ours: "mcp mcp/spec"},
	"examples/mcp/auth":               {ours: ". guard mcp mcp/mcphttp"},
	"examples/mcp/openapi":            {ours: "mcp mcp/openapi"},
	"examples/mcp/distributed":        {ours: "mcp"},
	"examples/pubsub":                 {ours: ". jsonrpc rpc"},
	"examples/service":                {ours: ". jsonrpc rpc"},

	"mcp/relay":              {ours: "jsonrpc internal/scan mcp/era mcp/spec mcp/internal/inbound", names: 15},
	"mcp/internal/inbound":   {ours: "jsonrpc"},
	"mcp/internal/observed":  {ours: ". mcp/spec observe"},
	"mcp/internal/trie":      {ours: ""},
	"mcp/internal/object":    {ours: "jsonrpc internal/jsonv2 internal/scan"},
	"mcp/internal/arguments": {ours: "jsonrpc internal/jsonv2 internal/scan internal/schema internal/validate mcp/spec mcp/internal/object"},
}

type archRow struct {
	ours    string // packages of this module, "." is the root
	outside string // other modules, as prefixes of import paths
	names   int    // exported names at most; 0: not counted
	pure    bool   // no I/O, no encoding/json, no goroutine
}

// archImpure is what a pure package must not import.
var archImpure = []string{"net", "os", "encoding/json", "log", "context", "time"}

// An archRule looks for what breaks it. broken is a small tree that breaks it,
// with the findings it must yield: a rule that cannot fail proves nothing.
type archRule struct {
	name   string
	find   func(*archTree) []string
	broken map[string]string
	want   []string
}

var archRules = []archRule{
	{
		name: "imports",
		find: findImports,
		broken: map[string]string{
			"jsonrpc/a.go":      `package jsonrpc; import "github.com/farcall-dev/farcall"; import "net/http"; import "github.com/spf13/cobra"`,
			"jsonrpc/a_test.go": `package jsonrpc; import "github.com/farcall-dev/farcall"`,
			"jsonrpc/b.go":      "package jsonrpc\n\nfunc b() { go b() }",
			"util/a.go":         "package util",
			"bench/a.go":        `package main; import "example.com/peer"`,
		},
		want: []string{
			"jsonrpc/a.go:1: jsonrpc must not import .",
			"jsonrpc/a.go:1: jsonrpc does no I/O: it must not import net/http",
			"jsonrpc/a.go:1: jsonrpc must not import github.com/spf13/cobra",
			"jsonrpc/b.go:3: jsonrpc must not start goroutines",
			"util/a.go:1: package util has no row in archLadder",
		},
	},
	{
		name: "layout",
		find: findLayout,
		broken: map[string]string{
			"internal/npipe/a.go": "package npipe",
			"a.go":                `package farcall; import "github.com/farcall-dev/farcall/internal/npipe"; func (*T) CallInterceptors() {}`,
			"mcp/era/era.go":      "package era\nvar last = Revision20260728",
			"guard/config.go":     "package guard\ntype Config struct { Locks []Lock }",
			"cmd/farcall/a.go":    "package main\nvar _ = newDiscoverCmd",
			"cmd/farcall/b.go":    "package main\nvar _ = newDiscoverCmd",
			"cmd/farcall/c.go":    "package main\nvar _ = newDiscoverCmd()",
			"cmd/farcall/d.go":    "package main\nvar _ = env{newDiscoverCmd}",
		},
		want: []string{
			"a command touches 4 files, 3 allowed: cmd/farcall/a.go cmd/farcall/b.go cmd/farcall/c.go cmd/farcall/d.go",
		},
	},
	{
		name: "names",
		find: findNames,
		broken: map[string]string{
			"wsrpc/a.go": "package wsrpc\n" +
				"type Kind int\nconst (\nOne Kind = iota\nTwo\n)\nconst Three = Kind(3)\n" +
				"type T struct{}\nfunc (T) M() {}\nvar V, w = 1, 2\nconst C, D = 1, 2\n",
			"wsrpc/a_linux.go": "package wsrpc\nfunc F() {}\nfunc g() {}",
			"wsrpc/a_other.go": "package wsrpc\nfunc F() {}\nfunc H() {}",
			"wsrpc/a_test.go":  "package wsrpc\nfunc TestX() {}",
		},
		want: []string{"wsrpc: 7 exported names, 6 allowed: C D F H Kind T V"},
	},
	{
		name: "sizes",
		find: findSizes,
		broken: map[string]string{
			"a.go":                  "package farcall\n\nfunc long() {" + strings.Repeat("\n", archFuncLines+2) + "}\n",
			"a_test.go":             "package farcall\n\nfunc long() {" + strings.Repeat("\n", archFuncLines+2) + "}\n",
			"b_test.go":             "package farcall" + strings.Repeat("\n", archFileLines+1),
			"gen.go":                "// Code generated by x. DO NOT EDIT.\npackage farcall" + strings.Repeat("\n", archFileLines+1),
			"internal/scan/fast.go": "package scan\n\nfunc long() {" + strings.Repeat("\n", archFuncLines+2) + "}\n",
		},
		want: []string{
			"a.go:3: function long has 81 lines, 80 allowed",
			"b_test.go:1: file has 601 lines, 600 allowed",
		},
	},
	{
		name: "package comments",
		find: findPackageComments,
		broken: map[string]string{
			"none/a.go":        "package none",
			"twice/a.go":       "// Package twice is a.\npackage twice",
			"twice/b.go":       "// Package twice is b.\npackage twice",
			"odd/a.go":         "// Odd package.\npackage odd",
			"tool/main.go":     "// Tool does.\npackage main",
			"cmd/good/main.go": "// Command good does.\npackage main",
			"good/a.go":        "// Package good is.\npackage good",
			"good/b.go":        "//nolint:errname // reason\npackage good",
			"tests/a_test.go":  "package tests",
		},
		want: []string{
			"none: 0 package comments, 1 wanted",
			`odd/a.go:1: the package comment does not start with "Package odd "`,
			`tool/main.go:1: the package comment does not start with "Command tool "`,
			"twice: 2 package comments, 1 wanted",
		},
	},
	{
		name:   "no init",
		find:   findInit,
		broken: map[string]string{"a.go": "package farcall\nfunc init() {}\ntype t int\nfunc (t) init() {}"},
		want:   []string{"a.go:2: init function: wire it in main, or make it a table"},
	},
	{
		name: "no package state",
		find: findState,
		broken: map[string]string{
			"a.go": "package farcall\nvar a, b, c int\nvar m = map[int]int{}\nvar ErrX = error(nil)\n" +
				"var mu sync.Mutex\nvar pool sync.Pool\nvar n atomic.Int64\n",
			"b.go":      "package farcall\nfunc f() {\na = 1\nb++\nm[1] = 2\nt.a = 1\nc := 1\nc = 2\n_ = c\np := &a\n}",
			"a_test.go": "package farcall\nfunc g() { c = 1 }",
		},
		want: []string{
			"a.go:5: package-level variable mu is state: put it into a struct",
			"a.go:7: package-level variable n is state: put it into a struct",
			"b.go:3: package-level variable a is changed: put it into a struct",
			"b.go:4: package-level variable b is changed: put it into a struct",
			"b.go:5: package-level variable m is changed: put it into a struct",
			"b.go:10: package-level variable a is changed: put it into a struct",
		},
	},
	{
		name: "codes by name",
		find: findCodes,
		broken: map[string]string{
			"guard/a.go":      "package guard\nconst a = -32050\nvar b = f(-31010, 32050, -31050)\nconst c = -32600",
			"guard/a_test.go": "package guard\nconst d = -32050",
			"mcp/era/a.go":    "package era\nconst e = -32002",
		},
		want: []string{
			"guard/a.go:2: -32050 is jsonrpc's \"Rate limited\": name it",
			"guard/a.go:3: -31050 is jsonrpc's \"Rate limited\" on MCP 2026-07-28: name it",
		},
	},
	{
		name: "one context type",
		find: findContexts,
		broken: map[string]string{
			"a.go": "package farcall\nfunc (c *call) Value(key any) any { return nil }\n" +
				"func (c *call) Deadline() (time.Time, bool)\nfunc (v values) Value(key string, v any) bool\n" +
				"func Value(key any) any\nfunc (f *flag) Deadline(n int) int",
			"a_test.go":             "package farcall\nfunc (c *call) Value(key any) any { return nil }",
			"internal/callctx/a.go": "package callctx\nfunc (c *Context) Value(key any) any",
		},
		want: []string{
			"a.go:2: context type: embed a callctx.Context",
			"a.go:3: context type: embed a callctx.Context",
		},
	},
	{
		name: "no sleeping tests",
		find: findSleeps,
		broken: map[string]string{
			"a_test.go": "package farcall\nimport clock \"time\"\nfunc f() {\nclock.Sleep(1)\n}",
			"b_test.go": "package farcall\nimport \"time\"\nfunc g() {\ntime.Sleep(time.Second)\n}",
			"c.go":      "package farcall\nimport \"time\"\nfunc h() { time.Sleep(1) }",
		},
		want: []string{
			"a_test.go:4: test sleeps: use testing/synctest or wait for what it waits for",
			"b_test.go:4: test sleeps: use testing/synctest or wait for what it waits for",
		},
	},
	{
		name: "protocol revisions",
		find: findRevisions,
		broken: map[string]string{
			"a.go":            "package farcall\nconst v = \"2025-11-25\"",
			"mcp/mcp.go":      "package mcp\nvar ok = v >= `2026-07-28`",
			"guard/a.go":      "package guard\nimport \"github.com/farcall-dev/farcall/mcp/spec\"\nvar ok = v >= spec.Revision20251125",
			"mcp/era/a.go":    "package era\nconst v = \"2025-11-25\"",
			"mcp/a_test.go":   "package mcp\nconst v = \"2025-11-25\"",
			"other/layout.go": "package other\nconst v = \"2006-01-02\" + \"up to 2025-11-25\"",
		},
		want: []string{
			`a.go:2: protocol revision "2025-11-25" is named outside mcp/era and mcp/spec`,
			`guard/a.go:3: protocol revision Revision20251125 is named outside mcp/era and mcp/spec`,
			"mcp/mcp.go:2: protocol revision `2026-07-28` is named outside mcp/era and mcp/spec",
		},
	},
	{
		name: "size",
		find: findSize,
		broken: map[string]string{
			"a.go":         "package farcall\n" + strings.Repeat("\n", mostLines),
			"a_test.go":    "package farcall\n" + strings.Repeat("\n", mostLines+1),
			"tools/one.go": "package main\n",
		},
		want: []string{
			fmt.Sprintf("%d lines of code, %d allowed", mostLines+1, mostLines),
			fmt.Sprintf("%d lines of tests for %d lines of code", mostLines+2, mostLines+1),
		},
	},
	{
		name: "facts of revisions",
		find: findFacts,
		broken: map[string]string{
			"mcp/a.go": "package mcp\nfunc f() {\n_ = a.ListenStream || b.ListenStream\n_ = c.ListenStream\n}\n" +
				"func g() { _ = d.Handshake || d.RequestMeta || d.InputRounds || d.ResultTypes || d.CacheHints || d.MirroredHeaders || " +
				"d.ReservedCodes || d.LegacyTasks }",
			"mcp/a_test.go": "package mcp\nvar x = a.ListenStream",
		},
		want: []string{
			"mcp/a.go:4: use 3 of the fact ListenStream, 2 allowed: is it another question?",
			"nothing asks for the fact TasksExtension: remove it",
		},
	},
	{
		name: "docs/requirements.md",
		find: findSeeds,
		broken: map[string]string{
			"docs/requirements.md": "| A1 | TestThere, TestThere/sub, FuzzThere |\n| A2 | `TestGone`, ExampleCall |\n",
			"a_test.go":            "package farcall\nfunc TestThere() {}\nfunc ExampleCall() {}",
			"interop/i_test.go":    "package interop\nfunc FuzzThere() {}",
		},
		want: []string{"docs/requirements.md:2: there is no TestGone"},
	},
	{
		name: "docs/invariants.md",
		find: findTables,
		broken: map[string]string{
			"docs/invariants.md": "## Tables\n| `mcp.listed` | bound | `mcp.TestListed` |\n| `mcp.gone` | bound | `mcp.TestGone` |\n" +
				"| `mcp.bare` | bound | none |\n| `mcp.ours` | bound | not by callers: a list of ours |\n",
			"mcp/a.go": "package mcp\ntype listed struct { all map[string]int // by session\n}\ntype bare struct{}\ntype ours struct{}\n" +
				"type one struct { m map[owner.Key]int }\ntype two struct { l *share.Ledger }\ntype three struct { sessions map[string]int }\n" +
				"type four struct { from map[netip.Addr]int }\ntype five struct { m map[string]int // by name\n}\ntype owner string\n",
			"mcp/a_test.go": "package mcp\nfunc TestListed() {}\ntype in struct { m map[owner.Key]int }",
		},
		want: []string{
			"mcp/a.go:6: mcp.one holds something for each caller: it needs a row in docs/invariants.md, with the test that tries two owners",
			"mcp/a.go:7: mcp.two holds something for each caller: it needs a row in docs/invariants.md, with the test that tries two owners",
			"mcp/a.go:8: mcp.three holds something for each caller: it needs a row in docs/invariants.md, with the test that tries two owners",
			"mcp/a.go:9: mcp.four holds something for each caller: it needs a row in docs/invariants.md, with the test that tries two owners",
			"docs/invariants.md:4: mcp.bare names no test, nor why callers cannot fill it",
			"docs/invariants.md:3: there is no mcp.gone",
			"docs/invariants.md:3: there is no mcp.TestGone",
		},
	},
	archListeners,
	archDefaults,
}

// TestArchitecture holds the tree to the rules. It opens the files itself, so
// that the go command's test cache sees every change.
func TestArchitecture(t *testing.T) {
	readsSource(t)
	tree, err := loadTree(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	if len(tree.files) < 20 {
		t.Fatalf("only %d Go files found: the test looks in the wrong place", len(tree.files))
	}
	for _, rule := range archRules {
		t.Run(rule.name, func(t *testing.T) {
			for _, finding := range rule.find(tree) {
				t.Error(finding)
			}
		})
	}
}

// readsSource skips a test of the source, which has no goroutines, with the race detector.
func readsSource(t *testing.T) {
	t.Helper()
	if race.Enabled {
		t.Skip("it reads source; without -race it runs")
	}
}

// TestArchitectureRulesFail shows each rule a tree that breaks it.
func TestArchitectureRulesFail(t *testing.T) {
	for _, rule := range archRules {
		t.Run(rule.name, func(t *testing.T) {
			fsys := fstest.MapFS{}
			for name, text := range rule.broken {
				fsys[name] = &fstest.MapFile{Data: []byte(text)}
			}
			tree, err := loadTree(fsys)
			if err != nil {
				t.Fatal(err)
			}
			if got := rule.find(tree); !slices.Equal(got, rule.want) {
				t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(rule.want, "\n\t"))
			}
		})
	}
}

type archTree struct {
	fset  *token.FileSet
	files []*archFile // in the order of their paths
	seeds string      // docs/requirements.md
	// invariants is docs/invariants.md.
	invariants string
}

type archFile struct {
	path, pkg string // pkg is the directory
	test      bool
	foreign   bool // in its own module
	generated bool
	lines     int
	ast       *ast.File
}

func loadTree(fsys fs.FS) (*archTree, error) {
	tree := &archTree{fset: token.NewFileSet()}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules") {
				return fs.SkipDir
			}
			return nil
		case !strings.HasSuffix(name, ".go"):
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		parsed, err := parser.ParseFile(tree.fset, name, text, parser.ParseComments)
		if err != nil {
			return err
		}
		top, _, _ := strings.Cut(name, "/")
		tree.files = append(tree.files, &archFile{
			path: name, pkg: path.Dir(name), ast: parsed,
			test:      strings.HasSuffix(name, "_test.go"),
			foreign:   slices.Contains([]string{"bench", "interop", "tools"}, top),
			generated: ast.IsGenerated(parsed),
			lines:     strings.Count(string(text), "\n"),
		})
		return nil
	})
	if err != nil {
		return nil, err
	}
	seeds, err := fs.ReadFile(fsys, "docs/requirements.md")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	tree.seeds = string(seeds)
	invariants, err := fs.ReadFile(fsys, "docs/invariants.md")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	tree.invariants = string(invariants)
	return tree, nil
}

// at writes one finding.
func (tree *archTree) at(pos token.Pos, format string, args ...any) string {
	p := tree.fset.Position(pos)
	return fmt.Sprintf("%s:%d: %s", p.Filename, p.Line, fmt.Sprintf(format, args...))
}
