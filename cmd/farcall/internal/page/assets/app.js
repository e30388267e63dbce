// The page: a list of methods on one side, one method at a time on the other.

import { h, byID, copy, fill } from './dom.js';
import { member, parse, pretty } from './json.js';
import { Form, resolve, typeName } from './form.js';
import { Socket, command, endpoints, post, stream } from './rpc.js';

const search = byID('search');
const panels = new Map(); // by method name: what was typed and answered stays
const maxPushes = 100;
let service = { methods: [] };
let how = 'http';

const socket = new Socket({ onPush: pushed, onState: linkState });

async function start() {
  const answer = await post('rpc.discover');
  const error = member(answer.response, 'error');
  if (error) throw new Error(`rpc.discover answered ${error}`);
  service = JSON.parse(member(answer.response, 'result'));
  service.methods.sort((a, b) => a.name.localeCompare(b.name));
  byID('title').textContent = service.info?.title ?? 'farcall';
  byID('version').textContent = service.info?.version ?? '';
  byID('endpoint').textContent = `POST ${endpoints.http}`;
  document.title = service.info?.title ?? 'farcall';
  list();
  route();
}

// ---- the list ----

const group = (name) => /^([^/.]+)[/.]/.exec(name)?.[1] ?? '';
const isStream = (m) => m['x-farcall-streaming'] === true;

function list() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = service.methods.filter((m) => {
    const text = `${m.name} ${m.summary ?? ''}`.toLowerCase();
    return words.every((w) => text.includes(w));
  });
  const groups = Map.groupBy ? Map.groupBy(matches, (m) => group(m.name)) : matches.reduce((all, m) => all.set(group(m.name), [...(all.get(group(m.name)) ?? []), m]), new Map());
  const names = [...groups.keys()].sort((a, b) => (a === '') - (b === '') || a.localeCompare(b));
  fill(byID('methods'), names.map((name) => h('section', {},
    h('h2', {}, name || 'more'),
    h('ul', {}, groups.get(name).map(entry)))));
  byID('count').textContent = words.length ? `${matches.length} of ${service.methods.length} methods` : `${matches.length} methods`;
}

function entry(m) {
  return h('li', {}, h('a', { href: link(m.name), 'aria-current': m.name === chosen() ? 'page' : null, title: m.summary },
    h('span', { class: 'name' }, m.name),
    isStream(m) ? h('span', { class: 'tag' }, 'stream') : null));
}

const link = (name) => `#${encodeURIComponent(name).replaceAll('%2F', '/')}`;
const chosen = () => decodeURIComponent(location.hash.slice(1));

// ---- one method ----

function route() {
  const m = service.methods.find((one) => one.name === chosen());
  document.body.dataset.view = m ? 'method' : 'list';
  byID('welcome').hidden = Boolean(m);
  byID('method').hidden = !m;
  for (const a of byID('methods').querySelectorAll('a')) {
    if (m && a.getAttribute('href') === link(m.name)) {
      a.setAttribute('aria-current', 'page');
      a.scrollIntoView({ block: 'nearest' });
    } else {
      a.removeAttribute('aria-current');
    }
  }
  if (!m) return welcome();
  if (!panels.has(m.name)) panels.set(m.name, panel(m));
  fill(byID('method'), panels.get(m.name).elements);
  scrollTo(0, 0);
  if (innerWidth > 760) panels.get(m.name).form.first?.focus({ preventScroll: true }); // on a phone it would open the keyboard
}

function welcome() {
  const example = service.methods.some((m) => m.name === 'math/add') ? 'math/add a=2 b=3' : 'rpc.discover';
  const line = (text) => {
    const button = h('button', { type: 'button', class: 'quiet', onclick: () => copy(button, text) }, 'Copy');
    return h('div', { class: 'line' }, h('code', {}, text), button);
  };
  fill(byID('welcome'),
    h('h1', {}, service.info?.title ?? 'farcall'),
    service.info?.description ? h('p', {}, service.info.description) : null,
    h('p', {}, 'Choose a method to call it here, or call it from a shell. One port speaks HTTP, event streams, WebSocket and plain TCP.'),
    h('div', { class: 'lines' },
      line(`farcall discover ${location.origin}`),
      line(`farcall call ${endpoints.ws} ${example}`),
      line(`farcall call tcp://${location.host} ${example}`),
      line(command('http', 'rpc.discover')),
      line(`farcall mcp tools ${location.origin}/mcp`)),
    h('p', { class: 'muted' }, 'The methods are MCP tools, too: at ', h('code', {}, '/mcp'), ' for Streamable HTTP and WebSocket, at ', h('code', {}, '/sse'), ' for HTTP+SSE.'),
    h('p', { class: 'muted keys' }, h('kbd', {}, '/'), ' search   ', h('kbd', {}, '↑'), h('kbd', {}, '↓'), ' choose   ', h('kbd', {}, 'Ctrl'), h('kbd', {}, 'Enter'), ' call'),
    h('table', { class: 'all' }, h('tbody', {}, service.methods.map((m) => h('tr', {},
      h('td', {}, h('a', { href: link(m.name) }, m.name)), h('td', {}, m.summary ?? ''))))));
}

