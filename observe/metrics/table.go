package metrics

import "slices"

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
	mcpLabels     = []string{labelMethod, labelTool, labelPrompt, labelError, labelRevision, labelNetwork}
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
	mcpServer = metric{
		"mcp_server_operation_duration_seconds", "mcp.server.operation.duration", histogram,
		"How long requests and notifications of MCP took that clients sent.", mcpLabels, mcpBuckets,
	}
	mcpClient = metric{
		"mcp_client_operation_duration_seconds", "mcp.client.operation.duration", histogram,
		"How long requests and notifications of MCP took that were sent to the other end.", mcpClientLabels, mcpBuckets,
	}
	mcpServerSession = metric{
		"mcp_server_session_duration_seconds", "mcp.server.session.duration", histogram,
		"How long sessions of MCP lasted that clients began.", sessionLabels, mcpBuckets,
	}
	mcpClientSession = metric{
		"mcp_client_session_duration_seconds", "mcp.client.session.duration", histogram,
		"How long sessions of MCP lasted that this end began.", sessionLabels, mcpBuckets,
	}
	rpcServer = metric{
		"rpc_server_call_duration_seconds", "rpc.server.call.duration", histogram,
		"How long calls of JSON-RPC other than MCP took that arrived.", rpcLabels, rpcBuckets,
	}
	rpcClient = metric{
		"rpc_client_call_duration_seconds", "rpc.client.call.duration", histogram,
		"How long calls of JSON-RPC other than MCP took that were sent to the other end.", rpcClientLabels, rpcBuckets,
	}
	inFlight = metric{
		"farcall_inflight", "", gauge, "Calls in flight, by the side which this end has in them.", []string{labelSide}, nil,
	}
	refused = metric{
		"farcall_refused_total", "", counter,
		"Calls that were refused: overload, rate, size, denied, or a message that is not valid.",
		[]string{labelReason, labelTransport},
		nil,
	}
	frames = metric{
		"farcall_frames_total", "", counter, "Frames: messages or batches.", []string{labelTransport, labelDirection}, nil,
	}
	frameBytes = metric{
		"farcall_bytes_total", "", counter, "Bytes of the frames.", []string{labelTransport, labelDirection}, nil,
	}
	badFrames = metric{
		"farcall_bad_frames_total", "", counter, "Frames or messages that are not valid, by what is wrong.", []string{labelKind, labelTransport}, nil,
	}
	droppedAnswers = metric{
		"farcall_answers_dropped_total", "", counter, "Answers that no call waits for: late, unknown or duplicate ones.",
		[]string{labelKind, labelTransport},
		nil,
	}
	connections = metric{
		"farcall_connections", "", gauge, "Open connections.", []string{labelTransport}, nil,
	}
	streams = metric{
		"farcall_streams", "", gauge, "Open event streams of HTTP.", []string{labelTransport}, nil,
	}
	sessions = metric{
		"farcall_sessions", "", gauge, "Open sessions of MCP.", []string{labelSide, labelRevision, labelTransport}, nil,
	}
	queueWait = metric{
		"farcall_queue_wait_seconds", "", histogram, "How long calls waited for a connection to a server, of those that had to.",
		[]string{labelUpstream},
		mcpBuckets,
	}
	childStart = metric{
		"farcall_child_start_seconds", "", histogram, "How long child processes took from their start to their first answer.",
		[]string{labelUpstream},
		mcpBuckets,
	}
	translated = metric{
		"farcall_translated_total", "", counter, "Calls that were translated between the revision of the client and that of the server.",
		[]string{"from", "to"},
		nil,
	}
	decisions = metric{
		"farcall_guard_decisions_total", "", counter, "Decisions of the guard, by the rule or policy that decided.",
		[]string{labelOutcome, labelPolicy},
		nil,
	}
	guardTime = metric{
		"farcall_guard_seconds", "", histogram, "How long decisions of the guard took.", []string{labelOutcome}, guardBuckets,
	}
	storeTime = metric{
		"farcall_store_seconds", "", histogram,
		"How long operations of the store took that processes share.",
		[]string{labelOp},
		storeBuckets,
	}
	storeErrors = metric{
		"farcall_store_errors_total", "", counter,
		"Operations of the store that failed: full, unavailable, closed, timeout, unknown_outcome.",
		[]string{labelOp, labelReason},
		nil,
	}
	overflow = metric{
		"farcall_metrics_overflow_total", "", counter,
		"Values that went to the series _OTHER of a metric, because it has as many series as it may have.",
		[]string{labelMetric},
		nil,
	}
	buildInfo = metric{
		"farcall_build_info", "", gauge, "1, with the version of the program and of Go.", []string{"version", "goversion"}, nil,
	}
)

// table has all of them, in the order of the documentation.
var table = []metric{
	mcpServer, mcpClient, mcpServerSession, mcpClientSession, rpcServer, rpcClient,
	inFlight, refused, frames, frameBytes, badFrames, droppedAnswers, connections, streams, sessions,
	queueWait, childStart, translated, decisions, guardTime, storeTime, storeErrors,
	overflow, buildInfo,
}

// readings are the metrics that are measured when they are read: see Metrics.Read.
var readings = []metric{
	{"farcall_suspended", "", gauge, "Calls that wait for the client's answer to a question.", nil, nil},
	{"farcall_nonces", "", gauge, "Nonces of signatures and DPoP proofs that are remembered.", nil, nil},
	{"farcall_audit_backlog_bytes", "", gauge, "Bytes of the audit that wait for the sink which is furthest behind.", nil, nil},
	{"farcall_upstream_state", "", gauge, "1 for the state that a server is in; open: the circuit breaker is; draining, disabled: by an operator.", []string{labelUpstream, labelState}, nil},
	{"farcall_breaker_state", "", gauge, "0: calls to a server are made; 2: they are refused, because it cannot be reached; 1: one call tries.", []string{labelUpstream}, nil},
	{"farcall_upstream_inflight", "", gauge, "Calls in flight to a server.", []string{labelUpstream}, nil},
	{"farcall_queued", "", gauge, "Calls that wait for a connection to a server.", []string{labelUpstream}, nil},
	{"farcall_upstream_connections", "", gauge, "Connections to a server.", []string{labelUpstream}, nil},
	{"farcall_upstream_calls_total", "", counter, "Calls to a server that have ended.", []string{labelUpstream}, nil},
	{"farcall_upstream_errors_total", "", counter, "Calls that a server did not answer, or that got no connection to it.", []string{labelUpstream}, nil},
	{"farcall_upstream_retries_total", "", counter, "Calls to a server that were made again.", []string{labelUpstream}, nil},
	{"farcall_upstream_dropped_total", "", counter, "Messages of a server that were for no client, and late answers.", []string{labelUpstream}, nil},
	{"farcall_children", "", gauge, "Child processes of a server that run; delayed: 1 while the next start has to wait.", []string{labelUpstream, labelState}, nil},
	{"farcall_child_starts_total", "", counter, "Starts of child processes.", []string{labelUpstream}, nil},
	{"farcall_child_restarts_total", "", counter, "Starts that replaced a child process which had ended: exited with status 0, failed with another one, killed by a signal.", []string{labelUpstream, "cause"}, nil},
	{"farcall_capture_dropped_total", "", counter, "Frames and other records that the capture lost.", nil, nil},
	{"farcall_child_garbage_total", "", counter, "Lines of child processes that were no messages.", []string{labelUpstream}, nil},
}
