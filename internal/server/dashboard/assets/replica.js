import { byId, element, text } from './dom.js';
import { Spark, restack } from './charts.js';
import { absent, clock, duration, number, percent, plural, rate, span, stateClass, stateName } from './format.js';

const latencies = [
  ['queued', 'Queued', 'queued'], ['prefill', 'Prefill', 'prefill'], ['decode', 'Decode', 'decode'],
  ['ttft', 'First token', 'ttft'], ['itl', 'Between tokens', 'itl'], ['e2e', 'End to end', 'e2e'],
];
const sources = {
  queued: 'engine core: QUEUED to first SCHEDULED', prefill: 'engine core: first SCHEDULED to first output',
  decode: 'engine core: first to last output', ttft: 'front end: arrival to first output', itl: 'engine core: between successive outputs of a request',
  e2e: 'front end: arrival to end',
};

// Replica is one engine core's part of the page.
export class Replica {
  constructor() {
    this.root = byId('replica-template').content.firstElementChild.cloneNode(true);
    const q = (s) => this.root.querySelector(s);
    this.title = q('h2');
    this.chips = q('.chips');
    this.slot = q('.bar-slot');
    this.legend = q('.legend');
    this.timeNote = q('.time-panel .note');
    this.latencyNote = q('.latency-panel .note');
    this.body = q('.latency tbody');
    this.axis = q('.axis');
    this.facts = q('.facts');
    this.history = [];
    this.cards = [
      new Card('Generation', '--decode', 'tokens/s', (v, t) => `${rate(v[0])} tokens/s at ${clock(t)}`),
      new Card('Prefill', '--prefill', 'tokens/s', (v, t) => `${rate(v[0])} tokens/s at ${clock(t)}`),
      new Card('Requests', '--accent', 'running', (v, t) => `${v[0]} running, ${v[1]} waiting at ${clock(t)}`),
      new Card('KV cache', '--input', '', (v, t) => `${percent(v[0])} at ${clock(t)}`),
    ];
    this.cards[2].root.style.setProperty('--c2', 'var(--queued)');
    q('.cards').append(...this.cards.map((c) => c.root));
  }

  update(stage, r, state) {
    const h = this.history;
    h.push(...r.history.filter((s) => !h.length || s.at > h.at(-1).at));
    while (h.length > 1000) h.shift();
    this.head(stage, r);
    this.figures(r, state);
    this.numbers(r, state);
    this.time(r, state);
    this.latency(r);
  }

  head(stage, r) {
    text(this.title, `Stage ${stage.id}`);
    const chips = [[stage.name === `stage_${stage.id}` ? null : stage.name], [stage.type], [`replica ${r.replica}`]];
    if (r.core?.paused) chips.push(['paused', 'bad']);
    if (r.core?.sleep_level) chips.push([`asleep, level ${r.core.sleep_level}`, 'bad']);
    this.chips.replaceChildren(...chips.filter(([t]) => t).map(([t, kind]) => element('span', { class: 'chip', 'data-kind': kind }, t)));
  }

  figures(r, state) {
    const to = Date.parse(state.now);
    const from = to - state.window_s * 1000;
    const seen = this.history.filter((s) => s.at >= from);
    const times = seen.map((s) => s.at);
    const core = r.core;
    const [gen, prompt, requests, kv] = this.cards;
    gen.set(rate(r.rates.generation_tokens_per_s), core ? `${number(core.generation_tokens_total)} since start` : '');
    prompt.set(rate(r.rates.prompt_tokens_per_s), core ? `${number(core.prompt_tokens_total)} since start` : '');
    requests.set(core ? number(core.running) : absent, core ? waiting(core) : '');
    kv.set(percent(core?.kv_usage), core && core.kv_usage !== null ? `${number(core.kv_blocks - core.kv_free_blocks)} of ${plural(core.kv_blocks, 'block')}` : 'no paged cache');
    gen.spark.draw(times, [seen.map((s) => s.gen)], from, to);
    prompt.spark.draw(times, [seen.map((s) => s.prompt)], from, to);
    requests.spark.draw(times, [seen.map((s) => s.run), seen.map((s) => s.wait)], from, to, 4);
    kv.spark.draw(times, [seen.map((s) => s.kv)], from, to, 0.05);
  }

  numbers(r, state) {
    const core = r.core;
    const reasons = Object.entries(r.recent.reasons).sort((a, b) => b[1] - a[1]).map(([k, n]) => `${k} ${number(n)}`).join(' · ');
    const hits = r.rates.prefix_hit_ratio ?? r.rates.prefix_hit_ratio_total;
    const facts = [
      ['Finished', r.rates.requests_per_s === null ? absent : `${rate(r.rates.requests_per_s)}/s`, state.recording ? `${number(r.recent.requests)} in the last ${span(r.recent.covered_s)}` : 'not recorded'],
      ['Finish reasons', topShare(r.recent), reasons || (state.recording ? 'none in the window' : 'not recorded')],
      ['Prefix-cache hits', percent(hits), r.rates.prefix_hit_ratio === null ? 'of prompt tokens since start' : `${percent(r.rates.prefix_hit_ratio_total)} since start`],
      ['Preemptions', state.recording ? number(r.recent.preemptions) : absent, core ? `${number(core.preemptions_total)} since start` : ''],
    ];
    if (this.facts.children.length === 0) {
      this.facts.append(...facts.map(([name]) => element('div', {}, element('dt', {}, name), element('dd', {}, element('span'), element('small')))));
    }
    facts.forEach(([, value, note], i) => {
      text(this.facts.children[i].querySelector('span'), value);
      text(this.facts.children[i].querySelector('small'), note);
    });
  }

