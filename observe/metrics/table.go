package metrics

import (
	"slices"
	"strings"
)

// The kinds of metrics.
const (
	counter   = "counter"
	gauge     = "gauge"
	histogram = "histogram"
)

// metric is a row of the table: one metric as Prometheus has it.
type metric struct {
	// name is that of Prometheus.
	name string
	// otel is the name in OpenTelemetry's conventions, "" for farcall's own.
	otel    string
	kind    string
	help    string
	labels  []string
	buckets []float64 // of a histogram
}

// The labels. Those with dots in OpenTelemetry's conventions have underscores, as its exporters
// write them.
const (
	labelMethod    = "mcp_method_name"
	labelTool      = "gen_ai_tool_name"
	labelPrompt    = "gen_ai_prompt_name"
	labelError     = "error_type"
	labelRevision  = "mcp_protocol_version"
	labelNetwork   = "network_transport"
	labelSystem    = "rpc_system_name"
	labelRPC       = "rpc_method"
	labelTransport = "transport"
	labelDirection = "direction"
	labelSide      = "side"
	labelKind      = "kind"
	labelReason    = "reason"
	labelMetric    = "metric"
	labelUpstream  = "upstream"
	labelState     = "state"
	labelOutcome   = "decision"
	labelPolicy    = "policy"
	labelOp        = "op"
)

// conventions are the names of labels in OpenTelemetry's conventions.
var conventions = map[string]string{
	labelMethod: "mcp.method.name", labelTool: "gen_ai.tool.name", labelPrompt: "gen_ai.prompt.name",
	labelError: "error.type", labelRevision: "mcp.protocol.version",
	labelNetwork: "network.transport", labelSystem: "rpc.system.name", labelRPC: "rpc.method",
	labelUpstream: "farcall.upstream",
}

// Convention returns the name that a metric or a label has in OpenTelemetry's conventions, or "".
func Convention(name string) string {
	for _, row := range table {
		if row.name == name {
			return row.otel
		}
	}
	return conventions[name]
}

// The bounds of buckets, which OpenTelemetry's conventions advise.
var (
	mcpBuckets = []float64{.01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 120, 300}
	rpcBuckets = []float64{.005, .01, .025, .05, .075, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10}
	// Of decisions, which take microseconds.
	guardBuckets = []float64{.000001, .000005, .00001, .00005, .0001, .0005, .001, .005, .01, .1}
	// Of operations of stores, in memory or over a network.
	storeBuckets = []float64{.00001, .0001, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 5}
)

var (
	mcpLabels = []string{
		labelMethod, labelTool, labelPrompt, labelError, labelRevision,
		labelNetwork,
	}
	sessionLabels = []string{labelRevision, labelNetwork}
	rpcLabels     = []string{labelSystem, labelRPC, labelError, labelNetwork}
	// Of calls to the servers of a gateway.
	mcpClientLabels = slices.Concat(mcpLabels, []string{labelUpstream})
	rpcClientLabels = slices.Concat(rpcLabels, []string{labelUpstream})
)

// The metrics.
//
// The names of OpenTelemetry are of semantic-conventions-genai, docs/gen-ai/mcp.md, and of
// semantic-conventions v1.40, docs/rpc/rpc-metrics.md, which are not stable yet: they change here
// only.
var (
	mcpServer = standard("mcp.server.operation.duration",
		"How long requests and notifications of MCP took that clients sent.", mcpBuckets, mcpLabels)
	mcpClient = standard("mcp.client.operation.duration",
		"How long requests and notifications of MCP took that were sent to the other end.",
		mcpBuckets, mcpClientLabels)
	mcpServerSession = standard("mcp.server.session.duration",
		"How long sessions of MCP lasted that clients began.", mcpBuckets, sessionLabels)
	mcpClientSession = standard("mcp.client.session.duration",
		"How long sessions of MCP lasted that this end began.", mcpBuckets, sessionLabels)
	rpcServer = standard("rpc.server.call.duration",
		"How long calls of JSON-RPC other than MCP took that arrived.", rpcBuckets, rpcLabels)
	rpcClient = standard("rpc.client.call.duration",
		"How long calls of JSON-RPC other than MCP took that were sent to the other end.",
		rpcBuckets, rpcClientLabels)
	inFlight = own(gauge, "farcall_inflight",
		"Calls in flight, by the side which this end has in them.", labelSide)
	refused = own(counter, "farcall_refused_total",
		"Calls that were refused: overload, rate, size, denied, or a message that is not valid.",
		labelReason, labelTransport)
	frames = own(counter, "farcall_frames_total",
		"Frames: messages or batches.", labelTransport, labelDirection)
	frameBytes = own(counter, "farcall_bytes_total",
		"Bytes of the frames.", labelTransport, labelDirection)
	badFrames = own(counter, "farcall_bad_frames_total",
		"Frames or messages that are not valid, by what is wrong.", labelKind, labelTransport)
	droppedAnswers = own(counter, "farcall_answers_dropped_total",
		"Answers that no call waits for: late, unknown or duplicate ones.",
		labelKind, labelTransport)
	connections = own(gauge, "farcall_connections", "Open connections.", labelTransport)
	streams     = own(gauge, "farcall_streams", "Open event streams of HTTP.", labelTransport)
	sessions    = own(gauge, "farcall_sessions",
		"Open sessions of MCP.", labelSide, labelRevision, labelTransport)
	queueWait = duration("farcall_queue_wait_seconds",
		"How long calls waited for a connection to a server, of those that had to.",
		mcpBuckets, labelUpstream)
	childStart = duration("farcall_child_start_seconds",
		"How long child processes took from their start to their first answer.",
		mcpBuckets, labelUpstream)
	suspensions = duration("farcall_suspension_seconds",
		"How long calls waited for the client's answer to a question, without a request of the client.",
		mcpBuckets, labelUpstream)
	translated = own(counter, "farcall_translated_total",
		"Calls that were translated between the revision of the client and that of the server.",
		"from", "to")
	decisions = own(counter, "farcall_guard_decisions_total",
		"Decisions of the guard, by the rule or policy that decided.", labelOutcome, labelPolicy)
	guardTime = duration("farcall_guard_seconds",
		"How long decisions of the guard took.", guardBuckets, labelOutcome)
	storeTime = duration("farcall_store_seconds",
		"How long operations of the store took that processes share.", storeBuckets, labelOp)
	storeErrors = own(counter, "farcall_store_errors_total",
		"Operations of the store that failed: full, unavailable, closed, timeout, unknown_outcome.",
		labelOp, labelReason)
	overflow = own(counter, "farcall_metrics_overflow_total",
		"Values that went to the series _OTHER of a metric, because it has as many series as "+
			"it may have.",
		labelMetric)
	buildInfo = own(gauge, "farcall_build_info",
		"1, with the version of the program and of Go.", "version", "goversion")
)

