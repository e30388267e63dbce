// Looks at the page of a gateway with Chromium, on a phone and on a desk, and
// prints what it saw as JSON: page.mjs CHROMIUM URL DIRECTORY
import { writeFile } from 'node:fs/promises';
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
const operated = [];
const pictures = process.env.FARCALL_SCREENSHOTS; // a directory
for (const width of [390, 1280]) {
  await open(width);
  const live = await until(`document.getElementById('fresh').textContent === 'Live'`);
  await evaluate(`window.before = document.querySelector('.counts').textContent`);
  const changes = await until(`document.querySelector('.counts').textContent !== window.before`);
  await evaluate(`(() => {
    document.querySelectorAll('details:not([data-panel=pins])').forEach((one) => { one.open = true; }); // there is no lock file
    const search = document.getElementById('search');
    search.value = 'echo';
    search.dispatchEvent(new Event('input'));
  })()`);
  // An order takes two presses; the panels have what the API for operators answers.
  if (width === 1280) {
    await evaluate(`(() => { const b = document.querySelector('[data-upstream="files"] [data-order="restart"]'); b.click(); b.click(); })()`);
    operated.push(await until(`/restarted; its state is/.test(document.querySelector('[data-upstream="files"] .said').textContent)`));
    await evaluate(`document.querySelector('[data-upstream="local"] [data-order="drain"]').click()`); // once is not enough
  }
  operated.push(await until(`document.querySelector('[data-panel="calls"] .out').textContent && document.querySelector('[data-panel="sessions"] .out').textContent`));
  for (const scheme of ['light', 'dark']) {
    await send('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: scheme }] });
    if (pictures) await writeFile(`${pictures}/gateway-${width}-${scheme}.png`, Buffer.from((await send('Page.captureScreenshot', { captureBeyondViewport: true, clip: { x: 0, y: 0, width, height: 2400, scale: 1 } })).data, 'base64'));
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
console.log(JSON.stringify({ seen, axe: found, operated, complaints }));
await close();
