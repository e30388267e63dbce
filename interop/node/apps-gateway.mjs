// Is a host of MCP Apps that has one server, a gateway with the apps of several behind it: it calls a tool of each, shows the
// pages of all in Chromium, with their results, and prints what it saw as JSON. Screenshots go to DIRECTORY:
// apps-gateway.mjs URL CHROMIUM PROFILE DIRECTORY TOOL...
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { AppBridge, RESOURCE_MIME_TYPE, getToolUiResourceUri } from '@modelcontextprotocol/ext-apps/app-bridge';
import { launch } from './chromium.mjs';

const [url, chromium, profile, directory, ...names] = process.argv.slice(2);
const client = new Client({ name: 'host', version: '1' }, {
  capabilities: { extensions: { 'io.modelcontextprotocol/ui': { mimeTypes: [RESOURCE_MIME_TYPE] } } },
  versionNegotiation: { mode: 'auto' },
});
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const { tools } = await client.listTools();
const transports = [];
const shown = [];
const { send, evaluate, complaints, close } = await launch(chromium, profile, (text) => {
  const { frame, data } = JSON.parse(text);
  if (data.method === 'tools/call') shown[frame].calls.push({ id: data.id, name: data.params.name });
  transports[frame].onmessage(data);
}, '--disable-features=IsolateSandboxedIframes'); // what is in the frames is read below
const until = async (what, holds) => {
  for (const late = Date.now() + 60000; Date.now() < late;) {
    if (await holds()) return;
    await new Promise((again) => { setTimeout(again, 50); });
  }
  throw new Error(`it did not come to be: ${what}`);
};
await evaluate(`(() => {
  document.head.innerHTML = '<meta name="viewport" content="width=device-width">';
  document.body.style.cssText = 'margin:0;display:flex;flex-wrap:wrap;gap:8px';
  addEventListener('message', ({ source, data }) => {
    const frame = [...document.querySelectorAll('iframe')].findIndex((one) => one.contentWindow === source);
    if (frame >= 0) host(JSON.stringify({ frame, data }));
  });
})()`);

for (const [frame, name] of names.entries()) {
  const uri = getToolUiResourceUri(tools.find((tool) => tool.name === name));
  const { contents: [page] } = await client.readResource({ uri });
  const app = { tool: name, uri, page: page.uri, calls: [] };
  const transport = {
    start: async () => {}, close: async () => {},
    send: (message) => {
      const call = app.calls.find(({ id, failed }) => failed === undefined && id === message.id);
      if (call && !message.method) call.failed = Boolean(message.error || message.result.isError);
      return evaluate(`frames[${frame}].postMessage(${JSON.stringify(message)}, '*')`);
    },
  };
  transports.push(transport);
  shown.push(app);
  const bridge = new AppBridge(client, { name: 'host', version: '1' }, { serverTools: {}, serverResources: {}, logging: {}, openLinks: {} });
  const initialized = new Promise((done) => { bridge.oninitialized = done; });
  await bridge.connect(transport);
  await evaluate(`(() => {
    const frame = document.createElement('iframe');
    frame.sandbox = 'allow-scripts';
    frame.style.cssText = 'border:0;width:min(100vw,620px);height:620px';
    frame.srcdoc = ${JSON.stringify(page.text)};
    document.body.append(frame);
  })()`);
  await Promise.race([initialized, new Promise((_, failed) => { setTimeout(() => failed(new Error(`${name}: no app: ${complaints}`)), 60000).unref(); })]);
  app.name = bridge.getAppVersion().name;
  await bridge.sendToolInput({ arguments: {} });
  await bridge.sendToolResult(await client.callTool({ name, arguments: {} }));
}

// The frames have no origin: what is in them is read by scripts in an isolated world.
const { frameTree } = await send('Page.getFrameTree');
for (const [i, { frame }] of frameTree.childFrames.entries()) {
  const { executionContextId: contextId } = await send('Page.createIsolatedWorld', { frameId: frame.id });
  const read = async (expression) => (await send('Runtime.evaluate', { expression, contextId, returnByValue: true })).result.value;
  await until('the page is drawn', async () => (await read('document.body.innerText')).length > 100);
  shown[i].read = read;
}
await until('an app has called a tool', () => shown.some(({ calls }) => calls.some(({ failed }) => failed !== undefined)));
const wide = {};
for (const width of [390, 1280]) {
  await send('Emulation.setDeviceMetricsOverride', { width, height: width < 600 ? 1260 : 640, deviceScaleFactor: 1, mobile: width < 600 });
  await evaluate('new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))');
  wide[width] = await Promise.all(shown.map(({ read }) => read('Math.max(0, document.documentElement.scrollWidth - innerWidth)')));
  const { data } = await send('Page.captureScreenshot');
  writeFileSync(join(directory, `apps-${width}.png`), Buffer.from(data, 'base64'));
}
const apps = [];
for (const { read, ...app } of shown) apps.push({ ...app, text: await read('document.body.innerText') });
const wrong = complaints.filter((text) => !/"type":"(debug|log|info)"|"GenericIssue"/.test(text)); // what the apps log, and their forms
console.log(JSON.stringify({ revision: client.getNegotiatedProtocolVersion(), apps, wide, complaints: wrong }));
await close();
await client.close();
