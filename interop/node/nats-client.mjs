// A client and a responder of NATS that know JSON-RPC only. Usage: nats-client.mjs HOST:PORT SUBJECT
//
// It calls the subject, looks for its service, calls a method by its endpoint, then answers on SUBJECT.node until it is asked to end.
import { connect, StringCodec } from "nats";

const [servers, subject] = process.argv.slice(2);
const nc = await connect({ servers });
const text = StringCodec();
const call = async (request) =>
  text.decode((await nc.request(subject, text.encode(JSON.stringify(request)), { timeout: 20000 })).data);

console.log(await call({ jsonrpc: "2.0", id: 1, method: "math/add", params: [2, 3] }));
console.log(await call([{ jsonrpc: "2.0", id: "a", method: "math/add", params: { a: 1, b: 1 } }]));
console.log(await call({ jsonrpc: "2.0", method: "update", params: [] }) === "" ? "notified" : "answered");
for await (const s of await nc.services.client().info("play")) {
  const add = s.endpoints.find((e) => e.subject === subject + ".math.add");
  console.log(s.name, s.endpoints[0].subject, s.endpoints.length > 20, JSON.parse(add.metadata.params).required.join());
}
console.log(text.decode((await nc.request(subject + ".math.add", text.encode("[2,3]"), { timeout: 20000 })).data));
const sub = nc.subscribe(subject + ".node");
await nc.flush();
console.log("ready");
for await (const m of sub) {
  const { id, method, params } = JSON.parse(text.decode(m.data));
  m.respond(text.encode(JSON.stringify({ jsonrpc: "2.0", id, result: { method, params } })));
  if (method === "end") break;
}
await nc.drain();
