// The frames of all servers: a list that grows, a waterfall, and one frame in full.

import { byID, clock, copy, fill, h, later, long, menu, micros, safe, segments, show, size } from './dom.js';
import { tree } from './content.js';
import { sideBySide } from './hop.js';
import { pretty } from './json.js';
import { panel } from './breaks.js';
import { openCapture, saveCapture } from './files.js';
import { DOWN, N, Q, R, Rows, UP, cancelled, chosen, ended, failed, hop } from './rows.js';
import { drawConnections } from './connections.js';
import { mock } from './servers.js';
import { verdict } from './verdict.js';
import { VList } from './vlist.js';
import { on, state } from './state.js';

export const rows = new Rows();
let mode = 'calls';
let paused = false;
let withConns = matchMedia('(min-width: 1001px)').matches;
let filter = '';
let only = 0; // the shown server, 0 for all
let view = new Float64Array(4096); // the numbers of the rows that are shown
let viewCount = 0;
let seen = 0; // rows before this one have been looked at for the view
let list = null;
let selected = 0;
let building = 0;
let axis = []; // of the waterfall: stretches of time in which something happens
let wide = 1;

const push = (seq) => {
  if (viewCount === view.length) { const next = new Float64Array(view.length * 2); next.set(view); view = next; }
  view[viewCount++] = seq;
};

// wanted reports whether a row has a line.
function wanted(i) {
  if (only && rows.conn[i] !== only) return false;
  if (filter && !(rows.flags[i] & chosen)) return false;
  if (mode === 'frames') return true;
  if (rows.kind[i] === R) return rows.ref[i] === 0 || rows.at(rows.ref[i]) < 0;
  return !(rows.kind[i] === N && rows.parent[i] && /progress/.test(rows.texts[rows.method[i]])); // it is a mark in the bar of its call
}

// take takes what poll has brought.
export function take(r) {
  if (r.rows) {
    rows.add(r.rows, r.next - r.rows.t.length);
    if (!paused && !building) extend();
  }
  if (rows.drop(r.first)) forget();
}

// forget takes the lines out of the view that are not kept any more.
function forget() {
  if (building) { rebuild(); return; }
  const gone = lineOf(rows.base);
  view.copyWithin(0, gone, viewCount);
  viewCount -= gone;
  list?.shift(gone);
  update();
}

// lineOf returns the first line that is not before a row.
function lineOf(seq) {
  let low = 0, high = viewCount;
  while (low < high) { const mid = (low + high) >> 1; if (view[mid] < seq) low = mid + 1; else high = mid; }
  return low;
}

function extend() {
  seen = Math.max(seen, rows.base);
  const end = rows.next;
  for (; seen < end; seen++) if (wanted(seen - rows.base)) push(seen);
  update();
}

function update() {
  if (!list?.element.isConnected) return;
  list.setCount(viewCount);
  byID('tcount').textContent = `${viewCount.toLocaleString('en')} ${mode === 'frames' ? 'frames' : 'lines'} of ${rows.count.toLocaleString('en')} frames`;
}

// rebuild looks at all rows again, in parts.
async function rebuild() {
  const mine = ++building;
  viewCount = 0;
  seen = rows.base;
  while (mine === building && seen < rows.next) {
    const end = Math.min(seen + 50_000, rows.next);
    for (; seen < end; seen++) if (wanted(seen - rows.base)) push(seen);
    if (seen < rows.next) await new Promise((done) => { setTimeout(done); });
  }
  if (mine !== building) return;
  building = 0;
  update();
  const line = lineOf(selected); // the lines have moved below it
  const there = line < viewCount && view[line] === selected;
  list?.mark(there ? line : -1);
  if (there && !list.follow) list.reveal(line);
}

