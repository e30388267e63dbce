// Measures the page of farcall inspect with Chromium, and prints what it saw as JSON:
// inspect-marks.mjs CHROMIUM URL DIRECTORY
import { launch } from './chromium.mjs';

const [chromium, url, directory] = process.argv.slice(2);
const { send, evaluate, complaints, close } = await launch(chromium, directory);
const until = (expression, most = 120000) => evaluate(`new Promise((done) => {
  const late = Date.now() + ${most};
  const look = () => {
    const is = document.readyState === 'complete' && (${expression});
    if (is || Date.now() > late) done(Boolean(is));
    else setTimeout(look, 20);
  };
  look();
})`);
// tasks returns the long tasks, in milliseconds, while something goes on.
const tasks = async (work) => {
  await evaluate(`window.long = []; window.watching?.disconnect(); window.watching = new PerformanceObserver((l) => { for (const e of l.getEntries()) window.long.push(Math.round(e.duration)); }); window.watching.observe({ entryTypes: ['longtask'] }); 0`);
  const began = performance.now();
  const ok = await work();
  const seconds = (performance.now() - began) / 1000;
  const long = await evaluate('window.long');
  return { ok, seconds: Math.round(seconds * 10) / 10, over50: long.length, longest: Math.max(0, ...long) };
};
const call = async (tool) => {
  await evaluate(`location.hash = '#/tools/${tool}'`);
  await until(`document.querySelector('.panel h1')?.textContent === '${tool}'`);
  await evaluate(`document.querySelector('.panel form').requestSubmit()`);
};
const answered = `document.querySelector('.panel .outcome .card:not(.waiting)')`;
const seen = {};

await send('Emulation.setDeviceMetricsOverride', { width: 1280, height: 900, deviceScaleFactor: 1, mobile: false });
await send('Performance.enable');
await send('Page.navigate', { url });
await until(`document.querySelector('.state.ready')`);
seen.paint = await evaluate(`Math.round(performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0)`);
await until(`/50,00\\d/.test(document.getElementById('listnote').textContent + document.getElementById('count').textContent)`);

// From a key to the drawn list, each time with another word.
seen.filter = [];
for (const word of ['t4', '499', 'tool', '123', 'zzz', '77']) {
  seen.filter.push(await evaluate(`new Promise((done) => {
    const box = document.getElementById('search');
    const note = document.getElementById('listnote');
    box.value = '${word}';
    const began = performance.now();
    const observer = new MutationObserver(() => requestAnimationFrame(() => { observer.disconnect(); done(Math.round(performance.now() - began)); }));
    observer.observe(document.getElementById('items').parentElement, { subtree: true, childList: true, characterData: true, attributes: true });
    setTimeout(() => done(-1), 5000);
    box.dispatchEvent(new Event('input', { bubbles: true }));
  })`));
}
await evaluate(`document.getElementById('search').value = ''; document.getElementById('search').dispatchEvent(new Event('input', { bubbles: true }))`);

seen.progress = await tasks(async () => { await call('progress'); return until(answered); });
await call('flood');
await evaluate(`location.hash = '#/traffic'`);
const frames = `Number((/of ([\\d,]+) frames/.exec(document.querySelector('main').textContent)?.[1] ?? '0').replaceAll(',', ''))`;
seen.flood = await tasks(() => until(`${frames} >= 40000`));
seen.frames = await evaluate(frames);
await evaluate(`document.querySelector('main .rows, main [role=listbox]')?.scrollTo(0, 1e7)`);
await send('HeapProfiler.collectGarbage');
const { metrics } = await send('Performance.getMetrics');
seen.heapMB = Math.round(metrics.find((m) => m.name === 'JSHeapUsedSize').value / 1e6);
console.log(JSON.stringify({ ...seen, complaints }));
await close();
