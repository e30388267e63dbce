// Uses the page of the playground of farcall serve with Chromium, and prints what it saw as JSON:
// playground.mjs CHROMIUM URL DIRECTORY
import { launch } from './chromium.mjs';

const [chromium, url, directory] = process.argv.slice(2);
const { send, evaluate, until, size, survey, complaints, close } = await launch(chromium, directory);
const seen = { axe: {}, wide: {} };
const look = (name) => survey('playground', name, seen);

await size(1280);
await send('Page.navigate', { url });
seen.ready = await until(`document.body?.dataset.state === 'ready' && /methods/.test(document.getElementById('count')?.textContent)`);
seen.gateway = await evaluate(`!document.getElementById('gatewaytab').hidden`);
await look('welcome');
await evaluate(`location.hash = '#/methods/math%2Fadd'`);
await until(`document.querySelector('.panel h1')?.textContent === 'math/add'`);
await evaluate(`(() => { document.querySelectorAll('.panel .form input').forEach((i, n) => { i.value = String(40 + n * 2); i.dispatchEvent(new Event('input', { bubbles: true })); }); document.querySelector('.panel form').requestSubmit(); })()`);
seen.called = await until(`/82/.test(document.querySelector('.panel .outcome .card:not(.waiting)')?.textContent ?? '')`);
await look('method');
await evaluate(`location.hash = '#/methods/math%2Fadd_stream'`);
await until(`document.querySelector('.panel h1')?.textContent === 'math/add_stream'`);
await evaluate(`(() => {
  document.querySelectorAll('.panel .form input').forEach((i, n) => { i.value = String(40 + n * 2); i.dispatchEvent(new Event('input', { bubbles: true })); });
  document.querySelector('.panel form').requestSubmit();
})()`);
await until(`document.querySelector('.panel .outcome .card:not(.waiting)')`);
seen.values = await until(`document.querySelectorAll('.outcome ol.values li').length === 83`); // 0 to 82
await look('stream');
await evaluate(`location.hash = '#/methods/grpc.health.v1.Health%2FWatch'`);
await until(`document.querySelector('.panel h1')?.textContent === 'grpc.health.v1.Health/Watch'`);
await evaluate(`document.querySelector('.panel form').requestSubmit()`);
seen.live = await until(`/SERVING/.test(document.querySelector('.outcome ol.values li')?.textContent) && document.querySelector('.outcome .waiting')`);
await evaluate(`document.querySelector('.panel form').requestSubmit()`);
seen.stopped = await until(`/Stopped/.test(document.querySelector('.panel .outcome .card:not(.waiting)')?.textContent) && document.querySelectorAll('.outcome ol.values li').length === 1`);
await evaluate(`(() => { const s = document.getElementById('servers'); s.value = [...s.options].find((one) => one.textContent === 'MCP').value; s.dispatchEvent(new Event('change')); })()`);
await until(`[...document.querySelectorAll('.welcome button')].some((one) => one.textContent === 'Connect')`);
await evaluate(`[...document.querySelectorAll('.welcome button')].find((one) => one.textContent === 'Connect').click()`);
seen.mcp = await until(`document.body.dataset.state === 'ready' && /tools/.test(document.getElementById('count').textContent)`);
console.log(JSON.stringify({ ...seen, complaints }));
await close();
