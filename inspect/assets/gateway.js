// What operators see of a gateway, and do with it: its API for operators (api/v1) is beside the page. Who may do what is
// decided by the gateway, for each request; what it answers is shown where it was asked.

import { byID, clock, fill, h, later, safe, show } from './dom.js';

export const hasOperators = 'operate' in document.body.dataset; // the API is there

const every = 2000; // ms between two readings

// ask sends a request to the API, and throws what it answers when it refuses.
export async function ask(path, body) {
  const answer = await fetch(`api/v1/${path}`, body === undefined ? { cache: 'no-store', signal: AbortSignal.timeout(10000) } : { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) });
  const text = await answer.text();
  let value = null;
  try { value = JSON.parse(text); } catch { /* not an answer of the API */ }
  if (!answer.ok || value === null) throw new Error([value?.detail ?? `The gateway answers with status ${answer.status}.`, value?.permission ? `A rule of the guard must allow ${value.permission}.` : ''].filter(Boolean).join(' '));
  return value;
}

// upstreamOf is the name of the upstream that a server of this page is; '': it is something else, or the reader may not know.
export async function upstreamOf(s) {
  const name = /^\/(?:mcp|rpc)\/([^/]+)$/.exec(s?.path ?? '')?.[1];
  if (!hasOperators || !name) return '';
  try {
    return (await ask('upstreams')).upstreams.some((u) => u.name === name) ? name : '';
  } catch { return ''; }
}

const of = (name, what = '') => `upstreams/${encodeURIComponent(name)}${what}`;
const note = (text, more = {}) => h('p', { class: 'muted', ...more }, text);
const cut = (text, most) => safe(String(text ?? '').slice(0, most));
const number = (n) => Number(n).toLocaleString('en');
const many = (n, what) => `${number(n)} ${what}${Number(n) === 1 ? '' : 's'}`;
const ms = (n) => (n >= 1000 ? `${(n / 1000).toFixed(n < 1e4 ? 1 : 0)} s` : `${Math.round(n * 100) / 100} ms`);
const when = (t) => (t ? h('time', { datetime: t, title: t }, clock(new Date(t).getTime()).slice(0, 8)) : '');

