// One tool, prompt, resource or method: its form, and what came of calling it.

import { byID, clock, copy, fill, h, menu, micros, perFrame, safe, show, size } from './dom.js';
import { Form } from './form.js';
import { blocks, json, resource, tree } from './content.js';
import { page } from './apps.js';
import { signature } from './schema.js';
import { member, parse } from './json.js';
import * as as from './copyas.js';
import { emit, server, state, taken } from './state.js';
import { remember, recall } from './history.js';
import { mayStart } from './tasks.js';
import { called, stopped } from './traffic.js';

let lastCall = 0;
const panels = new Map(); // what was typed and answered stays, for the newest ones
const maxPanels = 60;

const singular = { tools: 'Tool', prompts: 'Prompt', resources: 'Resource', templates: 'Resource template', methods: 'Method' };

// openItem shows an item in the main part of the page.
export async function openItem(into, kind, name, { fresh = false, args } = {}) {
  const s = server();
  const id = `${s.id}/${kind}/${name}`;
  if (!fresh && args === undefined && panels.has(id)) { fill(into, panels.get(id)); return; }
  fill(into, h('p', { class: 'muted' }, 'Loading …'));
  let d;
  try {
    d = await state.link.call('describe', { conn: s.id, kind, name });
  } catch (err) {
    if (kind === 'methods') { openAny(into, name, args); return; }
    fill(into, back(), h('h1', {}, show(name)), h('p', { class: 'notice', role: 'alert' }, show(err.message)));
    return;
  }
  const element = panel(s, kind, name, d, args);
  panels.delete(id);
  panels.set(id, element);
  if (panels.size > maxPanels) panels.delete(panels.keys().next().value);
  fill(into, element);
  if (innerWidth > 900) element.querySelector('.form input, .form textarea, .form select')?.focus({ preventScroll: true });
}

// forget drops what was typed and shown of a server's list that has changed.
export function forget(conn, kind) {
  for (const id of panels.keys()) if (id.startsWith(`${conn}/${kind}`)) panels.delete(id);
}

const back = () => h('a', { href: '#/', class: 'back' }, '← Back to the list');

