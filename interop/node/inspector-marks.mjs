// Puts the load of inspect-marks.mjs on the page of MCP Inspector, and prints what it saw as JSON:
// inspector-marks.mjs CHROMIUM URL DIRECTORY many|few
//
// Its server has 50,000 tools (many), or those alone that are called (few).
import { readFile } from 'node:fs/promises';
import { launch } from './chromium.mjs';
import { tracer } from './tasks.mjs';

const [chromium, url, directory, tools] = process.argv.slice(2);
const browser = await launch(chromium, directory);
const { send, evaluate, close } = browser;
const { tasks, renderer } = tracer(browser);
const seen = {};
// until waits until an expression is true. A page that does not answer ends it, too.
const until = async (expression, most) => {
  const late = Date.now() + most;
  while (Date.now() < late) {
    const is = await Promise.race([evaluate(`Boolean(${expression})`), new Promise((done) => { setTimeout(done, Math.max(0, late - Date.now()), false); })]);
    if (is) return true;
    await new Promise((done) => { setTimeout(done, 50); });
  }
  return false;
};
const button = (text) => `[...document.querySelectorAll('button')].find((b) => ${text}.test(b.innerText))`;
const print = async () => {
  console.log(JSON.stringify(seen));
  setTimeout(() => process.exit(), 1000).unref(); // the page may not answer any more
  await close();
  process.exit();
};

await send('Emulation.setDeviceMetricsOverride', { width: 1280, height: 900, deviceScaleFactor: 1, mobile: false });
seen.open = await tasks(async () => {
  await send('Page.navigate', { url });
  return until(`document.querySelector('input[aria-label^=Connect]')`, 60000);
});
seen.paint = await evaluate(`Math.round(performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0)`);
seen.list = await tasks(async () => {
  await evaluate(`document.querySelector('input[aria-label^=Connect]').click()`);
  await until(`[...document.querySelectorAll('label')].some((l) => l.innerText.trim() === 'Tools')`, 60000);
  await evaluate(`[...document.querySelectorAll('label')].find((l) => l.innerText.trim() === 'Tools').click()`);
  await until(`/Tools \\(\\d/.test(document.body.innerText)`, 60000);
  if (tools === 'many') await evaluate(`document.querySelector('input[aria-label="Fetch lists one page at a time"]:checked')?.click()`);
  const all = await until(`${tools === 'many' ? '/Tools \\(50,?00\\d\\)/' : '/Tools \\(\\d\\)/'}.test(document.body.innerText)`, 90000);
  return all || evaluate(`document.body.innerText.slice(0, 300)`);
});
if (tools === 'many') {
  if (seen.list.result === true) {
    seen.filter = await tasks(async () => {
      const took = [];
      for (const word of ['t4', '499', 'tool', '123', 'zzz', '77']) {
        took.push(await Promise.race([new Promise((done) => { setTimeout(done, 20000, 'more than 20 s'); }), evaluate(`new Promise((done) => {
          const box = document.querySelector('input[placeholder^="Search tools"]');
          const began = performance.now();
          Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set.call(box, '${word}');
          const observer = new MutationObserver(() => requestAnimationFrame(() => { observer.disconnect(); done(Math.round(performance.now() - began)); }));
          observer.observe(document.body, { subtree: true, childList: true, characterData: true });
          box.dispatchEvent(new Event('input', { bubbles: true }));
        })`)]));
        if (took.at(-1) === 'more than 20 s') break;
        await new Promise((done) => { setTimeout(done, 500); });
      }
      return took;
    });
  }
  await print();
}
const end = () => Promise.race([evaluate(`document.body.innerText.slice(-200)`), new Promise((done) => { setTimeout(done, 10000, 'the page does not answer'); })]);
const call = async (tool) => {
  await evaluate(`${button(`/\\b${tool}\\b/`)}.click()`);
  await until(button('/^Execute Tool/'), 10000);
  await evaluate(`${button('/^Execute Tool/')}.click()`);
};
seen.progress = await tasks(async () => {
  await call('progress');
  return Promise.race([new Promise((done) => { setTimeout(done, 30000, 'no answer within 30 s'); }), evaluate(`new Promise((done) => {
    const notes = new Set();
    let last = performance.now(), still = 0;
    const look = () => {
      const now = performance.now();
      still = Math.max(still, now - last);
      last = now;
      const text = document.body.innerText;
      notes.add(/(\\d+) \\/ 400/.exec(text)?.[1]);
      if (/Results\\s/.test(text)) done({ seen: notes.size, still: Math.round(still), text: text.slice(text.indexOf('Results'), text.indexOf('Results') + 80) });
      else requestAnimationFrame(look);
    };
    look();
  })`)]);
});
seen.after = await end();
seen.flood = await tasks(async () => {
  await call('flood');
  return await until(`/Results\\s/.test(document.body.innerText)`, 60000) && evaluate(`/Results[^]{0,80}/.exec(document.body.innerText)?.[0]`);
});
seen.end = await end();
const rollup = await readFile(`/proc/${renderer()}/smaps_rollup`, 'utf8');
seen.memory = { pssMB: Math.round(Number(/^Pss:\s+(\d+)/m.exec(rollup)[1]) / 1e3) };
await print();
