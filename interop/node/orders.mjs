// Operates a gateway in its page with Chromium: pins, orders with their permissions, sessions, decisions. Prints what it saw as
// JSON: orders.mjs CHROMIUM URL DIRECTORY
import { launch } from './chromium.mjs';

const [chromium, url, directory] = process.argv.slice(2);
const { evaluate, open, until, size, survey, complaints, close } = await launch(chromium, directory);
const seen = { axe: {}, wide: {} };
const text = (selector) => evaluate(`document.querySelector(${JSON.stringify(selector)})?.innerText ?? ''`);
const upstream = async (name) => {
  await evaluate(`location.hash = '#/gateway/${name}'`);
  await until(`document.querySelector('.gateway h1')?.textContent === '${name}' && document.querySelector('.gateway .facts')`);
};
const openPanel = (name) => evaluate(`document.querySelector('[data-panel="${name}"]').open = true`);
// press presses the button of a label twice within an element, and waits for the answer.
const press = async (within, label, said) => {
  await evaluate(`(() => { const b = [...document.querySelectorAll('${within} button')].find((one) => one.textContent === ${JSON.stringify(label)}); b.click(); b.click(); })()`);
  await until(`${said}.test(document.querySelector('.gateway').innerText)`);
};

await size(1280);
await open(url);
await until(`document.querySelectorAll('.upstreams li').length === 2`);

// What differs from its pins is shown in the tab and in the checks, and accepted.
await upstream('changing');
await openPanel('upins');
await until(`document.querySelector('[data-panel="upins"] .diff')`);
seen.diff = await text('[data-panel="upins"]');
await survey('orders', 'pins', seen);
const connect = async (name) => {
  await evaluate(`location.hash = '#/server'`);
  await until(`document.querySelector('#servers option')`);
  await evaluate(`(() => { const s = document.getElementById('servers'); s.value = [...s.options].find((o) => o.textContent === '${name}').value; s.dispatchEvent(new Event('change')); })()`);
  await until(`[...document.querySelectorAll('.welcome button')].some((one) => one.textContent === 'Connect')`);
  await evaluate(`[...document.querySelectorAll('.welcome button')].find((one) => one.textContent === 'Connect').click()`);
  await until(`document.body.dataset.state === 'ready'`);
};
await connect('changing');
await evaluate(`location.hash = '#/checks'`);
await until(`document.getElementById('was')?.value === 'pins'`);
await evaluate(`document.getElementById('was').form.requestSubmit()`);
await until(`document.querySelector('#changes .diff')`);
seen.checked = await text('#changes');
await evaluate(`document.getElementById('conform').click()`);
await until(`/passed/.test(document.getElementById('specification').innerText)`, 60000);
seen.conform = await text('#specification');

// A virtual endpoint has no pins.
await connect('team');
await evaluate(`location.hash = '#/checks'`);
await until(`document.querySelector('#changes p')`);
seen.virtual = await text('#changes');
await upstream('changing');
await openPanel('upins');
await until(`document.querySelector('[data-panel="upins"] .diff')`);
await press('[data-panel="upins"]', 'Accept what it says now', '/Accepted/');
seen.accepted = await text('[data-panel="upins"] [role=status]');

// Orders: of one upstream they are allowed, of the other one refused.
await press('.orders', 'Restart', '/restarted; its state is/');
seen.restarted = await text('#said');
await press('.orders', 'Drain', '/draining: its calls end/');
seen.drained = await text('#said');
await press('.orders', 'Enable', '/enabled; its state is/');
seen.enabled = await text('#said');
await upstream('still');
await press('.orders', 'Drain', '/must allow/');
seen.refused = await text('#said');
await survey('orders', 'refused', seen);

// Sessions, and what the guard decides.
await evaluate(`location.hash = '#/gateway'`);
await until(`document.querySelector('[data-panel="sessions"]')`);
await openPanel('sessions');
await until(`document.querySelector('[data-panel="sessions"] td')`);
seen.sessions = await text('[data-panel="sessions"]');
await openPanel('explain');
await until(`document.getElementById('explain')`);
const explain = async (call) => {
  await evaluate(`(() => { const f = document.getElementById('explain'); f.elements.call.value = ${JSON.stringify(call)}; f.requestSubmit(); })()`);
  await until(`[...document.querySelectorAll('[data-panel="explain"] dd')].some((one) => one.textContent === ${JSON.stringify(call)})`);
  return text('[data-panel="explain"] [role=status]');
};
seen.allowed = await explain('gateway/admin changing/drain');
seen.denied = await explain('gateway/admin still/drain');
await survey('orders', 'decisions', seen);
await press('[data-panel="sessions"]', 'End', '/has ended/');
seen.ended = await text('[data-panel="sessions"] > .out > [role=status]');
console.log(JSON.stringify({ ...seen, complaints: complaints.filter((c) => !/status of 403/.test(c)) }));
await close();