function signature(m) {
  const result = m.result ? typeName(service, resolve(service, m.result).schema) : 'any';
  const params = (m.params ?? []).map((p) => resolve(service, p)).map((p) => p.name + (p.required ? '' : '?'));
  if (m['x-farcall-params']) params.push(`…${typeName(service, m['x-farcall-params'])}`);
  return `${m.name}(${params.join(', ')}) → ${result}${isStream(m) ? ', an item at a time' : ''}`;
}

function panel(m) {
  const form = new Form(service, m, () => {});
  const out = h('section', { class: 'card answer', hidden: true, 'aria-label': 'Answer' });
  const kinds = [['http', 'HTTP'], ['ws', 'WebSocket'], ...(isStream(m) ? [['stream', 'Stream']] : [])];
  const name = `how-${m.name}`;
  const selected = () => form.element.querySelector(`input[name="${CSS.escape(name)}"]:checked`).value;
  const radios = h('div', { class: 'segments', role: 'radiogroup', 'aria-label': 'Send over' }, kinds.map(([value, label]) => h('label', {},
    h('input', { type: 'radio', name, value, checked: value === (isStream(m) ? 'stream' : how), onchange: () => { if (value !== 'stream') how = value; relabel(); } }),
    h('span', {}, label))));
  const notify = h('input', { type: 'checkbox' });
  const call = h('button', { type: 'submit', class: 'primary' }, 'Call');
  const curl = h('button', { type: 'button', class: 'quiet' });
  const relabel = () => { curl.textContent = selected() === 'ws' ? 'Copy as command' : 'Copy as curl'; };
  form.element.append(h('div', { class: 'bar actions' }, call, radios,
    h('label', { class: 'check', title: 'Send it without an id: there is no answer' }, notify, 'Notification'),
    h('span', { class: 'grow' }), curl));
  relabel();

  curl.addEventListener('click', () => attempt(out, () => {
    const kind = selected();
    copy(curl, command(notify.checked && kind === 'http' ? 'notify' : kind, m.name, form.params()));
  }));
  let running = null;
  form.element.addEventListener('submit', async () => {
    if (running) return running.abort(new Error('Stopped.'));
    await attempt(out, async () => {
      const params = form.params();
      running = new AbortController();
      call.textContent = 'Stop';
      call.classList.add('stop');
      const view = new Answer(out);
      try {
        const options = { notify: notify.checked, signal: running.signal, onItem: (text) => view.item(text) };
        const send = { http: post, ws: (...args) => socket.call(...args), stream }[selected()];
        view.done(await send(m.name, params, options));
      } finally {
        running = null;
        call.textContent = 'Call';
        call.classList.remove('stop');
      }
    });
  });
  form.element.classList.add('card');
  const description = m.description && m.description !== m.summary ? h('p', { class: 'muted' }, m.description) : null;
  return {
    form,
    elements: [
      h('a', { href: '#', class: 'back' }, '← All methods'),
      h('h1', {}, m.name),
      m.summary ? h('p', { class: 'summary' }, m.summary) : null, description,
      h('p', { class: 'signature' }, h('code', {}, signature(m))),
      form.element, out, schemas(m),
    ],
  };
}

function schemas(m) {
  const body = h('div', {});
  const details = h('details', { class: 'card schema' }, h('summary', {}, 'Schema'), body);
  details.addEventListener('toggle', () => {
    if (details.open) body.replaceChildren(h('pre', { class: 'code' }, pretty(JSON.stringify(inlined(m)))));
  });
  return details;
}

// inlined is the method with its references replaced, as far as they do not
// lead back to themselves.
function inlined(value, seen = []) {
  if (Array.isArray(value)) return value.map((v) => inlined(v, seen));
  if (value === null || typeof value !== 'object') return value;
  if (typeof value.$ref === 'string' && !seen.includes(value.$ref)) return inlined(resolve(service, value), [...seen, value.$ref]);
  return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, inlined(v, seen)]));
}

async function attempt(out, f) {
  try {
    await f();
  } catch (err) {
    out.hidden = err.atField === true;
    out.className = 'card answer failed';
    const text = err instanceof TypeError ? `The server cannot be reached (${err.message}).` : err.message;
    fill(out, h('p', { class: 'status', role: 'status' }, h('span', { class: 'dot' }), text));
  }
}

// ---- the answer ----

class Answer {
  #out; #items; #text = null; #began = performance.now(); #count = 0;

