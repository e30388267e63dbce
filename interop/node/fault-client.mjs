// Calls math_add twice with the client of the TypeScript SDK, and prints what became of each call:
// fault-client.mjs COMMAND…
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const [command, ...args] = process.argv.slice(2);
const client = new Client({ name: 'typescript', version: '1' }, { versionNegotiation: { mode: 'legacy' } });
await client.connect(new StdioClientTransport({ command, args, env: process.env }));
const call = async (a) => {
  try {
    const { content, isError } = await client.callTool({ name: 'math_add', arguments: { a, b: 3 } }, { timeout: 4000 });
    return !isError && content[0].text === String(a + 3) ? 'answer' : 'wrong answer';
  } catch (e) {
    return e.code === 'REQUEST_TIMEOUT' || /timed out/i.test(e.message) ? 'nothing' : 'error';
  }
};
console.log(`${await call(2)}\n${await call(4)}`);
process.exit(0);
