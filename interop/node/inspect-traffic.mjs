// Looks at the traffic of the server everyKind of inspect_calls_test.go with the page of farcall inspect, in Chromium, and prints what
// it saw as JSON: inspect-traffic.mjs CHROMIUM URL DIRECTORY DOWNLOADS < CAPTURE-OF-A-GATEWAY
import { mkdir, readFile, readdir } from 'node:fs/promises';
import { launch } from './chromium.mjs';

const [chromium, url, directory, downloads] = process.argv.slice(2);
const { send, evaluate, open, until: until1, size, survey, complaints, close } = await launch(chromium, directory);
const hop = await readFile('/dev/stdin', 'utf8');
const until = async (what, most) => { const is = await until1(what, most); if (!is) console.error('not so:', what); return is; };
const seen = { axe: {}, wide: {} };
const look = (name) => survey('traffic', name, seen);
const go = (hash) => evaluate(`location.hash = ${JSON.stringify(hash)}`);
const pick = (label, within = 'body') => evaluate(`[...document.querySelectorAll(${JSON.stringify(`${within} button`)})].find((b) => b.textContent === ${JSON.stringify(label)}).click()`);
const call = async (tool, { wait = true, args } = {}) => {
  await go(`#/tools/${tool}`);
  await until(`document.querySelector('.panel h1')?.textContent === '${tool}'`);
  if (args) await evaluate(`(() => { const b = document.querySelector('.panel textarea.json'); b.value = ${JSON.stringify(args)}; b.dispatchEvent(new Event('input', { bubbles: true })); })()`);
  await evaluate(`document.querySelector('.panel form').requestSubmit()`);
  if (wait) await until(`document.querySelector('.panel .outcome .card:not(.waiting)')`);
};
const traffic = async () => { await go('#/traffic'); await until(`document.getElementById('filter')`); };
const filter = (text) => evaluate(`(() => { const f = document.getElementById('filter'); f.value = ${JSON.stringify(text)}; f.dispatchEvent(new Event('input')); })()`);
// line is a line with a method and a name, the last one.
const line = (text) => `[...document.querySelectorAll('.tlist [role=option]')].filter((o) => !o.hidden && o.querySelector('.what').textContent.includes(${JSON.stringify(text)})).at(-1)`;
const choose = async (text) => { await until(line(text)); await evaluate(`${line(text)}.click()`); await until(`document.querySelector('#frame .tree, #frame .text')`); };
const answer = (value) => evaluate(`(() => { const form = document.querySelector('.question form'); form.querySelector('textarea').value = ${JSON.stringify(value)}; form.requestSubmit(); })()`);
const point = async (text, act) => {
  await traffic();
  await evaluate(`(() => {
    const box = document.querySelector('.breaks');
    box.open = true;
    box.querySelector('input[type=text]').value = ${JSON.stringify(text)};
    const act = box.querySelector('select');
    act.value = '${act}';
    act.dispatchEvent(new Event('change'));
    box.querySelector('input[type=number]').value = '300';
    box.querySelector('form').requestSubmit();
  })()`);
  await until(`document.querySelectorAll('.points li').length === 1`);
};
const unpoint = async () => { await traffic(); await evaluate(`document.querySelector('.points li button').click()`); await until(`!document.querySelector('.points li')`); };
const shown = `document.querySelector('.panel .outcome .card:not(.waiting)')`;

await mkdir(downloads);
await send('Browser.setDownloadBehavior', { behavior: 'allow', downloadPath: downloads });
await size(1280);
await open(url);
await until(`document.body.dataset.state === 'ready' && /tools/.test(document.getElementById('count').textContent)`);
await evaluate(`window.confirm = () => true; 0`);

// A question within its call, reports of progress, a call that is stopped.
await call('model', { wait: false });
await until(`document.querySelector('.question form textarea')`);
await answer('Graz');
await until(shown);
await call('steps');
await call('wait', { wait: false });
await until(`/^\\d/.test(document.querySelector('.outcome .waiting .muted')?.textContent)`);
await evaluate(`document.querySelector('.panel form').requestSubmit()`);
await until(shown);
await traffic();
seen.within = await until(`${line('model')} && document.querySelector('.tlist .child')`);
const bar = (text) => `${line(text)}?.querySelector('.fmarks').style.background`;
await until(bar('wait'));
seen.marks = await evaluate(`(${bar('wait')}.match(/linear-gradient/g) ?? []).length`);
seen.cancelled = await until(`${line('wait')}?.querySelector('.status').textContent === 'cancelled' && /--bad/.test(${bar('wait')})`);
await look('calls');

