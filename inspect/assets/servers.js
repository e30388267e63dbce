// Connecting: what there is, what it says of itself, and what it writes to its log.

import { byID, clock, fill, h, perFrame, safe, show } from './dom.js';
import { json } from './content.js';
import { on, server, state } from './state.js';

export const states = { idle: 'not connected', connecting: 'connecting', ready: 'connected', failed: 'cannot connect', lost: 'connection lost' };

// words splits a command as a shell does, without anything else that shells do.
export function words(text) {
  const out = [];
  const re = /\s*(?:'([^']*)'|"((?:[^"\\]|\\.)*)"|((?:[^\s'"\\]|\\.)+))/gy;
  let word = null;
  let end = 0;
  for (let m; (m = re.exec(text)); end = re.lastIndex) {
    const gap = /^\s/.test(m[0]) || word === null;
    const part = m[1] ?? (m[2] ?? m[3]).replace(/\\(.)/g, '$1');
    if (gap && word !== null) { out.push(word); word = part; } else word = (word ?? '') + part;
  }
  if (text.slice(end).trim()) throw new Error('A quotation mark is not closed.');
  if (word !== null) out.push(word);
  return out;
}

const pick = (id, label, choices, value) => h('div', { class: 'field' }, h('label', { class: 'label', for: id }, h('span', { class: 'name' }, label)), h('select', { id }, choices.map((c) => h('option', { value: c, selected: c === value }, c))));

// goTo shows a server that was added.
function goTo(s) {
  state.servers.set(s.id, s);
  location.hash = `#/server/${s.id}`;
}

// openServers shows the tab with the details of the current server.
export function openServers(into) {
  const s = server();
  fill(into, h('h1', {}, s ? show(s.name) : 'Servers'), s ? details(s) : h('p', { class: 'muted' }, 'There is no server yet.'), state.anyServer ? add() : null);
}

function details(s) {
  const busy = s.state === 'connecting';
  const problem = h('p', { class: 'problem', role: 'alert' });
  const act = (method, params = {}) => state.link.call(method, { conn: s.id, ...params }).catch((err) => { problem.textContent = err.message; });
  const beside = async () => {
    const one = await act('connect', { beside: true, protocol: byID('protocol').value, era: byID('era').value });
    if (one) goTo(one);
  };
  const i = s.info ?? {};
  const facts = [
    ['Address', s.command ? s.command.join(' ') : s.target || s.path || 'in this process'], ['State', `${states[s.state]}${s.since ? ` since ${clock(s.since).slice(0, 8)}` : ''}`],
    ['Speaks', s.speaks === 'mcp' ? `MCP ${i.revision ?? ''}` : s.speaks === 'jsonrpc' ? 'JSON-RPC 2.0' : s.speaks === 'capture' ? 'nothing: it is a capture' : null], ['Name', i.title ?? i.name], ['Version', i.version],
    ['Supports', i.supported?.join(', ')], ['Headers', s.headers?.join(', ')],
  ].filter(([, v]) => v);
  const roots = h('textarea', { rows: 2, class: 'code', id: 'roots', placeholder: 'file:///home/me/project', spellcheck: 'false' });
  return [
    h('div', { class: 'card' },
      s.reason ? h('p', { class: s.state === 'ready' ? 'muted' : 'notice', role: 'status' }, show(s.reason)) : null,
      h('dl', { class: 'facts' }, facts.map(([k, v]) => [h('dt', {}, k), h('dd', {}, show(String(v)))])),
      s.speaks === 'capture' ? captureActions(s) : null,
      h('div', { class: 'fields', hidden: s.speaks === 'capture' }, pick('protocol', 'Protocol', ['auto', 'mcp', 'jsonrpc'], s.protocol), pick('era', 'MCP revision', state.eras, s.era)),
      h('div', { class: 'bar actions' },
        s.speaks === 'capture' ? null : h('button', { type: 'button', class: 'primary', onclick: () => act('connect', { protocol: byID('protocol').value, era: byID('era').value }) }, busy ? 'Begin again' : s.state === 'ready' ? 'Connect again' : 'Connect'),
        s.speaks === 'capture' ? null : h('button', { type: 'button', class: 'quiet', id: 'beside', title: 'A second connection with this protocol and revision, to compare with, or to replay calls to', onclick: beside }, 'Connect beside'),
        s.state === 'idle' || s.speaks === 'capture' ? null : h('button', { type: 'button', class: 'quiet', onclick: () => act('disconnect') }, busy ? 'Stop' : 'Disconnect'),
        h('button', { type: 'button', class: 'quiet', onclick: () => act('remove') }, 'Remove'), problem)),
    i.instructions ? h('div', { class: 'card' }, h('h2', {}, 'Instructions for the model'), h('p', { class: 'description' }, show(i.instructions))) : null,
    i.capabilities ? h('div', { class: 'card' }, h('h2', {}, 'Capabilities'), json(JSON.stringify(i.capabilities))) : null,
    s.speaks === 'mcp' ? h('form', { class: 'card', onsubmit: (e) => { e.preventDefault(); act('roots', { roots: roots.value.split('\n').map((l) => l.trim()).filter(Boolean).map((uri) => ({ uri, name: uri.split('/').at(-1) })) }); } },
      h('h2', {}, h('label', { for: 'roots' }, 'Roots')), h('p', { class: 'muted' }, 'The answer to a server that asks where it may work, one URI a line.'), roots, h('div', { class: 'bar actions' }, h('button', { type: 'submit', class: 'quiet' }, 'Set the roots'))) : null,
  ];
}