const setFilter = later(150, async (text) => {
  const problem = byID('fproblem');
  const box = byID('filter');
  const mine = ++building;
  try {
    for (let i = 0; i < rows.count; i++) rows.flags[i] &= ~chosen;
    let from = 0;
    if (text.trim()) {
      for (;;) {
        const r = await state.link.call('filter', { filter: text, from });
        if (mine !== building) return;
        let at = from;
        for (const d of r.chosen) {
          at += d;
          const i = rows.at(at);
          if (i < 0) continue;
          rows.flags[i] |= chosen;
          const q = rows.ref[i] ? rows.at(rows.ref[i]) : -1;
          if (q >= 0) rows.flags[q] |= chosen;
        }
        from = r.next;
        if (r.done) break;
      }
    }
    filter = text.trim();
    problem.textContent = '';
    box.removeAttribute('aria-invalid');
  } catch (err) {
    if (mine !== building) return;
    problem.textContent = safe(err.message);
    box.setAttribute('aria-invalid', 'true');
  }
  rebuild();
});

export const currentFilter = () => filter;

// ---- the list ----

function make() {
  const cells = ['time', 'dir', 'what', 'status', 'took', 'size', 'fall'].map((c) => h('span', { class: c, role: 'presentation' }));
  cells[6].append(h('span', { class: 'fbar' }), h('span', { class: 'fmarks' }));
  return h('div', { class: 'trow' }, cells);
}

// before is called with the rows that come into view: their times are the axis of the waterfall. Time in which nothing
// happens takes little room on it.
function before(first, end) {
  const parts = [];
  for (let i = first; i < end; i++) {
    const k = rows.at(view[i]);
    if (k >= 0) parts.push([rows.time[k], rows.time[k] + took(k) / 1000]);
  }
  parts.sort((a, b) => a[0] - b[0]);
  const busy = [];
  for (const [from, to] of parts) {
    const last = busy.at(-1);
    if (last && from <= last[1] + 1) last[1] = Math.max(last[1], to); else busy.push([from, to]);
  }
  const total = busy.reduce((n, [from, to]) => n + to - from, 0);
  const gap = Math.max(total / 25, 1);
  let x = 0;
  axis = busy.map(([from, to], i) => {
    if (i) x += Math.min(from - busy[i - 1][1], gap);
    const one = { from, to, x };
    x += to - from;
    return one;
  });
  wide = Math.max(x, 1);
  connections(first, end);
}

// connections draws the rows in view once more, by connection.
function connections(first, end) {
  const shown = [];
  if (!withConns) { drawConnections(byID('conns'), rows, shown); return; }
  for (let i = first; i < end; i++) {
    const k = rows.at(view[i]);
    if (k >= 0 && rows.link[k] && (rows.kind[k] !== R || !rows.ref[k])) shown.push(k);
  }
  drawConnections(byID('conns'), rows, shown, {
    span: (k) => [place(rows.time[k]), place(rows.time[k] + took(k) / 1000)],
    name: (k) => `${state.servers.size > 1 ? `${rows.conn[k]} · ` : ''}${rows.flags[k] & hop ? '⇒ ' : ''}connection ${rows.link[k]}`,
    choose: (k) => jump(rows.base + k),
  });
}

// place is where a time is on the axis, from 0 to 100.
function place(t) {
  let low = 0, high = axis.length - 1;
  while (low < high) { const mid = (low + high + 1) >> 1; if (axis[mid].from <= t) low = mid; else high = mid - 1; }
  const part = axis[low];
  return part ? (Math.min(part.x + Math.max(0, t - part.from), wide) / wide) * 100 : 0;
}

// took is how long a call took, in microseconds; one without an answer has taken until now.
function took(k) {
  if (rows.kind[k] === R) return 0;
  const a = rows.answer[k] ? rows.at(rows.answer[k]) : -1;
  if (a >= 0) return rows.took[a];
  if (rows.took[k]) return rows.took[k];
  return rows.kind[k] === Q && Date.now() - rows.time[k] < 3.6e6 && state.servers.get(rows.conn[k])?.state === 'ready' ? (Date.now() - rows.time[k]) * 1000 : 0;
}

// queued is how long a call was in a gateway before that sent it to a server, in microseconds.
function queued(k) {
  const first = rows.hopped[k] ? rows.at(rows.hopped[k]) : -1;
  return first < 0 ? 0 : Math.max(1, (rows.time[first] - rows.time[k]) * 1000);
}

