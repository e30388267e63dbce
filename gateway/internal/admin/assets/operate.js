// What operators do with the gateway: orders for upstreams, and what the API for operators knows beyond the status.
// Who may do what is decided by the gateway, for each request; what it answers is shown where it was asked.

const limit = 2000; // characters of a text that others chose

// safe spells out characters that are not seen, or that change the order of others.
const safe = (text, most = limit) => String(text).slice(0, most).replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);

function h(name, attributes = {}, ...children) {
  const el = document.createElement(name);
  for (const [k, v] of Object.entries(attributes)) el.setAttribute(k, v);
  el.append(...children.flat().filter((c) => c !== null && c !== undefined));
  return el;
}

// ask sends a request to the API, and throws what it answers when it refuses.
async function ask(path, body) {
  const answer = await fetch(`api/v1/${path}`, body === undefined ? { cache: 'no-store' } : { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) });
  const text = await answer.text();
  let value = null;
  try { value = JSON.parse(text); } catch { /* not an answer of the API */ }
  if (!answer.ok || value === null) throw new Error([value?.detail ?? `the gateway answers with status ${answer.status}`, value?.permission ? `A rule of the guard must allow ${value.permission}.` : ''].filter(Boolean).join(' '));
  return value;
}

// ---- orders ----

const done = { restart: 'restarted', drain: 'draining: its calls end, then it is disabled', disable: 'disabled', enable: 'enabled' };

// calm takes back the first press.
function calm(button) {
  if (!button.dataset.label) return;
  button.textContent = button.dataset.label;
  delete button.dataset.label;
}

// An order takes two presses of a button: the second within five seconds.
async function order(button) {
  const group = button.closest('.orders');
  const said = group.querySelector('.said');
  if (!button.dataset.label) {
    button.dataset.label = button.textContent;
    button.textContent += ': press again';
    setTimeout(() => calm(button), 5000);
    return;
  }
  calm(button);
  const [name, graceful] = button.dataset.order.split('-');
  said.textContent = '…';
  try {
    const u = await ask(`upstreams/${encodeURIComponent(group.dataset.upstream)}/${name}`, graceful ? { graceful: true } : {});
    said.textContent = `${done[name]}; its state is ${safe(u.state)}`;
  } catch (err) { said.textContent = safe(err.message); }
}

document.addEventListener('click', (event) => {
  const button = event.target.closest?.('button[data-order]');
  if (button && event.detail < 2) order(button); // a double click is one press
});

// ---- tables ----

const when = (t) => (t ? h('time', { datetime: t, title: t }, new Date(t).toLocaleTimeString('en-GB')) : '');
const ms = (n) => (n >= 1000 ? `${(n / 1000).toFixed(1)} s` : `${Math.round(n * 100) / 100} ms`);

function table(label, heads, rows) {
  return h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': label },
    h('table', { class: 'plain' }, h('thead', {}, h('tr', {}, heads.map((t) => h('th', { scope: 'col' }, t)))),
      h('tbody', {}, rows.map((cells) => h('tr', {}, cells.map((c) => h('td', {}, c instanceof Node ? c : h('bdi', {}, safe(c ?? '')))))))));
}

const note = (text) => h('p', { class: 'muted' }, text);

