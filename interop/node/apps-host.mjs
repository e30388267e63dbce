// Is a host of MCP Apps, with the library that hosts have, @modelcontextprotocol/ext-apps: it reads the tools and pages of
// a server, shows the page of the tool "today" in Chromium, with its result, and prints what the host saw as JSON:
// apps-host.mjs URL CHROMIUM DIRECTORY
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import {
  AppBridge, McpUiResourceMetaSchema, McpUiToolMetaSchema, RESOURCE_MIME_TYPE, buildAllowAttribute,
  getToolUiResourceUri, isToolVisibilityAppOnly, isToolVisibilityModelOnly,
} from '@modelcontextprotocol/ext-apps/app-bridge';
import { launch } from './chromium.mjs';

const [url, chromium, directory] = process.argv.slice(2);
const client = new Client({ name: 'host', version: '1' }, {
  capabilities: { extensions: { 'io.modelcontextprotocol/ui': { mimeTypes: [RESOURCE_MIME_TYPE] } } },
  versionNegotiation: { mode: 'auto' },
});
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const seen = { revision: client.getNegotiatedProtocolVersion(), tools: {}, log: [] };
const { tools } = await client.listTools();
for (const tool of tools) {
  seen.tools[tool.name] = {
    page: getToolUiResourceUri(tool) ?? '', valid: !tool._meta?.ui || McpUiToolMetaSchema.safeParse(tool._meta.ui).success,
    appOnly: isToolVisibilityAppOnly(tool), modelOnly: isToolVisibilityModelOnly(tool),
  };
}
const { contents: [page] } = await client.readResource({ uri: seen.tools.today.page });
const meta = McpUiResourceMetaSchema.parse(page._meta.ui);
Object.assign(seen, { isPage: page.mimeType === RESOURCE_MIME_TYPE, csp: meta.csp, allow: buildAllowAttribute(meta.permissions), border: meta.prefersBorder });

// The bridge is here, and the page in a frame of the browser, without an origin: messages go through the page around it.
const transport = { start: async () => {}, close: async () => {}, send: (message) => evaluate(`toFrame(${JSON.stringify(message)})`) };
const { evaluate, complaints, close } = await launch(chromium, directory, (text) => transport.onmessage(JSON.parse(text)));
const bridge = new AppBridge(client, { name: 'host', version: '1' }, { serverTools: {}, logging: {} });
const initialized = new Promise((done) => { bridge.oninitialized = done; });
const shown = new Promise((done) => {
  bridge.onloggingmessage = ({ data }) => {
    seen.log.push(data);
    if (data === 'shown') done();
  };
});
await bridge.connect(transport);
await evaluate(`(() => {
  const frame = document.createElement('iframe');
  frame.sandbox = 'allow-scripts';
  frame.srcdoc = ${JSON.stringify(page.text)};
  addEventListener('message', ({ source, data }) => { if (source === frame.contentWindow) host(JSON.stringify(data)); });
  globalThis.toFrame = (message) => frame.contentWindow.postMessage(message, '*');
  document.body.append(frame);
})()`);
await initialized;
seen.app = bridge.getAppVersion().name;
await bridge.sendToolInput({ arguments: { city: 'Brno' } });
await bridge.sendToolResult(await client.callTool({ name: 'today', arguments: { city: 'Brno' } }));
await shown;
console.log(JSON.stringify({ ...seen, complaints }));
await close();
await client.close();