function ago(t) {
  const s = Math.max(0, (Date.now() - new Date(t)) / 1000);
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  return s < 86400 * 2 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 86400)} d`;
}

const looks = { up: 'good', starting: 'wait', draining: 'wait', down: 'bad', open: 'bad' };
const badge = (state) => h('span', { class: `tag ${looks[state] ?? ''}` }, state === 'open' ? 'breaker open' : cut(state || 'unknown', 24));

function table(label, heads, rows) {
  return h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': label },
    h('table', { class: 'grid' }, h('thead', {}, h('tr', {}, heads.map((t) => h('th', { scope: 'col' }, t)))),
      h('tbody', {}, rows.map((cells) => h('tr', {}, cells.map((c) => h('td', typeof c === 'number' ? { class: 'num' } : {}, c instanceof Node ? c : typeof c === 'number' ? number(c) : h('bdi', {}, cut(c, 2000)))))))));
}

// draw fills an element when what it shows has changed. What had the focus in it has it again.
function draw(el, data, make) {
  const text = JSON.stringify(data);
  if (el.shown === text) return;
  el.shown = text;
  const key = el.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  fill(el, make());
  if (key) el.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
}

async function load(into, make) {
  try { fill(into, await make()); } catch (err) { fill(into, h('p', { class: 'problem', role: 'alert' }, safe(err.message))); }
}

// twice is a button that acts at the second press within five seconds.
function twice(label, act, said) {
  let timer = 0;
  const button = h('button', { type: 'button', class: 'quiet' }, label);
  const calm = () => { clearTimeout(timer); timer = 0; button.textContent = label; };
  button.addEventListener('click', async (e) => {
    if (e.detail > 1) return; // a double click is one press
    if (!timer) { button.textContent = `${label}: press again`; timer = setTimeout(calm, 5000); return; }
    calm();
    said.textContent = '…';
    try { said.textContent = await act(); } catch (err) { said.textContent = safe(err.message); }
  });
  return button;
}

// panel is a part that is read when it is opened.
function panel(name, title, read) {
  const out = h('div', { class: 'out' });
  return h('details', { class: 'card panelbox', 'data-panel': name, ontoggle: (e) => { if (e.target.open) load(out, read); } }, h('summary', {}, title), out);
}

// ---- the gateway ----

let timer = 0;
let paused = false;

// openGateway shows the gateway, or one of its upstreams.
export function openGateway(into, name) {
  clearTimeout(timer);
  const box = h('div', { class: 'gateway' });
  const state = h('span', { class: 'muted', role: 'status', id: 'fresh' });
  const refresh = name ? one(box, name) : all(box);
  const pause = h('button', { type: 'button', class: 'quiet', id: 'pause' }, paused ? 'Resume' : 'Pause');
  const turn = async () => {
    clearTimeout(timer);
    try {
      if (!document.hidden) await refresh();
      state.textContent = 'Live';
      box.classList.remove('stale');
    } catch (err) {
      state.textContent = safe(err.message).slice(0, 300);
      box.classList.add('stale'); // what is shown was true once
    }
    if (paused) state.textContent = 'Paused';
    else if (box.isConnected) timer = setTimeout(turn, every);
  };
  pause.addEventListener('click', () => {
    paused = !paused;
    pause.textContent = paused ? 'Resume' : 'Pause';
    if (paused) { clearTimeout(timer); state.textContent = 'Paused'; } else turn();
  });
  fill(into, h('div', { class: 'bar' }, name ? h('a', { href: '#/gateway' }, '← All upstreams') : h('h1', { id: 'gatewayname' }, 'Gateway'), h('span', { class: 'grow' }), state, pause), box);
  turn();
}

function all(box) {
  const head = h('div', {});
  const list = h('div', {});
  fill(box, head, list, panel('calls', 'Calls that failed, were refused or took long', calls), panel('sessions', 'Sessions', sessions), panel('pins', 'Pins', pins), panel('explain', 'Decisions', explain));
  return async () => {
    const [o, u] = await Promise.all([ask(''), ask('upstreams')]);
    const down = u.upstreams.filter((x) => looks[x.state] === 'bad').length;
    document.title = `${down ? `(${down} down) ` : ''}${cut(o.name, 60)}`;
    byID('gatewayname').textContent = cut(o.name, 80);
    draw(head, o, () => [
      h('p', { class: 'muted' }, h('span', { class: `tag ${o.draining ? 'wait' : 'good'}` }, o.draining ? 'draining' : 'serving'), ` ${cut(o.version, 60)} · up for ${ago(o.since)}${o.listen?.length ? ` · listens on ${o.listen.map((l) => cut(l, 200)).join(', ')}` : ''}${o.caller ? ` · you are ${cut(o.caller, 100)}` : ''}`),
      h('dl', { class: 'counts' }, [['Upstreams up', `${o.upstreams.up ?? 0} of ${u.upstreams.length}`], ['Sessions', number(o.sessions)], ['Calls in flight', number(o.inFlight)], ['Suspended', number(o.suspended)], ['Calls in all', number(o.calls)], ['Errors', number(o.errors)]].map(([k, v]) => h('div', {}, h('dt', {}, k), h('dd', {}, v)))),
    ]);
    draw(list, u, () => (u.upstreams.length ? [h('h2', {}, 'Upstreams'), h('ul', { class: 'upstreams' }, u.upstreams.map(upstreamRow))] : note('There are no upstreams. Add one to the configuration.')));
  };
}

function upstreamRow(u) {
  const facts = [many(u.calls, 'call'), u.errors ? `${number(u.errors)} not answered` : '', u.p50Ms ? `p50 ${ms(u.p50Ms)}, p99 ${ms(u.p99Ms)}` : '', u.inFlight ? `${number(u.inFlight)} in flight` : '', u.queued ? `${number(u.queued)} queued` : '', many(u.connections, 'connection'), u.restarts ? many(u.restarts, 'restart') : '', many(u.tools, 'tool')];
  return h('li', { 'data-upstream': cut(u.name, 200) },
    h('div', { class: 'bar' }, h('a', { class: 'uname', href: `#/gateway/${encodeURIComponent(u.name)}`, 'data-key': u.name }, h('bdi', {}, cut(u.name, 200))), badge(u.state), u.blocked ? h('span', { class: 'tag bad' }, `${number(u.blocked)} blocked`) : null, h('span', { class: 'muted' }, h('bdi', {}, cut(u.server, 200)), u.revision ? ` · MCP ${cut(u.revision, 40)}` : '')),
    note(facts.filter(Boolean).join(' · ')),
    h('p', { class: 'muted mono' }, h('bdi', {}, cut(u.target, 300))),
    u.lastError ? h('p', { class: 'problem' }, show(String(u.lastError).slice(0, 400))) : u.reason ? note(cut(u.reason, 400)) : null);
}