const mostMarks = 200; // of a call that are looked at

// marks draws the reports of progress of a call in its waterfall, and where it was given up. Of reports that are in one place the
// newest is seen.
function marks(el, k) {
  const lines = [];
  const mark = (x, color, width) => lines.push(`linear-gradient(var(${color}) 0 0) ${x.toFixed(2)}% 50% / ${width}px ${12 + 2 * width}px no-repeat`);
  if (rows.flags[k] & (cancelled | ended)) mark(place(rows.time[k] + rows.took[k] / 1000), '--bad', 3);
  let last = Infinity;
  for (let n = rows.mark[k], i = 0; n && i < mostMarks; n = rows.mark[rows.at(n)], i++) {
    if (rows.at(n) < 0) break;
    const x = place(rows.time[rows.at(n)]);
    if (last - x < 0.5) continue;
    last = x;
    mark(x, '--ink', 1);
  }
  const all = lines.join(',');
  if (el.marked === all) return;
  el.marked = all;
  el.style.background = all;
}

// stopped notes that a call of the page was stopped since a time. Over HTTP no frame says so.
export function stopped(conn, since) {
  for (let k = rows.count - 1; k >= 0 && rows.time[k] >= since; k--) {
    if (rows.conn[k] === conn && rows.kind[k] === Q && rows.dir[k] === UP && !rows.parent[k]) { rows.end(k, Date.now(), cancelled); break; }
  }
}

// called are the methods that a server was sent, for those that describe none.
export function called(conn) {
  const all = new Set();
  for (let k = rows.count - 1; k >= 0 && all.size < 200; k--) if (rows.conn[k] === conn && rows.kind[k] === Q && rows.dir[k] === UP) all.add(rows.texts[rows.method[k]]);
  return [...all].filter((m) => !/^(rpc\.discover|server\/discover|initialize)$/.test(m)).sort();
}

const kinds = { 113: 'request', 110: 'notification', 114: 'response', 98: 'batch', 120: 'not a message', 33: 'note' };

function draw(el, index) {
  const seq = view[index];
  const k = rows.at(seq);
  const [time, dir, what, status, dur, bytes, fall] = el.children;
  if (k < 0) { what.textContent = 'not kept any more'; return; }
  const kind = rows.kind[k];
  const a = rows.answer[k] ? rows.at(rows.answer[k]) : -1;
  const answer = kind === R ? k : a;
  const related = selected && (rows.parent[k] === selected || rows.ref[k] === selected || rows.ref[k] && rows.ref[k] === rows.ref[rows.at(selected)] || rows.answer[k] === selected);
  el.className = `vrow trow k${kind}${rows.bad(k) ? ' bad' : ''}${rows.parent[k] && mode === 'calls' ? ' child' : ''}${related ? ' related' : ''}`;
  time.textContent = clock(rows.time[k]);
  const inner = rows.flags[k] & hop; // between a gateway and its server
  dir.textContent = rows.dir[k] === UP ? (inner ? '⇒' : '→') : rows.dir[k] === DOWN ? (inner ? '⇐' : '←') : '·';
  const name = rows.texts[rows.name[k]];
  const from = !only && state.servers.size > 1 ? state.servers.get(rows.conn[k]) : null;
  what.replaceChildren(...[
    from ? h('span', { class: 'of', title: safe(from.name) }, String(from.id)) : null, kind === R && mode === 'frames' ? h('i', {}, 'answer ') : null, safe(rows.texts[rows.method[k]] || kinds[kind]),
    name ? h('b', {}, ` ${safe(name)}`) : null].filter(Boolean));
  status.textContent = kind === Q && a < 0 ? (rows.flags[k] & cancelled ? 'cancelled' : rows.flags[k] & ended ? 'no answer' : '…') : answer < 0 ? '' : rows.code[answer] ? String(rows.code[answer]) : rows.flags[answer] & failed ? 'failed' : 'ok';
  const us = kind === Q ? took(k) : kind === R ? rows.took[k] : 0;
  dur.textContent = us ? micros(Math.round(us)) : '';
  bytes.textContent = size(rows.size[k] + (kind === Q && a >= 0 ? rows.size[a] : 0));
  const [bar, marked] = fall.children;
  const left = place(rows.time[k]);
  bar.style.left = `min(${left}%, 100% - 3px)`;
  bar.style.width = kind === Q ? `max(3px, ${place(rows.time[k] + us / 1000) - left}%)` : '3px';
  const waited = kind === Q && us ? queued(k) : 0;
  bar.className = `fbar${kind === Q && a < 0 && !rows.took[k] ? ' open' : ''}${rows.dir[k] === DOWN ? ' down' : ''}${waited ? ' queued' : ''}`;
  if (waited) bar.style.setProperty('--queue', `${Math.min(100, (waited / us) * 100)}%`);
  marks(marked, k);
  fall.title = waited ? `${micros(Math.round(waited))} until the gateway had sent it to the server` : '';
}

