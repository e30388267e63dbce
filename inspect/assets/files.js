// Captures: what was seen as a file, and a file as what was seen.

import { h, safe } from './dom.js';
import { state } from './state.js';

// saveCapture downloads frames: { conn, filter, seqs, raw }.
export async function saveCapture(what, problem) {
  problem.textContent = '';
  try {
    const { ticket, name } = await state.link.call('save', what);
    const a = h('a', { href: `save?ticket=${encodeURIComponent(ticket)}`, download: name, class: 'hidden' });
    document.body.append(a);
    a.click();
    a.remove();
  } catch (err) { problem.textContent = safe(err.message); }
}

// openCapture has the user choose a capture, and shows it.
export function openCapture(problem) {
  const input = h('input', { type: 'file', accept: '.jsonl,.ndjson,.zst', class: 'hidden', 'aria-label': 'Capture' });
  input.addEventListener('cancel', () => input.remove());
  input.addEventListener('change', async () => {
    const [file] = input.files;
    input.remove();
    if (file) await send(file, problem);
  });
  document.body.append(input);
  input.click();
}

// send shows a capture that is a Blob with a name.
async function send(file, problem) {
  problem.textContent = `Reading ${safe(file.name)} …`;
  try {
    const { ticket } = await state.link.call('open', { name: file.name.slice(0, 100) });
    const r = await fetch(`open?ticket=${encodeURIComponent(ticket)}`, { method: 'POST', body: file });
    const text = await r.text();
    problem.textContent = r.ok ? '' : safe(text).slice(0, 300);
  } catch (err) { problem.textContent = safe(err.message); }
}

// A capture that is dropped on the page is opened.
export function takeDrops(problem) {
  addEventListener('dragover', (e) => { if (e.dataTransfer?.types.includes('Files')) e.preventDefault(); });
  addEventListener('drop', (e) => {
    const [file] = e.dataTransfer?.files ?? [];
    if (!file) return;
    e.preventDefault();
    location.hash = '#/traffic';
    send(file, problem() ?? {});
  });
}
