// Pages of servers (MCP Apps): shown in a frame with another origin and without network.

import { h, safe } from './dom.js';

const newest = '2026-01-26'; // of the extension's protocol

// page shows HTML of a server. call(name, args) calls a tool for it, input and result are those of the tool that it belongs to.
export function page(html, { call, input, result, version }) {
  const note = h('p', { class: 'muted' }, 'A page of the server. It runs apart from this one, without network and storage.');
  const frame = h('iframe', { src: 'frame.html', sandbox: 'allow-scripts', class: 'app', title: 'A page of the server', referrerpolicy: 'no-referrer' });
  const send = (m) => frame.contentWindow?.postMessage({ jsonrpc: '2.0', ...m }, '*');
  let calls = 0;
  const answer = async (m) => {
    switch (m.method) {
      case 'ui/initialize':
        return {
          protocolVersion: typeof m.params?.protocolVersion === 'string' ? m.params.protocolVersion : newest, hostInfo: { name: 'farcall inspect', version },
          hostCapabilities: { serverTools: {}, logging: {} },
          hostContext: { theme: matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light', displayMode: 'inline', platform: 'web' },
        };
      case 'tools/call':
        if (++calls > 100) throw new Error('The page has called too often.');
        return call(String(m.params?.name), m.params?.arguments ?? {});
      case 'ping': return {};
      default: throw Object.assign(new Error(`The inspector does not serve ${safe(String(m.method)).slice(0, 100)}.`), { code: -32601 });
    }
  };
  const take = async (e) => {
    if (!frame.isConnected) { removeEventListener('message', take); return; }
    if (e.source !== frame.contentWindow || typeof e.data !== 'object' || e.data === null) return;
    if (e.data.farcallReady) { frame.contentWindow.postMessage({ farcallPage: html }, '*'); return; }
    const m = e.data;
    if (m.jsonrpc !== '2.0' || typeof m.method !== 'string') return;
    if (m.method === 'ui/notifications/initialized') {
      send({ method: 'ui/notifications/tool-input', params: { arguments: input ?? {} } });
      if (result) send({ method: 'ui/notifications/tool-result', params: result });
    } else if (m.method === 'ui/notifications/size-changed') {
      const height = Number(m.params?.height);
      if (height > 0) frame.style.height = `${Math.min(Math.max(height, 60), 1200)}px`;
    }
    if (m.id === undefined) return;
    try {
      send({ id: m.id, result: await answer(m) });
    } catch (err) {
      send({ id: m.id, error: { code: err.code ?? -32000, message: err.message } });
    }
  };
  addEventListener('message', take);
  return h('div', { class: 'apppage' }, frame, note);
}
