// A session with the page of farcall inspect: connects, lists, and makes one call. It prints what it saw as JSON:
// inspect-session.mjs CHROMIUM URL DIRECTORY KIND NAME ARGUMENTS [PICTURE]
//
// KIND is tools or methods, ARGUMENTS are JSON; with PICTURE.png it keeps pictures of the call and of the traffic.
import { writeFile } from 'node:fs/promises';
import { launch } from './chromium.mjs';

const [chromium, url, directory, kind, name, args, picture] = process.argv.slice(2);
const { send, evaluate, complaints, close } = await launch(chromium, directory);
const until = async (expression) => {
  for (const late = Date.now() + 90000; Date.now() < late;) {
    if (await evaluate(`document.readyState === 'complete' && Boolean(${expression})`)) return true;
    await new Promise((done) => { setTimeout(done, 100); });
  }
  return false;
};
const look = async (what) => picture && writeFile(picture.replace('.png', `-${what}.png`), Buffer.from((await send('Page.captureScreenshot')).data, 'base64'));
const text = (selector) => evaluate(`document.querySelector('${selector}')?.innerText ?? ''`);

await send('Emulation.setDeviceMetricsOverride', { width: 1280, height: 900, deviceScaleFactor: 1, mobile: false });
await send('Page.navigate', { url });
const seen = { ready: await until(`document.querySelector('.state.ready')`) };
await until(`/^[\\d,]+ (${kind})/.test(document.getElementById('count').textContent)`);
seen.state = await text('#state');
seen.list = await text('#listnote');
await evaluate(`location.hash = ${JSON.stringify(`#/${kind}/${encodeURIComponent(name)}`)}`);
await until(`document.querySelector('.panel form')`);
await evaluate(`(() => {
  const box = document.querySelector('.panel form textarea.json');
  if (box) { box.value = ${JSON.stringify(args)}; box.dispatchEvent(new Event('input', { bubbles: true })); }
})()`);
await evaluate(`document.querySelector('.panel form').requestSubmit()`);
await until(`document.querySelector('.panel .outcome .card:not(.waiting)')`);
seen.answer = (await text('.panel .outcome')).slice(0, 2000);
await look('call');
await evaluate(`location.hash = '#/traffic'`);
await until(`document.querySelector('.trow.k113')`);
seen.traffic = await text('#tcount');
await look('traffic');
seen.complaints = complaints.filter((c) => !/GenericIssue/.test(c));
console.log(JSON.stringify(seen));
await close();