// standard is a histogram of OpenTelemetry's conventions.
func standard(otel, help string, buckets []float64, labels []string) metric {
	name := strings.ReplaceAll(otel, ".", "_") + "_seconds"
	return metric{
		name: name, otel: otel, kind: histogram, help: help, labels: labels,
		buckets: buckets,
	}
}

// duration is a histogram of farcall.
func duration(name, help string, buckets []float64, labels ...string) metric {
	return metric{name: name, kind: histogram, help: help, labels: labels, buckets: buckets}
}

// own is a counter or a gauge.
func own(kind, name, help string, labels ...string) metric {
	return metric{name: name, kind: kind, help: help, labels: labels}
}

// table has all of them, in the order of the documentation.
var table = []metric{
	mcpServer, mcpClient, mcpServerSession, mcpClientSession, rpcServer, rpcClient,
	inFlight, refused, frames, frameBytes, badFrames, droppedAnswers, connections, streams, sessions,
	queueWait, childStart, suspensions, translated, decisions, guardTime, storeTime, storeErrors,
	overflow, buildInfo,
}

// readings are the metrics that are measured when they are read: see Metrics.Read.
var readings = []metric{
	own(gauge, "farcall_suspended", "Calls that wait for the client's answer to a question."),
	own(gauge, "farcall_nonces", "Nonces of signatures and DPoP proofs that are remembered."),
	own(gauge, "farcall_audit_backlog_bytes",
		"Bytes of the audit that wait for the sink which is furthest behind."),
	own(gauge, "farcall_upstream_state",
		"1 for the state that a server is in; open: the circuit breaker is; draining, disabled: by "+
			"an operator.", labelUpstream, labelState),
	own(gauge, "farcall_breaker_state",
		"0: calls to a server are made; 2: they are refused, because it cannot be reached; 1: one "+
			"call tries.", labelUpstream),
	own(gauge, "farcall_upstream_inflight", "Calls in flight to a server.", labelUpstream),
	own(gauge, "farcall_queued", "Calls that wait for a connection to a server.", labelUpstream),
	own(gauge, "farcall_upstream_connections", "Connections to a server.", labelUpstream),
	own(counter, "farcall_upstream_calls_total", "Calls to a server that have ended.", labelUpstream),
	own(counter, "farcall_upstream_errors_total",
		"Calls that a server did not answer, or that got no connection to it.", labelUpstream),
	own(counter, "farcall_upstream_retries_total", "Calls to a server that were made again.",
		labelUpstream),
	own(counter, "farcall_upstream_dropped_total",
		"Messages of a server that were for no client, and late answers.", labelUpstream),
	own(gauge, "farcall_children",
		"Child processes of a server that run; delayed: 1 while the next start has to wait.",
		labelUpstream, labelState),
	own(counter, "farcall_child_starts_total", "Starts of child processes.", labelUpstream),
	own(counter, "farcall_child_restarts_total",
		"Starts that replaced a child process which had ended: exited with status 0, failed with "+
			"another one, killed by a signal.", labelUpstream, "cause"),
	own(counter, "farcall_capture_dropped_total", "Frames and other records that the capture lost."),
	own(counter, "farcall_child_garbage_total", "Lines of child processes that were no messages.",
		labelUpstream),
}
