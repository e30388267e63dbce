// Elements, text of foreign programs, and small helpers.

// h makes an element. Children may be strings, elements, lists or null.
export function h(tag, attributes = {}, ...children) {
  const el = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) el.addEventListener(name.slice(2), value);
    else if (value === true) el.setAttribute(name, '');
    else if (value !== false && value !== null && value !== undefined) el.setAttribute(name, value);
  }
  if (/^(?:input|select|textarea)$/.test(tag) && !el.id && !el.name) el.name = tag; // browsers want one of them
  el.append(...real(children));
  return el;
}

const real = (children) => children.flat(3).filter((c) => c !== null && c !== undefined && c !== false);

// fill replaces what is in an element; like h, it leaves null out.
export const fill = (el, ...children) => el.replaceChildren(...real(children));

export const byID = (id) => document.getElementById(id);

// Characters that change how other text reads: controls, and marks of direction and width.
const tricky = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;

const code = (c) => `U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}`;

// safe is text of a server with such characters spelled out, for titles and attributes.
export const safe = (text) => String(text ?? '').replace(tricky, (c) => (c === '\r' ? '' : `‹${code(c)}›`));

// show is safe as a list of nodes, in which what is spelled out stands out.
export function show(text) {
  const out = document.createDocumentFragment();
  let at = 0;
  for (const m of text.matchAll(tricky)) {
    out.append(text.slice(at, m.index));
    at = m.index + m[0].length;
    if (m[0] !== '\r') out.append(h('span', { class: 'ctl' }, code(m[0])));
  }
  out.append(text.slice(at));
  return out;
}

const part = 64 * 1024;

// long shows text of any length: its beginning, and more when it is wanted.
export function long(text, attributes = {}) {
  const pre = h('pre', { class: 'text', tabindex: '0', ...attributes });
  let at = 0;
  const more = h('button', { type: 'button', class: 'quiet' });
  const next = () => {
    pre.append(show(text.slice(at, at + part)));
    at += part;
    more.hidden = at >= text.length;
    more.textContent = `Show more (${size(text.length - at)} left)`;
  };
  more.addEventListener('click', next);
  next();
  return [pre, more];
}

export const size = (n) => (n < 1000 ? `${n} B` : n < 1e6 ? `${(n / 1000).toFixed(1)} kB` : `${(n / 1e6).toFixed(1)} MB`);

// micros is a duration.
export const micros = (us) => (us < 1000 ? `${us} µs` : us < 1e6 ? `${(us / 1000).toFixed(us < 1e4 ? 2 : 1)} ms` : `${(us / 1e6).toFixed(2)} s`);

// clock is a time of day, with milliseconds, of a number of milliseconds.
export const clock = (ms) => {
  const d = new Date(ms);
  return `${d.toTimeString().slice(0, 8)}.${String(d.getMilliseconds()).padStart(3, '0')}`;
};

// copy puts text on the clipboard and says so on the button.
export async function copy(button, text) {
  const label = button.textContent;
  try {
    if (!navigator.clipboard) throw new Error('no clipboard without a secure context');
    await navigator.clipboard.writeText(text);
    button.textContent = 'Copied';
  } catch {
    const area = h('textarea', { class: 'hidden', 'aria-hidden': 'true' });
    area.value = text;
    document.body.append(area);
    area.select();
    button.textContent = document.execCommand('copy') ? 'Copied' : 'Cannot copy';
    area.remove();
    button.focus();
  }
  setTimeout(() => { button.textContent = label; }, 1200);
}

// menu is a button with a list of actions below it: [label, action] each.
export function menu(label, actions) {
  const list = h('div', { class: 'menu-list', role: 'menu', hidden: true });
  const button = h('button', { type: 'button', class: 'quiet', 'aria-haspopup': 'menu', 'aria-expanded': 'false' }, `${label} ▾`);
  const open = (is) => {
    list.hidden = !is;
    button.setAttribute('aria-expanded', String(is));
    if (is) list.firstElementChild?.focus();
  };
  fill(list, actions.map(([text, action]) => h('button', { type: 'button', role: 'menuitem', onclick: () => { open(false); button.focus(); action(button); } }, text)));
  const box = h('span', { class: 'menu' }, button, list);
  button.addEventListener('click', () => open(list.hidden));
  box.addEventListener('focusout', (e) => { if (!box.contains(e.relatedTarget)) open(false); });
  box.addEventListener('keydown', (e) => {
    const items = [...list.children];
    const at = items.indexOf(document.activeElement);
    if (e.key === 'Escape') { open(false); button.focus(); }
    else if (e.key === 'ArrowDown') (items[at + 1] ?? items[0]).focus();
    else if (e.key === 'ArrowUp') (items[at - 1] ?? items.at(-1)).focus();
    else return;
    e.preventDefault();
    e.stopPropagation();
  });
  return box;
}

// segments is a choice of one: [value, label] each. It calls choose with the value.
export function segments(name, label, choices, value, choose) {
  return h('div', { class: 'segments', role: 'radiogroup', 'aria-label': label }, choices.map(([v, text]) => h('label', {},
    h('input', { type: 'radio', name, value: v, checked: v === value, onchange: () => choose(v) }), h('span', {}, text))));
}

const kept = 1000; // values

// perFrame returns a function that takes values. In each animation frame f gets the oldest of them, 50 at most. When more come
// than that, only the newest are kept.
export function perFrame(f) {
  let list = [];
  const next = () => {
    f(list.splice(0, 50));
    if (list.length) requestAnimationFrame(next);
  };
  return (value) => {
    if (list.push(value) === 1) requestAnimationFrame(next);
    if (list.length > 2 * kept) list = list.slice(-kept);
  };
}

// later calls f once nothing has happened for a while.
export function later(ms, f) {
  let timer = 0;
  return (...args) => { clearTimeout(timer); timer = setTimeout(f, ms, ...args); };
}
