// What servers answer, for people: text, pictures, sounds, trees. Nothing of it is ever HTML of this page.

import { copy, fill, h, long, safe, show, size, segments } from './dom.js';
import { parse, pretty } from './json.js';

const big = 256 * 1024;
const atOnce = 200; // members of a tree that are shown at once

// tree shows JSON text. Its parts are made when they are opened.
export function tree(text) {
  let root;
  if (text.length > 2 << 20) return h('div', {}, long(text));
  try { root = parse(text); } catch { return h('div', {}, long(text)); }
  const value = (n) => {
    if (n.kind !== 'string') return h('span', { class: `json-${n.kind}` }, n.raw);
    const s = n.raw.length > 400 ? `${n.raw.slice(0, 400)}… (${size(n.raw.length)})` : n.raw;
    return h('span', { class: 'json-string' }, show(s));
  };
  const line = (key, n, depth) => {
    const label = key === null ? null : [h('span', { class: 'json-key' }, show(key.length > 200 ? `${key.slice(0, 200)}…` : key)), ': '];
    const children = n.items?.map((v, i) => [String(i), v]) ?? n.members?.map(([k, v]) => [k, v]);
    if (!children?.length) return h('div', { class: 'leaf' }, label, children ? (n.items ? '[]' : '{}') : value(n));
    const body = h('div', { class: 'branch' });
    let at = 0;
    const more = () => {
      const rest = body.querySelector(':scope > button');
      rest?.remove();
      body.append(...children.slice(at, at + atOnce).map(([k, v]) => line(k, v, depth + 1)));
      at += atOnce;
      if (at < children.length) body.append(h('button', { type: 'button', class: 'quiet', onclick: more }, `${children.length - at} more`));
    };
    const d = h('details', { open: depth < 2 && children.length <= 40 }, h('summary', {}, label, h('span', { class: 'muted' }, n.items ? `[ ${children.length} ]` : `{ ${children.length} }`)), body);
    if (d.open) more();
    d.addEventListener('toggle', () => { if (d.open && !at) more(); });
    return d;
  };
  return h('div', { class: 'tree' }, line(null, root, 0));
}

// json shows JSON text, as a tree or as text.
export function json(text, { open = 'tree' } = {}) {
  const body = h('div', {});
  const name = `json${Math.random()}`;
  const views = {
    tree: () => tree(text),
    text: () => (text.length > big ? h('div', {}, long(text)) : h('pre', { class: 'text code', tabindex: '0' }, pretty(text))),
  };
  const choose = (v) => fill(body, views[v]());
  const button = h('button', { type: 'button', class: 'quiet', onclick: () => copy(button, text) }, 'Copy');
  choose(open);
  return h('div', { class: 'json' }, h('div', { class: 'bar tools' }, segments(name, 'Show as', [['tree', 'Tree'], ['text', 'Text']], open, choose), button), body);
}

// markdown shows the common part of Markdown. Links and pictures stay text: following them is up to the reader.
export function markdown(text) {
  const out = h('div', { class: 'markdown' });
  const inline = (s) => {
    const parts = [];
    let at = 0;
    for (const m of s.matchAll(/`([^`\n]+)`|\*\*([^*\n]+)\*\*|\*([^*\n]+)\*/g)) {
      parts.push(show(s.slice(at, m.index)));
      at = m.index + m[0].length;
      parts.push(m[1] !== undefined ? h('code', {}, show(m[1])) : m[2] !== undefined ? h('strong', {}, show(m[2])) : h('em', {}, show(m[3])));
    }
    parts.push(show(s.slice(at)));
    return parts;
  };
  const lines = text.slice(0, big).split('\n');
  let level = 1; // of the last heading: none is left out below it
  for (let i = 0; i < lines.length; i++) {
    const l = lines[i];
    let m;
    if ((m = /^\s*(`{3,}|~{3,})/.exec(l))) {
      const end = lines.findIndex((x, j) => j > i && x.trim().startsWith(m[1]));
      const stop = end < 0 ? lines.length : end;
      out.append(h('pre', { class: 'text code', tabindex: '0' }, show(lines.slice(i + 1, stop).join('\n'))));
      i = stop;
    } else if ((m = /^(#{1,6})\s+(.*)/.exec(l))) out.append(h('p', { class: `h${m[1].length}`, role: 'heading', 'aria-level': String(level = Math.min(6, level + 1, m[1].length + 1)) }, inline(m[2])));
    else if ((m = /^\s*(?:[-*+]|\d+[.)])\s+(.*)/.exec(l))) {
      const list = out.lastElementChild?.tagName === 'UL' ? out.lastElementChild : out.appendChild(h('ul', {}));
      list.append(h('li', {}, inline(m[1])));
    } else if ((m = /^>\s?(.*)/.exec(l))) out.append(h('blockquote', {}, inline(m[1])));
    else if (/^\s*(?:---+|\*\*\*+)\s*$/.test(l)) out.append(h('hr'));
    else if (l.trim()) {
      const p = out.lastElementChild;
      if (p?.tagName === 'P' && !p.className && lines[i - 1]?.trim()) p.append(' ', ...inline(l));
      else out.append(h('p', {}, inline(l)));
    }
  }
  return out;
}

