// What the page knows: servers, questions, events. Parts of the page listen for changes.

const listeners = new Map();

export const on = (type, f) => {
  if (!listeners.has(type)) listeners.set(type, new Set());
  listeners.get(type).add(f);
};

export const off = (type, f) => listeners.get(type)?.delete(f);

export const emit = (type, ...args) => { for (const f of listeners.get(type) ?? []) f(...args); };

export const state = {
  link: null,
  servers: new Map(), // by id
  current: 0, // the id of the one that is shown
  nextEvent: 1, // the number of the next event to take
  questions: new Map(), // by id
  may: [], // the actions that this page has a permission for
  calls: new Map(), // running calls of this page by name: { tool, progress(v), value(text), task(t) }
  tasks: new Map(), // by server: tasks by id, { id, status, text, tool }
  logs: new Map(), // by server: the newest lines
  anyServer: false,
  conform: false, // servers can be checked by their specifications
  eras: ['auto'],
  version: '',
};

const maxTasks = 1000;

// addTask keeps the state of a task of a server. call is the call that it belongs to, if that is known.
state.addTask = (conn, call, t) => {
  if (!state.tasks.has(conn)) state.tasks.set(conn, new Map());
  const all = state.tasks.get(conn);
  all.set(t.id, { tool: all.get(t.id)?.tool ?? state.calls.get(call)?.tool, ...t });
  if (all.size > maxTasks) all.delete(all.keys().next().value);
  state.calls.get(call)?.task?.(t);
  emit('tasks', conn);
};

const eventWait = 2000; // milliseconds

// taken waits until the events before one are taken, unless they are lost.
export const taken = (n) => new Promise((done) => {
  const look = () => {
    if (state.nextEvent < n) return;
    off('events', look);
    done();
  };
  on('events', look);
  setTimeout(() => { off('events', look); done(); }, eventWait);
  look();
});

export const server = () => state.servers.get(state.current);

const maxLines = 2000;

// line keeps a line of a server's log or standard error.
export function line(e) {
  if (!state.logs.has(e.conn)) state.logs.set(e.conn, []);
  const lines = state.logs.get(e.conn);
  lines.push(e);
  if (lines.length > maxLines) lines.splice(0, maxLines / 4);
  emit('line', e);
}

// take takes an event. Events before `known` say nothing new about servers and questions.
export function take(e, known) {
  switch (e.type) {
    case 'server': if (e.n >= known) { state.servers.set(e.conn, e.data); emit('servers', e.conn); } break;
    case 'removed': if (e.n >= known) { state.servers.delete(e.conn); emit('servers', e.conn); } break;
    case 'question': if (e.n >= known) { state.questions.set(e.data.id, e.data); emit('questions'); } break;
    case 'answered': state.questions.delete(e.data.id); emit('questions'); break;
    case 'progress': state.calls.get(e.call)?.progress(e.data); break;
    case 'task': state.addTask(e.conn, e.call, e.data); break;
    case 'value': state.calls.get(e.call)?.value(e.data); break;
    case 'changed': if (e.n >= known) emit('changed', e.conn, e.data); line(e); break;
    default: line(e);
  }
}
