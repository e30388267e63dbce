// The page: servers at the top, what the chosen one offers at the side, one thing at a time in the middle.

import { byID, fill, h, later, safe, segments, show } from './dom.js';
import { Link } from './link.js';
import { VList } from './vlist.js';
import { emit, on, server, state, take as takeEvent } from './state.js';
import * as traffic from './traffic.js';
import * as calls from './call.js';
import * as questions from './questions.js';
import { captureActions, openLog, openServers, states } from './servers.js';
import { openChecks } from './checks.js';
import { hasTasks, openTasks } from './tasks.js';
import { hasOperators as operate, openGateway } from './gateway.js';
import * as breaks from './breaks.js';
import { takeDrops } from './files.js';

const kinds = { tools: 'Tools', prompts: 'Prompts', resources: 'Resources', templates: 'Templates', methods: 'Methods' };
const views = ['traffic', 'tasks', 'log', 'server', 'history', 'checks', ...(operate ? ['gateway'] : [])];
const main = byID('main');
let kind = 'tools';
let known = 0; // events before this one are old
const lists = new Map(); // by server/kind: { items, low, note, total }
let matches = [];
let list = null;

// ---- the connection with farcall ----

let epoch = 0;
state.link = new Link({
  onOpen: async () => {
    const mine = ++epoch;
    const hello = await state.link.call('hello');
    byID('offline').hidden = true;
    state.servers = new Map((hello.servers ?? []).map((s) => [s.id, s]));
    state.questions = new Map(hello.questions.map((q) => [q.id, q]));
    Object.assign(state, { anyServer: hello.anyServer, conform: hello.conform, may: hello.may, eras: hello.eras, version: hello.version });
    known = hello.events;
    if (!state.servers.has(state.current)) state.current = [...state.servers.keys()][0] ?? 0;
    emit('servers');
    emit('questions');
    breaks.restore();
    if (at().view !== 'gateway') route();
    poll(mine);
  },
  onClose: (ever) => {
    epoch++;
    const box = byID('offline');
    box.hidden = false;
    fill(box, operate ? 'This page cannot call the gateway: there is no WebSocket to it.' : ever ? 'farcall does not answer. Is it still running? This page connects again when it is.' : 'farcall does not let this page in. Open the URL that it printed when it was started: it has a token.');
  },
});

async function poll(mine) {
  while (mine === epoch) {
    let r;
    try {
      r = await state.link.call('poll', { frames: traffic.rows.next, events: state.nextEvent, filter: traffic.currentFilter() });
    } catch { return; }
    if (mine !== epoch) return;
    if (r.next < traffic.rows.next || r.after < state.nextEvent) { location.reload(); return; } // another run of farcall
    for (const e of r.events ?? []) takeEvent(e, known);
    state.nextEvent = r.after;
    emit('events');
    traffic.take(r);
    await new Promise((done) => { setTimeout(done, r.rows?.t.length >= 2000 ? 4 : 16); });
  }
}

// ---- servers ----

function drawServers() {
  const s = server();
  const pick = byID('servers');
  fill(pick, [...state.servers.values()].map((one) => h('option', { value: String(one.id), selected: one.id === state.current }, safe(one.name).slice(0, 60))));
  pick.hidden = state.servers.size < 2;
  byID('servername').hidden = state.servers.size > 1;
  byID('servername').textContent = s ? safe(s.info?.title ?? s.info?.name ?? s.name).slice(0, 80) : '';
  byID('servername').title = s ? safe(s.name) : '';
  document.body.dataset.state = s?.state ?? 'idle';
  byID('taskstab').hidden = !hasTasks(s);
  const badge = byID('state');
  badge.className = `state ${s?.state ?? 'idle'}`;
  fill(badge, s ? states[s.state] : '', s?.state === 'ready' ? h('span', { class: 'rev' }, s.speaks === 'mcp' ? `MCP ${s.info?.revision ?? ''}` : s.speaks === 'capture' ? '' : 'JSON-RPC') : null);
  document.title = `${s ? safe(s.info?.title ?? s.info?.name ?? s.name).slice(0, 60) : 'farcall'} · inspect`;
}

