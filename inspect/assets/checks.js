// What models and clients misread in the definitions of a server's tools, and what the definitions cost.

import { fill, h, safe, segments, show } from './dom.js';
import { server, state } from './state.js';

const worst = { error: 'Errors', warning: 'Warnings', note: 'Notes' };

// openChecks shows the tab.
export async function openChecks(into) {
  const s = server();
  fill(into, h('h1', {}, 'Checks'), h('p', { class: 'muted' }, 'Looking at the tools …'));
  if (s?.speaks !== 'mcp') { fill(into, h('h1', {}, 'Checks'), h('p', { class: 'muted' }, 'The checks are for connected MCP servers.')); return; }
  let r;
  try {
    r = await state.link.call('lint', { conn: s.id });
  } catch (err) {
    fill(into, h('h1', {}, 'Checks'), h('p', { class: 'notice', role: 'alert' }, show(err.message)));
    return;
  }
  const count = (severity) => r.findings.filter((f) => f.severity === severity).length;
  const list = h('ol', { class: 'findings' });
  const choose = (severity) => {
    const some = r.findings.filter((f) => severity === 'all' || f.severity === severity);
    fill(list, some.slice(0, 500).map((f) => h('li', {}, h('span', { class: `tag ${f.severity === 'note' ? '' : f.severity === 'error' ? 'bad' : 'wait'}` }, f.severity),
      h('div', {}, h('p', {}, f.tool ? h('a', { href: `#/tools/${encodeURIComponent(f.tool)}` }, safe(f.tool)) : h('b', {}, 'All tools'), ' ', h('code', { class: 'muted' }, safe(f.pointer ?? ''))),
        h('p', {}, show(f.message), ' ', h('code', { class: 'muted' }, f.rule))))), some.length > 500 ? h('li', { class: 'muted' }, `${some.length - 500} more.`) : null);
  };
  choose('all');
  const most = r.costs[0]?.tokens || 1;
  fill(into, h('h1', {}, 'Checks'),
    h('p', { class: 'muted' }, r.findings.length ? 'What models and clients misread, or refuse, in the definitions of the tools. ' : 'Nothing was found in the definitions of the tools. '),
    r.findings.length ? h('div', { class: 'card' }, segments('severity', 'Severity', [['all', `All ${r.findings.length}`], ...Object.entries(worst).map(([k, v]) => [k, `${v} ${count(k)}`])], 'all', choose), list) : null,
    h('div', { class: 'card' }, h('h2', {}, `About ${r.tokens.toLocaleString('en')} tokens`), h('p', { class: 'muted' }, 'What the definitions take of a model’s context, the largest first. About four bytes are a token.'),
      h('ol', { class: 'costs' }, r.costs.slice(0, 100).map((c) => h('li', {}, h('a', { href: `#/tools/${encodeURIComponent(c.tool)}` }, safe(c.tool)), h('meter', { min: '0', max: String(most), value: String(c.tokens), 'aria-label': `${c.tokens} tokens` }), h('span', { class: 'muted' }, c.tokens.toLocaleString('en')))))));
}