const looksMarkdown = (s) => /^#{1,6} |^\s*[-*] |\*\*[^*]+\*\*|^```|`[^`\n]+`/m.test(s);

// text shows text, as JSON or Markdown where it is that.
export function text(s, mime = '') {
  const trimmed = s.trimStart();
  let isJSON = false;
  if (/^[[{]/.test(trimmed) && s.length <= 2 << 20) try { parse(s); isJSON = true; } catch { /* it only looks like that */ }
  if (isJSON) return json(s);
  const plain = () => h('div', {}, long(s));
  if (mime === 'text/markdown' || looksMarkdown(s.slice(0, 4000))) {
    const body = h('div', {});
    const choose = (v) => fill(body, v === 'text' ? plain() : markdown(s));
    const first = mime === 'text/markdown' ? 'markdown' : 'text';
    choose(first);
    return h('div', {}, segments(`md${Math.random()}`, 'Show as', [['text', 'Text'], ['markdown', 'Markdown']], first, choose), body);
  }
  return plain();
}

const images = /^image\/(?:png|jpeg|gif|webp|avif|bmp|svg\+xml)$/;
const sounds = /^audio\/[a-z0-9.+-]+$/;
const base64 = /^[A-Za-z0-9+/=_\s-]*$/;

function blob(data, mime, name) {
  const clean = data.replaceAll('-', '+').replaceAll('_', '/').replace(/\s/g, '');
  const bytes = Math.floor((clean.length * 3) / 4);
  const save = h('button', { type: 'button', class: 'quiet', onclick: () => {
    try {
      const raw = atob(clean);
      const url = URL.createObjectURL(new Blob([Uint8Array.from(raw, (c) => c.charCodeAt(0))], { type: 'application/octet-stream' }));
      h('a', { href: url, download: name }).click();
      setTimeout(() => URL.revokeObjectURL(url), 10000);
    } catch { save.textContent = 'Not base64'; }
  } }, 'Save');
  return h('p', { class: 'bar' }, h('span', { class: 'muted' }, `${safe(mime || 'bytes')}, ${size(bytes)}`), save);
}

const extension = (mime) => safe(/\/([a-z0-9]+)/.exec(mime ?? '')?.[1] ?? 'bin');

function media(c) {
  const mime = c.mimeType ?? '';
  const data = String(c.data ?? c.blob ?? '');
  const ok = base64.test(data);
  const url = `data:${mime};base64,${data.replaceAll('-', '+').replaceAll('_', '/').replace(/\s/g, '')}`;
  return h('figure', {},
    ok && images.test(mime) ? h('img', { src: url, alt: `Picture from the server (${safe(mime)})`, class: 'picture' }) : null,
    ok && sounds.test(mime) ? h('audio', { src: url, controls: true }) : null,
    blob(data, mime, `result.${extension(mime)}`));
}

// resource shows the contents of a resource. page(html, contents) shows a page of the server.
export function resource(r, { page } = {}) {
  const head = h('p', { class: 'bar' }, h('code', {}, show(String(r.uri ?? ''))), r.mimeType ? h('span', { class: 'tag' }, safe(r.mimeType)) : null);
  const isPage = typeof r.text === 'string' && /^text\/html/.test(r.mimeType ?? '') && String(r.uri).startsWith('ui://');
  let body;
  if (isPage && page) body = page(r.text, r);
  else if (typeof r.text === 'string') body = text(r.text, r.mimeType);
  else body = media(r);
  return h('div', { class: 'resource' }, head, body);
}

// content shows one block of a result.
export function content(c, o = {}) {
  switch (c?.type) {
    case 'text': return text(String(c.text ?? ''));
    case 'image': case 'audio': return media(c);
    case 'resource': return resource(c.resource ?? {}, o);
    case 'resource_link': return h('p', { class: 'bar' }, h('span', { class: 'tag' }, 'link'), h('code', {}, show(String(c.uri ?? ''))), h('span', {}, show(String(c.title ?? c.name ?? ''))),
      o.read ? h('button', { type: 'button', class: 'quiet', onclick: () => o.read(c.uri) }, 'Read') : null);
    default: return json(JSON.stringify(c));
  }
}

export const blocks = (list, o) => h('ol', { class: 'blocks' }, list.slice(0, 500).map((c) => h('li', { class: 'block' },
  h('span', { class: 'tag' }, safe(c?.type ?? '?')), c?.annotations ? h('span', { class: 'muted' }, safe(JSON.stringify(c.annotations)).slice(0, 200)) : null, content(c, o))));