async function calls() {
  const r = await ask('calls');
  const about = note(`${r.all ? 'Calls of all callers' : 'Your calls'}, the newest first; slow is more than ${ms(r.slowMs)}.`);
  if (!r.calls?.length) return [about, note('None has failed, was refused or took long.')];
  return [about, table('Calls', ['Began', 'Outcome', 'Call', 'Upstream', 'Took', 'Principal', 'Decision', 'Error', 'Trace'], r.calls.map((c) => [
    when(c.at), c.outcome.replace('_', ' '), `${c.method} ${c.name ?? ''}`, `${c.upstream ?? ''}${c.attempts > 1 ? ` (${c.attempts} attempts)` : ''}`,
    `${ms(c.tookMs)}${c.queuedMs ? `, ${ms(c.queuedMs)} queued` : ''}`, c.principal, c.decision, c.error ? `${c.code ?? ''} ${c.error}` : '', c.trace,
  ]))];
}

async function sessions() {
  const r = await ask('sessions');
  if (!r.sessions?.length) return note('There is none.');
  const said = h('p', { role: 'status' });
  return [note(r.all ? 'Of all callers.' : 'Your own.'), table('Sessions', ['Began', 'Client', 'Principal', 'Path', 'Revision', 'Address', 'Id', 'End'], r.sessions.map((s) => [
    when(s.since), s.client, s.principal, s.path, s.revision, s.address, s.id, twice('End', async () => { await ask(`sessions/${encodeURIComponent(s.id)}/end`, {}); return `The session ${cut(s.id, 80)} has ended.`; }, said),
  ])), said];
}

async function pins() {
  const r = await ask('pins');
  return [note(`The lock file is ${safe(r.file)}.`), (r.upstreams ?? []).map((u) => h('p', {}, h('a', { href: `#/gateway/${encodeURIComponent(u.upstream)}` }, safe(u.upstream)), ` ${u.pinned} pinned, ${(u.changes ?? []).length} known to differ`))];
}

function explain() {
  const out = h('div', { role: 'status' });
  const field = (name, label, placeholder) => h('label', { class: 'field' }, h('span', { class: 'name' }, label), h('input', { type: 'text', class: 'code', name, placeholder, autocomplete: 'off', spellcheck: 'false' }));
  return [h('form', { id: 'explain', class: 'bar', onsubmit: (e) => {
    e.preventDefault();
    load(out, () => explained([...new FormData(e.target)].filter(([, v]) => v.trim()).map(([k, v]) => [k, v.trim()])));
  } }, field('call', 'Call', 'tools/call files/read'), field('as', 'As', 'you'), field('arguments', 'Arguments', '{"path":"/etc"}'), h('button', { type: 'submit', class: 'quiet' }, 'Explain')), out];
}

