// What can be checked of a server: the definitions of its tools, how it keeps to its specification, and what has changed.

import { fill, h, perFrame, safe, segments, show } from './dom.js';
import { differences, upstreamOf } from './gateway.js';
import { hop } from './rows.js';
import { server, state } from './state.js';
import { rows } from './traffic.js';

const worst = { error: 'Errors', warning: 'Warnings', note: 'Notes' };
const looks = { error: 'bad', fail: 'bad', breaking: 'bad', warning: 'wait', unclear: 'wait', pass: 'good', compatible: 'good' };
const tag = (word) => h('span', { class: `tag ${looks[word] ?? ''}` }, word);
const title = (s) => safe(s.name).slice(0, 60);

const most = 500; // findings that are shown at once

// findings is a list of what was found, with a choice of its kind: [kind, label] each.
function findings(name, label, all, kinds, kindOf, row) {
  const list = h('ol', { class: 'findings' });
  const choose = (kind) => {
    const some = all.filter((f) => kind === 'all' || kindOf(f) === kind);
    fill(list, some.slice(0, most).map((f) => h('li', {}, tag(kindOf(f)), h('div', {}, row(f)))), some.length > most ? h('li', { class: 'muted' }, `${some.length - most} more.`) : null);
  };
  const first = kinds.find(([kind]) => looks[kind] === 'bad' && all.some((f) => kindOf(f) === kind))?.[0] ?? 'all';
  choose(first);
  return [segments(name, label, [['all', `All ${all.length}`], ...kinds.map(([kind, text]) => [kind, `${text} ${all.filter((f) => kindOf(f) === kind).length}`])], first, choose), list];
}

// openChecks shows the tab.
export function openChecks(into) {
  const s = server();
  if (!['mcp', 'jsonrpc', 'capture'].includes(s?.speaks)) { fill(into, h('h1', {}, 'Checks'), h('p', { class: 'muted' }, 'The checks are for servers that are connected, and for captures.')); return; }
  fill(into, h('h1', {}, 'Checks'), s.speaks === 'mcp' ? definitions(s) : null, state.conform && s.speaks !== 'capture' ? specification(s) : null, changes(s));
}

// load fills an element with what a call of the page returns, or says why there is nothing.
async function load(box, method, params, make) {
  try { fill(box, make(await state.link.call(method, params))); } catch (err) { fill(box, h('p', { class: 'problem', role: 'alert' }, show(err.message))); }
}

// definitions are what models and clients misread in the definitions of the tools, and what these cost.
function definitions(s) {
  const box = h('div', {}, h('p', { class: 'muted' }, 'Looking at the tools …'));
  load(box, 'lint', { conn: s.id }, (r) => {
    const largest = r.costs[0]?.tokens || 1;
    return [h('div', { class: 'card' }, h('h2', {}, 'Definitions'), h('p', { class: 'muted' }, r.findings.length ? 'What models and clients misread, or refuse, in the definitions of the tools.' : 'Nothing was found in the definitions of the tools.'),
      r.findings.length ? findings('severity', 'Severity', r.findings, Object.entries(worst), (f) => f.severity, (f) => [
        h('p', {}, f.tool ? h('a', { href: `#/tools/${encodeURIComponent(f.tool)}` }, safe(f.tool)) : h('b', {}, 'All tools'), ' ', h('code', { class: 'muted' }, safe(f.pointer ?? ''))), h('p', {}, show(f.message), ' ', h('code', { class: 'muted' }, f.rule))]) : null),
    h('div', { class: 'card' }, h('h2', {}, `About ${r.tokens.toLocaleString('en')} tokens`), h('p', { class: 'muted' }, 'What the definitions take of a model’s context, the largest first. About four bytes are a token.'),
      h('ol', { class: 'costs' }, r.costs.slice(0, 100).map((c) => h('li', {}, h('a', { href: `#/tools/${encodeURIComponent(c.tool)}` }, safe(c.tool)), h('meter', { min: '0', max: String(largest), value: String(c.tokens), 'aria-label': `${c.tokens} tokens` }), h('span', { class: 'muted' }, c.tokens.toLocaleString('en'))))))];
  });
  return box;
}

