// The connection with the process that serves this page: JSON-RPC over one WebSocket.

const key = 'farcall.inspect.token';

// The token comes in the fragment of the URL and is taken out of it, so that it is in no history, picture or
// bookmark. It lives as long as the tab.
function takeToken() {
  const given = /(?:^|[#&])token=([A-Za-z0-9._~-]+)/.exec(location.hash);
  if (given) {
    sessionStorage.setItem(key, given[1]);
    const rest = location.hash.slice(1).split('&').filter((p) => !p.startsWith('token=')).join('&');
    history.replaceState(null, '', location.pathname + location.search + (rest ? `#${rest}` : ''));
  }
  return sessionStorage.getItem(key) ?? '';
}

export class Failure extends Error {
  constructor({ code, message, data }) {
    super(message);
    this.code = code;
    this.data = data;
  }
}

export class Link {
  #token = takeToken(); #ws = null; #waiting = new Map(); #last = 0; #opened = false;

  // onOpen is called each time there is a connection, onClose when there is none, with whether there ever was one.
  constructor({ onOpen, onClose }) {
    this.onOpen = onOpen;
    this.onClose = onClose;
    this.#open();
  }

  #open() {
    const url = new URL('api', document.baseURI);
    url.protocol = url.protocol.replace('http', 'ws');
    url.hash = '';
    const ws = new WebSocket(url, ['farcall.inspect.1', ...(this.#token ? [`token.${this.#token}`] : [])]);
    ws.onopen = () => { this.#ws = ws; this.#opened = true; this.onOpen(); };
    ws.onmessage = (e) => this.#take(JSON.parse(e.data));
    ws.onclose = () => {
      this.#ws = null;
      for (const { reject } of this.#waiting.values()) reject(new Failure({ code: 0, message: 'The connection with farcall has ended.' }));
      this.#waiting.clear();
      this.onClose(this.#opened);
      setTimeout(() => this.#open(), this.#opened ? 1000 : 3000);
    };
  }

  #take(m) {
    if (m.method !== undefined || !this.#waiting.has(m.id)) return;
    const { resolve, reject } = this.#waiting.get(m.id);
    this.#waiting.delete(m.id);
    if (m.error) reject(new Failure(m.error));
    else resolve(m.result);
  }

  // call calls a method. params is an object, or JSON text.
  call(method, params = {}, { signal } = {}) {
    return new Promise((resolve, reject) => {
      if (!this.#ws) { reject(new Failure({ code: 0, message: 'There is no connection with farcall.' })); return; }
      const id = ++this.#last;
      const text = typeof params === 'string' ? params : JSON.stringify(params);
      this.#waiting.set(id, { resolve, reject });
      signal?.addEventListener('abort', () => {
        this.#ws?.send(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":${id}}}`);
      }, { once: true });
      this.#ws.send(`{"jsonrpc":"2.0","id":${id},"method":${JSON.stringify(method)},"params":${text}}`);
    });
  }
}
