package traces

import "go.opentelemetry.io/otel/attribute"

// The names of attributes.
//
// They are of semantic-conventions-genai, docs/gen-ai/mcp.md, and of semantic-conventions v1.40,
// docs/rpc/json-rpc.md, which are not stable yet: they change here only. Those that begin with
// farcall are farcall's own.
const (
	attrMethod     = attribute.Key("mcp.method.name")
	attrRevision   = attribute.Key("mcp.protocol.version")
	attrTool       = attribute.Key("gen_ai.tool.name")
	attrPrompt     = attribute.Key("gen_ai.prompt.name")
	attrOperation  = attribute.Key("gen_ai.operation.name")
	attrSystem     = attribute.Key("rpc.system.name")
	attrRPC        = attribute.Key("rpc.method")
	attrRequest    = attribute.Key("jsonrpc.request.id")
	attrStatus     = attribute.Key("rpc.response.status_code")
	attrError      = attribute.Key("error.type")
	attrNetwork    = attribute.Key("network.transport")
	attrTransport  = attribute.Key("farcall.transport")
	attrUpstream   = attribute.Key("farcall.upstream")
	attrEra        = attribute.Key("farcall.upstream.revision")
	attrDecision   = attribute.Key("farcall.decision")
	attrQueued     = attribute.Key("farcall.queue_ms")
	attrAttempts   = attribute.Key("farcall.attempts")
	attrBatch      = attribute.Key("farcall.batch")
	attrRefused    = attribute.Key("farcall.refused")
	attrUnsampled  = attribute.Key("farcall.unsampled")
	attrArguments  = attribute.Key("gen_ai.tool.call.arguments")
	attrResult     = attribute.Key("gen_ai.tool.call.result")
	attrBytesIn    = attribute.Key("farcall.bytes.in")
	attrBytesOut   = attribute.Key("farcall.bytes.out")
	maxAttributes  = 18 // of a span at most, see attributes
	executeTool    = "execute_tool"
	maxRequestText = 128 // bytes of an id
	maxStatusText  = 256 // bytes of a description
	maxPayload     = 8 << 10
)