// openTraffic shows the tab; seq is a frame to begin with.
export function openTraffic(into, seq) {
  list ??= newList();
  if (!into.contains(list.element)) {
    const box = h('input', { type: 'search', id: 'filter', class: 'code', placeholder: 'method:tools/* dur>500ms error text', 'aria-label': 'Filter', autocomplete: 'off', spellcheck: 'false', 'aria-describedby': 'fproblem', oninput: (e) => setFilter(e.target.value) });
    box.value = filter;
    const servers = h('select', { id: 'tserver', 'aria-label': 'Server', onchange: (e) => { only = Number(e.target.value); rebuild(); } });
    const fillServers = () => fill(servers, h('option', { value: '0' }, 'all servers'), [...state.servers.values()].map((s) => h('option', { value: String(s.id), selected: s.id === only }, safe(s.name).slice(0, 40))));
    fillServers();
    on('servers', () => servers.isConnected && servers.options.length !== state.servers.size + 1 && fillServers());
    const following = h('input', { type: 'checkbox', id: 'follow', checked: list.follow, onchange: (e) => { list.follow = e.target.checked; update(); } });
    const pause = h('button', { type: 'button', class: 'quiet', 'aria-pressed': String(paused), onclick: () => { paused = !paused; pause.setAttribute('aria-pressed', String(paused)); pause.textContent = paused ? 'Resume' : 'Pause'; if (!paused) extend(); } }, paused ? 'Resume' : 'Pause');
    fill(into,
      h('h1', { class: 'hidden' }, 'Traffic'),
      h('div', { class: 'bar tbar' }, box, servers, segments('tmode', 'Lines', [['calls', 'Calls'], ['frames', 'Frames']], mode, (v) => { mode = v; rebuild(); }), h('label', { class: 'check' }, following, 'Follow'), h('label', { class: 'check', title: 'Show the connections of the lines in view' }, h('input', { type: 'checkbox', id: 'withconns', checked: withConns, onchange: (e) => { withConns = e.target.checked; list.refresh(); } }), 'Connections'), pause, panel(() => filter, () => only), files(), help()),
      h('p', { id: 'fproblem', class: 'problem', role: 'alert' }),
      h('div', { class: 'split' }, h('div', { class: 'tlist' },
        h('div', { id: 'conns', class: 'conns', 'aria-hidden': 'true', hidden: true }), // its bars are lines of the list too
        h('div', { class: 'trow thead', 'aria-hidden': 'true' }, ['time', 'dir', 'what', 'status', 'took', 'size', 'fall'].map((c) => h('span', { class: c }, { time: 'Time', dir: '', what: 'Method', status: 'Status', took: 'Took', size: 'Size', fall: 'Waterfall' }[c]))), list.element),
      h('aside', { id: 'frame', class: 'tdetail', 'aria-label': 'Frame', hidden: !selected })),
      h('p', { id: 'tcount', class: 'muted count', role: 'status' }));
  }
  update();
  if (seq) { list.follow = false; byID('follow').checked = false; jump(seq); } else if (selected) detail(selected);
}

