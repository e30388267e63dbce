// Measures the page of farcall inspect with Chromium, and prints what it saw as JSON:
// inspect-marks.mjs CHROMIUM URL DIRECTORY CAPTURE
//
// Times are in milliseconds. cpu is how long a task has used the processor, which other programs do not change much;
// the other times are those of the clock.
import { readFile } from 'node:fs/promises';
import { launch } from './chromium.mjs';
import { tracer } from './tasks.mjs';

const [chromium, url, directory, capture] = process.argv.slice(2);
const browser = await launch(chromium, directory);
const { send, evaluate, complaints, close } = browser;
const until = (expression, most = 240000) => evaluate(`new Promise((done) => {
  const late = Date.now() + ${most};
  const look = () => {
    const is = document.readyState === 'complete' && (${expression});
    if (is || Date.now() > late) done(Boolean(is));
    else setTimeout(look, 20);
  };
  look();
})`);
const { tasks, renderer } = tracer(browser);
const call = async (tool) => {
  await evaluate(`location.hash = '#/tools/${tool}'`);
  await until(`document.querySelector('.panel h1')?.textContent === '${tool}'`);
  await evaluate(`document.querySelector('.panel form').requestSubmit()`);
};
const answered = `document.querySelector('.panel .outcome .card:not(.waiting)')`;
const frames = `Number((/of ([\\d,]+) frames/.exec(document.getElementById('tcount')?.textContent)?.[1] ?? '0').replaceAll(',', ''))`;
const list = `document.querySelector('[aria-label=Frames]')`;
const drawn = `new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))`;
const seen = {};

await send('Emulation.setDeviceMetricsOverride', { width: 1280, height: 900, deviceScaleFactor: 1, mobile: false });
seen.open = await tasks(async () => {
  await send('Page.navigate', { url });
  return until(`document.querySelector('.state.ready')`);
});
seen.paint = await evaluate(`Math.round(performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0)`);
await until(`/50,00\\d/.test(document.getElementById('listnote').textContent + document.getElementById('count').textContent)`);

// From a key to the drawn list, each time with another word.
seen.filter = await tasks(() => evaluate(`(async () => {
  const box = document.getElementById('search');
  const took = [];
  for (const word of ['t4', '499', 'tool', '123', 'zzz', '77', '']) {
    const note = new Promise((done) => {
      const observer = new MutationObserver(() => { observer.disconnect(); done(); });
      observer.observe(document.getElementById('listnote'), { subtree: true, childList: true, characterData: true });
    });
    box.value = word;
    const began = performance.now();
    box.dispatchEvent(new Event('input', { bubbles: true }));
    await note;
    await new Promise(requestAnimationFrame);
    took.push(Math.round(performance.now() - began));
    await ${drawn};
  }
  return took;
})()`));

// 400 reports of progress: how many of them were seen, and how long the page stood still at most.
seen.progress = await tasks(async () => {
  await call('progress');
  return evaluate(`new Promise((done) => {
    const notes = new Set();
    let last = performance.now(), still = 0;
    const look = () => {
      const now = performance.now();
      still = Math.max(still, now - last);
      last = now;
      notes.add(document.querySelector('.panel .outcome progress')?.value);
      if (${answered}) done({ seen: notes.size, still: Math.round(still) });
      else requestAnimationFrame(look);
    };
    look();
  })`);
});

await call('flood');
await evaluate(`location.hash = '#/traffic'`);
seen.flood = await tasks(() => until(`${frames} >= 40000`));

await call('chatter');
await evaluate(`location.hash = '#/log'`);
seen.log = await tasks(() => until(`document.querySelector('.log')?.textContent.includes('line 19999')`));
await evaluate(`location.hash = '#/traffic'`);

// One million frames: how they come, how the list scrolls, how it is filtered, and what the tab takes.
await send('Page.setInterceptFileChooserDialog', { enabled: true });
const chooser = new Promise((done) => browser.on('Page.fileChooserOpened', done));
await send('Runtime.evaluate', { userGesture: true, expression: `[...document.querySelectorAll('.menu button')].find((b) => /Open a file/.test(b.textContent)).click()` });
const { backendNodeId } = await chooser;
seen.million = await tasks(async () => {
  await send('DOM.setFileInputFiles', { backendNodeId, files: [capture] });
  await until(`${frames} >= 1e6`);
  return evaluate(frames);
});
await evaluate(`document.getElementById('follow').click()`);
seen.scroll = await tasks(() => evaluate(`(async () => {
  const list = ${list};
  const first = () => Math.min(...[...list.querySelectorAll('[aria-posinset]:not([hidden])')].map((r) => Number(r.getAttribute('aria-posinset'))));
  const texts = new Set();
  for (let i = 0; i <= 200; i++) {
    list.scrollTop = (list.scrollHeight - list.clientHeight) * (i % 2 ? i / 200 : 1 - i / 200);
    await ${drawn};
    texts.add(first());
  }
  const ends = {};
  for (const key of ['Home', 'PageDown', 'End', 'PageUp']) {
    list.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
    await ${drawn};
    ends[key] = Number(list.querySelector('[aria-selected=true]')?.getAttribute('aria-posinset') ?? 0);
  }
  return { places: texts.size, empty: [...list.querySelectorAll('.vrow:not([hidden]) .what')].filter((e) => !e.textContent).length, ends };
})()`));
const filter = (text) => tasks(async () => {
  const began = await evaluate(`window.before = document.getElementById('tcount').textContent`);
  await evaluate(`document.getElementById('filter').value = ${JSON.stringify(text)}; document.getElementById('filter').dispatchEvent(new Event('input', { bubbles: true }))`);
  await until(`document.getElementById('tcount').textContent !== window.before`);
  return `${began} -> ${await evaluate(`document.getElementById('tcount').textContent`)}`;
});
seen.chosen = await filter('name:t77*');
seen.all = await filter('');
// More frames than are kept: the oldest leave while others come.
await call('long');
await evaluate(`location.hash = '#/traffic'`);
seen.full = await tasks(() => evaluate(`new Promise((done) => {
  let most = 0;
  const look = () => {
    const now = ${frames};
    if (now < most) done({ most, then: now });
    else { most = now; setTimeout(look, 50); }
  };
  look();
})`));
await send('HeapProfiler.collectGarbage');
const rollup = await readFile(`/proc/${renderer()}/smaps_rollup`, 'utf8');
const kilobytes = (name) => Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(rollup)[1]);
seen.memory = { pssMB: Math.round(kilobytes('Pss') / 1e3), ownMB: Math.round((kilobytes('Private_Dirty') + kilobytes('Private_Clean')) / 1e3) };
seen.frames = await evaluate(frames);
console.log(JSON.stringify({ ...seen, complaints: complaints.filter((c) => !/GenericIssue/.test(c)) }));
await close();
