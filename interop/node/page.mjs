// Looks at the page of a gateway with Chromium, on a phone and on a desk, and
// prints what it saw as JSON: page.mjs CHROMIUM URL DIRECTORY
import { axe, launch } from './chromium.mjs';

const [chromium, url, directory] = process.argv.slice(2);
const { send, evaluate, socket, complaints, close } = await launch(chromium, directory);
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
const found = [];
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
  for (const scheme of ['light', 'dark']) {
    await send('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: scheme }] });
    found.push(...(await axe(evaluate)).map((one) => `${width} ${scheme}: ${one}`));
  }
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
console.log(JSON.stringify({ seen, axe: found, complaints }));
await close();
