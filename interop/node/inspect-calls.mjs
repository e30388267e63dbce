// Calls with the page of farcall inspect, in Chromium, what the server everyKind of inspect_calls_test.go offers, and prints what
// it saw as JSON: inspect-calls.mjs CHROMIUM URL DIRECTORY
import { launch } from './chromium.mjs';

const [chromium, url, directory] = process.argv.slice(2);
const { evaluate, open, until: until1, size, survey, complaints, close } = await launch(chromium, directory);
const until = async (what, most) => { const is = await until1(what, most); if (!is) console.error('not so:', what); return is; };
const seen = { axe: {}, wide: {} };
const look = (name) => survey('calls', name, seen);
const answered = `document.querySelector('.panel .outcome .card:not(.waiting)')`;
const outcome = async () => { await until(answered); return evaluate(`document.querySelector('.panel .outcome').innerText`); };
const submit = () => evaluate(`document.querySelector('.panel form').requestSubmit()`);
const show = async (kind, name) => {
  await evaluate(`location.hash = '#/${kind}/${encodeURIComponent(name)}'`);
  await until(`document.querySelector('.panel h1')?.textContent === ${JSON.stringify(name)}`);
};
const call = async (kind, name) => { await show(kind, name); await submit(); return outcome(); };
// type types into the first element of a selector within the form, and pick presses the button of a label there.
const type = (selector, text) => evaluate(`(() => { const el = document.querySelector('.panel form').querySelector(${JSON.stringify(selector)}); el.value = ${JSON.stringify(text)}; el.dispatchEvent(new Event(el.tagName === 'SELECT' ? 'change' : 'input', { bubbles: true })); })()`);
const pick = (label, within = '.panel') => evaluate(`[...document.querySelectorAll(${JSON.stringify(`${within} button`)})].find((b) => b.textContent === ${JSON.stringify(label)}).click()`);
const copied = async (what) => {
  await evaluate(`window.copied = undefined`);
  await until(`[...document.querySelectorAll('.panel button')].some((b) => b.textContent === 'Copy as ▾')`); // after it has said Copied
  await pick('Copy as ▾');
  await pick(what);
  await until(`window.copied !== undefined`);
  return evaluate('window.copied');
};

await size(1280);
await open(url);
seen.ready = await until(`document.body.dataset.state === 'ready' && /tools/.test(document.getElementById('count').textContent)`);
await evaluate(`navigator.clipboard.writeText = async (text) => { window.copied = text; }`);

// A form with references, choices with titles, lists, variants, a value that may be null, and defaults.
await show('tools', 'order');
await pick('Add an item');
seen.fields = await evaluate(`(() => {
  const form = document.querySelector('.panel form');
  const options = [...form.querySelectorAll('select option')].map((o) => o.textContent).filter((t) => !/choose|not given/.test(t));
  return [...options, ...[...form.querySelectorAll('textarea')].map((t) => t.placeholder).filter((t) => /door/.test(t))];
})()`);
await type('[aria-label="items, item 1"]', 'tea');
await type('select', '"l"');
await evaluate(`(() => { const pay = [...document.querySelectorAll('.panel select')].find((s) => [...s.options].some((o) => o.textContent === 'Cash')); pay.value = '1'; pay.dispatchEvent(new Event('change', { bubbles: true })); })()`);
await until(`document.querySelector('.panel [inputmode=decimal]')`);
await type('[inputmode=decimal]', '0');
await type('.formbody textarea', 'A');
seen.rejected = await until(`document.querySelectorAll('.panel .problems li').length >= 2`);
await look('invalid');
await type('[inputmode=decimal]', '3');
await type('.formbody textarea', 'Ada');
seen.accepted = await until(`!document.querySelector('.panel .problems li')`);
await submit();
seen.order = await outcome();
seen.shell = await copied('farcall');
seen.curl = await copied('curl');
seen.go = await copied('Go');
seen.typeScript = await copied('TypeScript');
await look('form');
await type('textarea.json', '{"to":{"name":"Bo","boss":{"name":"Ada"}},"size":"s","items":["a","b"],"note":null,"pay":{"number":"12"}}');
seen.written = await until(`(() => {
  const form = document.querySelector('.formbody');
  return form.querySelectorAll('[aria-label^="items, item"]').length === 2 && [...form.querySelectorAll('textarea')].some((t) => t.placeholder === 'null')
    && [...form.querySelectorAll('textarea')].filter((t) => t.value === 'Ada' || t.value === '12').length === 2;
})()`);

// What is answered is shown as what it is.
await call('tools', 'content');
seen.image = await until(`document.querySelector('.outcome img.picture')?.naturalWidth > 0`);
seen.audio = await evaluate(`Boolean(document.querySelector('.outcome audio[controls]'))`);
await evaluate(`[...document.querySelectorAll('.outcome .segments input')].find((i) => i.value === 'markdown').click()`);
seen.markdown = await until(`document.querySelector('.outcome .markdown strong')?.textContent === 'bold' && document.querySelector('.outcome .markdown').innerText.includes('<script>') && !window.pwned`);
seen.tree = await evaluate(`/er/.test(document.querySelector('.outcome .tree .json-key')?.closest('.tree').innerText)`);
await look('content');
await pick('Read', '.outcome');
await until(`document.querySelector('.panel h1')?.textContent === 'test://linked'`);
await submit();
seen.read = /the linked text/.test(await outcome());
await call('tools', 'page');
seen.page = await until(`document.querySelector('iframe.app')?.style.height === '110px'`); // it has got the result "has a page"
await look('app');

// What servers ask: a model, and roots; progress and the log.
await show('tools', 'model');
await submit();
await until(`document.querySelector('.question form textarea')`);
await look('model');
await evaluate(`(() => { const form = document.querySelector('.question form'); form.querySelector('textarea').value = 'Graz'; form.requestSubmit(); })()`);
seen.model = await outcome();
await evaluate(`location.hash = '#/server'`);
await until(`document.getElementById('roots')`);
await evaluate(`(() => { const r = document.getElementById('roots'); r.value = 'file:///srv/work'; r.form.requestSubmit(); })()`);
seen.steps = await call('tools', 'steps');
await evaluate(`location.hash = '#/log'`);
seen.log = await until(`/all steps are done/.test(document.querySelector('.log')?.innerText)`);
await look('log');

await show('prompts', 'greet');
await type('.formbody textarea', 'Ada');
await submit();
seen.prompt = await outcome();
await show('templates', 'test://note/{id}');
await type('.formbody textarea', '7 8');
await submit();
seen.note = await outcome();
await evaluate(`location.hash = '#/history'`);
await until(`document.querySelectorAll('.history li').length > 5`);
await evaluate(`[...document.querySelectorAll('.history button')].find((b) => /^order$/m.test(b.querySelector('.name').textContent)).click()`);
seen.opened = await until(`document.querySelector('.panel h1')?.textContent === 'order' && /Ada/.test(document.querySelector('.panel textarea.json').value)`);
console.log(JSON.stringify({ ...seen, complaints }));
await close();
