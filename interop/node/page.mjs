// Looks at the page of a gateway with Chromium, on a phone and on a desk, and
// prints what it saw as JSON: page.mjs CHROMIUM URL DIRECTORY
import { spawn } from 'node:child_process';

const [chromium, url, directory] = process.argv.slice(2);
const child = spawn(chromium, [
  '--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-proxy-server', '--no-first-run',
  '--disable-background-networking', '--remote-debugging-port=0', `--user-data-dir=${directory}`, 'about:blank',
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
// until waits until an expression is true, 10 s at most, and returns whether it is.
const until = (expression) => evaluate(`new Promise((done) => {
  const late = Date.now() + 10000;
  const look = () => {
    const is = document.readyState === 'complete' && ${expression};
    if (is || Date.now() > late) done(Boolean(is));
    else setTimeout(look, 50);
  };
  look();
})`);

const { targetId } = await send('Target.createTarget', { url: 'about:blank' });
({ sessionId } = await send('Target.attachToTarget', { targetId, flatten: true }));
for (const domain of ['Page', 'Runtime', 'Log', 'Audits']) await send(`${domain}.enable`);
const open = async (width) => {
  await send('Emulation.setDeviceMetricsOverride', { width, height: 800, deviceScaleFactor: 1, mobile: width < 600 });
  const loaded = new Promise((done) => {
    const before = socket.onmessage;
    socket.onmessage = (event) => {
      before(event);
      if (JSON.parse(event.data).method === 'Page.loadEventFired') {
        socket.onmessage = before;
        done();
      }
    };
  });
  await send('Page.navigate', { url });
  await loaded;
};
const seen = [];
for (const width of [390, 1280]) {
  await open(width);
  const live = await until(`document.getElementById('fresh').textContent === 'Live'`);
  await evaluate(`window.before = document.querySelector('.counts').textContent`);
  const changes = await until(`document.querySelector('.counts').textContent !== window.before`);
  await evaluate(`(() => {
    document.querySelectorAll('details').forEach((one) => { one.open = true; });
    const search = document.getElementById('search');
    search.value = 'echo';
    search.dispatchEvent(new Event('input'));
  })()`);
  seen.push({
    width, live, changes,
    tools: await evaluate(`document.querySelectorAll('#list > li').length`),
    found: await evaluate(`document.querySelectorAll('#list > li:not([hidden])').length`),
    wide: await evaluate(`Math.max(0, document.documentElement.scrollWidth - innerWidth)`),
    text: await evaluate(`document.body.innerText`),
  });
}
await send('Emulation.setScriptExecutionDisabled', { value: true });
await open(390);
await send('Emulation.setScriptExecutionDisabled', { value: false });
seen.push({ width: 390, text: await evaluate(`document.body.innerText`) });
console.log(JSON.stringify({ seen, complaints }));
await send('Browser.close').catch(() => {});
socket.close();