// Filters, bytes, the trace, replay.
await filter('method:tools/call name:steps');
seen.filtered = await until(`[...document.querySelectorAll('.tlist [role=option]')].filter((o) => !o.hidden).every((o) => /steps/.test(o.innerText)) && /^\\d+ lines? of/.test(document.getElementById('tcount').textContent)`);
await filter('what:x');
seen.wrong = await until(`/unknown field/.test(document.getElementById('fproblem').textContent)`);
await filter('');
await until(`!document.getElementById('fproblem').textContent`);
await call('order', { args: '{"to":{"name":"Ada"},"size":"s"}' });
await traffic();
await choose('tools/call order');
seen.fits = await until(`/The arguments fit the schema/.test(document.getElementById('judged')?.innerText)`);
await evaluate(`[...document.querySelectorAll('#frame .segments input')].find((i) => i.value === 'bytes').click()`);
seen.bytes = await until(`/^000000  7b .*\\n000010  /.test(document.querySelector('#frame .hex')?.innerText ?? document.querySelector('#frame .text').innerText)`);
await pick('Replay', '#frame');
seen.replayed = await until(`[...document.querySelectorAll('#frame button')].some((b) => /^Replayed: [\\d.]+ /.test(b.textContent))`);

// Breakpoints delay, drop and hold; what is held is changed.
await point('kind:request name:order', 'send');
await call('order', { args: '{"to":{"name":"Ada"},"size":"s"}' });
seen.delayed = /ordered/.test(await evaluate(`${shown}.innerText`)) && await evaluate(`(() => { const at = /([\\d.]+) ms/.exec(${shown}.innerText); return at ? Number(at[1]) >= 300 : /\\d s/.test(${shown}.innerText); })()`);
await unpoint();
await point('kind:request name:order', 'drop');
await call('order', { wait: false, args: '{"to":{"name":"Ada"},"size":"s"}' });
await traffic();
seen.dropped = await until(`[...document.querySelectorAll('.tlist .k33')].some((o) => !o.hidden)`);
await go('#/tools/order');
await until(`document.querySelector('.panel button.stop')`);
await evaluate(`document.querySelector('.panel form').requestSubmit()`);
await until(shown);
await unpoint();
await point('kind:request name:order', 'hold');
await call('order', { wait: false, args: '{"to":{"name":"Ada"},"size":"s"}' });
await until(`/order/.test(document.querySelector('.question textarea.heldframe')?.value)`);
await evaluate(`(() => { const box = document.querySelector('.question textarea.heldframe'); box.value = box.value.replace('Ada', 'Grace'); })()`);
await pick('Send', '.question');
seen.changed = await until(`/Grace/.test(${shown}?.innerText)`);
await unpoint();

// The same server beside itself, in another revision; calls are replayed there.
await go('#/server');
await until(`document.getElementById('beside')`);
await evaluate(`document.getElementById('era').value = '2025-06-18'`);
await pick('Connect beside');
seen.beside = await until(`location.hash === '#/server/2' && document.body.dataset.state === 'ready' && /2025-06-18/.test(document.getElementById('state').textContent)`);
await look('beside');
await traffic();
await filter('name:order kind:request');
await choose('tools/call order');
await evaluate(`(() => { const s = document.querySelector('[aria-label="Server to replay to"]'); s.value = '2'; })()`);
await pick('Replay', '#frame');
seen.again = await until(`[...document.querySelectorAll('#frame button')].some((b) => /^Replayed: [\\d.]+ /.test(b.textContent))`);
seen.named = await until(`[...document.querySelectorAll('.tlist .of')].some((o) => o.textContent === '2')`);
seen.conns = await until(`(() => { const all = [...document.querySelectorAll('#conns .conn')]; return all.length >= 2 && all.every((l) => l.querySelector('.lbar')); })()`);
const marked = `document.querySelector('.tlist [aria-selected=true]:not([hidden])')`;
const second = `[...document.querySelectorAll('#conns .conn')].find((c) => /^2 /.test(c.textContent))?.querySelector('.lbar')`;
await until(second);
await evaluate(`${second}.click()`);
seen.barred = await until(`${marked}?.querySelector('.of').textContent === '2'`);
await filter('');
seen.stays = await until(`[...document.querySelectorAll('.tlist [role=option]:not([hidden])')].some((o) => !/order/.test(o.textContent)) && /order/.test(${marked}?.textContent) && ${marked}.querySelector('.of').textContent === '2'`);
await look('servers');
await filter('name:order kind:request');
await until(`/^\\d+ lines? of/.test(document.getElementById('tcount').textContent) && !${line('initialize')}`);
await evaluate(`(() => { const s = document.getElementById('tserver'); s.value = '2'; s.dispatchEvent(new Event('change')); })()`);
await pick('Capture ▾');
await pick('Replay the calls of these lines');
seen.many = await until(`/^Replayed (\\d+) of \\1\\.$/.test(document.getElementById('fproblem').textContent)`);

