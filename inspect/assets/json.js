// JSON as text. JSON.parse turns 9007199254740993 into ...992 and 1.0 into 1;
// what the page shows and sends is what was on the wire, digit for digit.

const token = /[ \t\r\n]*([{}[\],:]|"(?:[^"\\\u0000-\u001f]+|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)/y;

// parse gives a tree: {kind, raw} for a scalar, {kind, items} for an array,
// {kind, members: [[keyRaw, node]]} for an object; each with start and end.
export function parse(text) {
  let at = 0;
  const next = () => {
    token.lastIndex = at;
    const m = token.exec(text);
    if (!m) {
      const where = at + text.slice(at).match(/^[ \t\r\n]*/)[0].length;
      throw new SyntaxError(where >= text.length ? 'The JSON ends too early.' : `Not JSON at character ${where + 1}: ${text.slice(where, where + 12)}`);
    }
    at = token.lastIndex;
    return m[1];
  };
  const unexpected = (t) => { throw new SyntaxError(`Unexpected ${t} at character ${at - t.length + 1}.`); };

  const value = (t) => {
    const start = at - t.length;
    if (t === '[') return list(start);
    if (t === '{') return object(start);
    if (/^[\]},:]$/.test(t)) unexpected(t);
    const kind = t[0] === '"' ? 'string' : /[-\d]/.test(t[0]) ? 'number' : 'literal';
    return { kind, raw: t, start, end: at };
  };
  const list = (start) => {
    const items = [];
    let t = next();
    while (t !== ']') {
      items.push(value(t));
      t = next();
      if (t === ',') { t = next(); if (t === ']') unexpected(t); } else if (t !== ']') unexpected(t);
    }
    return { kind: 'array', items, start, end: at };
  };
  const object = (start) => {
    const members = [];
    let t = next();
    while (t !== '}') {
      if (t[0] !== '"') unexpected(t);
      const key = t;
      t = next();
      if (t !== ':') unexpected(t);
      members.push([key, value(next())]);
      t = next();
      if (t === ',') { t = next(); if (t === '}') unexpected(t); } else if (t !== '}') unexpected(t);
    }
    return { kind: 'object', members, start, end: at };
  };

  const root = value(next());
  if (/[^ \t\r\n]/.test(text.slice(at))) throw new SyntaxError(`There is more after the JSON, at character ${at + 1}.`);
  return root;
}

// member gives the text of one member of the object that text is, or undefined.
export function member(text, name) {
  const node = parse(text);
  const found = node.members?.find(([key]) => JSON.parse(key) === name);
  return found && text.slice(found[1].start, found[1].end);
}

const inline = 68; // a list or object this short stays on one line
const large = 256 * 1024; // beyond this, no colours and no indentation

function flat(node) {
  if (node.items) return `[${node.items.map(flat).join(', ')}]`;
  if (!node.members) return node.raw;
  return node.members.length ? `{ ${node.members.map(([k, v]) => `${k}: ${flat(v)}`).join(', ')} }` : '{}';
}

const isFlat = (node) => (node.items ?? node.members?.map(([, v]) => v) ?? []).every((v) => !v.items?.length && !v.members?.length);

// pretty renders JSON text, coloured, and indented where a line would be longer
// than width.
export function pretty(text, width = inline) {
  const out = document.createDocumentFragment();
  let root;
  try {
    if (text.length > large) throw new RangeError('large');
    root = parse(text);
  } catch {
    out.append(text.length > 4 * large ? text.slice(0, 4 * large) + `\n… ${text.length - 4 * large} more characters` : text);
    return out;
  }
  const span = (kind, raw) => {
    const s = document.createElement('span');
    s.className = `json-${kind}`;
    s.textContent = raw;
    out.append(s);
  };
  const write = (node, indent) => {
    const children = node.items?.map((v) => [null, v]) ?? node.members;
    if (!children) return span(node.kind, node.raw);
    const [open, close] = node.items ? '[]' : '{}';
    const oneLine = !children.length || ((isFlat(node) || width === Infinity) && indent.length + flat(node).length <= width);
    const pad = node.members && children.length ? ' ' : '';
    out.append(open + (oneLine ? pad : ''));
    children.forEach(([key, child], i) => {
      out.append((i ? ',' : '') + (oneLine ? (i ? ' ' : '') : `\n${indent}  `));
      if (key !== null) { span('key', key); out.append(': '); }
      write(child, `${indent}  `);
    });
    out.append(oneLine ? pad + close : `\n${indent}${close}`);
  };
  write(root, '');
  return out;
}

// indent is pretty as plain text, for an input field.
export const indent = (text) => pretty(text).textContent;
