// The call that the page shows, as a line for a shell or a program.

const quote = (s) => (/^[\w@%+=:,./-]+$/.test(s) ? s : `'${s.replaceAll("'", `'\\''`)}'`);

// address is where a server is reached: one of this page's own address may have a path there.
export const address = (s) => (s.command ? null : s.path ? new URL(s.path.slice(1), document.baseURI.replace(/[#?].*$/, '')).href : s.target);

export function farcall(s, kind, name, args) {
  const given = args && args !== '{}' ? ` ${quote(args)}` : '';
  const words = {
    tools: `mcp call TARGET ${quote(name)}${given}`, prompts: `mcp prompt TARGET ${quote(name)}${given}`,
    resources: `mcp read TARGET ${quote(name)}`, methods: `call TARGET ${quote(name)}${given}`, notify: `notify TARGET ${quote(name)}${given}`,
  }[s.speaks === 'mcp' && kind === 'methods' ? 'methods' : kind];
  if (s.command) return `farcall ${words.replace('TARGET ', '')} -- ${s.command.map(quote).join(' ')}`;
  return `farcall ${words.replace('TARGET', () => quote(address(s)))}`;
}

// request is the message of a call.
export function request(s, kind, name, args, revision) {
  const modern = revision >= '2026';
  const meta = modern ? `,"_meta":{"io.modelcontextprotocol/protocolVersion":${JSON.stringify(revision)},"io.modelcontextprotocol/clientInfo":{"name":"curl","version":"0"},"io.modelcontextprotocol/clientCapabilities":{}}` : '';
  const [method, params] = {
    tools: ['tools/call', `{"name":${JSON.stringify(name)},"arguments":${args ?? '{}'}${meta}}`],
    prompts: ['prompts/get', `{"name":${JSON.stringify(name)},"arguments":${args ?? '{}'}${meta}}`],
    resources: ['resources/read', `{"uri":${JSON.stringify(name)}${meta}}`],
  }[kind] ?? [name, args];
  return { method, text: `{"jsonrpc":"2.0",${kind === 'notify' ? '' : '"id":1,'}"method":${JSON.stringify(method)}${params ? `,"params":${params}` : ''}}` };
}

export function curl(s, kind, name, args) {
  const at = address(s);
  if (!at || !/^https?:\/\//.test(at.includes('://') ? at : `http://${at}`)) return null;
  const url = at.includes('://') ? at : `http://${at}`;
  const revision = s.speaks === 'mcp' ? s.info?.revision ?? '' : '';
  const { method, text } = request(s, kind, name, args, revision);
  const head = "-H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream'";
  if (s.speaks !== 'mcp') return `curl -sS ${quote(url)} -H 'Content-Type: application/json' -d ${quote(text)}`;
  if (revision >= '2026') {
    return `curl -sS ${quote(url)} ${head} -H 'MCP-Protocol-Version: ${revision}' -H ${quote(`Mcp-Method: ${method}`)} -H ${quote(`Mcp-Name: ${name}`)} -d ${quote(text)}`;
  }
  const begin = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"${revision}","capabilities":{},"clientInfo":{"name":"curl","version":"0"}}}`;
  return [
    `session=$(curl -sS -D - -o /dev/null ${quote(url)} ${head} -d ${quote(begin)} | sed -n 's/^mcp-session-id: *//Ip' | tr -d '\\r')`,
    `curl -sS ${quote(url)} ${head} -H "Mcp-Session-Id: $session" -H 'MCP-Protocol-Version: ${revision}' -d '{"jsonrpc":"2.0","method":"notifications/initialized"}'`,
    `curl -sS ${quote(url)} ${head} -H "Mcp-Session-Id: $session" -H 'MCP-Protocol-Version: ${revision}' -d ${quote(text)}`,
  ].join('\n');
}

const goText = (s) => (s.includes('`') ? JSON.stringify(s) : `\`${s}\``);

export function go(s, kind, name, args) {
  const dial = s.command
    ? `t, err := stream.Command(exec.Command(${s.command.map((w) => JSON.stringify(w)).join(', ')}), stream.NDJSON, nil)\nif err != nil {\n\treturn err\n}\nc, err := ${s.speaks === 'mcp' ? 'mcp.Connect(ctx, t, nil)' : 'farcall.NewPeer(t, nil, nil), error(nil)'}`
    : `c, err := ${s.speaks === 'mcp' ? 'mcp' : 'rpc'}.Dial(ctx, ${JSON.stringify(address(s) ?? '')}, nil)`;
  const raw = `jsonrpc.Raw(${goText(args ?? '{}')})`;
  const call = s.speaks !== 'mcp' ? `var result jsonrpc.Raw\nerr = c.Call(ctx, ${JSON.stringify(name)}, ${args ? raw : 'nil'}, &result)` : {
    tools: `result, err := c.CallTool(ctx, ${JSON.stringify(name)}, ${raw})`,
    prompts: `result, err := c.Prompt(ctx, ${JSON.stringify(name)}, map[string]string${goMap(args)})`,
    resources: `result, err := c.Read(ctx, ${JSON.stringify(name)})`,
  }[kind] ?? `var result jsonrpc.Raw\nerr = c.Request(ctx, ${JSON.stringify(name)}, ${args ? raw : 'nil'}, &result)`;
  return `${dial}\nif err != nil {\n\treturn err\n}\ndefer c.Close()\n${call}\n`;
}

function goMap(args) {
  try { return `{${Object.entries(JSON.parse(args ?? '{}')).map(([k, v]) => `${JSON.stringify(k)}: ${JSON.stringify(String(v))}`).join(', ')}}`; } catch { return '{}'; }
}

export function typescript(s, kind, name, args) {
  if (s.speaks !== 'mcp') {
    return `const response = await fetch(${JSON.stringify(address(s) ?? 'http://localhost:7331/rpc')}, {\n  method: 'POST',\n  headers: { 'Content-Type': 'application/json' },\n  body: JSON.stringify(${request(s, kind, name, args).text}),\n});\nconst { result, error } = await response.json();\n`;
  }
  const transport = s.command
    ? `new StdioClientTransport({ command: ${JSON.stringify(s.command[0])}, args: ${JSON.stringify(s.command.slice(1))} })`
    : `new StreamableHTTPClientTransport(new URL(${JSON.stringify(address(s) ?? '')}))`;
  const call = {
    tools: `client.callTool({ name: ${JSON.stringify(name)}, arguments: ${args ?? '{}'} })`,
    prompts: `client.getPrompt({ name: ${JSON.stringify(name)}, arguments: ${args ?? '{}'} })`,
    resources: `client.readResource({ uri: ${JSON.stringify(name)} })`,
  }[kind] ?? `client.request({ method: ${JSON.stringify(name)}, params: ${args ?? '{}'} })`;
  return `import { Client } from '@modelcontextprotocol/sdk/client/index.js';\nimport { ${s.command ? 'StdioClientTransport' : 'StreamableHTTPClientTransport'} } from '@modelcontextprotocol/sdk/client/${s.command ? 'stdio' : 'streamableHttp'}.js';\n\nconst client = new Client({ name: 'example', version: '1.0.0' });\nawait client.connect(${transport});\nconst result = await ${call};\n`;
}
