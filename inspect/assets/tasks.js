// Tasks: calls that go on after their first answer. Each that was seen can be followed, also when another client has started it.

import { perform } from './call.js';
import { fill, h, safe, show } from './dom.js';
import { on, server, state } from './state.js';

const looks = { completed: 'good', failed: 'bad', cancelled: 'bad', input_required: 'wait', working: 'wait' };
const over = (status) => ['completed', 'failed', 'cancelled'].includes(status);

// hasTasks reports whether a server makes tasks.
export const hasTasks = (s) => Boolean(s?.info?.capabilities?.tasks || s?.info?.capabilities?.extensions?.['io.modelcontextprotocol/tasks']);

// mayStart reports whether a tool can be started as a task.
export const mayStart = (s, item) => hasTasks(s) && (!s.info.capabilities.tasks || ['optional', 'required'].includes(item.execution?.taskSupport));

const maxRows = 1000;
const rows = new Map(); // by server/id: the row of a task, with what its user has seen of it

function row(s, task) {
  const key = `${s.id}/${task.id}`;
  if (!rows.has(key)) {
    const head = h('div', { class: 'bar' });
    const out = h('section', { class: 'outcome', 'aria-label': `Result of ${safe(task.id)}`, 'aria-live': 'polite', hidden: true });
    let running = null;
    const now = () => state.tasks.get(s.id)?.get(task.id) ?? task;
    const follow = h('button', { type: 'button', class: 'quiet', onclick: async () => {
      if (running) { running.abort(); return; }
      running = new AbortController();
      draw();
      await perform(out, s, { kind: 'task', name: task.id }, running.signal);
      running = null;
      draw();
      if (!over(now().status)) await method('tasks/get');
    } });
    const method = (name) => state.link.call('call', { conn: s.id, call: '', kind: 'methods', name, params: { taskId: task.id } }).then((r) => { problem.textContent = safe(r.error?.message ?? r.fault ?? ''); }, (err) => { problem.textContent = safe(err.message); });
    const problem = h('p', { class: 'problem', role: 'alert' });
    const cancel = h('button', { type: 'button', class: 'quiet', onclick: async () => {
      await method('tasks/cancel');
      for (let n = 0; n < 10 && !over(now().status) && !problem.textContent; n++) {
        await method('tasks/get');
        await new Promise((done) => { setTimeout(done, 200); });
      }
    } }, 'Cancel');
    const draw = () => {
      const t = now();
      follow.textContent = running ? 'Stop following' : over(t.status) ? 'Result' : t.status === 'input_required' ? 'Answer and follow' : 'Follow';
      cancel.hidden = over(t.status);
      fill(head, h('span', { class: `tag ${looks[t.status] ?? ''}` }, safe(t.status).replace('_', ' ')), h('code', {}, safe(t.id)), t.tool ? h('span', { class: 'muted' }, safe(t.tool)) : null, t.text ? h('span', { class: 'muted' }, show(t.text)) : null);
    };
    rows.set(key, { draw, element: h('li', { class: 'card', 'data-task': task.id }, head, h('div', { class: 'bar actions' }, follow, h('button', { type: 'button', class: 'quiet', onclick: () => method('tasks/get') }, 'Ask for its state'), cancel), problem, out) });
    if (rows.size > maxRows) rows.delete(rows.keys().next().value);
  }
  rows.get(key).draw();
  return rows.get(key).element;
}

let list = null;

function draw() {
  const s = server();
  if (!list?.isConnected || !s) return;
  const all = [...(state.tasks.get(s.id)?.values() ?? [])].reverse().slice(0, 200).map((t) => row(s, t));
  if (all.length !== list.childElementCount || all.some((el, n) => list.children[n] !== el)) fill(list, all); // what has the focus keeps it
}

on('tasks', (conn) => { if (conn === state.current) draw(); });

// openTasks shows the tasks of the current server, those that it lists among them.
export async function openTasks(into) {
  const s = server();
  const note = h('p', { class: 'muted', role: 'status' });
  list = h('ol', { class: 'tasks' });
  fill(into, h('h1', {}, 'Tasks'), h('p', { class: 'muted' }, 'Calls that go on after their first answer. A question of a task is asked while it is followed.'), note, list);
  draw();
  if (s?.info?.capabilities?.tasks?.list) {
    for (let params = {}, n = 0; params && n < 20; n++) {
      const r = await state.link.call('call', { conn: s.id, call: '', kind: 'methods', name: 'tasks/list', params }).catch((err) => ({ fault: err.message }));
      if (!r.result) { note.textContent = safe(r.error?.message ?? r.fault ?? ''); break; }
      const page = JSON.parse(r.result);
      for (const t of page.tasks ?? []) state.addTask(s.id, '', { id: t.taskId, status: t.status, text: t.statusMessage ?? '' });
      params = page.nextCursor ? { cursor: page.nextCursor } : null;
    }
  }
  if (!list.childElementCount) note.textContent ||= hasTasks(s) ? 'There is none. The form of a tool that may be a task starts one.' : 'This server has no tasks.';
}