const panels = {
  async calls() {
    const r = await ask('calls');
    const about = note(`${r.all ? 'Calls of all callers' : 'Your calls'}, the newest first; slow is more than ${ms(r.slowMs)}.`);
    if (!r.calls?.length) return [about, note('None has failed, was refused or took long.')];
    return [about, table('Calls', ['Began', 'Outcome', 'Call', 'Upstream', 'Took', 'Principal', 'Decision', 'Error', 'Trace'], r.calls.map((c) => [
      when(c.at), c.outcome.replace('_', ' '), `${c.method} ${c.name ?? ''}`, `${c.upstream ?? ''}${c.attempts > 1 ? ` (${c.attempts} attempts)` : ''}`,
      `${ms(c.tookMs)}${c.queuedMs ? `, ${ms(c.queuedMs)} queued` : ''}`, c.principal, c.decision, c.error ? `${c.code ?? ''} ${c.error}` : '', c.trace,
    ]))];
  },
  async sessions() {
    const r = await ask('sessions');
    if (!r.sessions?.length) return [note('There is none.')];
    return [note(r.all ? 'Of all callers.' : 'Your own.'), table('Sessions', ['Began', 'Client', 'Principal', 'Path', 'Revision', 'Address', 'Id'], r.sessions.map((s) => [when(s.since), s.client, s.principal, s.path, s.revision, s.address, s.id]))];
  },
  async pins() {
    const r = await ask('pins');
    return [note(`The lock file is ${safe(r.file)}.`), ...(r.upstreams ?? []).map((u) => {
      const out = h('div', { role: 'status' });
      const look = h('button', { type: 'button', class: 'quiet' }, 'Compare now');
      look.addEventListener('click', () => show(out, () => differences(u.upstream)));
      return h('div', { class: 'pin' }, h('div', { class: 'bar' }, h('b', {}, safe(u.upstream)), `${u.pinned} pinned, ${(u.changes ?? []).length} known to differ`, look), out);
    })];
  },
};

// differences shows all of what has changed: who accepts it must have seen it. The API bounds it.
async function differences(upstream) {
  const path = `upstreams/${encodeURIComponent(upstream)}/pins`;
  const r = await ask(path);
  if (!r.changes?.length) return [note('Everything is as it was pinned.')];
  const out = h('p', { role: 'status' });
  const accept = h('button', { type: 'button', class: 'quiet' }, 'Accept what it says now');
  accept.addEventListener('click', async (event) => {
    if (event.detail > 1) return;
    if (!accept.dataset.label) {
      accept.dataset.label = accept.textContent;
      accept.textContent += ': press again';
      setTimeout(() => calm(accept), 5000);
      return;
    }
    calm(accept);
    try { await ask(`${path}/accept`, { digest: r.digest }); out.textContent = 'Accepted.'; accept.remove(); } catch (err) { out.textContent = safe(err.message); }
  });
  return [...r.changes.map((c) => h('div', {}, h('p', {}, `${safe(c.what)} `, h('bdi', { class: 'mono' }, safe(c.name)), ` is ${safe(c.kind)}`),
    h('pre', { tabindex: '0', role: 'region', 'aria-label': `What differs in ${safe(c.name)}` }, c.diff.split('\n').map((l) => h('span', l[0] === '+' ? { class: 'added' } : l[0] === '-' ? { class: 'removed' } : {}, safe(l, Infinity), '\n'))))), accept, out];
}

async function show(into, load) {
  try { into.replaceChildren(...await load()); } catch (err) { into.replaceChildren(h('p', { class: 'problem' }, safe(err.message))); }
}

document.addEventListener('toggle', (event) => {
  const { panel } = event.target.dataset ?? {};
  if (event.target.open && panels[panel]) show(event.target.querySelector('.out'), panels[panel]);
}, true);

// ---- decisions ----

document.getElementById('explain')?.addEventListener('submit', (event) => {
  event.preventDefault();
  const form = new FormData(event.target);
  const query = new URLSearchParams([...form].filter(([, v]) => v.trim()).map(([k, v]) => [k, v.trim()]));
  show(event.target.nextElementSibling, async () => {
    const r = await ask(`explain?${query}`);
    const facts = [['Call', r.call], ['As', `${r.as} (${r.kind})`], ['Roles', r.roles?.join(', ')], ['Policies', r.policies?.join(', ')], ['Reason', r.reason], ['Limits', r.limits?.join(', ')], ['Scopes', r.scopes?.join(', ')], ['Shadow', r.shadow]];
    return [h('p', {}, h('span', { class: `badge ${r.allowed ? 'ok' : 'bad'}` }, r.allowed ? 'allowed' : 'denied')),
      h('dl', { class: 'all' }, facts.filter(([, v]) => v).map(([k, v]) => h('div', {}, h('dt', {}, k), h('dd', {}, safe(v)))))];
  });
});

document.documentElement.classList.add('scripted');
