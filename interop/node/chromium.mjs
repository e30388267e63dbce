// Starts Chromium with an empty page and speaks with it by the DevTools protocol.
import { spawn } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';

// launch returns how to speak with the page, and what the browser complains of. What the page calls the function
// host(text) with goes to called; on(method, f) has f called with the params of an event.
export const launch = async (chromium, directory, called = () => {}, ...flags) => {
  const child = spawn(chromium, [
    '--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-proxy-server', '--no-first-run',
    '--disable-background-networking', '--remote-debugging-port=0', `--user-data-dir=${directory}`, ...flags, 'about:blank',
  ], { stdio: ['ignore', 'ignore', 'pipe'] });
  process.on('exit', () => child.kill('SIGKILL')); // also after an error
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
  const listeners = new Map();
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
    } else if (listeners.has(method)) {
      listeners.get(method)(params);
    } else if (/exceptionThrown|consoleAPICalled|entryAdded|issueAdded/.test(method)) {
      complaints.push(`${method} ${JSON.stringify(params)}`);
    }
  };
  const send = (method, params = {}) => new Promise((done, failed) => {
    waiting.set(++last, [done, failed]);
    socket.send(JSON.stringify({ id: last, method, params, sessionId }));
  });
  const evaluate = async (expression) => {
    const { result, exceptionDetails } = await send('Runtime.evaluate', { expression, awaitPromise: true, returnByValue: true, userGesture: true });
    if (exceptionDetails) throw new Error(JSON.stringify(exceptionDetails));
    return result.value;
  };

  // open opens an address and waits until it is loaded.
  const open = async (address) => {
    const loaded = new Promise((done) => { listeners.set('Page.loadEventFired', done); });
    await send('Page.navigate', { url: address });
    await loaded;
  };
  // until waits until an expression is true, so many milliseconds at most, and returns whether it is.
  const until = (expression, most = 20000) => evaluate(`new Promise((done) => {
    const late = Date.now() + ${most};
    const look = () => {
      const is = document.readyState === 'complete' && (${expression});
      if (is || Date.now() > late) done(Boolean(is));
      else setTimeout(look, 50);
    };
    look();
  })`);
  const size = (width, height = 900) => send('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, mobile: width < 600 });
  // survey has axe look at the page as it is, on a phone and on desks, in both schemes, and saves pictures with that name
  // where FARCALL_SCREENSHOTS is a directory. What axe finds, and by how much the page is too wide, goes to seen.
  const survey = async (page, name, seen) => {
    const pictures = process.env.FARCALL_SCREENSHOTS;
    for (const width of [390, 1280, 1920]) {
      await size(width);
      for (const scheme of ['light', 'dark']) {
        await send('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: scheme }, { name: 'prefers-reduced-motion', value: 'reduce' }] });
        const found = width === 1920 ? [] : await axe(evaluate);
        if (found.length) seen.axe[`${name} ${width} ${scheme}`] = found;
        if (pictures) await writeFile(`${pictures}/${page}-${name}-${width}-${scheme}.png`, Buffer.from((await send('Page.captureScreenshot')).data, 'base64'));
      }
      seen.wide[`${name} ${width}`] = await evaluate('Math.max(0, document.documentElement.scrollWidth - innerWidth)');
    }
    await size(1280);
  };

  const { targetId } = await send('Target.createTarget', { url: 'about:blank' });
  ({ sessionId } = await send('Target.attachToTarget', { targetId, flatten: true }));
  for (const domain of ['Page', 'Runtime', 'Log', 'Audits']) await send(`${domain}.enable`);
  await send('Runtime.addBinding', { name: 'host' });
  const close = async () => {
    await send('Browser.close').catch(() => {});
    socket.close();
  };
  return { send, evaluate, open, until, size, survey, complaints, close, on: (method, f) => listeners.set(method, f) };
};

const source = await readFile(new URL('./node_modules/axe-core/axe.min.js', import.meta.url), 'utf8');

// axe returns what the page, as it is, has against WCAG 2.2 AA and good practice.
export const axe = async (evaluate) => {
  if (!await evaluate('Boolean(window.axe)')) await evaluate(`${source}; 0`);
  return evaluate(`axe.run(document, {
    iframes: false, resultTypes: ['violations'], runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
  }).then((r) => r.violations.flatMap((v) => v.nodes.map((n) => v.id + ' ' + n.target.join(' ') + ': ' + n.failureSummary)))`);
};
