// Receives traces by OTLP over HTTP, as JSON. Each line of its input is the id of a trace and that of
// a span, which it answers with the tree of the spans below, as lines that end with an empty one.
import http from "node:http";
import readline from "node:readline";

const kinds = { 2: "SERVER", 3: "CLIENT" };
const spans = [];

const server = http.createServer((request, response) => {
  const parts = [];
  request.on("data", (part) => parts.push(part));
  request.on("end", () => {
    // Lines of the log and metrics come here as well, and those are not JSON.
    const body = request.url === "/v1/traces" ? JSON.parse(Buffer.concat(parts).toString()) : {};
    for (const resource of body.resourceSpans ?? []) {
      const service = resource.resource.attributes.find((a) => a.key === "service.name").value.stringValue;
      for (const scope of resource.scopeSpans) {
        for (const span of scope.spans) spans.push({ ...span, service });
      }
    }
    response.setHeader("Content-Type", request.headers["content-type"]);
    response.end(request.url === "/v1/traces" ? "{}" : "");
  });
});

const same = (a, b) => (a ?? "").toLowerCase() === (b ?? "").toLowerCase();

function tree(trace, parent, indent) {
  const below = spans.filter((s) => same(s.traceId, trace) && same(s.parentSpanId, parent));
  below.sort((a, b) => (BigInt(a.startTimeUnixNano) < BigInt(b.startTimeUnixNano) ? -1 : 1));
  return below.flatMap((s) => [`${indent}${kinds[s.kind]} ${s.name} (${s.service})`, ...tree(trace, s.spanId, indent + "  ")]);
}

server.listen(0, "127.0.0.1", () => console.log(server.address().port));

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const [trace, parent] = line.split(" ");
  console.log([...tree(trace, parent, ""), ""].join("\n"));
}).on("close", () => process.exit(0));
