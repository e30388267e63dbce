// Both sides of a gateway: what the client sent beside what the server got, and the answers likewise.

import { h, show, size } from './dom.js';
import { pretty } from './json.js';

const most = 600; // lines of a side that are compared
const longest = 64 * 1024; // of a side that is shown

// common marks the lines of two lists that are in both, in the same order.
function common(a, b) {
  const wide = b.length + 1;
  const best = new Uint16Array((a.length + 1) * wide);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      best[i * wide + j] = a[i] === b[j] ? best[(i + 1) * wide + j + 1] + 1 : Math.max(best[(i + 1) * wide + j], best[i * wide + j + 1]);
    }
  }
  const inA = new Set(), inB = new Set();
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    if (a[i] === b[j]) { inA.add(i++); inB.add(j++); } else if (best[(i + 1) * wide + j] >= best[i * wide + j + 1]) i++; else j++;
  }
  return [inA, inB];
}

// bare is a line without what only its place in a list says.
const bare = (line) => line.replace(/,$/, '');

// sideBySide shows two JSON texts, and marks the lines that are in only one of them. null is a text that there is not.
export function sideBySide(left, right, titles) {
  const sides = [left, right].map((t) => (t === null ? [] : pretty(t.slice(0, longest), 1).textContent.split('\n')));
  const short = left !== null && right !== null && sides.every((s) => s.length <= most);
  const known = short ? common(sides[0].map(bare), sides[1].map(bare)) : [null, null];
  const same = short && sides.every((s, i) => s.length === known[i].size);
  return h('div', { class: 'hops' }, sides.map((lines, i) => h('figure', { class: 'hop' },
    h('figcaption', { class: 'muted' }, titles[i], [left, right][i]?.length > longest ? ` (the beginning of ${size([left, right][i].length)})` : '', i === 1 && same ? ' — the same' : ''),
    [left, right][i] === null ? h('p', { class: 'muted' }, 'Nothing.')
      : h('pre', { class: 'text code', tabindex: '0', 'aria-label': titles[i] }, lines.map((line, n) => {
        const only = short && !known[i].has(n);
        return h(only ? 'mark' : 'span', { class: only ? `only side${i}` : 'line' }, show(line), '\n');
      })))));
}