  constructor(out) {
    this.#out = out;
    this.#items = h('div', { class: 'stream', hidden: true });
    out.hidden = false;
    out.className = 'card answer waiting';
    fill(out, h('p', { class: 'status', role: 'status' }, h('span', { class: 'dot' }), 'Waiting…'), this.#items);
  }

  // item shows one chunk of a stream, or one progress report.
  item(text) {
    const value = parse(text).members && (member(text, 'result') ?? member(text, 'error'));
    const raw = value ?? text;
    this.#items.hidden = false;
    this.#count++;
    if (raw[0] === '"' && (this.#text || this.#count === 1)) {
      if (!this.#text) this.#items.append(this.#text = h('p', { class: 'text' }));
      this.#text.append(JSON.parse(raw));
    } else {
      this.#items.append(h('code', { class: 'item' }, pretty(raw)));
    }
    this.#items.scrollTop = this.#items.scrollHeight;
    this.#out.querySelector('.status').lastChild.textContent = `${this.#count} received, ${ms(performance.now() - this.#began)}`;
  }

  done({ request, response, status, ms: took, done }) {
    const last = response.split('\n').at(-1);
    let error, result;
    try {
      error = member(last, 'error');
      result = member(last, 'result');
    } catch { /* not JSON: shown as it is, below */ }
    const facts = [ms(took), size(response), status && `HTTP ${status}`].filter(Boolean).join(' · ');
    this.#out.className = `card answer ${error ? 'failed' : 'good'}`;
    let headline = 'Result';
    if (error) headline = `Error ${member(error, 'code')}`;
    else if (done !== undefined) headline = done ? `Stream complete, ${this.#count} items` : 'The stream broke off';
    else if (response === '') headline = 'Sent. A notification has no answer.';
    else if (result === undefined) headline = 'This is no JSON-RPC answer';
    fill(this.#out,
      h('p', { class: 'status', role: 'status' }, h('span', { class: 'dot' }), headline, h('span', { class: 'grow' }), h('span', { class: 'muted facts' }, facts)),
      this.#items,
      error ? this.#error(error) : null,
      !error && done === undefined && response !== '' ? this.#block(result ?? response, 'result') : null,
      h('details', { class: 'wire' }, h('summary', {}, 'On the wire'),
        h('h3', {}, 'Request'), this.#block(request, 'wire'), response === '' ? null : [h('h3', {}, 'Response'), this.#block(response, 'wire')]),
    );
  }

  #error(error) {
    const data = member(error, 'data');
    return h('div', {}, h('p', { class: 'errortext' }, JSON.parse(member(error, 'message') ?? '""')), data ? this.#block(data, 'data') : null);
  }

  #block(text, kind) {
    const button = h('button', { type: 'button', class: 'quiet copy', onclick: () => copy(button, text) }, 'Copy');
    return h('div', { class: `block ${kind}` }, h('pre', { class: 'code', tabindex: 0 }, kind === 'wire' ? text : pretty(text)), button);
  }
}

const ms = (t) => (t < 10 ? `${t.toFixed(1)} ms` : t < 10000 ? `${Math.round(t)} ms` : `${(t / 1000).toFixed(1)} s`);
const size = (text) => {
  const n = new Blob([text]).size;
  return n < 1024 ? `${n} B` : n < 1048576 ? `${(n / 1024).toFixed(1)} KB` : `${(n / 1048576).toFixed(1)} MB`;
};

// ---- what the server sends on its own ----

function pushed(text) {
  const pushes = byID('pushes');
  byID('pushed').hidden = false;
  const time = new Date().toTimeString().slice(0, 8);
  pushes.prepend(h('li', {}, h('time', {}, time), h('code', {}, JSON.parse(member(text, 'method'))), h('code', { class: 'args' }, pretty(member(text, 'params') ?? '', Infinity))));
  while (pushes.children.length > maxPushes) pushes.lastChild.remove();
}

function linkState(state) {
  const link = byID('link');
  link.className = `link ${state}`;
  link.textContent = { connecting: 'WebSocket connecting…', open: 'WebSocket open', closed: 'WebSocket closed' }[state];
}

// ---- keys ----

document.addEventListener('keydown', (e) => {
  const typing = e.target.matches('input:not([type=checkbox], [type=radio]), textarea, select');
  if (e.key === '/' && !typing) {
    e.preventDefault();
    location.hash = document.body.clientWidth <= 760 ? '' : location.hash;
    search.focus();
    search.select();
  } else if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) {
    e.preventDefault(); // an input would submit its form as well
    panels.get(chosen())?.form.element.requestSubmit();
  } else if (e.key === 'Escape' && typing && e.target !== search) {
    search.focus();
  } else if ((e.key === 'ArrowDown' || e.key === 'ArrowUp') && (e.target === search || e.target.closest('#methods'))) {
    e.preventDefault();
    const links = [search, ...byID('methods').querySelectorAll('a')];
    links.at((links.indexOf(e.target) + (e.key === 'ArrowDown' ? 1 : -1)) % links.length).focus();
  }
});
search.addEventListener('input', list);
search.addEventListener('keydown', (e) => {
  if (e.key === 'Enter') byID('methods').querySelector('a')?.click();
});
byID('clear').addEventListener('click', () => { byID('pushes').replaceChildren(); byID('pushed').hidden = true; });
addEventListener('hashchange', route);

start().catch((err) => {
  fill(byID('welcome'), h('h1', {}, 'No list of methods'), h('p', { class: 'notice' }, err.message),
    h('p', {}, 'The service must answer ', h('code', {}, 'rpc.discover'), ' at ', h('code', {}, endpoints.http), '.'));
});