on('servers', (id) => {
  if (!state.servers.has(state.current)) state.current = [...state.servers.keys()][0] ?? 0;
  drawServers();
  if (id !== undefined && id !== state.current) return;
  const s = server();
  if (id !== undefined && s?.state === 'connecting') for (const k of lists.keys()) if (k.startsWith(`${id}/`)) lists.delete(k);
  chooseKinds();
  if (['server', 'checks', ''].includes(at().view)) route();
});

on('changed', (conn, what) => {
  for (const k of what === 'resources' ? ['resources', 'templates'] : [what]) { lists.delete(`${conn}/${k}`); calls.forget(conn, k); }
  if (conn === state.current) loadList();
});

byID('servers').addEventListener('change', (e) => {
  state.current = Number(e.target.value);
  drawServers();
  chooseKinds();
  location.hash = '#/';
  route();
});

// ---- the list at the side ----

function chooseKinds() {
  const s = server();
  const caps = s?.info?.capabilities ?? {};
  const has = s?.state !== 'ready' && s?.state !== 'lost' || s.speaks === 'capture' ? [] : s.speaks === 'jsonrpc' ? ['methods'] : ['tools', ...(caps.prompts ? ['prompts'] : []), ...(caps.resources ? ['resources', 'templates'] : [])];
  if (has.length && !has.includes(kind)) kind = has[0];
  fill(byID('kinds'), has.length > 1 ? segments('kind', 'What to list', has.map((k) => [k, kinds[k]]), kind, (k) => { kind = k; loadList(); }) : null);
  byID('search').placeholder = `Search ${kind}`;
  loadList();
}

async function loadList() {
  const s = server();
  const box = byID('listnote');
  if (!s || !['ready', 'lost'].includes(s.state) || s.speaks === 'capture') { show1([], ''); fill(box, waiting(s)); return; }
  const key = `${s.id}/${kind}`;
  byID('search').placeholder = `Search ${kind}`;
  if (!lists.has(key)) {
    const l = { items: [], low: [], note: '', loading: true };
    lists.set(key, l);
    show1([], '');
    fill(box, 'Loading …');
    try {
      for (let total = 1; l.items.length < total;) {
        const r = await state.link.call('list', { conn: s.id, kind: key.split('/')[1], from: l.items.length });
        if (lists.get(key) !== l) return;
        l.items.push(...r.items);
        l.low.push(...r.items.map((i) => `${i.name} ${i.title ?? ''} ${i.description ?? ''}`.toLowerCase()));
        ({ total, note: l.note = '' } = r);
        if (!r.items.length) break;
        if (key === `${state.current}/${kind}`) search();
      }
    } catch (err) {
      l.note = err.message;
    }
    l.loading = false;
  }
  if (kind === 'methods' && (!lists.get(key).items.length || lists.get(key).called)) {
    const l = lists.get(key);
    l.called = true;
    l.items = traffic.called(s.id).map((name) => ({ name, description: 'was called', size: 0 }));
    l.low = l.items.map((i) => i.name.toLowerCase());
  }
  if (key === `${state.current}/${kind}`) search();
}

function waiting(s) {
  if (!s) return 'No server.';
  if (s.speaks === 'capture') return 'A capture has no list.';
  return { connecting: 'Connecting …', failed: 'The server cannot be reached.', idle: 'Not connected.' }[s.state] ?? '';
}

function search() {
  const l = lists.get(`${state.current}/${kind}`);
  if (!l) return;
  const want = byID('search').value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = [];
  for (let i = 0; i < l.low.length; i++) {
    const text = l.low[i];
    let is = true;
    for (const w of want) if (!text.includes(w)) { is = false; break; }
    if (is) found.push(l.items[i]);
  }
  show1(found, want.length ? `${found.length.toLocaleString('en')} of ${l.items.length.toLocaleString('en')}` : `${l.items.length.toLocaleString('en')} ${l.items.length === 1 ? kind.slice(0, -1) : kind}`);
  const tokens = Math.round(l.items.reduce((n, i) => n + i.size, 0) / 4);
  fill(byID('listnote'), byID('count').textContent, !want.length && kind === 'tools' && l.items.length ? h('span', { title: 'About a quarter of the bytes of their definitions' }, ` · about ${tokens.toLocaleString('en')} tokens`) : null,
    l.called ? [' · the server describes none. ', h('a', { href: '#/any' }, 'Send any method')] : null, l.note ? h('span', { class: 'problem' }, ' ', show(l.note)) : null);
}