// specification checks how a server keeps to its specification, when that is wanted.
function specification(s) {
  const name = s.speaks === 'mcp' ? 'MCP' : 'JSON-RPC 2.0';
  const out = h('div', { role: 'status' });
  const button = h('button', { type: 'button', class: 'primary', id: 'conform' }, 'Check it');
  let running = null;
  button.addEventListener('click', async () => {
    if (running) { running.abort(); return; }
    running = new AbortController();
    const call = `conform${Date.now().toString(36)}`;
    const at = h('p', { class: 'muted' }, 'Connecting …');
    button.textContent = 'Stop';
    fill(out, at);
    state.calls.set(call, { progress: perFrame((all) => { const v = all.at(-1); at.textContent = safe(`${v.progress} cases: ${v.message}`); }) });
    try {
      fill(out, report(await state.link.call('conform', { conn: s.id, call }, { signal: running.signal }), name));
    } catch (err) {
      fill(out, h('p', { class: 'problem', role: 'alert' }, running.signal.aborted ? 'Stopped.' : show(err.message)));
    }
    state.calls.delete(call);
    running = null;
    button.textContent = 'Check it again';
  });
  return h('div', { class: 'card', id: 'specification' }, h('h2', {}, 'Specification'), h('p', { class: 'muted' }, s.speaks === 'mcp' ? 'How the server keeps to each revision of MCP that it speaks. It gets new sessions, with valid and invalid messages; no tool is called.' : 'How the server keeps to JSON-RPC 2.0. It gets new connections, with valid and invalid messages.'),
    h('div', { class: 'bar actions' }, button), out);
}

function report(r, name) {
  const cases = r.cases ?? [];
  return [h('p', {}, h('b', {}, r.failed ? `It does not keep to ${name}.` : `It keeps to ${name}.`), ` ${r.passed} passed, ${r.failed} failed, ${r.skipped} skipped.`),
    findings('verdict', 'Verdict', cases, [['fail', 'Failed'], ['skip', 'Skipped'], ['pass', 'Passed']], (c) => c.verdict, (c) => h('details', {},
      h('summary', {}, h('code', {}, safe(c.name)), ' ', safe(c.title)), c.finding ? h('p', {}, show(c.finding)) : null, h('p', { class: 'muted' }, `${safe(c.ref)} (${c.level})`),
      [['Sent', c.sent], ['Expected', [c.expected]], ['Received', c.received?.length ? c.received : ['nothing']]].map(([what, lines]) => (lines?.length ? [h('p', { class: 'muted' }, what), h('pre', { class: 'text', tabindex: '0', role: 'region', 'aria-label': `${what}, ${safe(c.name)}` }, show(lines.join('\n')))] : null))))];
}

// changes compares what a server offers with another one, a capture, or what is pinned of it.
function changes(s) {
  const box = h('div', { class: 'card', id: 'changes' }, h('h2', {}, 'Changes'));
  upstreamOf(s).then((pinned) => box.append(...choices(s, pinned)));
  return box;
}

// choices are what there is to compare with. pinned is the name of the upstream that a server is, which has pins.
function choices(s, pinned) {
  const others = [...state.servers.values()].filter((o) => o.id !== s.id && ['ready', 'lost'].includes(o.state));
  const out = h('div', { role: 'status' });
  const was = h('select', { id: 'was' }, pinned ? h('option', { value: 'pins' }, 'its pins') : null, others.map((o) => h('option', { value: String(o.id) }, title(o))));
  const compare = async () => {
    fill(out, h('p', { class: 'muted' }, 'Comparing …'));
    try {
      fill(out, was.value === 'pins' ? await differences(pinned) : changed(await compared(state.servers.get(Number(was.value)), s)));
    } catch (err) { fill(out, h('p', { class: 'problem', role: 'alert' }, show(err.message))); }
  };
  if (!pinned && !others.length) return [h('p', { class: 'muted' }, 'Connect another server, or open a capture, to compare with it.')];
  return [h('p', { class: 'muted' }, 'What has changed in what the server offers, and whether that breaks a client that relies on what was before.'),
    h('form', { class: 'bar', onsubmit: (e) => { e.preventDefault(); compare(); } }, h('label', { for: 'was' }, 'Since'), was, h('button', { type: 'submit', class: 'quiet' }, 'Compare')), out];
}

