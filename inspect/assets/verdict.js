// Whether the arguments and the result of a call fit the schemas of its tool, what a guard says of it, and its trace.

import { h, show } from './dom.js';
import { ask, explained, hasOperators, upstreamOf } from './gateway.js';
import { member } from './json.js';
import { state } from './state.js';

const text = (raw) => { try { const v = JSON.parse(raw); return typeof v === 'string' ? v : ''; } catch { return ''; } };

const key = 'farcall.inspect.traces';

// traced is the id of a trace, with a link to where the user keeps traces.
function traced(id) {
  const line = h('p', { class: 'muted facts' });
  const draw = () => {
    const at = localStorage.getItem(key) ?? '';
    const link = /^https?:\/\/[^{}]*\{id\}/.test(at) ? h('a', { href: at.replace('{id}', id), target: '_blank', rel: 'noopener noreferrer' }, 'Open the trace') : null;
    line.replaceChildren('Trace ', h('code', {}, id), ' ', link ?? '', ' ', h('button', { type: 'button', class: 'quiet', onclick: () => {
      const next = prompt('The address of a trace, with {id} where its id goes:', at || 'http://localhost:16686/trace/{id}');
      if (next !== null) { localStorage.setItem(key, next.trim()); draw(); }
    } }, link ? 'Change the address' : 'Link to traces …'));
  };
  draw();
  return line;
}

// policy is what the guard of a gateway makes of a call, and by which rule.
async function policy(s, method, params) {
  const name = text(member(params, 'name') ?? member(params, 'uri') ?? 'null');
  if (!hasOperators || !s?.path || !name) return [];
  const upstream = await upstreamOf(s);
  if (!upstream && s.path !== '/mcp') return []; // a virtual endpoint may call its tools something else
  const box = h('details', { class: 'policy' }, h('summary', {}, 'What the guard says'));
  try {
    if (!(await ask('')).caller) {
      box.append(h('p', {}, 'The gateway has no guard: every call is allowed.'));
      return [box];
    }
    const given = member(params, 'arguments');
    const query = [['call', `${method} ${upstream ? `${upstream}/` : ''}${name}`], ...(given ? [['arguments', given]] : [])];
    box.append(...await explained(query));
    box.open = true;
  } catch (err) { box.append(h('p', { class: 'muted' }, show(err.message))); }
  return [box];
}

// verdict returns lines about a request and its answer, which may be null. conn is the server, and decided what is known
// of the decision of a guard.
export async function verdict(conn, request, answer, decided) {
  const lines = [];
  const params = member(request, 'params') ?? '{}';
  const trace = /^00-([0-9a-f]{32})-/.exec(text(member(member(params, '_meta') ?? '{}', 'traceparent') ?? 'null'));
  if (trace) lines.push(traced(trace[1]));
  const s = state.servers.get(conn);
  if (decided?.decision) lines.push(h('p', { class: 'facts' }, 'The guard: ', h('span', { class: `tag ${/^(denied|limited|refused)/.test(decided.decision) ? 'bad' : 'good'}` }, show(decided.decision)), decided.principal ? [' for ', show(decided.principal)] : ''));
  lines.push(...await policy(s, text(member(request, 'method') ?? 'null'), params));
  if (text(member(request, 'method') ?? 'null') !== 'tools/call' || !['ready', 'lost'].includes(s?.state) || s.speaks !== 'mcp') return lines;
  try {
    const { item } = await state.link.call('describe', { conn, kind: 'tools', name: text(member(params, 'name') ?? 'null') });
    lines.push(...await fits('arguments', member(item, 'inputSchema'), member(params, 'arguments') ?? '{}'));
    const structured = answer && member(member(answer, 'result') ?? '{}', 'structuredContent');
    if (structured) lines.push(...await fits('structured content', member(item, 'outputSchema'), structured));
  } catch { /* a tool that is not listed has no schema */ }
  return lines;
}

async function fits(what, schema, value) {
  if (!schema) return [];
  const wrong = await state.link.call('validate', `{"schema":${schema},"value":${JSON.stringify(value)}}`);
  if (!wrong.length) return [h('p', { class: 'muted facts' }, `The ${what} fit the schema.`.replace('content fit', 'content fits'))];
  return [h('p', { class: 'problem' }, `The ${what} do not fit the schema:`.replace('content do', 'content does')), h('ul', { class: 'problem' }, wrong.slice(0, 20).map((w) => h('li', {}, show(w))))];
}