function show1(found, text) {
  matches = found;
  byID('count').textContent = text;
  list.setCount(found.length);
  markCurrent();
}

function markCurrent() {
  const { view, kind: k, name } = at();
  list.mark(view === '' && k === kind ? matches.findIndex((i) => i.name === name) : -1);
}

const hints = { r: ['good', 'read-only'], d: ['bad', 'destructive'], p: ['', 'page'], s: ['', 'stream'] };

list = new VList({
  label: 'Offered by the server', height: 46, id: 'it',
  make: () => h('div', { class: 'irow' }, h('span', { class: 'iname' }), h('span', { class: 'idesc' })),
  draw: (el, i) => {
    const item = matches[i];
    if (!item) return;
    const [name, desc] = el.children;
    fill(name, h('span', { class: 'n' }, safe(item.name)), [...(item.hints ?? '')].map((x) => h('span', { class: `tag ${hints[x][0]}` }, hints[x][1])));
    desc.textContent = safe(item.title && item.title !== item.name ? `${item.title}${item.description ? ` — ${item.description}` : ''}` : item.description ?? '');
    el.title = safe(item.name);
  },
  choose: (i) => { location.hash = `#/${kind}/${encodeURIComponent(matches[i].name)}`; },
  open: () => main.focus(),
});
byID('items').append(list.element);
byID('search').addEventListener('input', later(10, search));
byID('search').addEventListener('keydown', (e) => {
  if (e.key === 'ArrowDown' && matches.length) { list.element.focus(); list.select(Math.max(0, list.selected)); e.preventDefault(); }
  if (e.key === 'Enter' && matches.length) { list.select(0); e.preventDefault(); }
});
on('history', later(300, () => { if (lists.get(`${state.current}/methods`)?.called) loadList(); })); // when the traffic has it
byID('again').addEventListener('click', async () => {
  const s = server();
  if (!s) return;
  lists.delete(`${s.id}/${kind}`);
  await state.link.call('list', { conn: s.id, kind, fresh: true }).catch(() => {});
  loadList();
});

// ---- where the page is ----

// decode reads a part of the fragment, which anything may have written.
function decode(part) {
  try { return decodeURIComponent(part); } catch { return part; }
}

// at reads the fragment: #/VIEW/…, or #/KIND/NAME.
function at() {
  const [, first = '', rest = ''] = /^#\/([^/]*)(?:\/(.*))?$/.exec(location.hash) ?? [];
  if (first in kinds) return { view: '', kind: first, name: decode(rest) };
  if (first === 'any') return { view: '', any: true };
  return { view: views.includes(first) ? first : '', rest };
}

let pending; // the call of the history that is opened

function route() {
  const a = at();
  const s = server();
  for (const link of byID('views').querySelectorAll('a')) {
    if (link.dataset.view !== a.view) { link.removeAttribute('aria-current'); continue; }
    link.setAttribute('aria-current', 'page');
    link.scrollIntoView({ block: 'nearest', inline: 'nearest' }); // on a phone they do not all have room
  }
  document.body.dataset.view = a.view || (a.kind || a.any ? 'item' : 'list');
  if (a.view === 'gateway') openGateway(main, decode(a.rest ?? ''));
  else if (a.view === 'traffic') traffic.openTraffic(main, Number(a.rest) || 0);
  else if (a.view === 'log') openLog(main);
  else if (a.view === 'tasks') openTasks(main);
  else if (a.view === 'checks') openChecks(main);
  else if (a.view === 'history') calls.openHistory(main, (c) => {
    if (c.conn !== state.current && state.servers.has(c.conn)) { state.current = c.conn; drawServers(); chooseKinds(); }
    pending = c;
    if (c.kind === 'start') c.kind = 'tools';
    location.hash = c.kind in kinds ? `#/${c.kind}/${encodeURIComponent(c.name)}` : '#/any';
  });
  else if (a.view === 'server') {
    const id = Number(a.rest);
    if (id && state.servers.has(id) && id !== state.current) { state.current = id; drawServers(); chooseKinds(); }
    openServers(main);
  } else if (!s || !['ready', 'lost'].includes(s.state)) welcome(s);
  else if (a.kind) {
    if (a.kind !== kind) { kind = a.kind; chooseKinds(); }
    const args = pending?.text;
    pending = undefined;
    calls.openItem(main, a.kind, a.name, { args });
  } else if (a.any) {
    calls.openAny(main, pending?.name, pending?.text);
    pending = undefined;
  }
  else welcome(s);
  markCurrent();
}

