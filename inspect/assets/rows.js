// What the page keeps of each frame: about 60 bytes in columns. The bytes of a frame are fetched when they are looked at.

const columns = {
  time: Float64Array, took: Float64Array, conn: Uint16Array, link: Uint32Array, dir: Uint8Array, kind: Uint8Array, method: Uint32Array, name: Uint32Array,
  size: Uint32Array, ref: Uint32Array, parent: Uint32Array, code: Int32Array, flags: Uint8Array, answer: Uint32Array,
  hopped: Uint32Array, // the first request to the server of a gateway that a call has caused
};

export const failed = 1;
export const chosen = 2;
export const cancelled = 4;
export const hop = 8; // it passed between a gateway and its server
const maxTexts = 100_000;

export class Rows {
  base = 1; // the number of the first row that is kept
  count = 0;
  texts = [''];
  #places = new Map([['', 0]]);
  #room = 0;

  constructor() { this.#grow(4096); }

  #grow(room) {
    for (const [name, Type] of Object.entries(columns)) {
      const next = new Type(room);
      if (this[name]) next.set(this[name].subarray(0, this.count));
      this[name] = next;
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
    }
    for (const i of c.failed ?? []) this.flags[this.count + i] |= failed;
    for (const i of c.hop ?? []) this.flags[this.count + i] |= hop;
    for (const i of c.chosen ?? []) this.flags[this.count + i] |= chosen;
    this.count += n;
    for (let i = 0; i < n; i++) {
      const k = this.count - n + i;
      const q = this.ref[k] ? this.at(this.ref[k]) : -1;
      if (q >= 0) { this.answer[q] = this.base + k; this.flags[q] |= this.flags[k] & chosen; }
      if (this.flags[k] & hop && this.kind[k] === 113 && this.parent[k]) {
        const p = this.at(this.parent[k]);
        if (p >= 0 && !this.hopped[p]) this.hopped[p] = this.base + k;
      }
      if (this.parent[k] && /cancel/i.test(this.texts[this.method[k]])) {
        const p = this.at(this.parent[k]);
        if (p >= 0) this.flags[p] |= cancelled;
      }
    }
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
