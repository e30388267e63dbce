// Starts Chromium with an empty page and speaks with it by the DevTools protocol.
import { spawn } from 'node:child_process';
import { readFile } from 'node:fs/promises';

// launch returns how to speak with the page, and what the browser complains of. What the page calls the function
// host(text) with goes to called.
export const launch = async (chromium, directory, called = () => {}, ...flags) => {
  const child = spawn(chromium, [
    '--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-proxy-server', '--no-first-run',
    '--disable-background-networking', '--remote-debugging-port=0', `--user-data-dir=${directory}`, ...flags, 'about:blank',
  ], { stdio: ['ignore', 'ignore', 'pipe'] });
  const address = await new Promise((found, failed) => {
    let text = '';
    child.stderr.on('data', (data) => {
      text += data;
      const at = /DevTools listening on (ws:\S+)/.exec(text);
      if (at) found(at[1]);
    });
    child.on('exit', () => failed(new Error(`Chromium has ended: ${text}`)));
  });
  const socket = new WebSocket(address);
  await new Promise((opened) => { socket.onopen = opened; });
  const waiting = new Map();
  const complaints = [];
  let last = 0;
  let sessionId;
  socket.onmessage = ({ data }) => {
    const { id, method, params, result, error } = JSON.parse(data);
    if (id) {
      const [done, failed] = waiting.get(id);
      waiting.delete(id);
      if (error) failed(new Error(error.message));
      else done(result);
    } else if (method === 'Runtime.bindingCalled') {
      called(params.payload);
    } else if (/exceptionThrown|consoleAPICalled|entryAdded|issueAdded/.test(method)) {
      complaints.push(`${method} ${JSON.stringify(params)}`);
    }
  };
  const send = (method, params = {}) => new Promise((done, failed) => {
    waiting.set(++last, [done, failed]);
    socket.send(JSON.stringify({ id: last, method, params, sessionId }));
  });
  const evaluate = async (expression) => {
    const { result, exceptionDetails } = await send('Runtime.evaluate', { expression, awaitPromise: true, returnByValue: true });
    if (exceptionDetails) throw new Error(JSON.stringify(exceptionDetails));
    return result.value;
  };

  const { targetId } = await send('Target.createTarget', { url: 'about:blank' });
  ({ sessionId } = await send('Target.attachToTarget', { targetId, flatten: true }));
  for (const domain of ['Page', 'Runtime', 'Log', 'Audits']) await send(`${domain}.enable`);
  await send('Runtime.addBinding', { name: 'host' });
  const close = async () => {
    await send('Browser.close').catch(() => {});
    socket.close();
  };
  return { send, evaluate, socket, complaints, close };
};

const source = await readFile(new URL('./node_modules/axe-core/axe.min.js', import.meta.url), 'utf8');

// axe returns what the page, as it is, has against WCAG 2.2 AA and good practice.
export const axe = async (evaluate) => {
  if (!await evaluate('Boolean(window.axe)')) await evaluate(`${source}; 0`);
  return evaluate(`axe.run(document, {
    iframes: false, resultTypes: ['violations'], runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
  }).then((r) => r.violations.flatMap((v) => v.nodes.map((n) => v.id + ' ' + n.target.join(' ') + ': ' + n.failureSummary)))`);
};