function welcome(s) {
  const bits = [];
  if (!s) { openServers(main); return; }
  if (s.state === 'connecting') bits.push(h('p', { class: 'status' }, h('span', { class: 'dot wait' }), 'Connecting …'), h('p', { class: 'muted' }, 'A command may have to download its program first. ', h('a', { href: '#/log' }, 'The log'), ' shows what it writes.'));
  else if (s.speaks === 'capture') bits.push(h('p', { class: 'muted' }, show(s.reason ?? '')), captureActions(s));
  else if (s.state === 'ready' || s.state === 'lost') {
    const i = s.info ?? {};
    if (s.state === 'lost') bits.push(h('p', { class: 'notice', role: 'status' }, 'The connection was lost: ', show(s.reason ?? ''), ' The next call connects again.'));
    else if (s.reason) bits.push(h('p', { class: 'muted' }, show(s.reason)));
    bits.push(h('p', { class: 'muted' }, s.speaks === 'mcp' ? `${safe(i.name ?? '')} ${safe(i.version ?? '')}, MCP ${i.revision}` : 'A JSON-RPC server.'), i.instructions ? h('p', { class: 'description' }, show(i.instructions)) : null,
      h('p', {}, 'Choose what to call at the side, or ', h('a', { href: '#/any' }, 'send any method'), '.'));
  } else {
    bits.push(h('p', { class: s.state === 'failed' ? 'notice' : 'muted', role: 'status' }, s.state === 'failed' ? show(s.reason ?? '') : 'Not connected.'),
      h('div', { class: 'bar' }, h('button', { type: 'button', class: 'primary', onclick: () => state.link.call('connect', { conn: s.id }) }, s.state === 'failed' ? 'Try again' : 'Connect'), h('a', { class: 'quiet button', href: '#/server' }, 'Server'), h('a', { class: 'quiet button', href: '#/log' }, 'Log')));
  }
  const keys = [['/', 'search'], ['↑ ↓', 'choose'], ['Ctrl Enter', 'call'], ['g t', 'traffic'], ['g c', 'call'], ['g l', 'log'], ['g s', 'server'], ['g h', 'history'], ...(operate ? [['g g', 'gateway']] : [])];
  fill(main, h('div', { class: 'welcome' }, h('h1', {}, show(s.info?.title ?? s.info?.name ?? s.name)), bits, h('p', { class: 'keys muted' }, keys.map(([k, t]) => h('span', {}, k.split(' ').map((x) => h('kbd', {}, x)), ` ${t}`)))));
}

addEventListener('hashchange', route);
let g = 0;
addEventListener('keydown', (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest?.('input, textarea, select, [contenteditable]')) {
    if (e.key === 'Escape') e.target.blur();
    return;
  }
  if (e.key === '/') { (at().view === 'traffic' ? byID('filter') : byID('search')).focus(); e.preventDefault(); }
  else if (e.key === 'g' && Date.now() - g > 1500) g = Date.now();
  else if (Date.now() - g < 1500) {
    const to = { t: '#/traffic', c: '#/', l: '#/log', s: '#/server', h: '#/history', ...(operate ? { g: '#/gateway' } : {}) }[e.key];
    g = 0;
    if (to) { location.hash = to; e.preventDefault(); }
  }
});

byID('gatewaytab').hidden = !operate;
if (operate && !location.hash) location.replace('#/gateway');
if (at().view === 'gateway') route(); // it needs no connection
questions.begin();
takeDrops(() => byID('fproblem'));
