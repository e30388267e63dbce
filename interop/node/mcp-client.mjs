// Uses an MCP server with the client of the TypeScript SDK and the user Ada, and
// prints what came of it as JSON: mcp-client.mjs ERA TRANSPORT TARGET…
import { Client, SSEClientTransport, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const [era, kind, ...target] = process.argv.slice(2);
const transports = {
  http: () => new StreamableHTTPClientTransport(new URL(target[0])),
  sse: () => new SSEClientTransport(new URL(target[0])),
  stdio: () => new StdioClientTransport({ command: target[0], args: target.slice(1), env: process.env }),
};

const progress = [];
const client = new Client(
  { name: 'typescript', version: '1' },
  {
    capabilities: { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} },
    versionNegotiation: { mode: era === 'modern' ? { pin: '2026-07-28' } : era },
  },
);
client.setRequestHandler('elicitation/create', ({ params }) => ({
  action: 'accept', ...(params.mode === 'url' ? {} : { content: { name: 'Ada' } }),
}));
client.setRequestHandler('sampling/createMessage', () => ({
  role: 'assistant', model: 'a-model', content: { type: 'text', text: 'Paris' },
}));
client.setRequestHandler('roots/list', () => ({ roots: [{ uri: 'file:///home/ada', name: 'home' }] }));

await client.connect(transports[kind]());
const text = async (name, args = {}) => {
  const { content, isError } = await client.callTool({ name, arguments: args });
  return (isError ? 'error: ' : '') + content[0].text;
};
const all = async (list, member) => (await client[list]())[member].map(({ name }) => name);
const answer = {
  revision: client.getNegotiatedProtocolVersion(),
  tools: await all('listTools', 'tools'),
  resources: await all('listResources', 'resources'),
  prompts: await all('listPrompts', 'prompts'),
  add: (await client.callTool({ name: 'add', arguments: { A: 2, B: 3 } })).structuredContent,
  fail: await text('fail'),
  ask: await text('ask'),
  visit: await text('visit'),
  think: await text('think'),
  places: await text('places'),
  read: (await client.readResource({ uri: 'note://numbered/7' })).contents[0].text,
  prompt: (await client.getPrompt({ name: 'greet', arguments: { name: 'Bob' } })).messages[0].content.text,
  complete: (await client.complete({ ref: { type: 'ref/prompt', name: 'greet' }, argument: { name: 'name', value: 'B' } })).completion.values,
};
// Of reports that arrive together with the answer the SDK's client loses some.
// The client drops the progress that it reads at once with the answer, so a busy machine needs the time to read it before.
await client.callTool({ name: 'count', arguments: { N: 5, Pause: 100 } }, { onprogress: ({ progress: done }) => progress.push(done) });
const cancel = new AbortController();
const waiting = client.callTool({ name: 'wait', arguments: { Key: `typescript ${era} ${kind}` } }, { signal: cancel.signal }).catch(() => 'cancelled');
setTimeout(() => cancel.abort(), 100);
answer.wait = await waiting;
answer.cancelled = '0';
for (let i = 0; i < 100 && answer.cancelled !== '1'; i++) {
  answer.cancelled = await text('cancelled', { Key: `typescript ${era} ${kind}` });
}
console.log(JSON.stringify({ ...answer, progress }));
await client.close();