// A mock, and a capture that is saved and opened again.
await filter('');
await evaluate(`(() => { const s = document.getElementById('tserver'); s.value = '1'; s.dispatchEvent(new Event('change')); })()`);
await until(line('tools/list')); // the filter is gone
await pick('Capture ▾');
await pick('Call a mock of what was seen');
await until(`document.body.dataset.state === 'ready' && location.hash === '#/server/3'`);
await call('order', { args: '{"to":{"name":"Ada"},"size":"s"}' });
seen.mock = /ordered/.test(await evaluate(`${shown}.innerText`));
await traffic();
await pick('Capture ▾');
await pick('Save the lines');
let saved = '';
for (let n = 0; n < 200 && !/\n/.test(saved); n++) {
  const [name] = (await readdir(downloads)).filter((f) => f.endsWith('.jsonl'));
  if (name) saved = await readFile(`${downloads}/${name}`, 'utf8');
  await new Promise((done) => { setTimeout(done, 50); });
}
seen.saved = /"type":"capture"/.test(saved) && /tools\/call/.test(saved);
const drop = (name, text) => evaluate(`(() => { const data = new DataTransfer(); data.items.add(new File([${JSON.stringify(text)}], '${name}')); dispatchEvent(new DragEvent('drop', { dataTransfer: data, cancelable: true })); })()`);
await drop('saved.jsonl', saved);
seen.opened = await until(`[...document.querySelectorAll('#servers option')].some((o) => /saved/.test(o.textContent))`);
const server = (name) => evaluate(`(() => { const s = document.getElementById('servers'); s.value = [...s.options].find((o) => o.textContent.includes(${JSON.stringify(name)})).value; s.dispatchEvent(new Event('change')); })()`);
await server('(2025-06-18)');
await go('#/checks');
await until(`document.getElementById('was')`);
await evaluate(`(() => { const was = document.getElementById('was'); was.value = [...was.options].find((o) => /saved/.test(o.textContent)).value; was.form.requestSubmit(); })()`);
seen.same = await until(`/Nothing has changed/.test(document.getElementById('changes').innerText)`);

// Both sides of a gateway, with a trace and what its guard has decided.
await drop('hop.jsonl', hop);
await until(`[...document.querySelectorAll('#servers option')].some((o) => /hop/.test(o.textContent))`);
await traffic();
await evaluate(`(() => { const s = document.getElementById('tserver'); s.value = [...s.options].find((o) => /hop/.test(o.textContent)).value; s.dispatchEvent(new Event('change')); })()`);
seen.queued = await until(`document.querySelector('.tlist .fbar.queued')`);
await choose('calc.add');
seen.trace = await until(`/Trace 0af7651916cd43dd8448eb211c80319c/.test(document.getElementById('judged')?.innerText)`);
seen.decided = await until(`/The guard: allowed for ada/.test(document.getElementById('judged')?.innerText)`);
seen.hops = await until(`document.querySelectorAll('#frame .hop').length === 4 && /The server got/.test(document.getElementById('frame').innerText)`);
if (!await evaluate(`document.getElementById('withconns').checked`)) await evaluate(`document.getElementById('withconns').click()`);
await look('hop');
console.log(JSON.stringify({ ...seen, complaints: complaints.filter((c) => !/GenericIssue/.test(c)) }));
await close();
