// Breakpoints: frames that a filter chooses are held, dropped or delayed. What is held is at the top of the page, where it
// is sent, changed, answered or dropped.

import { clock, fill, h, safe, show } from './dom.js';
import { indent } from './json.js';
import { state } from './state.js';

const key = 'farcall.inspect.breakpoints';
const acts = { hold: 'Hold', drop: 'Drop', send: 'Delay' };
let points = []; // { id, conn, filter, act, ms }
let list = null;

const keep = () => { try { sessionStorage.setItem(key, JSON.stringify(points)); } catch { /* they end with the page */ } };

// restore sets the breakpoints of this tab again: they have ended with its last connection.
export async function restore() {
  let old = points;
  if (!old.length) try { old = JSON.parse(sessionStorage.getItem(key) ?? '[]'); } catch { return; }
  points = [];
  if (!state.may.includes('break')) return;
  for (const p of old) if (!p.conn || state.servers.has(p.conn)) await set(p).catch(() => {});
}

async function set({ conn, filter, act, ms }) {
  points.push(await state.link.call('break', { conn, filter, act, ms }));
  keep();
  drawPoints();
}

async function remove(p) {
  await state.link.call('unbreak', { id: p.id });
  points = points.filter((one) => one !== p);
  keep();
  drawPoints();
}

function drawPoints() {
  if (!list) return;
  fill(list, points.map((p) => h('li', { class: 'bar' }, h('span', { class: 'tag wait' }, p.act === 'send' ? `delay ${p.ms ?? 0} ms` : p.act), h('code', {}, p.filter || 'every frame'),
    h('span', { class: 'muted' }, p.conn ? safe(state.servers.get(p.conn)?.name ?? '').slice(0, 40) : 'all servers'), h('span', { class: 'grow' }),
    h('button', { type: 'button', class: 'quiet', 'aria-label': `Remove the breakpoint ${p.filter}`, onclick: () => remove(p) }, '✕'))));
  list.parentElement.parentElement.firstElementChild.textContent = points.length ? `Breakpoints (${points.length})` : 'Breakpoints';
}

// panel is the list of breakpoints with what adds one; null: this page may not set any. filter gives that of the traffic, and
// conn the server that it shows.
export function panel(filter, conn) {
  if (!state.may.includes('break')) return null;
  const problem = h('p', { class: 'problem', role: 'alert' });
  const text = h('input', { type: 'text', name: 'breakfilter', class: 'code', 'aria-label': 'Filter of the breakpoint', placeholder: 'method:tools/call kind:request', autocomplete: 'off', spellcheck: 'false' });
  const ms = h('input', { type: 'number', name: 'breakms', min: '0', max: '60000', step: '100', value: '1000', 'aria-label': 'Milliseconds of the delay', hidden: true });
  const act = h('select', { name: 'breakact', 'aria-label': 'What the breakpoint does', onchange: () => { ms.hidden = act.value !== 'send'; } }, Object.entries(acts).map(([v, name]) => h('option', { value: v }, name)));
  list = h('ul', { class: 'points' });
  const form = h('form', { onsubmit: async (e) => {
    e.preventDefault();
    problem.textContent = '';
    try {
      await set({ conn: conn(), filter: text.value.trim(), act: act.value, ms: act.value === 'send' ? Number(ms.value) : 0 });
    } catch (err) { problem.textContent = safe(err.message); }
  } }, h('div', { class: 'bar' }, text, act, ms, h('button', { type: 'submit', class: 'primary' }, 'Add')));
  const box = h('details', { class: 'fhelp breaks', ontoggle: () => { if (box.open && !text.value) text.value = filter() || text.placeholder; } }, h('summary', {}, 'Breakpoints'),
    h('div', { class: 'card' }, h('p', { class: 'muted' }, 'Frames that the filter chooses wait at the top of the page, up to 5 minutes, before they are sent or received. They end with this page.'), list, form, problem));
  drawPoints();
  return box;
}

// ---- what is held ----

// held is what is shown of a frame that waits, in the card of a question. reply answers it.
export function held(f, reply, problem) {
  const may = state.may.includes('break');
  const decide = (act, more = '') => reply(`"result":{"act":"${act}"${more}}`);
  const shown = tidy(f.text);
  const text = h('textarea', { name: 'heldframe', class: 'code json heldframe', rows: String(Math.min(18, shown.split('\n').length + 1)), spellcheck: 'false', 'aria-label': 'The frame', readonly: !may });
  text.value = shown;
  const frame = () => (text.value === shown ? '' : `,"frame":${JSON.stringify(text.value)}`);
  const ms = h('input', { type: 'number', name: 'heldms', min: '0', max: '60000', step: '100', value: '0', class: 'ms', 'aria-label': 'Milliseconds to wait before it is sent' });
  const templates = { result: f.method === 'tools/call' ? '{"content": [{"type": "text", "text": ""}]}' : '{}', error: '{"code": -32603, "message": "from a breakpoint"}' };
  const result = h('textarea', { name: 'heldresult', class: 'code json', rows: '3', spellcheck: 'false', 'aria-label': 'The answer as JSON' });
  const kind = h('select', { name: 'heldkind', class: 'ms', 'aria-label': 'Kind of the answer', onchange: () => { result.value = templates[kind.value]; } }, Object.keys(templates).map((k) => h('option', {}, k)));
  result.value = templates.result;
  const answer = () => {
    try { JSON.parse(result.value); } catch (err) { problem.textContent = err.message; return; }
    decide('answer', `,"${kind.value}":${result.value}`);
  };
  return [
    h('p', { class: 'message' }, f.dir === 'up' ? '→ ' : '← ', show(f.method || 'frame'), f.name ? h('span', { class: 'muted' }, ' ', show(f.name)) : null),
    may ? h('div', { class: 'bar actions' }, h('button', { type: 'button', class: 'primary', onclick: () => decide('send', `${frame()},"ms":${Number(ms.value) || 0}`) }, 'Send'), h('label', { class: 'bar muted' }, 'after', ms, 'ms'),
      h('button', { type: 'button', class: 'quiet', onclick: () => decide('drop') }, 'Drop'), h('button', { type: 'button', class: 'quiet', onclick: sendAll }, 'Send all as they are'), h('span', { class: 'muted' }, `held until ${clock(f.until).slice(0, 8)}`)) : null,
    text,
    may && f.request ? h('details', {}, h('summary', {}, 'Answer it here'), result, h('div', { class: 'bar actions' }, h('button', { type: 'button', class: 'quiet', onclick: answer }, 'Answer with this'), kind)) : null];
}

function sendAll() {
  for (const q of state.questions.values()) if (q.held) state.link.call('answer', { id: q.id, result: { act: 'send' } }).catch(() => {});
}

function tidy(text) { try { return indent(text); } catch { return text; } }
