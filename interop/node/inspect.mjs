// Uses the page of farcall inspect with Chromium, and prints what it saw as JSON:
// inspect.mjs CHROMIUM URL DIRECTORY ANOTHER-SERVER
import { writeFile } from 'node:fs/promises';
import { axe, launch } from './chromium.mjs';

const [chromium, url, directory, another] = process.argv.slice(2);
const { send, evaluate, open, until, size, complaints, close } = await launch(chromium, directory);
const text = (selector) => evaluate(`document.querySelector(${JSON.stringify(selector)})?.innerText ?? ''`);
const call = async (tool, answer) => {
  await evaluate(`location.hash = '#/tools/${tool}'`);
  await until(`document.querySelector('.panel h1')?.textContent === '${tool}'`);
  await evaluate(`document.querySelector('.panel form').requestSubmit()`);
  if (answer) {
    if (!await until(`document.querySelector('.question form')`)) throw new Error(await text('body'));
    for (const width of [1280, 390]) await look('question', width);
    await size(1280);
    await evaluate(answer);
  }
  await until(`document.querySelector('.panel .outcome .card:not(.waiting)')`);
  return text('.panel .outcome');
};
const seen = { axe: {} };
const pictures = process.env.FARCALL_SCREENSHOTS; // a directory
// look has axe look at the page as it is, in both schemes, and takes pictures.
const look = async (name, width, height = 900) => {
  await size(width, height);
  for (const scheme of ['light', 'dark']) {
    await send('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: scheme }, { name: 'prefers-reduced-motion', value: 'reduce' }] });
    const found = await axe(evaluate);
    if (found.length) seen.axe[`${name} ${width} ${scheme}`] = found;
    if (pictures) await writeFile(`${pictures}/${name}-${width}-${scheme}.png`, Buffer.from((await send('Page.captureScreenshot')).data, 'base64'));
  }
};
// views are the places of the page, each with what is there once it is drawn.
const views = { list: '#/', item: '#/tools/ask', traffic: '#/traffic', log: '#/log', history: '#/history', tasks: '#/tasks', server: '#/server', checks: '#/checks' };

await size(1280);
await open(url);
seen.ready = await until(`document.querySelector('.state.ready')`);
seen.token = await evaluate(`location.href.includes('token=')`);
seen.paint = await evaluate(`performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0`);
seen.answer = await call('ask', `(() => {
  const form = document.querySelector('.question form');
  const field = form.querySelector('textarea, input:not([type=checkbox])');
  field.value = 'Ada';
  field.dispatchEvent(new Event('input', { bubbles: true }));
  form.requestSubmit();
})()`);
await call('hostile');
seen.hostile = await evaluate(`({ pwned: Boolean(window.pwned), images: document.querySelectorAll('main img').length, spelled: document.querySelectorAll('main .ctl').length })`);

// A breakpoint holds a call, and the page answers it.
await evaluate(`location.hash = '#/traffic'`);
await until(`document.querySelector('.breaks summary')`);
await evaluate(`(() => {
  const box = document.querySelector('.breaks');
  box.open = true;
  box.querySelector('input[type=text]').value = 'method:tools/call kind:request';
  box.querySelector('form').requestSubmit();
})()`);
if (!await until(`document.querySelectorAll('.points li').length === 1`)) throw new Error(await text('.breaks'));
for (const width of [1920, 1280, 390]) await look('breakpoints', width);
await size(1280);
await evaluate(`location.hash = '#/tools/hostile'`);
await until(`document.querySelector('.panel h1')?.textContent === 'hostile'`);
await evaluate(`document.querySelector('.panel form').requestSubmit()`);
seen.held = await until(`/tools.call/.test(document.querySelector('.question textarea')?.value ?? '')`);
await evaluate(`document.querySelector('.question details').open = true`);
for (const width of [1920, 1280, 390]) await look('held', width);
await size(1280);
await evaluate(`(() => {
  const box = document.querySelector('.question details');
  box.querySelector('textarea').value = '{"content": [{"type": "text", "text": "from the page"}]}';
  box.querySelector('button').click();
})()`);
seen.answered = await until(`document.getElementById('questions').hidden && /from the page/.test(document.querySelector('.panel .outcome')?.innerText)`);
await evaluate(`location.hash = '#/traffic'`);
await until(`document.querySelector('.points li')`);
await evaluate(`document.querySelector('.points li button').click()`);
await until(`!document.querySelector('.points li')`);

// A tool is started as a task, followed with its question, and another one is cancelled.
const start = async () => {
  await evaluate(`location.hash = '#/tools/later'`);
  await until(`document.querySelector('.panel h1')?.textContent === 'later'`);
  await evaluate(`[...document.querySelectorAll('.panel .check')].find((l) => l.innerText === 'As a task').querySelector('input').checked = true`);
  await evaluate(`document.querySelector('.panel form').requestSubmit()`);
  await until(`/The task/.test(document.querySelector('.panel .outcome .card:not(.waiting)')?.innerText)`);
  return text('.panel .outcome');
};
const inTask = (n, label) => evaluate(`[...document.querySelectorAll('.tasks > li')][${n}].querySelectorAll('button').forEach((b) => { if (new RegExp(${JSON.stringify(label)}).test(b.textContent)) b.click(); })`);
seen.started = await start();
await evaluate(`location.hash = '#/tasks'`);
await until(`document.querySelectorAll('.tasks > li').length === 1`);
await inTask(0, 'ollow$');
await until(`document.querySelector('.question form')`);
for (const width of [1280, 390]) await look('task', width);
await size(1280);
await evaluate(`(() => {
  const form = document.querySelector('.question form');
  const field = form.querySelector('textarea, input:not([type=checkbox])');
  field.value = 'Ada';
  field.dispatchEvent(new Event('input', { bubbles: true }));
  form.requestSubmit();
})()`);
await until(`/later, Ada/.test(document.querySelector('.tasks .outcome')?.innerText) && document.querySelector('.tasks .tag')?.innerText === 'completed'`);
seen.task = await text('.tasks > li');
await start();
await evaluate(`location.hash = '#/tasks'`);
await until(`document.querySelectorAll('.tasks > li').length === 2`);
await inTask(0, '^Cancel$');
seen.cancelled = await until(`document.querySelector('.tasks > li .tag')?.innerText === 'cancelled'`);

// A fragment that is malformed is the name of nothing.
await evaluate(`location.hash = '#/tools/%E0%A4%A'`);
await until(`/%E0%A4%A/.test(document.querySelector('main h1')?.innerText)`);

// Nothing is wider than a phone, and axe finds nothing anywhere.
seen.wide = {};
for (const [name, hash] of Object.entries(views)) {
  await evaluate(`location.hash = '${hash}'`);
  await until(`document.querySelector('main').children.length > 0`);
  if (name === 'traffic') {
    await until(`document.querySelector('.rows [role=option], .vrow, [role=option]')`);
    await evaluate(`[...document.querySelectorAll('main [role=option]')].find((o) => /tools\\/call *ask/.test(o.innerText))?.click()`);
    seen.fits = await until(`/The arguments fit the schema/.test(document.getElementById('judged')?.innerText)`);
  }
  await look(name, 1920, 1080);
  await look(name, 1280);
  await look(name, 390, 844);
  seen.wide[hash] = await evaluate(`Math.max(0, document.documentElement.scrollWidth - innerWidth)`);
}
seen.checks = await text('main');

// The server is checked by its specification, and compared with another one.
await size(1280);
await until(`document.getElementById('conform')`);
await evaluate(`document.getElementById('conform').click()`);
await until(`/passed/.test(document.getElementById('specification')?.innerText)`);
seen.conform = await text('#specification');
await evaluate(`document.querySelector('#specification input[value=pass]').click()`);
await evaluate(`document.querySelector('#specification .findings details').open = true`);
await evaluate(`document.getElementById('specification').scrollIntoView()`);
for (const width of [1280, 390]) await look('conform', width);
await size(1280);
await evaluate(`location.hash = '#/traffic'`);
await until(`document.getElementById('follow')`);
await evaluate(`document.getElementById('follow').click()`);
await until(`document.getElementById('follow').checked && document.querySelector('.vlist[aria-label=Frames]')?.scrollTop > 100`);
await evaluate(`document.querySelector('.vlist[aria-label=Frames]').scrollTop = 20`); // as the scrollbar does
seen.left = await until(`!document.getElementById('follow').checked && document.querySelector('.vlist[aria-label=Frames]').scrollTop === 20`);
await evaluate(`location.hash = '#/server'`);
await until(`document.getElementById('newtarget')`);
await evaluate(`(() => { const field = document.getElementById('newtarget'); field.value = ${JSON.stringify(another)}; field.form.requestSubmit(); })()`);
await until(`document.querySelector('.servername')?.hidden && document.querySelector('.state.ready') && location.hash === '#/server/2'`);
await evaluate(`location.hash = '#/checks'`);
await until(`document.getElementById('was')`);
await evaluate(`document.getElementById('was').form.requestSubmit()`);
await until(`/Breaking/.test(document.getElementById('changes').innerText)`);
seen.diff = await text('#changes');
await evaluate(`document.getElementById('changes').scrollIntoView()`);
for (const width of [1280, 390]) {
  await look('diff', width);
  seen.wide[`diff ${width}`] = await evaluate(`Math.max(0, document.documentElement.scrollWidth - innerWidth)`);
}

console.log(JSON.stringify({ ...seen, complaints: complaints.filter((c) => !/NavigationEntryMarkedSkippable/.test(c)) }));
await close();