// captureActions are what can be done with a capture.
export function captureActions(s) {
  const problem = h('span', { class: 'problem', role: 'alert' });
  return h('div', { class: 'bar actions' }, h('a', { class: 'primary button', href: '#/traffic' }, 'Show the traffic'),
    h('button', { type: 'button', class: 'quiet', title: 'A server that answers as the server of the capture did', onclick: () => mock(s.id, problem) }, 'Call a mock of it'), problem);
}

// mock offers a server that answers as one has answered so far, and shows it.
export async function mock(conn, problem, filter = '') {
  problem.textContent = '';
  try {
    goTo(await state.link.call('mock', { conn, filter }));
  } catch (err) { problem.textContent = safe(err.message); }
}

function add() {
  const problem = h('p', { class: 'problem', role: 'alert' });
  const field = (id, label, input, help) => h('div', { class: 'field' }, h('label', { class: 'label', for: id }, h('span', { class: 'name' }, label)), input, help ? h('p', { class: 'help' }, help) : null);
  const target = h('input', { type: 'text', id: 'newtarget', class: 'code', autocomplete: 'off', spellcheck: 'false', placeholder: 'http://localhost:3000/mcp or npx -y @modelcontextprotocol/server-everything' });
  const bearer = h('input', { type: 'password', id: 'newbearer', autocomplete: 'off' });
  const header = h('textarea', { rows: 1, id: 'newheader', class: 'code grows', spellcheck: 'false', placeholder: 'X-Tenant: a' });
  return h('form', { class: 'card', onsubmit: async (e) => {
    e.preventDefault();
    problem.textContent = '';
    try {
      const text = target.value.trim();
      if (!text) throw new Error('Give an address or a command.');
      const isAddress = /^(?:https?|wss?|tcp|tls):\/\/\S+$|^(?:unix|npipe):\S+$|^[\w.-]*:\d+(?:\/\S*)?$/.test(text);
      const headers = {};
      for (const l of header.value.split('\n').filter((x) => x.trim())) {
        const at = l.indexOf(':');
        if (at < 1) throw new Error(`Write headers as Name: value (got ${l}).`);
        headers[l.slice(0, at).trim()] = l.slice(at + 1).trim();
      }
      goTo(await state.link.call('add', { ...(isAddress ? { target: text } : { command: words(text) }), header: headers, bearer: bearer.value, protocol: byID('newprotocol').value, era: byID('newera').value }));
    } catch (err) { problem.textContent = err.message; }
  } }, h('h2', {}, 'Add a server'),
  h('div', { class: 'fields' }, h('div', { class: 'field wide' }, h('label', { class: 'label', for: 'newtarget' }, h('span', { class: 'name' }, 'Address or command')), target),
    pick('newprotocol', 'Protocol', ['auto', 'mcp', 'jsonrpc'], 'auto'), pick('newera', 'MCP revision', state.eras, 'auto'), field('newbearer', 'Bearer token', bearer), field('newheader', 'Headers', header)),
  h('div', { class: 'bar actions' }, h('button', { type: 'submit', class: 'primary' }, 'Connect'), problem));
}

const kinds = { stderr: 'stderr', noise: 'stdout', log: 'log', warning: 'warning', changed: 'changed', updated: 'updated' };

function text(e) {
  switch (e.type) {
    case 'log': return [h('b', {}, safe(`${e.data.level}${e.data.logger ? ` ${e.data.logger}` : ''}: `)), show(plain(e.data.text))];
    case 'changed': return `the list of ${safe(e.data)}`;
    case 'noise': return [show(e.data), h('span', { class: 'muted' }, ' (not a message)')];
    default: return show(String(e.data));
  }
}

function plain(raw) {
  try { const v = JSON.parse(raw); return typeof v === 'string' ? v : raw; } catch { return raw; }
}

const item = (e) => h('li', { class: `l-${e.type}` }, h('time', { class: 'muted' }, clock(e.t)), h('span', { class: 'tag' }, kinds[e.type] ?? e.type), h('span', { class: 'lt' }, text(e)));

// openLog shows what the current server writes.
export function openLog(into) {
  const s = server();
  const lines = state.logs.get(s?.id) ?? [];
  const list = h('ol', { class: 'log', tabindex: '0', 'aria-label': 'Log' }, lines.slice(-mostLines).map(item));
  fill(into, h('h1', {}, 'Log'), h('p', { class: 'muted' }, 'What the server writes to its standard error and its log, and what is odd about it.'), list, lines.length ? null : h('p', { class: 'muted', id: 'nolog' }, 'Nothing yet.'));
  list.scrollTop = list.scrollHeight;
  shownLog = list;
  shownLine = lines.at(-1)?.n ?? 0;
}

const mostLines = 500; // shown at once
let shownLog = null;
let shownLine = 0; // the number of the newest line that is shown

on('line', perFrame((lines) => {
  const more = lines.filter((e) => e.conn === state.current && e.n > shownLine);
  if (!shownLog?.isConnected || !more.length) return;
  byID('nolog')?.remove();
  const end = shownLog.scrollTop + shownLog.clientHeight > shownLog.scrollHeight - 40;
  shownLog.append(...more.map(item));
  while (shownLog.childElementCount > mostLines) shownLog.firstElementChild.remove();
  if (end) shownLog.scrollTop = shownLog.scrollHeight;
  shownLine = more.at(-1).n;
}));