// schemaOf gives the schema of what a call of an item takes.
function schemaOf(kind, item, components) {
  switch (kind) {
    case 'tools': return { schema: item.inputSchema ?? {}, root: item.inputSchema ?? {}, output: item.outputSchema };
    case 'prompts': {
      const args = item.arguments ?? [];
      return { schema: { type: 'object', properties: Object.fromEntries(args.map((a) => [a.name, { type: 'string', title: a.title, description: a.description }])), required: args.filter((a) => a.required).map((a) => a.name) } };
    }
    case 'templates': {
      const names = [...String(item.uriTemplate).matchAll(/\{[+#./;?&]?([^}]+)\}/g)].flatMap((m) => m[1].split(',').map((n) => n.replace(/[*:].*$/, '')));
      return { schema: { type: 'object', properties: Object.fromEntries(names.map((n) => [n, { type: 'string' }])) } };
    }
    case 'methods': {
      const params = (item.params ?? []).map((p) => (p.$ref ? p.$ref.slice(2).split('/').reduce((at, k) => at?.[k], { components }) ?? {} : p));
      const whole = item['x-farcall-params'];
      const root = { components, type: 'object' };
      if (whole) return { schema: whole, root };
      return {
        root, output: item.result?.schema ? { ...item.result.schema, components } : undefined, positional: item.paramStructure === 'by-position' ? params.map((p) => p.name) : null,
        schema: { type: 'object', properties: Object.fromEntries(params.map((p) => [p.name, { description: p.description ?? p.summary, ...p.schema }])), required: params.filter((p) => p.required).map((p) => p.name) },
      };
    }
    default: return { schema: { type: 'object', properties: {} } };
  }
}

function panel(s, kind, name, { item: raw, components }, args) {
  const item = JSON.parse(raw);
  const { schema, root = schema, output, positional } = schemaOf(kind, item, components ? JSON.parse(components) : undefined);
  const judge = kind === 'tools' ? (text) => state.link.call('validate', `{"schema":${member(raw, 'inputSchema') ?? '{}'},"value":${JSON.stringify(text)}}`) : null;
  const form = new Form(schema, { root, judge, value: args });
  const out = h('section', { class: 'outcome', 'aria-label': 'Result', 'aria-live': 'polite', hidden: true });
  const send = h('button', { type: 'submit', class: 'primary', title: 'Ctrl+Enter' }, kind === 'resources' || kind === 'templates' ? 'Read' : kind === 'prompts' ? 'Get' : 'Call');
  const label = send.textContent;
  const notify = kind === 'methods' ? h('input', { type: 'checkbox' }) : null;
  const asTask = kind === 'tools' && mayStart(s, item) ? h('input', { type: 'checkbox' }) : null;
  const what = () => params(kind, name, form, positional);
  const copied = (f) => (button) => { try { const t = f(); if (t === null) alert('Only servers over HTTP can be called with curl.'); else copy(button, t); } catch (err) { complain(out, err); } };
  const w = (f) => copied(() => { const { name: n, text } = what(); return f(server(), kind === 'templates' ? 'resources' : kind, n, text); });
  const web = !s.command && (as.address(s) ?? '') && !/^(?:wss?|tcp|tls|unix|npipe):/.test(as.address(s));
  const element = h('div', { class: 'panel' },
    back(),
    h('div', { class: 'heading' }, h('h1', {}, show(name)), badges(kind, item)),
    item.title && item.title !== name ? h('p', { class: 'subtitle' }, show(item.title)) : null,
    item.description || item.summary ? h('p', { class: 'description' }, show(String(item.description ?? item.summary).slice(0, 8000))) : null,
    kind === 'tools' || kind === 'methods' ? h('p', { class: 'signature' }, h('code', {}, safe(signature(name, root, schema, output)))) : null,
    h('form', { class: 'card', novalidate: true, onsubmit: (e) => { e.preventDefault(); run(); }, onkeydown: (e) => { if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) { e.preventDefault(); run(); } } },
      kind === 'resources' ? null : form.element,
      h('div', { class: 'bar actions' }, send,
        notify ? h('label', { class: 'check', title: 'Send it without an id: there is no answer' }, notify, 'Notification') : null,
        asTask ? h('label', { class: 'check', title: 'Do not wait for its end: Tasks has it' }, asTask, 'As a task') : null,
        kind === 'tools' ? h('button', { type: 'button', class: 'quiet', title: 'Send the JSON as it is, though it may not fit', onclick: () => run(true) }, 'Send the JSON as it is') : null,
        h('span', { class: 'grow' }),
        menu('Copy as', [['farcall', w(as.farcall)], ...(web ? [['curl', w(as.curl)]] : []), ['Go', w(as.go)], ['TypeScript', w(as.typescript)], ['JSON', w((sv, k, n, t) => as.request(sv, k, n, t, sv.info?.revision ?? '').text)]]))),
    out,
    h('details', { class: 'card definition' }, h('summary', {}, `${singular[kind]} as the server describes it`), json(raw, { open: 'text' })));
  let running = null;
  const run = async (anyway = false) => {
    if (running) { running.abort(); return; }
    let given;
    try {
      given = anyway ? { kind: 'tools', name, text: form.anyway() } : what();
    } catch (err) { complain(out, err); return; }
    if (notify?.checked) given.kind = 'notify';
    if (asTask?.checked) given.kind = 'start';
    running = new AbortController();
    send.textContent = 'Stop';
    send.classList.add('stop');
    try {
      await perform(out, server(), { ...given, item }, running.signal);
    } finally {
      running = null;
      send.textContent = label;
      send.classList.remove('stop');
    }
  };
  return element;
}

// params is what a call sends: { kind, name, text }.
function params(kind, name, form, positional) {
  if (kind === 'resources') return { kind, name };
  const text = form.text();
  if (kind === 'templates') {
    const values = JSON.parse(text ?? '{}');
    return { kind: 'resources', name: expand(name, values) };
  }
  if (kind === 'prompts') return { kind, name, text: JSON.stringify(Object.fromEntries(Object.entries(JSON.parse(text ?? '{}')).map(([k, v]) => [k, String(v)]))) };
  if (kind === 'methods') {
    if (positional && text) {
      const node = parse(text);
      const given = new Map(node.members.map(([k, v]) => [JSON.parse(k), text.slice(v.start, v.end)]));
      const list = positional.map((p) => given.get(p));
      while (list.length && list.at(-1) === undefined) list.pop();
      return { kind, name, text: list.length ? `[${list.map((v) => v ?? 'null').join(',')}]` : undefined };
    }
    return { kind, name, text: text === '{}' ? undefined : text };
  }
  return { kind, name, text };
}

// expand fills in a URI template (RFC 6570, its usual forms).
function expand(template, values) {
  return template.replace(/\{([+#./;?&]?)([^}]+)\}/g, (_, op, list) => {
    const parts = list.split(',').flatMap((n) => {
      const key = n.replace(/[*:].*$/, '');
      const v = values[key];
      if (v === undefined || v === '') return [];
      const e = op === '+' || op === '#' ? encodeURI(v) : encodeURIComponent(v);
      return [op === '?' || op === '&' || op === ';' ? `${key}=${e}` : e];
    });
    if (!parts.length) return '';
    const first = { '#': '#', '.': '.', '/': '/', ';': ';', '?': '?', '&': '&' }[op] ?? '';
    return first + parts.join({ '.': '.', '/': '/', ';': ';', '?': '&', '&': '&' }[op] ?? ',');
  });
}

function badges(kind, item) {
  const a = item.annotations ?? {};
  const out = [];
  if (kind === 'tools') {
    if (a.readOnlyHint) out.push(['good', 'read-only']);
    else if (a.destructiveHint === true) out.push(['bad', 'destructive']);
    if (a.idempotentHint) out.push(['', 'idempotent']);
    if (a.openWorldHint) out.push(['', 'open world']);
    if (item.execution?.taskSupport) out.push(['', `task ${safe(item.execution.taskSupport)}`]);
    if (item._meta?.ui) out.push(['', 'has a page']);
  }
  if (item['x-farcall-streaming']) out.push(['', 'streams']);
  if (item.mimeType) out.push(['', safe(item.mimeType)]);
  return out.map(([c, t]) => h('span', { class: `tag ${c}` }, t));
}

function complain(out, err) {
  out.hidden = false;
  fill(out, h('div', { class: 'card failed' }, h('p', { class: 'status', role: 'alert' }, h('span', { class: 'dot' }), show(err.message))));
}

// perform makes a call and shows how it goes.
export async function perform(out, s, { kind, name, text, item }, signal) {
  const call = `c${Date.now().toString(36)}${++lastCall}`;
  const status = h('span', {}, 'Waiting …');
  const bar = h('progress', { hidden: true, 'aria-label': 'Progress' });
  const note = h('span', { class: 'muted' });
  const task = h('span', { class: 'muted' });
  const followed = kind === 'task';
  const values = h('ol', { class: 'values', hidden: true });
  const began = performance.now();
  let count = 0;
  const streamed = perFrame((all) => {
    values.hidden = false;
    values.append(...all.map((v) => h('li', {}, h('code', {}, show(v.slice(0, 2000))))));
    while (values.childElementCount > 1000) values.firstElementChild.remove();
    values.scrollTop = values.scrollHeight;
  });
  const timer = setInterval(() => { status.textContent = `Waiting … ${((performance.now() - began) / 1000).toFixed(0)} s`; }, 1000);
  out.hidden = false;
  fill(out, h('div', { class: 'card waiting' }, h('p', { class: 'status' }, h('span', { class: 'dot' }), status, bar, note, task), values));
  state.calls.set(call, {
    tool: kind === 'tools' || kind === 'start' ? name : undefined,
    task: (t) => { task.textContent = safe(`${followed ? '' : `task ${t.id.slice(0, 40)}, `}${t.status.replace('_', ' ')}${t.text ? `: ${t.text}` : ''}`); },
    progress: perFrame((reports) => {
      const v = reports.at(-1);
      bar.hidden = false;
      if (v.total) { bar.max = v.total; bar.value = v.progress; } else bar.removeAttribute('value');
      note.textContent = safe(`${v.progress}${v.total ? ` of ${v.total}` : ''}${v.message ? ` — ${v.message}` : ''}`);
    }),
    value: (v) => { count++; streamed(v); },
  });
  let r;
  try {
    const p = `{"conn":${s.id},"call":${JSON.stringify(call)},"kind":${JSON.stringify(kind)},"name":${JSON.stringify(name)}${text === undefined ? '' : `,"params":${text}`}}`;
    r = await state.link.call('call', p, { signal });
    await taken(r.after); // the last values of a stream come another way than the answer
  } catch (err) {
    r = { fault: signal?.aborted ? 'Stopped.' : err.message, us: Math.round((performance.now() - began) * 1000), size: 0 };
  } finally {
    clearInterval(timer);
    state.calls.delete(call);
  }
  if (signal?.aborted) stopped(s.id, performance.timeOrigin + began);
  if (!followed) remember({ server: s.name, conn: s.id, kind, name, text, at: Date.now(), us: r.us, ok: !r.error && !r.fault && !r.failed });
  fill(out, shown(r, s, { kind: followed ? 'tools' : kind, name, text, item }), count ? h('details', { class: 'card' }, h('summary', {}, `${count} values`), values) : null);
  emit('history');
  return r;
}

// shown is what came of a call.
function shown(r, s, { kind, name, text, item }) {
  const bad = r.error || r.fault || r.failed;
  const facts = [micros(r.us), r.size ? size(r.size) : null].filter(Boolean).join(' · ');
  const title = r.fault ? (r.stopped ? 'Stopped' : 'No answer') : r.error ? `Error ${r.error.code}` : r.failed ? 'The tool failed' : 'Answered';
  const traffic = r.to > r.from ? h('a', { class: 'quiet button', href: `#/traffic/${r.from}` }, 'Show the frames') : null;
  const body = [];
  if (r.fault) body.push(h('p', { class: 'errortext' }, show(r.fault)));
  if (r.error) body.push(h('p', { class: 'errortext' }, show(r.error.message)), r.error.data ? json(r.error.data) : null);
  if (r.schema?.length) body.push(h('div', { class: 'notice' }, h('p', {}, 'The result does not fit the tool’s output schema:'), h('ul', {}, r.schema.map((p) => h('li', {}, show(p))))));
  if (r.cut) body.push(h('p', { class: 'notice' }, `The result has ${size(r.size)}; this is its beginning. The traffic has all of it.`), h('pre', { class: 'text', tabindex: '0' }, show(r.result)));
  else if (r.result !== undefined) body.push(...result(r, s, { kind, name, text, item }));
  return h('div', { class: `card ${bad ? 'failed' : 'good'}` },
    h('p', { class: 'status' }, h('span', { class: 'dot' }), title, h('span', { class: 'facts muted' }, facts), r.judged && !r.schema?.length ? h('span', { class: 'tag good' }, 'fits its schema') : null, h('span', { class: 'grow' }), traffic),
    body);
}

function result(r, s, { kind, name, text, item }) {
  const v = r.size <= 4 << 20 ? JSON.parse(r.result) : null;
  const show1 = (html) => page(html, {
    version: state.version, input: text ? JSON.parse(text) : {}, result: kind === 'tools' ? v : undefined,
    call: async (tool, args) => {
      const o = await state.link.call('call', { conn: s.id, call: `app${++lastCall}`, kind: 'tools', name: tool, params: args });
      if (o.error) throw Object.assign(new Error(o.error.message), { code: o.error.code });
      if (o.fault) throw new Error(o.fault);
      return JSON.parse(o.result);
    },
  });
  const o = { read: (uri) => { location.hash = `#/resources/${encodeURIComponent(uri)}`; }, page: show1 };
  const out = [];
  const raw = h('details', {}, h('summary', {}, 'Result as JSON'), h('div', {}));
  raw.addEventListener('toggle', () => { if (raw.open) fill(raw.lastElementChild, json(r.result, { open: 'text' })); });
  if (kind === 'start' && v?.taskId) return [h('p', {}, 'The task ', h('code', {}, safe(v.taskId)), ` is ${safe(v.status).replace('_', ' ')}. `, h('a', { href: '#/tasks' }, 'Follow it')), raw];
  if (kind === 'start' && v?.result) { r.result = JSON.stringify(v.result); return [h('p', { class: 'muted' }, 'The server has answered at once, without a task.'), ...result(r, s, { kind: 'tools', name, text, item })]; }
  if (kind === 'tools' && v && typeof v === 'object') {
    const ui = item?._meta?.ui?.resourceUri ?? item?._meta?.['ui/resourceUri'];
    if (typeof ui === 'string') out.push(appOf(s, ui, show1));
    const structured = member(r.result, 'structuredContent');
    const list = Array.isArray(v.content) ? v.content : [];
    const same = structured !== undefined && list.length === 1 && list[0]?.type === 'text' && equal(list[0].text, v.structuredContent);
    if (structured !== undefined) out.push(h('h3', {}, same ? 'Structured content (the text says the same)' : 'Structured content'), json(structured));
    if (list.length && !same) out.push(structured !== undefined ? h('h3', {}, 'Content') : null, blocks(list, o));
    if (!list.length && structured === undefined) out.push(h('p', { class: 'muted' }, 'The result has no content.'));
    out.push(raw);
  } else if (kind === 'resources' && v) out.push(...(v.contents ?? []).slice(0, 100).map((c) => resource(c, o)), raw);
  else if (kind === 'prompts' && v) {
    if (v.description) out.push(h('p', {}, show(v.description)));
    out.push(h('ol', { class: 'blocks' }, (v.messages ?? []).slice(0, 200).map((m) => h('li', { class: 'block' }, h('span', { class: 'tag' }, safe(m.role)), blocks([m.content].flat(), o)))), raw);
  } else if (kind === 'notify') out.push(h('p', { class: 'muted' }, 'A notification has no answer.'));
  else out.push(json(r.result));
  return out;
}

function equal(text, value) {
  try { return JSON.stringify(JSON.parse(text)) === JSON.stringify(value); } catch { return false; }
}

// appOf reads the page of a tool and shows it.
function appOf(s, uri, show1) {
  const box = h('div', {}, h('p', { class: 'muted' }, 'Loading the page of the tool …'));
  state.link.call('call', { conn: s.id, call: `app${++lastCall}`, kind: 'resources', name: uri }).then((o) => {
    const c = o.result && JSON.parse(o.result).contents?.find((x) => typeof x.text === 'string');
    if (!c) throw new Error(o.error?.message ?? o.fault ?? 'The resource has no text.');
    fill(box, show1(c.text));
  }).catch((err) => fill(box, h('p', { class: 'notice' }, 'The page of the tool cannot be read: ', show(err.message))));
  return box;
}

// openAny calls any method, for what is in no list.
export function openAny(into, name = '', args = '') {
  const method = h('input', { type: 'text', class: 'code', id: 'anymethod', autocomplete: 'off', placeholder: server()?.speaks === 'mcp' ? 'tools/list' : 'method' });
  const text = h('textarea', { class: 'code json', rows: 6, id: 'anyparams', spellcheck: 'false', placeholder: '{ }' });
  method.value = name;
  method.setAttribute('list', 'anymethods');
  text.value = args || recall().find((c) => c.conn === server()?.id && c.name === name && name)?.text || '';
  const notify = h('input', { type: 'checkbox' });
  const out = h('section', { class: 'outcome', 'aria-label': 'Result', 'aria-live': 'polite', hidden: true });
  fill(into, h('div', { class: 'panel' }, back(), h('h1', {}, 'Any method'), h('p', { class: 'muted' }, 'Send a request or a notification that is in no list.'),
    h('datalist', { id: 'anymethods' }, called(server()?.id).map((m) => h('option', { value: m }))),
    h('form', { class: 'card', onsubmit: (e) => {
      e.preventDefault();
      const given = text.value.trim();
      try {
        if (given && !['object', 'array'].includes(parse(given).kind)) throw new Error('Params are an object or an array.');
        if (!method.value) throw new Error('Name a method.');
      } catch (err) { complain(out, err); return; }
      perform(out, server(), { kind: notify.checked ? 'notify' : 'methods', name: method.value, text: given || undefined });
    } }, h('div', { class: 'fields' },
      h('div', { class: 'field wide' }, h('label', { class: 'label', for: 'anymethod' }, h('span', { class: 'name' }, 'method')), method),
      h('div', { class: 'field wide' }, h('label', { class: 'label', for: 'anyparams' }, h('span', { class: 'name' }, 'params'), h('span', { class: 'type' }, 'JSON')), text)),
    h('div', { class: 'bar actions' }, h('button', { type: 'submit', class: 'primary' }, 'Send'), h('label', { class: 'check' }, notify, 'Notification'))), out));
  method.focus();
}

// openHistory lists the calls of this tab.
export function openHistory(into, open) {
  const list = recall();
  fill(into, back(), h('h1', {}, 'History'), h('p', { class: 'muted' }, 'The calls of this tab, the newest first. They are forgotten when it is closed.'),
    list.length ? h('ol', { class: 'history' }, list.map((c) => h('li', {}, h('button', { type: 'button', onclick: () => open(c) },
      h('span', { class: `dot ${c.ok ? 'good' : 'bad'}` }), h('time', { class: 'muted' }, clock(c.at).slice(0, 8)), h('span', { class: 'name' }, show(c.name)),
      h('code', { class: 'args' }, show((c.text ?? '').slice(0, 200))), h('span', { class: 'muted' }, `${safe(c.server).slice(0, 40)} · ${micros(c.us)}`))))) : h('p', { class: 'muted' }, 'Nothing was called yet.'));
}
