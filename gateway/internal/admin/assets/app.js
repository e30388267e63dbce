// Reads what is shown again every other second and changes what has changed,
// so that what is open, focused, selected or scrolled to stays as it is.

import './operate.js';

const every = 2000;
const byID = (id) => document.getElementById(id);
const live = byID('live');
const pause = byID('pause');
const fresh = byID('fresh');
const search = byID('search');
let paused = false;
let reading = false;
let timer = 0;

// ---- refreshing ----

async function refresh() {
  if (reading) return;
  reading = true;
  clearTimeout(timer);
  try {
    const answer = await fetch(`page/live?tools=${live.dataset.tools}`, { cache: 'no-store', signal: AbortSignal.timeout(10000) });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const next = new DOMParser().parseFromString(await answer.text(), 'text/html').getElementById('live');
    if (!next) throw new Error('no overview in the answer');
    const tools = live.dataset.tools;
    if (!paused) change(live, next);
    document.title = live.dataset.title;
    if (tools !== live.dataset.tools) filter();
    say(paused ? 'Paused' : 'Live', paused ? 'quiet' : 'live');
  } catch {
    say('No answer', 'lost');
  } finally {
    reading = false;
    if (!paused && !document.hidden) timer = setTimeout(refresh, every);
  }
}

function say(text, state) {
  if (fresh.textContent !== text) fresh.textContent = text;
  fresh.dataset.state = state;
  document.documentElement.classList.toggle('stale', state === 'lost'); // what is shown was true once
}

pause.addEventListener('click', () => {
  paused = !paused;
  pause.textContent = paused ? 'Resume' : 'Pause';
  clearTimeout(timer);
  if (paused) say('Paused', 'quiet');
  else refresh();
});
document.addEventListener('visibilitychange', () => {
  clearTimeout(timer);
  if (!document.hidden && !paused) refresh();
});

// The newest lines are the last.
document.addEventListener('toggle', (event) => {
  const lines = event.target.open && event.target.querySelector('pre.stderr');
  if (lines) lines.scrollTop = lines.scrollHeight;
}, true);

// ---- changing what is there ----

const key = (node) => (node.nodeType === Node.ELEMENT_NODE ? node.getAttribute('data-key') : null);

// Attributes that belong to the reader and to this script.
const own = new Set(['open', 'hidden']);

function change(have, want) {
  if (have.nodeType !== Node.ELEMENT_NODE) {
    if (have.data !== want.data) have.data = want.data;
    return;
  }
  if (want.hasAttribute('data-same')) return;
  for (const { name, value } of [...want.attributes]) {
    if (!own.has(name) && have.getAttribute(name) !== value) have.setAttribute(name, value);
  }
  for (const { name } of [...have.attributes]) {
    if (!own.has(name) && !name.startsWith('data-state') && !want.hasAttribute(name)) have.removeAttribute(name);
  }
  if (!want.hasAttribute('data-keep')) changeChildren(have, want);
}

function changeChildren(have, want) {
  const wanted = new Set([...want.children].map(key));
  const keyed = new Map();
  for (const child of [...have.children]) {
    const k = key(child);
    if (k === null) continue;
    if (wanted.has(k)) keyed.set(k, child);
    else child.remove();
  }
  let at = have.firstChild;
  for (const child of [...want.childNodes]) {
    const k = key(child);
    const old = k === null ? at : keyed.get(k);
    if (old && old.nodeName === child.nodeName && key(old) === k) {
      if (old === at) at = at.nextSibling;
      else have.insertBefore(old, at);
      change(old, child);
    } else {
      have.insertBefore(document.importNode(child, true), at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

// ---- the filter of tools ----

const number = (n) => n.toLocaleString('en');

function filter() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const list = byID('list');
  const items = list ? [...list.children] : [];
  let shown = 0;
  for (const item of items) {
    const text = item.textContent.toLowerCase();
    item.hidden = !words.every((word) => text.includes(word));
    if (!item.hidden) shown++;
  }
  if (byID('none')) byID('none').hidden = shown > 0;
  const blocked = Number(byID('found').dataset.blocked);
  byID('found').textContent = words.length ? `${number(shown)} of ${number(items.length)}` : number(items.length) + (blocked ? `, ${number(blocked)} blocked` : '');
}

search.addEventListener('input', filter);
document.addEventListener('keydown', (event) => {
  if (event.key === '/' && !event.ctrlKey && !event.metaKey && !event.altKey && !/^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.nodeName)) {
    event.preventDefault();
    search.focus();
  } else if (event.key === 'Escape' && document.activeElement === search) {
    search.value = '';
    filter();
  }
});

byID('searchbox').hidden = false;
pause.hidden = false;
say('Live', 'live');
if (search.value) filter();
timer = setTimeout(refresh, every);
