// Looks at the page of a gateway with Chromium, on a phone and on desks, operates the gateway and calls it, and prints
// what it saw as JSON: page.mjs CHROMIUM URL DIRECTORY
import { launch } from './chromium.mjs';

const [chromium, url, directory] = process.argv.slice(2);
const { send, evaluate, open, until, size, survey, complaints, close } = await launch(chromium, directory);
const seen = { views: {}, axe: {}, wide: {} };
const look = async (name) => {
  await survey('gateway', name, seen);
  seen.views[name] = await evaluate('document.body.innerText');
};
const go = (hash) => evaluate(`location.hash = ${JSON.stringify(hash)}`);
const openPanels = (names) => evaluate(`${JSON.stringify(names)}.forEach((one) => { document.querySelector('[data-panel="' + one + '"]').open = true; })`);
// press presses a button of the orders.
const press = (label, times = 1) => evaluate(`(() => { const b = [...document.querySelectorAll('.orders button')].find((one) => one.textContent.startsWith(${JSON.stringify(label)})); for (let i = 0; i < ${times}; i++) b.click(); })()`);

await size(1280);
await open(url);
seen.live = await until(`document.getElementById('fresh')?.textContent === 'Live' && document.querySelectorAll('.upstreams li').length === 4`);
await evaluate(`window.before = document.querySelector('.counts').textContent`);
seen.changes = await until(`document.querySelector('.counts').textContent !== window.before`);
await openPanels(['calls', 'sessions', 'explain']);
seen.panels = await until(`document.querySelector('[data-panel="calls"] .out').textContent && document.querySelector('[data-panel="sessions"] .out').textContent`);
await look('overview');

await go('#/gateway/files');
await until(`document.querySelector('.gateway .facts') && document.querySelector('.gateway h1')?.textContent === 'files'`);
await press('Drain'); // once is not enough
await press('Restart', 2);
seen.restarted = await until(`/restarted; its state is/.test(document.getElementById('said').textContent)`);

await go('#/gateway/down');
seen.story = await until(`document.getElementById('story') && /it <b>cannot<\\/b> start/.test(document.getElementById('stderr')?.textContent ?? '')`);
await look('down');

await go('#/gateway/hostile');
await until(`document.querySelector('.gateway h1')?.textContent === 'hostile'`);
await openPanels(['tools']);
seen.hostile = await until(`/onerror/.test(document.querySelector('.toolrows')?.textContent ?? '')`) && await evaluate(`(() => {
  const text = document.body.textContent;
  return !/[\\u202e\\u2066\\u200b\\x1b\\x07]/.test(text) && /‹U\\+202E›/.test(text) && text.length < 100000
    && !document.querySelector('.gateway img, .gateway script') && document.title !== 'owned';
})()`);

await go('#/gateway/local');
seen.usage = await until(`document.querySelector('.histogram li') && [...document.querySelectorAll('.grid td')].some((one) => one.textContent === 'local__echo')`);
await openPanels(['tools']);
await until(`document.getElementById('toolsearch')`);
await evaluate(`(() => { const s = document.getElementById('toolsearch'); s.value = 'echo'; s.dispatchEvent(new Event('input')); })()`);
seen.filtered = await until(`document.querySelectorAll('.toolrows > li').length === 1`);
await look('upstream');

// The page calls the gateway as its user does, and sees the traffic of it.
await go('#/');
await until(`[...document.querySelectorAll('.welcome button')].some((one) => one.textContent === 'Connect')`);
await evaluate(`[...document.querySelectorAll('.welcome button')].find((one) => one.textContent === 'Connect').click()`);
await until(`document.body.dataset.state === 'ready'`);
await go('#/tools/local__echo');
await until(`document.querySelector('.panel h1')?.textContent === 'local__echo'`);
await evaluate(`(() => { const i = document.querySelector('.panel .form input, .panel .form textarea'); i.value = 'from the page'; i.dispatchEvent(new Event('input', { bubbles: true })); document.querySelector('.panel form').requestSubmit(); })()`);
seen.called = await until(`/from the page/.test(document.querySelector('.panel .outcome .card:not(.waiting)')?.textContent ?? '')`);
await look('call');
await evaluate(`[...document.querySelectorAll('.outcome a')].find((one) => one.textContent === 'Show the frames').click()`);
seen.policy = await until(`/allowed/.test(document.querySelector('#judged .policy')?.textContent ?? '')`);
await look('traffic');
console.log(JSON.stringify({ ...seen, complaints }));
await close();
