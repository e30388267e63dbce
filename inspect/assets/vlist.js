// A list of any length. Only rows in view have elements.

import { h } from './dom.js';

const tallest = 8e6; // browsers do not lay out boxes that are much taller

export class VList {
  #rows = []; #count = 0; #box; #space; #view = 0; #waiting = false; #selected = -1; #top = -1;
  follow = false; // keep the last row in view

  // make returns the element of a row, draw(element, index) fills it in, choose(index) is called for one that is chosen by
  // mouse or keyboard; open(index) for Enter and a double click.
  constructor({ label, height, make, draw, choose, open = () => {}, role = 'listbox', row = 'option', id = 'vlist' }) {
    Object.assign(this, { height, make, draw, choose, open, row, id });
    this.#space = h('div', { class: 'vspace', role: 'presentation' });
    this.#box = h('div', { class: 'vlist', role, tabindex: '0', 'aria-label': label }, this.#space);
    this.element = this.#box;
    this.#box.addEventListener('scroll', () => this.#scrolled(), { passive: true });
    new ResizeObserver(() => { this.#view = this.#box.clientHeight; this.refresh(); }).observe(this.#box);
    this.#box.addEventListener('keydown', (e) => this.#key(e));
    this.#space.addEventListener('click', (e) => {
      const at = this.#rows.find((r) => r.el.contains(e.target))?.index ?? -1;
      if (at >= 0) this.select(at);
    });
    this.#space.addEventListener('dblclick', () => this.#selected >= 0 && this.open(this.#selected));
  }

  get count() { return this.#count; }
  get selected() { return this.#selected; }
  get #tall() { return Math.min(this.#count * this.height, tallest); }
  get #scaled() { return this.#count * this.height > tallest; }

  setCount(n) {
    this.#count = n;
    if (this.#selected >= n) this.#selected = -1;
    this.refresh();
  }

  // shift takes the first n rows away; what is in view stays where it is.
  shift(n) {
    const first = Math.max(0, this.#first() - n);
    const selected = this.#selected - n;
    this.setCount(Math.max(0, this.#count - n));
    this.#selected = Math.max(-1, selected);
    this.#scrollTo(first);
  }

  // #scrolled is called also for what the list has scrolled, and when it got shorter. leave is called when a user has left the end
  // of a list that follows, whether by the wheel, the scrollbar or a finger.
  #scrolled() {
    const { scrollTop, clientHeight, scrollHeight } = this.#box;
    if (scrollTop === this.#top) return;
    if (this.follow && scrollTop < this.#top && scrollTop + clientHeight < scrollHeight - 2) this.leave?.();
    this.refresh();
  }

  // first is the index of the first row in view, with a fraction.
  #first() {
    if (!this.#scaled) return this.#box.scrollTop / this.height;
    const most = Math.max(1, this.#tall - this.#view);
    return (Math.min(this.#box.scrollTop, most) / most) * Math.max(0, this.#count - this.#view / this.height);
  }

  refresh() {
    if (this.#waiting) return;
    this.#waiting = true;
    requestAnimationFrame(() => { this.#waiting = false; this.render(); });
  }

  render() {
    if (!this.#box.isConnected || !this.#view) return;
    this.#resize();
    if (this.follow) this.#box.scrollTop = this.#tall;
    const exact = this.#first();
    const first = Math.floor(exact);
    const end = Math.min(this.#count, first + Math.ceil(this.#view / this.height) + 1);
    const need = end - first;
    while (this.#rows.length < need) {
      const el = this.make();
      el.setAttribute('role', this.row);
      el.id = `${this.id}-${this.#rows.length}`;
      el.classList.add('vrow');
      this.#space.append(el);
      this.#rows.push({ el, index: -1 });
    }
    this.#top = this.#box.scrollTop;
    const top = this.#scaled ? this.#top - (exact - first) * this.height : first * this.height;
    this.before?.(first, end);
    this.#rows.forEach((r, i) => {
      const index = first + i;
      const there = i < need;
      r.el.hidden = !there;
      r.index = there ? index : -1;
      if (!there) return;
      r.el.style.transform = `translateY(${top + i * this.height}px)`;
      r.el.setAttribute('aria-setsize', this.#count);
      r.el.setAttribute('aria-posinset', index + 1);
      r.el.setAttribute('aria-selected', String(index === this.#selected));
      this.draw(r.el, index);
      if (index === this.#selected) this.#box.setAttribute('aria-activedescendant', r.el.id);
    });
    if (this.#selected < first || this.#selected >= end) this.#box.removeAttribute('aria-activedescendant');
  }

  // mark selects a row without choosing it.
  mark(index) { this.#selected = index; this.refresh(); }

  select(index) {
    if (index < 0 || index >= this.#count) return;
    this.#selected = index;
    this.reveal(index);
    this.choose(index);
    this.refresh();
  }

  reveal(index) {
    this.#view ||= this.#box.clientHeight;
    const rows = this.#view / this.height;
    const first = this.#first();
    if (index >= first && index + 1 <= first + rows) return;
    this.#scrollTo(Math.max(0, index < first ? index : index + 1 - rows));
  }

  // #resize makes the list as tall as its rows.
  #resize() {
    const height = `${this.#tall}px`;
    if (this.#space.style.height !== height) this.#space.style.height = height;
  }

  // #scrollTo makes a row the first in view.
  #scrollTo(index) {
    this.#resize();
    if (!this.#scaled) this.#box.scrollTop = index * this.height;
    else this.#box.scrollTop = (index / Math.max(1, this.#count - this.#view / this.height)) * (this.#tall - this.#view);
  }

  #key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const page = Math.max(1, Math.floor(this.#view / this.height) - 1);
    const at = this.#selected;
    const to = {
      ArrowDown: at + 1, j: at + 1, ArrowUp: at - 1, k: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: this.#count - 1,
    }[e.key];
    if (to !== undefined) this.select(Math.min(Math.max(0, to), this.#count - 1));
    else if (e.key === 'Enter' && at >= 0) this.open(at);
    else return;
    e.preventDefault();
  }
}
