// What servers ask while they work: forms, pages to open, the answer of a model.

import { held } from './breaks.js';
import { byID, copy, fill, h, safe, show } from './dom.js';
import { Form } from './form.js';
import { blocks, json } from './content.js';
import { on, state } from './state.js';

const cards = new Map();

export function begin() {
  on('questions', refresh);
  on('servers', refresh);
}

function refresh() {
  for (const [id, el] of cards) if (!state.questions.has(id)) { el.remove(); cards.delete(id); }
  const box = byID('questions');
  for (const q of [...state.questions.values()].sort((a, b) => a.id - b.id)) {
    if (cards.has(q.id)) continue;
    const el = card(q);
    cards.set(q.id, el);
    box.append(el);
    if (cards.size === 1) { el.scrollIntoView({ block: 'nearest' }); el.querySelector('input, textarea, select, button')?.focus({ preventScroll: true }); }
  }
  box.hidden = !cards.size;
  document.title = document.title.replace(/^\(\d+\) /, '');
  if (cards.size) document.title = `(${cards.size}) ${document.title}`;
}

function card(q) {
  const s = state.servers.get(q.conn);
  const problem = h('p', { class: 'problem', role: 'alert' });
  const reply = async (body) => {
    try {
      await state.link.call('answer', `{"id":${q.id},${body}}`);
    } catch (err) { problem.textContent = err.message; }
  };
  const answer = (result) => reply(`"result":${result}`);
  const refuse = (why) => reply(`"error":${JSON.stringify(why)}`);
  const name = safe(s?.name ?? `server ${q.conn}`).slice(0, 80);
  if (q.held) return h('section', { class: 'card question', 'aria-label': 'A held frame' }, h('p', { class: 'muted' }, q.params.dir === 'up' ? 'To ' : 'From ', name, ' · a breakpoint holds'), held(q.params, reply, problem), problem);
  const who = h('p', { class: 'muted' }, name, ' asks · ', h('code', {}, show(q.method)));
  const make = { 'elicitation/create': elicitation, 'sampling/createMessage': sampling }[q.method] ?? other;
  let body;
  try { body = make(q.params ?? {}, answer, refuse, problem); } catch (err) { body = [h('p', { class: 'notice' }, show(err.message)), ...other(q.params, answer, refuse, problem)]; }
  return h('section', { class: 'card question', 'aria-label': 'A question of the server' }, who, body, problem);
}

const choices = (accept, ...rest) => h('div', { class: 'bar actions' }, accept, rest);

function elicitation(p, answer, refuse, problem) {
  const decline = h('button', { type: 'button', class: 'quiet', onclick: () => answer('{"action":"decline"}') }, 'Decline');
  const cancel = h('button', { type: 'button', class: 'quiet', onclick: () => answer('{"action":"cancel"}') }, 'Cancel');
  const message = h('p', { class: 'message' }, show(String(p.message ?? '')));
  if (p.mode === 'url') {
    let url = null;
    try { url = new URL(p.url); } catch { /* shown as it is */ }
    const web = url && /^https?:$/.test(url.protocol);
    const button = h('button', { type: 'button', class: 'quiet', onclick: () => copy(button, p.url) }, 'Copy');
    return [message, h('p', { class: 'bar' }, 'It wants you to open a page of ', h('strong', {}, safe(url?.host ?? '?')), ':'), h('p', { class: 'bar' }, h('code', { class: 'url' }, show(String(p.url ?? ''))), button,
      web ? h('a', { class: 'quiet button', href: url.href, target: '_blank', rel: 'noopener noreferrer' }, 'Open it') : h('span', { class: 'problem' }, 'Not a web address.')),
    choices(h('button', { type: 'button', class: 'primary', onclick: () => answer('{"action":"accept"}') }, 'I have opened it'), decline, cancel)];
  }
  const schema = p.requestedSchema ?? { type: 'object' };
  const form = new Form(schema, { prefill: true, label: 'Answer', judge: (text) => state.link.call('validate', { schema, value: text }) });
  return [message, h('form', { novalidate: true, onsubmit: (e) => {
    e.preventDefault();
    try { answer(`{"action":"accept","content":${form.text() ?? '{}'}}`); } catch (err) { problem.textContent = err.message; }
  } }, form.element, choices(h('button', { type: 'submit', class: 'primary' }, 'Accept'), decline, cancel))];
}

function sampling(p, answer, refuse) {
  const text = h('textarea', { rows: 4, class: 'grows', 'aria-label': 'The answer of the model' });
  const model = h('input', { type: 'text', 'aria-label': 'Name of the model' });
  model.value = 'a person';
  const messages = (p.messages ?? []).slice(0, 100).map((m) => h('li', { class: 'block' }, h('span', { class: 'tag' }, safe(m.role)), blocks([m.content].flat(), {})));
  const rest = { ...p };
  delete rest.messages;
  return [h('p', { class: 'message' }, 'The server wants the answer of a model. Answer in its place:'),
    p.systemPrompt ? h('p', {}, h('span', { class: 'tag' }, 'system'), ' ', show(p.systemPrompt)) : null, h('ol', { class: 'blocks' }, messages),
    h('details', {}, h('summary', {}, 'What else it asks for'), json(JSON.stringify(rest))),
    h('form', { onsubmit: (e) => { e.preventDefault(); answer(JSON.stringify({ role: 'assistant', content: { type: 'text', text: text.value }, model: model.value, stopReason: 'endTurn' })); } },
      h('div', { class: 'fields' }, h('div', { class: 'field wide' }, h('span', { class: 'label' }, 'Answer'), text), h('div', { class: 'field' }, h('span', { class: 'label' }, 'Model'), model)),
      choices(h('button', { type: 'submit', class: 'primary' }, 'Answer'), h('button', { type: 'button', class: 'quiet', onclick: () => refuse('User rejected sampling request') }, 'Refuse')))];
}

function other(p, answer, refuse, problem) {
  const text = h('textarea', { class: 'code json', rows: 4, spellcheck: 'false', 'aria-label': 'Result as JSON' });
  text.value = '{}';
  return [p === undefined || p === null ? null : json(JSON.stringify(p)), h('form', { onsubmit: (e) => {
    e.preventDefault();
    try { JSON.parse(text.value); answer(text.value); } catch (err) { problem.textContent = err.message; }
  } }, text, choices(h('button', { type: 'submit', class: 'primary' }, 'Answer'), h('button', { type: 'button', class: 'quiet', onclick: () => refuse('Refused') }, 'Refuse')))];
}