// explained is what the guard makes of a call.
export async function explained(query) {
  const r = await ask(`explain?${new URLSearchParams(query)}`);
  const facts = [['Call', r.call], ['As', `${r.as} (${r.kind})`], ['Roles', r.roles?.join(', ')], ['Policies', r.policies?.join(', ')], ['Reason', r.reason], ['Limits', r.limits?.join(', ')], ['Scopes', r.scopes?.join(', ')], ['Shadow', r.shadow]];
  return [h('p', {}, h('span', { class: `tag ${r.allowed ? 'good' : 'bad'}` }, r.allowed ? 'allowed' : 'denied')),
    h('dl', { class: 'facts' }, facts.filter(([, v]) => v).map(([k, v]) => [h('dt', {}, k), h('dd', {}, show(String(v).slice(0, 2000)))]))];
}

// ---- one upstream ----

const done = { restart: 'restarted', drain: 'draining: its calls end, then it is disabled', disable: 'disabled', enable: 'enabled' };

function one(box, name) {
  const head = h('div', {});
  const used = h('div', {});
  const said = h('span', { class: 'muted', role: 'status', id: 'said' });
  const order = (label, what, body = {}) => twice(label, async () => `${done[what]}; its state is ${safe((await ask(of(name, `/${what}`), body)).state)}`, said);
  fill(box, head,
    h('div', { class: 'bar orders', role: 'group', 'aria-label': 'Orders' }, order('Restart', 'restart'), order('Restart, calls end first', 'restart', { graceful: true }), order('Drain', 'drain'), order('Disable', 'disable'), order('Enable', 'enable'), said),
    used, panel('upins', 'What differs from its pins', () => differences(name)), panel('tools', 'Tools', () => tools(name)));
  return async () => {
    const [d, u] = await Promise.all([ask(of(name)), ask(of(name, '/usage'))]);
    document.title = cut(name, 60);
    draw(head, d, () => upstreamHead(d));
    draw(used, u, () => usage(u));
  };
}

function upstreamHead({ upstream: u, stderr, warnings }) {
  const facts = [['Target', u.target], ['Server', u.server], ['Revision', u.revision && `MCP ${u.revision}`], ['Profile', u.profile], ['Connection of', u.lifetime], ['Connections', `${number(u.connections)}, ${u.processes === 1 ? '1 process' : `${number(u.processes)} processes`}, ${many(u.restarts, 'restart')}`], ['Calls', `${number(u.calls)}, ${number(u.errors)} not answered, ${u.inFlight} in flight, ${u.queued} queued`], ['Tools', `${u.tools}${u.blocked ? `, ${u.blocked} blocked` : ''}`]];
  return [h('div', { class: 'heading' }, h('h1', {}, show(String(u.name).slice(0, 200))), badge(u.state), u.since ? h('span', { class: 'muted' }, `since ${clock(new Date(u.since).getTime()).slice(0, 8)}`) : null),
    u.reason ? note(cut(u.reason, 400)) : null,
    u.lastError ? h('p', { class: 'notice', id: 'story' }, show(String(u.lastError).slice(0, 4000))) : null,
    (warnings ?? []).slice(0, 50).map((w) => h('p', { class: 'problem' }, show(String(w).slice(0, 400)))),
    h('dl', { class: 'facts' }, facts.filter(([, v]) => v).map(([k, v]) => [h('dt', {}, k), h('dd', {}, show(String(v).slice(0, 400)))])),
    stderr?.length ? [h('h2', {}, 'Standard error'), h('pre', { class: 'text', id: 'stderr', tabindex: '0', role: 'region', 'aria-label': 'Standard error', 'data-key': 'stderr' }, show(stderr.slice(-40).map((l) => String(l).slice(0, 400)).join('\n')))] : null];
}

