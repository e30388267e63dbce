// A form made from a JSON Schema, with the same value as JSON beside it.

import { h, fill, safe, show, later } from './dom.js';
import { parse, indent } from './json.js';
import { limits, shape, typeName } from './schema.js';

const isNumber = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;
const deepest = 12;
let last = 0;

class Bad extends Error {}

// An editor has an element, read() -> JSON text or undefined, write(node, text) for a parsed node, and clear(). read
// throws Bad when what is typed is not a value.
function editor(root, schema, o) {
  const sh = shape(root, schema);
  if (o.depth > deepest) return raw(sh, o);
  const make = { object, array, string, number, integer: number, boolean, choice, many, variants }[sh.kind] ?? raw;
  return make(sh, { ...o, root });
}

const missing = (o) => { if (o.required) throw new Bad('A value is required.'); return undefined; };

function string({ s, nullable }, o) {
  const kind = { date: 'date', email: 'email', uri: 'url' }[s.format] ?? 'text';
  const preset = o.prefill && typeof s.default === 'string' ? s.default : '';
  const el = kind === 'text'
    ? h('textarea', { rows: 1, class: 'grows', spellcheck: 'false', placeholder: typeof s.default === 'string' ? safe(s.default).slice(0, 200) : null })
    : h('input', { type: kind === 'date' ? 'date' : 'text', inputmode: kind === 'text' || kind === 'date' ? null : kind, autocomplete: 'off', placeholder: s.default ?? null });
  el.value = preset;
  let isNull = false;
  el.addEventListener('input', () => { isNull = false; el.placeholder = ''; });
  return {
    element: el, focus: el,
    read: () => {
      if (isNull) return 'null';
      if (el.value === '' && (!o.required || o.prefill || kind === 'date')) return missing(o);
      return JSON.stringify(el.value);
    },
    write: (node) => {
      isNull = nullable && node.raw === 'null';
      el.value = node.kind === 'string' ? JSON.parse(node.raw) : isNull ? '' : node.raw ?? '';
      el.placeholder = isNull ? 'null' : '';
    },
    clear: () => { el.value = ''; isNull = false; },
  };
}

function number({ s }, o) {
  const el = h('input', { type: 'text', inputmode: 'decimal', autocomplete: 'off', class: 'code', placeholder: s.default ?? null });
  if (o.prefill && s.default !== undefined) el.value = String(s.default);
  return {
    element: el, focus: el,
    read: () => {
      const text = el.value.trim();
      if (text === '') return missing(o);
      if (text === 'null' || isNumber.test(text)) return text;
      throw new Bad('Not a number.');
    },
    write: (node) => { el.value = node.raw ?? ''; },
    clear: () => { el.value = ''; },
  };
}

function select(options, o, preset) {
  const el = h('select', {}, o.required && preset === undefined && options.length === 1 ? null : h('option', { value: '' }, o.required ? 'choose …' : 'not given'),
    options.map(([value, text]) => h('option', { value, selected: value === preset }, text)));
  return {
    element: el, focus: el,
    read: () => (el.value === '' ? missing(o) : el.value),
    write: (node, text) => {
      const given = text.slice(node.start, node.end);
      const same = options.find(([v]) => v === given || v === node.raw);
      el.value = same ? same[0] : '';
    },
    clear: () => { el.value = ''; },
  };
}

const plain = (v) => (typeof v === 'string' ? v : JSON.stringify(v));

function boolean({ s, nullable }, o) {
  const preset = o.prefill && s.default !== undefined ? String(s.default) : undefined;
  return select([['true', 'true'], ['false', 'false'], ...(nullable ? [['null', 'null']] : [])], o, preset);
}

function choice({ s, choices, nullable }, o) {
  const preset = o.prefill && s.default !== undefined ? JSON.stringify(s.default) : undefined;
  const options = choices.map(([v, title]) => [JSON.stringify(v), safe(title ? `${title} (${plain(v)})` : plain(v)).slice(0, 200)]);
  return select([...options, ...(nullable ? [['null', 'null']] : [])], o, preset);
}

function many({ s, choices }, o) {
  const preset = new Set(o.prefill && Array.isArray(s.default) ? s.default.map((v) => JSON.stringify(v)) : []);
  const boxes = choices.map(([v, title]) => [JSON.stringify(v), h('input', { type: 'checkbox', checked: preset.has(JSON.stringify(v)) }), title ?? plain(v)]);
  const el = h('div', { class: 'checks', role: 'group' }, boxes.map(([, box, text]) => h('label', { class: 'check' }, box, safe(text))));
  return {
    element: el, focus: boxes[0]?.[1],
    read: () => {
      const chosen = boxes.filter(([, b]) => b.checked).map(([v]) => v);
      return chosen.length || o.required ? `[${chosen.join(',')}]` : undefined;
    },
    write: (node, text) => {
      const given = new Set((node.items ?? []).map((n) => text.slice(n.start, n.end)));
      for (const [v, b] of boxes) b.checked = given.has(v);
    },
    clear: () => { for (const [, b] of boxes) b.checked = false; },
  };
}

