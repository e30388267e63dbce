// Uses an MCP server with the client of the TypeScript SDK and the user Ada, as often as it is asked to, in one
// session: mcp-user.mjs URL REVISION. It is ready when it has printed its revision. Each line of standard input is
// a number of rounds; the answer is a line of JSON, what has failed and how.
import { createInterface } from 'node:readline';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const [url, revision] = process.argv.slice(2);
const modern = revision >= '2026-07-28';
const client = new Client({ name: 'typescript', version: '1' }, {
  capabilities: { elicitation: { form: {} } },
  ...(modern ? { versionNegotiation: { mode: { pin: revision } } } : { supportedProtocolVersions: [revision] }),
});
client.setRequestHandler('elicitation/create', () => ({ action: 'accept', content: { name: 'Ada' } }));
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
console.log(client.getNegotiatedProtocolVersion());

for await (const line of createInterface({ input: process.stdin })) {
  const failed = [];
  const attempt = async (what, want, f) => {
    try {
      const got = await f();
      if (!got?.includes(want)) failed.push(`${what}: ${got}`);
    } catch (error) {
      failed.push(`${what}: ${error}`);
    }
  };
  for (let i = 0; i < Number(line); i++) {
    await attempt('tools', 'add', async () => (await client.listTools()).tools.map(({ name }) => name).join());
    if (revision >= '2025-06-18') await attempt('ask', 'Ada', async () => (await client.callTool({ name: 'ask', arguments: {} })).content[0].text);
    await attempt('read', 'Note 7', async () => (await client.readResource({ uri: 'note://numbered/7' })).contents[0].text);
    await attempt('prompt', 'Bob', async () => (await client.getPrompt({ name: 'greet', arguments: { name: 'Bob' } })).messages[0].content.text);
  }
  console.log(JSON.stringify(failed));
}
await client.close();
