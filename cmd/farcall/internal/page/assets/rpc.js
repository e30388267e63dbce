// How the page reaches the service: POST /rpc, GET /rpc/stream, GET /rpc/ws.
// Messages are built and kept as text, so that no digit is lost.

import { member } from './json.js';

const origin = location.origin;
const socketURL = `${origin.replace(/^http/, 'ws')}/rpc/ws`;
export const endpoints = { http: `${origin}/rpc`, ws: socketURL };

let lastID = 0;

export function message(method, params, { id, progress } = {}) {
  let text = `{"jsonrpc":"2.0"`;
  if (id !== undefined) text += `,"id":${id}`;
  text += `,"method":${JSON.stringify(method)}`;
  if (params !== undefined) text += `,"params":${params}`;
  if (progress) text += `,"progressToken":${id}`;
  return `${text}}`;
}

const nextID = () => ++lastID;

// post calls over HTTP. The answer is {request, response, status, ms}.
export async function post(method, params, { notify = false, signal } = {}) {
  const request = message(method, params, notify ? {} : { id: nextID() });
  const began = performance.now();
  const res = await fetch('/rpc', {
    method: 'POST', body: request, signal,
    headers: { 'Content-Type': 'application/json', Accept: 'application/json' },
  });
  const response = await res.text();
  return { request, response, status: res.status, ms: performance.now() - began };
}

// stream calls a streaming method and gives each chunk's text to onItem.
export async function stream(method, params, { signal, onItem }) {
  const query = new URLSearchParams({ method });
  if (params !== undefined) query.set('params', params);
  const path = `/rpc/stream?${query}`;
  const began = performance.now();
  const res = await fetch(path, { signal, headers: { Accept: 'text/event-stream' } });
  const out = { request: `GET ${path}`, response: '', status: res.status };
  if (!res.headers.get('Content-Type')?.startsWith('text/event-stream')) {
    out.response = await res.text();
    return { ...out, ms: performance.now() - began };
  }
  let done = false;
  for await (const data of events(res.body)) {
    if (data === '[DONE]') { done = true; break; }
    out.response += (out.response ? '\n' : '') + data;
    onItem(data);
  }
  return { ...out, done, ms: performance.now() - began };
}

// events reads an event stream and yields the data of each event.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  let data = [];
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop();
      for (const line of lines) {
        if (line === '') {
          if (data.length) yield data.join('\n');
          data = [];
        } else if (line.startsWith('data:')) {
          data.push(line.slice(5).replace(/^ /, ''));
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// Socket is one WebSocket connection, opened when it is first needed.
export class Socket {
  #ws = null;
  #opening = null;
  #waiting = new Map();

  // onPush takes what the server sends on its own: notifications and calls.
  // onState takes 'connecting', 'open' or 'closed'.
  constructor({ onPush, onState }) {
    this.onPush = onPush;
    this.onState = onState;
  }

  open() {
    this.#opening ??= new Promise((resolve, reject) => {
      this.onState('connecting');
      const ws = new WebSocket(socketURL);
      ws.onopen = () => { this.#ws = ws; this.onState('open'); resolve(); };
      ws.onmessage = (e) => this.#take(e.data);
      ws.onclose = () => {
        this.#ws = this.#opening = null;
        this.onState('closed');
        const err = new Error('The WebSocket connection is closed.');
        reject(err);
        for (const wait of this.#waiting.values()) wait.reject(err);
        this.#waiting.clear();
      };
    });
    return this.#opening;
  }

  async call(method, params, { notify = false, signal, onItem } = {}) {
    await this.open();
    const id = notify ? undefined : nextID();
    const request = message(method, params, { id, progress: !notify });
    const began = performance.now();
    const result = (response) => ({ request, response, ms: performance.now() - began });
    if (notify) { this.#ws.send(request); return result(''); }
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve: (text) => resolve(result(text)), reject, onItem });
      signal?.addEventListener('abort', () => {
        this.#ws?.send(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":${id}}}`);
        this.#waiting.delete(id);
        reject(signal.reason);
      }, { once: true });
      this.#ws.send(request);
    });
  }

  #take(text) {
    const m = JSON.parse(text);
    if (m.method === '$/progress' && this.#waiting.has(m.params?.token)) {
      this.#waiting.get(m.params.token).onItem?.(member(member(text, 'params'), 'value'));
    } else if (m.method !== undefined) {
      this.onPush(text);
      if (m.id !== undefined) this.#ws.send(this.#answer(text, m.method));
    } else if (this.#waiting.has(m.id)) {
      const wait = this.#waiting.get(m.id);
      this.#waiting.delete(m.id);
      wait.resolve(text);
    }
  }

  // The page is a peer too: it answers one method, echo.
  #answer(text, method) {
    const head = `{"jsonrpc":"2.0","id":${member(text, 'id')}`;
    if (method === 'echo') return `${head},"result":${member(text, 'params') ?? 'null'}}`;
    return `${head},"error":{"code":-32601,"message":"Method not found"}}`;
  }
}

const quote = (s) => `'${s.replaceAll("'", `'\\''`)}'`;

// command is the line for a shell that makes the same call.
export function command(kind, method, params) {
  if (kind === 'stream') {
    const query = params === undefined ? '' : ` --data-urlencode ${quote(`params=${params}`)}`;
    return `curl -sSN --get ${origin}/rpc/stream --data-urlencode ${quote(`method=${method}`)}${query}`;
  }
  if (kind === 'ws') return `farcall call ${socketURL} ${quote(method)}${params === undefined ? '' : ` ${quote(params)}`}`;
  const body = message(method, params, kind === 'notify' ? {} : { id: 1 });
  return `curl -sS ${origin}/rpc -H 'Content-Type: application/json' -d ${quote(body)}`;
}
