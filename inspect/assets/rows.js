// What the page keeps of each frame: about 60 bytes in columns. The bytes of a frame are fetched when they are looked at.

const columns = {
  time: Float64Array, took: Float64Array, conn: Uint16Array, link: Uint32Array, dir: Uint8Array, kind: Uint8Array, method: Uint32Array, name: Uint32Array,
  size: Uint32Array, ref: Uint32Array, parent: Uint32Array, code: Int32Array, flags: Uint8Array, answer: Uint32Array,
  hopped: Uint32Array, // the first request to the server of a gateway that a call has caused
  mark: Uint32Array, // of a call the newest report of progress, and of a report the one before it
};

export const Q = 113, N = 110, R = 114; // q, n, r
export const UP = 62, DOWN = 60;

export const failed = 1;
export const chosen = 2;
export const cancelled = 4;
export const hop = 8; // it passed between a gateway and its server
export const ended = 16; // a call that gets no answer: its exchange has ended
const maxTexts = 100_000;
const reserved = 1 << 22; // rows for which columns grow where they are

export class Rows {
  base = 1; // the number of the first row that is kept
  count = 0;
  texts = [''];
  #places = new Map([['', 0]]);
  #room = 0;

  constructor() { this.#grow(4096); }

  // #grow makes room. It copies nothing before there are more rows than are reserved.
  #grow(room) {
    for (const [name, Type] of Object.entries(columns)) {
      const bytes = room * Type.BYTES_PER_ELEMENT;
      const old = this[name];
      if (old && bytes <= old.buffer.maxByteLength) { old.buffer.resize(bytes); continue; }
      this[name] = new Type(new ArrayBuffer(bytes, { maxByteLength: Math.max(2 * bytes, reserved * Type.BYTES_PER_ELEMENT) }));
      if (old) this[name].set(old);
    }
    this.#room = room;
  }

  get next() { return this.base + this.count; }

  // at gives the index of a row by its number, -1 when it is not kept.
  at(seq) { return seq >= this.base && seq < this.next ? seq - this.base : -1; }

  #text(s) {
    let at = this.#places.get(s);
    if (at === undefined) {
      if (this.texts.length >= maxTexts) return this.#text('…');
      at = this.texts.length;
      this.texts.push(s);
      this.#places.set(s, at);
    }
    return at;
  }

  // bad reports whether a call has failed, or gets no answer.
  bad(k) {
    const a = this.kind[k] === R ? k : this.answer[k] ? this.at(this.answer[k]) : -1;
    return Boolean(a >= 0 ? this.code[a] || this.flags[a] & failed : this.flags[k] & ended);
  }

  // add takes rows as poll gives them; first is the number of the first of them.
  add(c, first) {
    if (first > this.next) { this.base = first; this.count = 0; } // some are lost
    const n = c.t.length;
    if (this.count + n > this.#room) this.#grow(Math.max(this.#room * 2, this.count + n));
    const places = c.texts.map((s) => this.#text(s));
    for (let i = 0; i < n; i++) {
      const k = this.count + i;
      this.time[k] = (c.base + c.t[i]) / 1000;
      this.took[k] = c.took[i];
      this.conn[k] = c.conn[i];
      this.link[k] = c.link[i];
      this.dir[k] = c.dir.charCodeAt(i);
      this.kind[k] = c.kind.charCodeAt(i);
      this.method[k] = places[c.method[i]];
      this.name[k] = places[c.name[i]];
      this.size[k] = c.size[i];
      this.ref[k] = c.ref[i];
      this.parent[k] = c.parent[i];
      this.code[k] = c.code[i];
      this.flags[k] = 0;
      this.answer[k] = 0;
      this.hopped[k] = 0;
      this.mark[k] = 0;
    }
    for (const i of c.failed ?? []) this.flags[this.count + i] |= failed;
    for (const i of c.hop ?? []) this.flags[this.count + i] |= hop;
    for (const i of c.chosen ?? []) this.flags[this.count + i] |= chosen;
    this.count += n;
    for (let i = 0; i < n; i++) {
      const k = this.count - n + i;
      const q = this.ref[k] ? this.at(this.ref[k]) : -1;
      if (q >= 0) { this.answer[q] = this.base + k; this.flags[q] |= this.flags[k] & chosen; }
      if (this.flags[k] & hop && this.kind[k] === Q && this.parent[k]) {
        const p = this.at(this.parent[k]);
        if (p >= 0 && !this.hopped[p]) this.hopped[p] = this.base + k;
      }
      const p = this.parent[k] ? this.at(this.parent[k]) : -1;
      if (p < 0 || this.kind[k] !== N && this.kind[k] !== 33) continue;
      const method = this.texts[this.method[k]];
      if (/progress/.test(method)) {
        this.mark[k] = this.mark[p];
        this.mark[p] = this.base + k;
      } else if (this.kind[k] === 33) this.end(p, this.time[k], ended);
      else if (/cancel/i.test(method)) this.end(p, this.time[k], cancelled);
    }
  }

  // end notes that a call was given up at a time; took says then after which.
  end(k, time, flag) {
    if (this.answer[k] || this.took[k]) return;
    this.flags[k] |= flag;
    this.took[k] = Math.max(1, (time - this.time[k]) * 1000);
  }

  // drop forgets the rows before one, now and then. It reports whether it did.
  drop(first) {
    const n = first - this.base;
    if (n < 100_000 && n < this.count) return false;
    const gone = Math.min(n, this.count);
    for (const name of Object.keys(columns)) this[name].copyWithin(0, gone, this.count);
    this.base = first;
    this.count -= gone;
    return true;
  }
}