// The lists of MCP, each with its member of a result, and what describes a JSON-RPC service.
const lists = { 'tools/list': 'tools', 'prompts/list': 'prompts', 'resources/list': 'resources', 'resources/templates/list': 'resourceTemplates' };
const discover = 'rpc.discover';
const response = 'r'.charCodeAt(0);

// compared finds the changes between two servers, or captures of one.
async function compared(was, is) {
  const found = [];
  let both = 0; // the lists that there are of both: a capture has those that were asked for
  const described = [was, is].some((s) => s.speaks === 'jsonrpc');
  for (const method of described ? [discover] : Object.keys(lists)) {
    const [a, b] = await Promise.all([was, is].map((s) => answer(s, method)));
    if (!a || !b) continue;
    both++;
    found.push(...(await state.link.call('diff', { method, was: a, is: b }) ?? []));
  }
  if (!both) throw new Error('Nothing was listed in the capture.');
  return found.map((f) => ({ ...f, path: (f.path ?? '').replace(/^result\./, '') }));
}

// answer is the whole list of a server as one answer; of a capture, the newest that it has, or null.
async function answer(s, method) {
  const pages = s.speaks === 'capture' ? await recorded(s, method) : await listed(s, method);
  if (s.speaks === 'capture' && !pages.length) return null;
  if (method === discover) {
    if (!pages.length) throw new Error(`${title(s)} does not describe its methods.`);
    return { result: pages[0] };
  }
  return { result: { [lists[method]]: pages.flatMap((p) => p[lists[method]] ?? []) } };
}

async function listed(s, method) {
  const pages = [];
  for (let params = {}; params;) {
    const r = await state.link.call('call', { conn: s.id, call: '', kind: 'methods', name: method, params });
    if (r.error?.code === -32601) return []; // it has no such list
    if (r.error || r.fault || r.cut) throw new Error(r.error?.message ?? r.fault ?? 'The list is too large.');
    pages.push(JSON.parse(r.result));
    const cursor = pages.at(-1).nextCursor;
    params = cursor && pages.length < 1000 ? { cursor } : null;
  }
  return pages;
}

// recorded are the pages of the newest answer that has its beginning.
async function recorded(s, method) {
  const read = async (seq) => JSON.parse((await state.link.call('frame', { seq, size: 4 << 20 })).text);
  let pages = [];
  for (let k = 0; k < rows.count; k++) {
    if (rows.conn[k] !== s.id || rows.kind[k] !== response || rows.flags[k] & hop || rows.texts[rows.method[k]] !== method) continue;
    const { result } = await read(rows.base + k);
    if (!result) continue;
    const { params } = rows.ref[k] ? await read(rows.ref[k]) : {};
    if (!params?.cursor) pages = [];
    pages.push(result);
  }
  return pages;
}

function changed(all) {
  if (!all.length) return h('p', { class: 'muted' }, 'Nothing has changed.');
  const value = (sign, text) => (text ? h('span', { class: sign === '+' ? 'added' : 'removed' }, `${sign} `, show(text), '\n') : null);
  return findings('level', 'Level', all, [['breaking', 'Breaking'], ['unclear', 'Unclear'], ['compatible', 'Compatible']], (f) => f.level, (f) => [
    h('p', {}, h('code', { class: 'path' }, safe(f.path ?? '')), ' ', h('code', { class: 'muted' }, f.rule)),
    h('pre', { class: 'text diff', tabindex: '0', role: 'region', 'aria-label': `What differs in ${safe(f.path ?? '').slice(0, 100)}` }, value('-', f.was), value('+', f.is))]);
}