function raw({ s, type }, o) {
  const example = { array: '[1, 2]', object: '{"key": "value"}' }[s.type ?? type] ?? 'JSON: "text", 1, true, [ ], { }';
  const el = h('textarea', { rows: 2, class: 'code grows', spellcheck: 'false', placeholder: example });
  if (o.prefill && s.default !== undefined) el.value = JSON.stringify(s.default);
  return {
    element: el, focus: el,
    read: () => {
      const text = el.value.trim();
      if (text === '') return o.depth === 0 && (s.type ?? type) === 'object' ? '{}' : missing(o); // a call may be without arguments
      try { parse(text); } catch (err) { throw new Bad(err.message); }
      return text;
    },
    write: (node, text) => { el.value = text.slice(node.start, node.end); },
    clear: () => { el.value = ''; },
  };
}

// optional wraps an editor of something large that need not be given: it is made when it is wanted.
function optional(make, name, o) {
  const box = h('div', { class: 'nest' });
  let inner = null;
  const add = h('button', { type: 'button', class: 'quiet', onclick: () => { open(); o.changed(); inner.focus?.focus(); } }, `Add ${name}`);
  const open = () => {
    inner ??= make();
    fill(box, inner.element, h('button', { type: 'button', class: 'quiet', onclick: () => { close(); o.changed(); add.focus(); } }, `Leave ${name} out`));
  };
  const close = () => { inner = null; fill(box, add); };
  close();
  return {
    element: box, get focus() { return add; },
    read: () => inner?.read(),
    write: (node, text) => { open(); inner.write(node, text); },
    clear: close,
  };
}

function object({ s }, o) {
  const build = () => {
    const required = new Set(s.required ?? []);
    const fields = Object.entries(s.properties ?? {}).slice(0, 500).map(([name, sub]) => field(name, sub, { ...o, required: required.has(name) }));
    const extra = typeof s.additionalProperties === 'object' || s.additionalProperties === true && !fields.length ? pairs(s.additionalProperties, o) : null;
    const el = h('div', { class: o.depth ? 'fields nested' : 'fields' }, fields.map((f) => f.element), extra?.element);
    if (!fields.length && !extra) el.append(h('p', { class: 'muted' }, 'No arguments.'));
    return {
      element: el, get focus() { return fields[0]?.focus; },
      read: () => {
        const given = fields.flatMap((f) => { const v = f.read(); return v === undefined ? [] : [`${JSON.stringify(f.name)}:${v}`]; });
        given.push(...(extra?.read() ?? []));
        return given.length || o.required || !o.depth ? `{${given.join(',')}}` : undefined;
      },
      write: (node, text) => {
        const rest = [];
        const given = new Map((node.members ?? []).map(([k, v]) => [JSON.parse(k), v]));
        for (const f of fields) { if (given.has(f.name)) f.write(given.get(f.name), text); else f.clear(); given.delete(f.name); }
        for (const [k, v] of given) rest.push([k, v]);
        extra?.write(rest, text);
        return rest.length && !extra ? rest.map(([k]) => k) : [];
      },
      clear: () => { for (const f of fields) f.clear(); extra?.write([], ''); },
      at: (path) => {
        const f = fields.find((one) => one.name === path[0]);
        return f ? f.at(path.slice(1)) : null;
      },
    };
  };
  return o.depth && !o.required ? optional(build, o.name, o) : build();
}

// pairs edits members that the schema does not name.
function pairs(schema, o) {
  let rows = [];
  const list = h('div', { class: 'items' });
  const add = (key = '', node = null, text = '') => {
    const name = h('input', { type: 'text', class: 'code', placeholder: 'name', 'aria-label': 'name', autocomplete: 'off' });
    name.value = key;
    const value = editor(o.root, schema === true ? {} : schema, { ...o, depth: o.depth + 1, required: true, name: 'value' });
    if (node) value.write(node, text);
    const row = { name, value };
    row.element = h('div', { class: 'item pair' }, name, value.element, h('button', { type: 'button', class: 'quiet', 'aria-label': 'Remove', onclick: () => { rows = rows.filter((r) => r !== row); row.element.remove(); o.changed(); } }, '✕'));
    rows.push(row);
    list.append(row.element);
    return name;
  };
  return {
    element: h('div', { class: 'nest' }, list, h('button', { type: 'button', class: 'quiet', onclick: () => { const n = add(); o.changed(); n.focus(); } }, 'Add a member')),
    read: () => rows.filter((r) => r.name.value !== '').map((r) => `${JSON.stringify(r.name.value)}:${r.value.read() ?? 'null'}`),
    write: (given, text) => { rows = []; list.replaceChildren(); for (const [k, v] of given.slice(0, 200)) add(k, v, text); },
  };
}