function usage(u) {
  const total = u.latency.reduce((n, b) => n + b.calls, 0);
  const most = Math.max(1, ...u.latency.map((b) => b.calls));
  const last = u.latency.findLastIndex((b) => b.calls);
  const first = u.latency.findIndex((b) => b.calls);
  const label = (b, i) => (b.mostMs ? `≤ ${ms(b.mostMs)}` : `> ${ms(u.latency[i - 1].mostMs)}`);
  const names = (title, list) => (list.length ? [h('h2', {}, title), table(title, ['Name', 'Calls', 'Errors', 'Mean'], list.slice(0, 100).map((x) => [x.name, x.calls, x.errors, ms(x.meanMs)])), list.length > 100 ? note(`${number(list.length - 100)} more.`) : null] : null);
  return [h('h2', {}, 'Latency'), total ? h('ol', { class: 'histogram', 'aria-label': 'Latency' }, u.latency.slice(first, last + 1).map((b, i) => h('li', {}, h('span', { class: 'muted' }, label(b, i + first)), h('meter', { min: '0', max: String(most), value: String(b.calls), 'aria-label': `${label(b, i + first)}: ${many(b.calls, 'call')}` }), h('span', { class: 'num' }, number(b.calls))))) : note('No client has called it yet.'),
    u.errors.length ? [h('h2', {}, 'Errors by kind'), table('Errors by kind', ['Kind', 'Calls'], u.errors.map((e) => [/^-?\d+$/.test(e.kind) ? `error ${e.kind}` : e.kind, e.calls]))] : null,
    names('Usage by tool', u.tools), names(u.all ? 'Usage by principal' : 'Your usage', u.principals)];
}

// differences shows all of what has changed: who accepts it must have seen it. The API bounds it.
export async function differences(name) {
  const r = await ask(of(name, '/pins'));
  if (!r.changes?.length) return note('Everything is as it was pinned.');
  const said = h('p', { role: 'status' });
  return [r.changes.map((c) => h('div', {}, h('p', {}, `${safe(c.what)} `, h('bdi', { class: 'mono' }, safe(c.name)), ` is ${safe(c.kind)}`), diff(c.diff, c.name))),
    twice('Accept what it says now', async () => { await ask(of(name, '/pins/accept'), { digest: r.digest }); return 'Accepted.'; }, said), said];
}

const diff = (text, name) => h('pre', { class: 'text diff', tabindex: '0', role: 'region', 'aria-label': `What differs in ${cut(name, 100)}` }, text.split('\n').map((l) => h('span', l[0] === '+' ? { class: 'added' } : l[0] === '-' ? { class: 'removed' } : {}, show(l), '\n')));

async function tools(name) {
  const r = await ask(of(name, '/tools'));
  const list = [...r.tools.filter((t) => t.blocked), ...r.tools.filter((t) => !t.blocked)].map((t) => ({ ...t, low: `${t.name} ${t.shown ?? ''} ${t.description ?? ''}`.toLowerCase() }));
  const rows = h('ul', { class: 'toolrows' });
  const count = h('p', { class: 'muted', role: 'status' });
  const filter = (text) => {
    const want = text.toLowerCase().split(/\s+/).filter(Boolean);
    const found = list.filter((t) => want.every((w) => t.low.includes(w)));
    count.textContent = `${want.length ? `${number(found.length)} of ` : ''}${number(list.length)} tools${found.length > 200 ? ', the first 200 are shown' : ''}`;
    fill(rows, found.slice(0, 200).map((t) => h('li', {}, h('p', {}, h('bdi', { class: 'mono' }, cut(t.shown || t.name, 200)), t.shown && t.shown !== t.name ? h('span', { class: 'muted' }, ' there ', h('bdi', {}, cut(t.name, 200))) : null, t.blocked ? h('span', { class: 'tag bad' }, 'blocked') : null),
      t.description ? h('p', { class: 'muted', dir: 'auto' }, cut(t.description, 400)) : null,
      t.blocked ? h('details', {}, h('summary', {}, 'Why'), h('p', {}, cut(t.blocked, 400)), t.diff ? diff(t.diff, t.name) : null) : null)));
  };
  const box = h('input', { type: 'search', id: 'toolsearch', 'aria-label': 'Filter tools', placeholder: 'Filter tools', autocomplete: 'off', spellcheck: 'false', oninput: later(20, (e) => filter(e.target.value)) });
  filter('');
  return list.length ? [box, count, rows] : note('It has not said which tools it has.');
}
