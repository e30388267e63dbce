// h makes an element. Children may be strings, elements, lists or null.
export function h(tag, attributes = {}, ...children) {
  const el = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) el.addEventListener(name.slice(2), value);
    else if (value === true) el.setAttribute(name, '');
    else if (value !== false && value !== null && value !== undefined) el.setAttribute(name, value);
  }
  el.append(...real(children));
  return el;
}

const real = (children) => children.flat(3).filter((c) => c !== null && c !== undefined && c !== false);

// fill replaces what is in an element; like h, it leaves null out.
export const fill = (el, ...children) => el.replaceChildren(...real(children));

export const byID = (id) => document.getElementById(id);

// copy puts text on the clipboard and says so on the button.
export async function copy(button, text) {
  const label = button.textContent;
  try {
    if (!navigator.clipboard) throw new Error('no clipboard without a secure context');
    await navigator.clipboard.writeText(text);
    button.textContent = 'Copied';
  } catch {
    const area = h('textarea', { class: 'hidden' });
    area.value = text;
    document.body.append(area);
    area.select();
    button.textContent = document.execCommand('copy') ? 'Copied' : 'Cannot copy';
    area.remove();
    button.focus();
  }
  setTimeout(() => { button.textContent = label; }, 1200);
}