function array({ s }, o) {
  let items = [];
  const list = h('ol', { class: 'items' });
  const add = (node = null, text = '') => {
    const e = editor(o.root, s.items, { ...o, depth: o.depth + 1, required: true, name: 'item' });
    if (node) e.write(node, text);
    const one = { e };
    one.element = h('li', { class: 'item' }, e.element, h('button', { type: 'button', class: 'quiet', 'aria-label': 'Remove this item', onclick: () => { items = items.filter((x) => x !== one); one.element.remove(); o.changed(); } }, '✕'));
    for (const el of one.element.querySelectorAll('input, textarea, select')) if (!el.id && !el.getAttribute('aria-label')) el.setAttribute('aria-label', `${o.name}, item ${items.length + 1}`);
    items.push(one);
    list.append(one.element);
    return e;
  };
  const button = h('button', { type: 'button', class: 'quiet', onclick: () => { const e = add(); o.changed(); e.focus?.focus(); } }, 'Add an item');
  if (o.prefill && Array.isArray(s.default)) { const t = JSON.stringify(s.default); for (const n of parse(t).items) add(n, t); }
  return {
    element: h('div', { class: 'nest' }, list, button), focus: button,
    read: () => (items.length || o.required ? `[${items.map((x) => x.e.read() ?? 'null').join(',')}]` : undefined),
    write: (node, text) => { items = []; list.replaceChildren(); for (const n of (node.items ?? []).slice(0, 500)) add(n, text); },
    clear: () => { items = []; list.replaceChildren(); },
    at: (path) => items[Number(path[0])]?.element ?? null,
  };
}

function variants({ s, variants: all, nullable }, o) {
  const names = all.map((v, i) => v.title ?? `${typeName(o.root, v)}${all.filter((w) => typeName(o.root, w) === typeName(o.root, v)).length > 1 ? ` (${i + 1})` : ''}`);
  const pick = h('select', { 'aria-label': `${o.name}: which form` },
    o.required ? null : h('option', { value: '' }, 'not given'),
    names.map((n, i) => h('option', { value: String(i) }, safe(n).slice(0, 120))), nullable ? h('option', { value: 'null' }, 'null') : null);
  const body = h('div', {});
  const made = new Map();
  const current = () => {
    if (pick.value === '' || pick.value === 'null') return null;
    const i = Number(pick.value);
    if (!made.has(i)) made.set(i, editor(o.root, { ...all[i], ...(s.properties ? { properties: { ...s.properties, ...all[i].properties } } : {}) }, { ...o, required: true, depth: o.depth + 1 }));
    return made.get(i);
  };
  const refresh = () => fill(body, current()?.element);
  pick.addEventListener('change', refresh);
  refresh();
  const fits = (node, text) => all.findIndex((v) => {
    const k = shape(o.root, v);
    const kind = { object: 'object', array: 'array', many: 'array', string: 'string', number: 'number', integer: 'number', boolean: 'literal' }[k.kind];
    if (k.kind === 'choice') return k.choices.some(([c]) => JSON.stringify(c) === text.slice(node.start, node.end));
    if (kind !== node.kind) return k.kind === 'any';
    if (kind !== 'object') return true;
    const given = new Map(node.members.map(([key, value]) => [JSON.parse(key), value]));
    return (k.s.required ?? []).every((r) => given.has(r)) && Object.entries(k.s.properties ?? {}).every(([n, p]) => {
      const c = shape(o.root, p);
      return c.kind !== 'choice' || !given.has(n) || c.choices.some(([x]) => JSON.stringify(x) === text.slice(given.get(n).start, given.get(n).end));
    });
  });
  return {
    element: h('div', { class: 'nest' }, pick, body), focus: pick,
    read: () => (pick.value === 'null' ? 'null' : pick.value === '' ? undefined : current().read()),
    write: (node, text) => {
      const i = node.raw === 'null' && nullable ? 'null' : fits(node, text);
      pick.value = i === -1 ? '0' : String(i);
      refresh();
      current()?.write(node, text);
    },
    clear: () => { pick.value = o.required ? '0' : ''; refresh(); },
    at: (path) => current()?.at?.(path) ?? null,
  };
}

