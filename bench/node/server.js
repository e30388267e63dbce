// Serves the tool `add` with the TypeScript SDK, in sessions, and prints the
// address. It ends when its standard input does.
//
//   node server.js
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { NodeStreamableHTTPServerTransport } from '@modelcontextprotocol/node';
import { McpServer } from '@modelcontextprotocol/server';
import { z } from 'zod';

function newServer() {
  const server = new McpServer({ name: 'bench', version: '1' });
  server.registerTool('add', {
    description: 'Add two numbers',
    inputSchema: z.strictObject({ a: z.number(), b: z.number() }),
    outputSchema: z.strictObject({ sum: z.number().min(-1e9).max(1e9) }),
  }, ({ a, b }) => {
    const structuredContent = { sum: a + b };
    return { content: [{ type: 'text', text: JSON.stringify(structuredContent) }], structuredContent };
  });
  return server;
}

const sessions = new Map();

async function open() {
  const transport = new NodeStreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    enableJsonResponse: true, // faster than its default, an event stream for each answer
    onsessioninitialized: (id) => sessions.set(id, transport),
  });
  await newServer().connect(transport);
  return transport;
}

const web = createServer(async (request, response) => {
  const transport = sessions.get(request.headers['mcp-session-id']) ?? await open();
  await transport.handleRequest(request, response);
});
web.listen(0, '127.0.0.1', () => console.log(`127.0.0.1:${web.address().port}`));
process.stdin.on('end', () => process.exit()).resume();
