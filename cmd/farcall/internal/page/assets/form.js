// A form for a method's params, made from its OpenRPC description.

import { h } from './dom.js';
import { parse, indent } from './json.js';

// resolve follows $ref within the document.
export function resolve(doc, schema, depth = 0) {
  const ref = schema?.$ref;
  if (typeof ref !== 'string' || !ref.startsWith('#/') || depth > 16) return schema ?? {};
  const found = ref.slice(2).split('/').reduce((at, key) => at?.[decodeURIComponent(key).replaceAll('~1', '/').replaceAll('~0', '~')], doc);
  return resolve(doc, found, depth + 1);
}

const typeOf = (schema) => [schema.type].flat().find((t) => t && t !== 'null');

// typeName is a short name for a schema, for people.
export function typeName(doc, schema, depth = 0) {
  const s = resolve(doc, schema);
  if (s === true || depth > 4) return 'any';
  if (s.enum) return s.enum.map((v) => JSON.stringify(v)).join(' | ');
  const of = s.oneOf ?? s.anyOf;
  if (of) return of.map((v) => typeName(doc, v, depth + 1)).join(' | ');
  const type = typeOf(s);
  if (type === 'array') return `${s.items ? typeName(doc, s.items, depth + 1) : 'any'}[]`;
  if (type === 'object' && s.properties) {
    const required = new Set(s.required ?? []);
    return `{ ${Object.entries(s.properties).map(([k, v]) => `${k}${required.has(k) ? '' : '?'}: ${typeName(doc, v, depth + 1)}`).join(', ')} }`;
  }
  return type ?? 'any';
}

const isNumber = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;

// Form edits params either by field or as raw JSON. params() gives their text,
// undefined for none, and throws an Error to show to the user.
export class Form {
  #doc; #method; #fields; #raw; #toggle;

  constructor(doc, method, onChange) {
    this.#doc = doc;
    this.#method = method;
    this.#fields = (method.params ?? []).map((p) => this.#field(resolve(doc, p)));
    const whole = method['x-farcall-params']; // they are no list of named parameters
    const example = { array: '[1, 2, 3]', object: '{"name": "value"}' }[whole && typeOf(resolve(doc, whole))];
    this.#raw = h('textarea', {
      class: 'code raw', rows: 5, spellcheck: false, 'aria-label': 'params as JSON', placeholder: example ?? '{"name": "value"} or ["by", "position"]',
    });
    this.#toggle = h('input', { type: 'checkbox', disabled: Boolean(whole), onchange: () => this.#switch() });
    this.body = h('div', { class: 'fields' });
    this.element = h('form', { class: 'params', novalidate: true, onsubmit: (e) => e.preventDefault(), oninput: onChange },
      h('div', { class: 'bar' },
        h('h2', {}, 'Params'), h('span', { class: 'grow' }),
        h('label', { class: 'check' }, this.#toggle, 'Raw JSON')),
      this.body);
    this.#toggle.checked = Boolean(whole);
    this.#show();
  }

  get first() { return this.body.querySelector('input, textarea, select'); }

  #show() {
    if (this.#toggle.checked) return this.body.replaceChildren(this.#raw);
    const none = h('p', { class: 'muted' }, 'This method takes no params.');
    this.body.replaceChildren(...(this.#fields.length ? this.#fields.map((f) => f.element) : [none]));
  }

  #switch() {
    if (this.#toggle.checked) {
      try { this.#raw.value = indent(this.#fromFields() ?? ''); } catch { /* half filled: the raw text stays as it was */ }
    }
    this.#show();
    this.first?.focus();
  }

  params() {
    if (!this.#toggle.checked) return this.#fromFields();
    const text = this.#raw.value.trim();
    if (text === '') return undefined;
    try {
      const kind = parse(text).kind;
      if (kind !== 'array' && kind !== 'object') throw new SyntaxError('Params are an object or an array.');
    } catch (err) {
      this.#raw.focus();
      throw err;
    }
    return text;
  }

  #fromFields() {
    const values = this.#fields.map((f) => f.read());
    if (this.#method.paramStructure === 'by-position') {
      while (values.length && values.at(-1) === undefined) values.pop();
      return values.length ? `[${values.map((v) => v ?? 'null').join(',')}]` : undefined;
    }
    const given = this.#fields.flatMap((f, i) => (values[i] === undefined ? [] : [`${JSON.stringify(f.name)}:${values[i]}`]));
    return given.length ? `{${given.join(',')}}` : undefined;
  }

  #field({ name, required, schema, description, summary }) {
    const s = resolve(this.#doc, schema);
    const [input, read] = this.#control(s, required);
    input.id = `param-${name}`;
    const problem = h('p', { class: 'problem', id: `${input.id}-problem`, role: 'alert' });
    const help = description ?? summary ?? s.description;
    const element = h('div', { class: 'field' },
      h('label', { for: input.id }, h('span', { class: 'name' }, name), h('span', { class: 'type' }, s.enum ? typeOf(s) ?? 'choice' : typeName(this.#doc, s)),
        required ? null : h('span', { class: 'optional' }, 'optional')),
      input, help ? h('p', { class: 'help' }, help) : null, problem);
    input.addEventListener('input', () => { input.removeAttribute('aria-invalid'); problem.textContent = ''; });
    return {
      name, element,
      read: () => {
        try {
          return read();
        } catch (err) {
          input.setAttribute('aria-invalid', 'true');
          input.setAttribute('aria-describedby', problem.id);
          problem.textContent = err.message;
          input.focus();
          throw Object.assign(err, { atField: true });
        }
      },
    };
  }

  #control(s, required) {
    const missing = () => { if (required) throw new Error('This one is needed.'); return undefined; };
    if (s.enum) {
      const options = s.enum.map((v) => h('option', { value: JSON.stringify(v) }, typeof v === 'string' ? v : JSON.stringify(v)));
      const select = h('select', {}, required ? null : h('option', { value: '' }, '(left out)'), options);
      return [select, () => select.value || undefined];
    }
    switch (typeOf(s)) {
      case 'boolean': {
        if (required) {
          const box = h('input', { type: 'checkbox' });
          return [box, () => String(box.checked)];
        }
        const select = h('select', {}, ['', 'true', 'false'].map((v) => h('option', { value: v }, v || '(left out)')));
        return [select, () => select.value || undefined];
      }
      case 'number': case 'integer': {
        const input = h('input', { type: 'text', inputmode: 'decimal', autocomplete: 'off', class: 'code', placeholder: s.default ?? '0' });
        return [input, () => {
          const text = input.value.trim();
          if (text === '') return missing();
          if (!isNumber.test(text)) throw new Error('Not a JSON number.');
          return text;
        }];
      }
      case 'string': {
        const area = h('textarea', { rows: 1, spellcheck: false, class: 'grows' });
        return [area, () => (area.value === '' && !required ? undefined : JSON.stringify(area.value))];
      }
      default: {
        const area = h('textarea', { rows: 2, spellcheck: false, class: 'code grows', placeholder: typeOf(s) === 'array' ? '[1, 2]' : 'JSON' });
        return [area, () => {
          const text = area.value.trim();
          if (text === '') return missing();
          parse(text);
          return text;
        }];
      }
    }
  }
}