function field(name, schema, o) {
  const { s } = shape(o.root, schema);
  const e = editor(o.root, schema, { ...o, depth: o.depth + 1, name: safe(name) });
  const id = `f${++last}`;
  const group = e.element.tagName === 'DIV';
  const problem = h('p', { class: 'problem', id: `${id}p`, 'aria-live': 'polite' });
  const label = h(group ? 'div' : 'label', { class: 'label', for: group ? null : id, id: `${id}l` },
    h('span', { class: 'name' }, safe(name)), s.title && s.title !== name ? h('span', { class: 'title' }, safe(s.title)) : null,
    h('span', { class: 'type' }, safe(typeName(o.root, schema))), o.required ? null : h('span', { class: 'optional' }, 'optional'));
  if (group) { e.element.setAttribute('role', 'group'); e.element.setAttribute('aria-labelledby', `${id}l`); } else e.element.id = id;
  const more = safe(limits(s));
  const help = s.description || more ? h('p', { class: 'help' }, s.description ? show(String(s.description).slice(0, 2000)) : null, s.description && more ? ' ' : null, more ? h('span', { class: 'limits' }, more) : null) : null;
  const element = h('div', { class: `field${group ? ' wide' : ''}` }, label, e.element, help, problem);
  const complain = (text) => {
    problem.textContent = text;
    const el = group ? e.focus : e.element;
    if (text) { el?.setAttribute('aria-invalid', 'true'); el?.setAttribute('aria-describedby', problem.id); } else { el?.removeAttribute('aria-invalid'); el?.removeAttribute('aria-describedby'); }
  };
  return {
    name, element, get focus() { return e.focus; },
    read: () => {
      try {
        const v = e.read();
        complain('');
        return v;
      } catch (err) {
        if (!(err instanceof Bad)) throw err;
        complain(err.message);
        throw Object.assign(err, { field: e.focus });
      }
    },
    write: (node, text) => { complain(''); e.write(node, text); },
    clear: () => { complain(''); e.clear(); },
    at: (path) => (path.length && e.at ? e.at(path) : null) ?? { complain },
  };
}

// Form edits the value of a schema. text() returns it as JSON, or throws. judge(text) -> problems is called while one types.
export class Form {
  #editor; #json; #problems; #judge; #writing = false; #note;

  constructor(schema, { root = schema, prefill = false, judge = null, label = 'Arguments', value } = {}) {
    this.#judge = judge;
    const changed = () => this.#fromFields();
    this.#editor = editor(root, schema, { root, required: true, depth: 0, prefill, name: label, changed });
    this.body = h('div', { class: 'formbody', oninput: changed, onchange: changed }, this.#editor.element);
    if (!['INPUT', 'TEXTAREA', 'SELECT'].includes(this.#editor.element.tagName)) this.#editor.element.setAttribute('role', 'group');
    this.#editor.element.setAttribute('aria-label', label);
    this.#json = h('textarea', { class: 'code json', name: 'json', rows: 6, spellcheck: 'false', 'aria-label': `${label} as JSON`, oninput: () => this.#fromJSON() });
    this.#problems = h('ul', { class: 'problems', 'aria-live': 'polite' });
    this.#note = h('p', { class: 'problem', 'aria-live': 'polite' });
    const details = h('details', { class: 'asjson', open: innerWidth > 1100 }, h('summary', {}, 'JSON'), this.#json, this.#note);
    this.element = h('div', { class: 'form' }, this.body, details, this.#problems);
    if (value !== undefined) { this.#json.value = indent(value); this.#fromJSON(); } else this.#fromFields();
  }

  get focus() { return this.#editor.focus ?? this.#json; }

  #fromFields() {
    if (this.#writing) return;
    try {
      this.#json.value = indent(this.#editor.read() ?? '{}');
      this.#note.textContent = '';
      this.#check();
    } catch (err) {
      if (!(err instanceof Bad)) throw err;
    }
  }

  #fromJSON() {
    const text = this.#json.value;
    try {
      const node = parse(text);
      this.#writing = true;
      const left = this.#editor.write(node, text) ?? [];
      this.#note.textContent = left.length ? `Only in the JSON: ${safe(left.join(', '))}` : '';
      this.#check();
    } catch (err) {
      this.#note.textContent = err.message;
    } finally {
      this.#writing = false;
    }
  }

  #check = later(200, async () => {
    if (!this.#judge) return;
    const text = this.#json.value;
    let list = [];
    try { list = await this.#judge(text); } catch { return; }
    if (text !== this.#json.value) return;
    fill(this.#problems, list.map((p) => h('li', {}, show(p))));
  });

  // text is the value as JSON. What was typed last counts, in the fields or beside them.
  text() {
    if (this.#note.textContent && document.activeElement === this.#json) parse(this.#json.value);
    const beside = this.#json.value.trim();
    if (this.#note.textContent.startsWith('Only in') && beside) return beside;
    try {
      return this.#editor.read();
    } catch (err) {
      if (err.field) err.field.focus();
      throw err;
    }
  }

  // anyway is the value though it may not fit.
  anyway() {
    const text = this.#json.value.trim() || '{}';
    parse(text);
    return text;
  }
}