// files are the actions with capture files.
function files() {
  const problem = () => byID('fproblem');
  const all = () => ({ conn: only, filter });
  return menu('Capture', [
    ['Save the lines', () => saveCapture(all(), problem())],
    ['Save the lines, secrets too', () => saveCapture({ ...all(), raw: true }, problem())],
    ['Open a file …', () => openCapture(problem())],
    ...(state.may.includes('replay') ? [['Replay the calls of these lines', () => replayAll(problem())]] : []),
    ['Call a mock of what was seen', () => {
      const conn = only || state.current;
      if (conn) mock(conn, problem(), filter); else problem().textContent = 'Choose a server.';
    }],
  ]);
}

// mostReplayed bounds the requests that are sent again at once.
const mostReplayed = 1000;

// replayAll sends the requests of the lines again, one after another, to the chosen server.
async function replayAll(said) {
  const s = state.servers.get(only || state.current);
  const all = [...view.subarray(0, viewCount)].filter((n) => {
    const k = rows.at(n);
    return k >= 0 && rows.kind[k] === Q && rows.dir[k] === UP && !rows.parent[k] && !/^(initialize|server\/discover|subscriptions\/listen|ping)$/.test(rows.texts[rows.method[k]]);
  }).slice(0, mostReplayed);
  if (!all.length || !s || s.speaks === 'capture') { said.textContent = all.length ? 'Choose a server that is connected.' : 'No line is a call to a server.'; return; }
  if (!confirm(`Send ${all.length} requests to ${safe(s.name).slice(0, 80)} again?`)) return;
  let bad = 0;
  for (const [i, seq] of all.entries()) {
    const r = await state.link.call('replay', { seq, conn: s.id, call: `r${Date.now()}` }).catch((err) => ({ fault: err.message }));
    if (r.fault || r.error) bad++;
    said.textContent = `Replayed ${i + 1} of ${all.length}${bad ? `, ${bad} with an error` : ''}.`;
  }
}

function help() {
  return h('details', { class: 'fhelp' }, h('summary', {}, 'Filter'), h('div', { class: 'card' }, [
    ['git status', 'frames with both words'], ['"two words"', 'the words together'], ['method:tools/*', 'by method; name: by tool, prompt or URI'], ['kind:request', 'response, notification, batch, bad'], ['type:event', 'what became of a connection'],
    ['dir:down', 'from the server; up: to it'], ['error', 'every error; tool_error: failed tools; code:-32602: one code'], ['dur>500ms size>10KB', 'slower, larger'],
    ['params.path=~"^/etc"', 'a member of the frame, by a regular expression'], ['-method:ping', 'a minus negates; or, and parentheses group']].map(([a, b]) => h('p', {}, h('code', {}, a), ' ', h('span', { class: 'muted' }, b)))));
}

function newList() {
  const l = new VList({ label: 'Frames', height: 28, make, draw, id: 'tr', choose: (i) => { l.leave(); detail(view[i]); }, open: (i) => detail(view[i], true) });
  l.before = before;
  l.follow = true;
  l.leave = () => { l.follow = false; const f = byID('follow'); if (f) f.checked = false; };
  l.element.addEventListener('wheel', (e) => { if (e.deltaY < 0) l.leave(); }, { passive: true });
  setInterval(() => { if (l.element.isConnected && !document.hidden) l.refresh(); }, 500); // bars of open calls grow
  return l;
}

function jump(seq) {
  const line = lineOf(seq);
  if (line < viewCount) list.select(line);
}

// ---- one frame ----

