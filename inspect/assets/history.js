// The calls of this tab, the newest first.

const key = 'farcall.inspect.history';
const most = 200;
const largest = 64 * 1024; // arguments that are larger are not kept

let list = [];
try { list = JSON.parse(sessionStorage.getItem(key) ?? '[]'); } catch { /* it begins empty */ }

export function remember(call) {
  if ((call.text?.length ?? 0) > largest) return;
  list = [call, ...list].slice(0, most);
  try { sessionStorage.setItem(key, JSON.stringify(list)); } catch { list = list.slice(0, most / 4); }
}

export const recall = () => list;
