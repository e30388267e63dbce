// The connections that have lines in view: the calls on each, those at the same time one below the other.

import { fill, h, safe } from './dom.js';
import { DOWN, Q } from './rows.js';

const mostShown = 12, mostTracks = 4;
const between = 1; // of the width, in percent: bars that are nearer are one below the other

// drawConnections fills el with the connections of some rows. span gives where a row begins and ends on the axis, from 0 to 100, name
// says which connection a row is of, and choose is called with a row when its bar was clicked.
export function drawConnections(el, rows, shown, { span, name, choose } = {}) {
  const found = new Map();
  for (const k of shown) {
    const key = `${rows.conn[k]} ${rows.link[k]}`;
    if (!found.has(key)) found.set(key, []);
    found.get(key).push(k);
  }
  el.hidden = found.size < 2;
  if (el.hidden) { el.replaceChildren(); return; }
  const all = [...found.values()].sort((a, b) => rows.conn[a[0]] - rows.conn[b[0]] || rows.link[a[0]] - rows.link[b[0]]);
  fill(el, all.slice(0, mostShown).map((its) => {
    const tracks = [];
    const bars = its.map((k) => {
      const [from, to] = span(k);
      let track = tracks.findIndex((end) => end + between <= from);
      if (track < 0) track = Math.min(tracks.length, mostTracks - 1);
      tracks[track] = to;
      const bar = h('span', { class: `lbar${rows.dir[k] === DOWN ? ' down' : ''}${rows.bad(k) ? ' bad' : ''}${rows.kind[k] === Q && !rows.answer[k] && !rows.took[k] ? ' open' : ''}`, title: safe(`${rows.texts[rows.method[k]]} ${rows.texts[rows.name[k]]}`.trim()).slice(0, 200), onclick: () => choose(k) });
      bar.style.left = `min(${from}%, 100% - 3px)`;
      bar.style.width = `max(3px, ${to - from}%)`;
      bar.style.top = `${track * 7 + 3}px`;
      return bar;
    });
    const body = h('span', { class: 'lbars' }, bars);
    body.style.height = `${tracks.length * 7 + 4}px`;
    return h('div', { class: 'conn' }, h('span', { class: 'lname' }, safe(name(its[0]))), body);
  }), all.length > mostShown ? h('div', { class: 'muted lname' }, `${all.length - mostShown} more connections`) : null);
}