async function detail(seq, focus = false) {
  selected = seq;
  history.replaceState(null, '', `#/traffic/${seq}`);
  const box = byID('frame');
  if (!box) return;
  box.hidden = false;
  const k = rows.at(seq);
  if (k < 0) { fill(box, h('p', { class: 'muted' }, 'This frame is not kept any more.')); return; }
  const kind = rows.kind[k];
  const name = rows.texts[rows.name[k]];
  const body = h('div', {}, h('p', { class: 'muted' }, 'Loading …'));
  const hops = h('div', {});
  const judged = h('div', { id: 'judged' });
  const link = (n, text) => h('button', { type: 'button', class: 'quiet', onclick: () => { jump(n); if (list.selected < 0 || view[list.selected] !== n) detail(n); } }, text);
  const around = [];
  if (rows.parent[k]) around.push(link(rows.parent[k], 'The call that this belongs to'));
  if (rows.ref[k]) around.push(link(rows.ref[k], 'Request'));
  if (rows.answer[k]) around.push(link(rows.answer[k], 'Answer'));
  const able = [...state.servers.values()].filter((x) => x.speaks !== 'capture' && (x.state === 'ready' || x.state === 'lost'));
  const target = h('select', { 'aria-label': 'Server to replay to' }, able.map((x) => h('option', { value: String(x.id), selected: x.id === rows.conn[k] }, safe(x.name).slice(0, 40))));
  const replay = state.may.includes('replay') && rows.dir[k] === UP && (kind === Q || kind === N) && able.length
    ? h('button', { type: 'button', class: 'quiet', title: 'Send the same method and params again', onclick: async () => {
      replay.disabled = true;
      try {
        const r = await state.link.call('replay', { seq, conn: Number(target.value), call: `r${Date.now()}` });
        replay.textContent = r.fault || r.error ? 'Replayed: error' : `Replayed: ${micros(r.us)}`;
        list.follow = true;
      } catch (err) { replay.textContent = safe(err.message).slice(0, 60); }
      replay.disabled = false;
    } }, 'Replay') : null;
  fill(box,
    h('div', { class: 'bar' }, h('h2', {}, show(rows.texts[rows.method[k]] || kinds[kind]), name ? h('span', { class: 'muted' }, ' ', show(name)) : null), h('span', { class: 'grow' }),
      h('button', { type: 'button', class: 'quiet', 'aria-label': 'Close', onclick: () => { selected = 0; box.hidden = true; history.replaceState(null, '', '#/traffic'); list.refresh(); list.element.focus(); } }, '✕')),
    h('p', { class: 'muted facts' }, [`#${seq}`, kinds[kind], rows.dir[k] === UP ? 'to the server' : rows.dir[k] === DOWN ? 'from the server' : '', `connection ${rows.link[k]}`, clock(rows.time[k]), size(rows.size[k]), kind === R && rows.took[k] ? `after ${micros(rows.took[k])}` : ''].filter(Boolean).join(' · ')),
    h('div', { class: 'bar' }, around, replay, replay && (able.length > 1 || able[0].id !== rows.conn[k]) ? target : null), within(seq), judged, body, hops);
  if (focus) box.querySelector('button')?.focus();
  list.refresh();
  let f;
  try {
    f = await state.link.call('frame', { seq, size: 1 << 20 });
  } catch (err) { fill(body, h('p', { class: 'notice' }, show(err.message))); return; }
  if (selected !== seq) return;
  fill(body, f.b64 ? hex(f) : frame(f));
  if (kind === Q && rows.hopped[k]) bothSides(seq, hops);
  const a = rows.answer[k] ? rows.at(rows.answer[k]) : -1;
  const b = a < 0 ? null : await state.link.call('frame', { seq: rows.answer[k], size: 1 << 20 }).catch(() => null);
  if (kind === Q && f.text && rows.size[k] < 1 << 20) {
    const lines = await verdict(rows.conn[k], f.text, b?.text ?? null, b);
    if (selected === seq) fill(judged, lines);
  }
  if (a < 0 || mode === 'frames') return;
  if (b && selected === seq) body.append(h('h3', {}, 'Answer'), b.b64 ? hex(b) : frame(b));
}

