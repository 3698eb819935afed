import { byId, element, text } from './dom.js';
import { stack } from './charts.js';
import { absent, ago, duration, number, plural } from './format.js';

const canHover = matchMedia('(hover: hover)');

const touched = 2000; // milliseconds for which a list that was touched or scrolled stands still

// Requests is the list: newest first. It stands still while somebody points at it, touches it or moves through it with the keyboard.
export class Requests {
  constructor(ask, open) {
    this.ask = ask;
    this.open = open;
    this.list = byId('rows');
    this.note = byId('requests-note');
    this.empty = byId('rows-empty');
    this.more = byId('more');
    this.search = byId('search');
    this.limit = 50;
    this.shown = new Map();
    this.model = null;
    this.recording = true;
    this.turn = 0;
    this.touch = 0;
    for (const event of ['pointerdown', 'touchmove']) this.list.addEventListener(event, () => { this.touch = Date.now(); }, { passive: true });
    let timer = 0;
    this.search.addEventListener('input', () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.refresh(true), 120);
    });
    this.more.addEventListener('click', () => {
      this.limit = 200;
      this.refresh(true);
    });
    document.addEventListener('keydown', (e) => {
      if (e.key === '/' && !e.ctrlKey && !e.metaKey && !e.altKey && document.activeElement !== this.search && !document.querySelector('dialog[open]')) {
        e.preventDefault();
        this.search.focus();
      }
    });
  }

  held() {
    return Date.now() - this.touch < touched || (canHover.matches && this.list.matches(':hover')) || this.list.querySelector(':focus-visible') !== null;
  }

  async refresh(forced = false) {
    const now = Date.now();
    for (const [, row] of this.shown) text(row.when, ago(row.ended, now));
    if (!forced && this.held()) {
      text(this.note, 'Held while you look');
      return;
    }
    const turn = ++this.turn;
    const query = this.search.value.trim();
    const answer = await this.ask(`requests?limit=${this.limit}&query=${encodeURIComponent(query)}`);
    if (turn !== this.turn) return; // a later question overtook this one
    this.show(answer, query);
  }

  show({ requests, matched, kept }, query) {
    const rows = new Map();
    for (const r of requests) rows.set(r.key, this.shown.get(r.key) ?? this.row(r));
    this.shown = rows;
    const roots = [...rows.values()].map((r) => r.root);
    if (roots.length !== this.list.children.length || roots.some((r, i) => r !== this.list.children[i])) {
      const focused = document.activeElement;
      this.list.replaceChildren(...roots);
      if (this.list.contains(focused)) focused.focus({ preventScroll: true }); // a row that moved loses it
    }
    text(this.note, query ? `${number(matched)} of the newest ${plural(kept, 'request')}` : `The newest ${plural(kept, 'request')} are kept`);
    if (!kept) text(this.note, '');
    this.more.hidden = matched <= requests.length || this.limit === 200;
    this.empty.hidden = requests.length > 0;
    if (!requests.length) this.explain(query, kept);
  }

  explain(query, kept) {
    if (query && kept) {
      this.empty.replaceChildren(`No kept request matches “${query}”.`);
      return;
    }
    if (!this.recording) {
      this.empty.replaceChildren('Recording is off, so no request is kept.');
      return;
    }
    const body = JSON.stringify({ model: this.model ?? '', prompt: 'Hello', max_tokens: 16 });
    const root = location.pathname.replace(/\/dashboard$/, '');
    this.empty.replaceChildren('No request has ended yet. Send one, and it shows up here with its course:', element('br'),
      element('pre', {}, `curl ${location.origin}${root}/v1/completions \\\n  -H 'Content-Type: application/json' \\\n  -d '${body}'`));
  }

  row(r) {
    const ended = Date.parse(r.finished_at);
    const when = element('span', { class: 'num quiet' }, ago(ended, Date.now()));
    const notes = [r.model, r.trace_id && `trace ${r.trace_id}`].filter(Boolean).join(' · ');
    const id = element('span', {}, element('div', { class: 'id' }, r.id), element('small', {}, notes));
    if (r.sequences > 1) id.lastChild.append(element('span', { class: 'tag' }, `n = ${r.sequences}`));
    if (r.stages > 1) id.lastChild.append(element('span', { class: 'tag' }, `${r.stages} stages`));
    if (r.preemptions) id.lastChild.append(element('span', { class: 'tag' }, `preempted ${r.preemptions}×`));
    const button = element('button', { type: 'button', class: 'row', 'data-key': r.key },
      element('span', { class: 'reason', 'data-reason': r.finish_reason }, r.finish_reason), id,
      element('span', {}, r.states?.length ? stack(r.states) : element('span', { class: 'quiet' }, r.stages > 1 ? 'by stage, when opened' : r.states ? '' : absent)),
      element('span', { class: 'num' }, `${number(r.prompt_tokens)} → ${number(r.output_tokens)}`),
      element('span', { class: r.ttft_ms === null ? 'num absent' : 'num' }, duration(r.ttft_ms)),
      element('span', { class: r.e2e_ms === null ? 'num absent' : 'num' }, duration(r.e2e_ms)), when);
    button.addEventListener('click', () => this.open(r.key, button));
    return { root: element('li', {}, button), when, ended };
  }
}