  time(r, state) {
    const { states, accounted, covered_s: covered, dropped } = r.recent;
    text(this.timeNote, accounted ? `${plural(accounted, 'request')}${accounted > r.recent.requests ? ' (each sequence counts)' : ''} that ended in the last ${span(covered)}${dropped ? ' (older ones were dropped)' : ''}, on this core’s clock` : 'Ledger states, on this core’s clock');
    if (!states.length) {
      const why = state.recording ? `No request ended in the last ${span(state.window_s)}` : 'Recording is off: the server was started with --no-log-stats or --disable-log-stats.';
      this.slot.replaceChildren(element('p', { class: 'empty' }, why));
      this.legend.replaceChildren();
      return;
    }
    restack(this.slot, states);
    const whole = states.reduce((sum, s) => sum + s.ms, 0);
    this.legend.replaceChildren(...states.map((s) => element('li', { class: stateClass(s.state), 'data-state': s.state },
      element('i', { class: stateClass(s.state), 'aria-hidden': 'true' }), element('span', {}, stateName(s.state)),
      element('span', { class: 'num' }, duration(s.ms / accounted), ''), element('span', { class: 'num' }, percent(s.ms / whole)))));
    this.legend.prepend(element('li', { class: 'quiet', 'aria-hidden': 'true' }, element('span'), element('span'), element('span', { class: 'num' }, 'a request'), element('span', { class: 'num' }, 'share')));
  }

  latency(r) {
    const values = latencies.map(([key]) => r.latency[key]).filter((p) => p.n);
    const low = Math.log10(Math.max(1e-3, Math.min(...values.map((p) => p.p50))));
    const high = Math.log10(Math.max(1e-2, ...values.map((p) => p.p99)));
    const from = Math.floor(Math.max(low, high - 6));
    const to = Math.max(Math.ceil(high), from + 1);
    const at = (ms) => 100 * Math.min(1, Math.max(0, (Math.log10(Math.max(ms, 1e-9)) - from) / (to - from)));
    this.axis.replaceChildren(...(values.length ? [element('span', {}, decade(from)), element('span', {}, 'log'), element('span', {}, decade(to))] : []));
    const most = Math.max(0, ...latencies.filter(([key]) => key !== 'itl').map(([key]) => r.latency[key].n));
    text(this.latencyNote, 'Percentiles of the same requests; – was not observed');
    this.body.replaceChildren(...latencies.map(([key, name, colour]) => {
      const p = r.latency[key];
      const plot = element('div', { class: `plot s-${colour}`, 'aria-hidden': 'true' });
      if (p.n) {
        const range = element('i', { class: 'range' });
        range.style.left = `${at(p.p50)}%`;
        range.style.width = `${at(p.p99) - at(p.p50)}%`;
        const dot = element('i', { class: 'p50' });
        dot.style.left = `${at(p.p50)}%`;
        const tick = element('i', { class: 'p90' });
        tick.style.left = `${at(p.p90)}%`;
        plot.append(element('i', { class: 'whole' }), range, tick, dot);
      }
      const cell = (v) => element('td', { class: v === null ? 'absent' : null }, duration(v));
      const note = p.n && p.n < most && key !== 'itl' ? element('small', {}, ` ${number(p.n)}×`) : null;
      return element('tr', { 'data-measure': key, title: `${sources[key]}; ${plural(p.n, 'sample')}` },
        element('th', { scope: 'row' }, name, note), cell(p.p50), cell(p.p90), cell(p.p99), element('td', {}, plot));
    }));
  }
}

// 10^n milliseconds, as the end of an axis.
function decade(n) {
  if (n < 0) return `${10 ** (n + 3)} µs`;
  return n < 3 ? `${10 ** n} ms` : `${10 ** (n - 3)} s`;
}

class Card {
  constructor(label, colour, unit, describe) {
    this.spark = new Spark(describe);
    this.value = element('span');
    this.hint = element('div', { class: 'hint' });
    this.root = element('div', { class: 'card' },
      element('div', { class: 'label' }, element('i', { 'aria-hidden': 'true' }), label),
      element('div', { class: 'value' }, this.value, unit ? element('small', {}, unit) : null), this.hint, this.spark.root);
    this.root.style.setProperty('--c', `var(${colour})`);
    this.note = '';
    this.hovered = null;
    this.spark.onHover = (t) => {
      this.hovered = t;
      text(this.hint, t ?? this.note);
    };
  }

  set(value, note) {
    this.note = note;
    text(this.value, value);
    this.root.classList.toggle('nothing', value === absent);
    text(this.hint, this.hovered ?? note);
  }
}

function waiting(core) {
  const parts = [`${number(core.waiting)} waiting`];
  if (core.deferred) parts.push(`${number(core.deferred)} of them deferred`);
  if (core.inbox) parts.push(`${number(core.inbox)} in the inbox`);
  for (const [reason, n] of Object.entries(core.parked)) parts.push(`${number(n)} parked (${reason})`);
  return parts.join(' · ');
}

// The share that ended as asked: stop or length.
function topShare(recent) {
  if (!recent.sequences) return absent;
  const good = (recent.reasons.stop ?? 0) + (recent.reasons.length ?? 0);
  return good === recent.sequences ? 'All complete' : `${percent(good / recent.sequences)} complete`;
}