// within lists what belongs to a call: questions, notifications, further rounds.
function within(seq) {
  const found = [];
  const from = rows.at(seq);
  const a = rows.answer[from] ? rows.at(rows.answer[from]) : rows.count - 1;
  for (let i = from + 1; i <= Math.min(Math.max(a, from) + 2000, rows.count - 1, from + 20_000) && found.length < 200; i++) if (rows.parent[i] === seq) found.push(i);
  if (!found.length) return null;
  return h('details', { open: found.length < 12 }, h('summary', {}, `Within this call: ${found.length}`), h('ol', { class: 'within' }, found.map((i) => h('li', {}, h('button', { type: 'button', class: 'plain', onclick: () => detail(rows.base + i) },
    rows.flags[i] & hop ? (rows.dir[i] === UP ? '⇒ ' : '⇐ ') : rows.dir[i] === UP ? '→ ' : '← ', safe(rows.texts[rows.method[i]] || kinds[rows.kind[i]]), h('span', { class: 'muted' }, ` +${micros(Math.round((rows.time[i] - rows.time[from]) * 1000))}`))))));
}

// bothSides shows a call of a client beside the calls of servers that it has caused.
async function bothSides(seq, into) {
  const from = rows.at(seq);
  const inner = [];
  for (let i = from + 1; i < Math.min(rows.count, from + 20_000) && inner.length < 8; i++) if (rows.parent[i] === seq && rows.kind[i] === Q && rows.flags[i] & hop) inner.push(i + rows.base);
  const read = async (n) => { const f = n && await state.link.call('frame', { seq: n, size: 1 << 18 }).catch(() => null); return f?.text ?? null; };
  const outer = [await read(seq), await read(rows.answer[from])];
  const shown = [];
  for (const n of inner) {
    const k = rows.at(n);
    if (k < 0) continue;
    shown.push(h('h3', {}, 'Both sides of the gateway', h('span', { class: 'muted' }, ` · ${micros(Math.round((rows.time[k] - rows.time[from]) * 1000))} in the gateway before`)),
      sideBySide(outer[0], await read(n), ['The client sent', 'The server got']),
      sideBySide(outer[1], await read(rows.answer[k]), ['The client got', 'The server answered']));
  }
  if (selected === seq) fill(into, shown);
}

function frame(f) {
  if (!f.text) return h('p', { class: 'muted' }, f.size ? 'The capture has not kept these bytes.' : 'It is empty.');
  const body = h('div', {});
  const cut = new Blob([f.text]).size < f.size;
  const views = {
    tree: () => tree(f.text), text: () => (f.text.length > 256 * 1024 ? long(f.text, { class: 'text code' }) : h('pre', { class: 'text code', tabindex: '0' }, pretty(f.text))),
    raw: () => long(f.text, { class: 'text code' }), bytes: () => offsets(new TextEncoder().encode(f.text.slice(0, 64 * 1024))),
  };
  const choose = (v) => fill(body, views[v]());
  const first = cut ? 'raw' : 'tree';
  const button = h('button', { type: 'button', class: 'quiet', onclick: () => copy(button, f.text) }, 'Copy');
  choose(first);
  return h('div', {}, h('div', { class: 'bar' }, segments(`fr${Math.random()}`, 'Show as', [['tree', 'Tree'], ['text', 'Text'], ['raw', 'Raw'], ['bytes', 'Bytes']], first, choose), button),
    cut ? h('p', { class: 'notice' }, `This is the beginning of ${size(f.size)}.`) : null, body);
}

const hex = (f) => h('div', {}, h('p', { class: 'notice' }, 'These bytes are not UTF-8.'), offsets(Uint8Array.from(atob(f.b64), (c) => c.charCodeAt(0)).slice(0, 64 * 1024)));

// offsets shows bytes with the place of each line.
function offsets(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const part = [...bytes.slice(at, at + 16)];
    lines.push(`${at.toString(16).padStart(6, '0')}  ${part.map((b) => b.toString(16).padStart(2, '0')).join(' ').padEnd(47)}  ${part.map((b) => (b > 31 && b < 127 ? String.fromCharCode(b) : '·')).join('')}`);
  }
  return long(lines.join('\n'), { class: 'text code hex' });
}
