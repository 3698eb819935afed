import { byId, element } from './dom.js';
import { absent, clock, duration, number, stateClass, stateName } from './format.js';

// Detail is the drawer with one request's waterfall: a lane a stage (and sequence), each on its own engine core's clock.
export class Detail {
  constructor(ask) {
    this.ask = ask;
    this.dialog = byId('detail');
    this.title = byId('detail-title');
    this.body = byId('detail-body');
    byId('close').addEventListener('click', () => this.dialog.close());
    this.dialog.addEventListener('click', (e) => {
      if (e.target === this.dialog) this.dialog.close(); // the backdrop
    });
    this.dialog.addEventListener('close', () => (this.opener?.isConnected ? this.opener : byId('requests')).focus());
  }

  async open(key, opener) {
    this.opener = opener;
    this.title.textContent = opener.querySelector('.id').textContent;
    this.body.replaceChildren(element('p', { class: 'quiet' }, 'Loading'));
    if (!this.dialog.open) this.dialog.showModal();
    this.dialog.scrollTop = 0;
    try {
      this.show(await this.ask(`request?key=${encodeURIComponent(key)}`));
    } catch (err) {
      this.body.replaceChildren(element('p', { class: 'empty' }, err.message));
    }
  }

  show(r) {
    this.title.textContent = r.id;
    const tiles = [
      ['Finish', r.finish_reason, r.lanes.map((l) => l.stop_reason).filter(Boolean).join(', ')],
      ['Tokens', `${number(r.prompt_tokens)} → ${number(r.output_tokens)}`, r.cached_tokens ? `${number(r.cached_tokens)} from the prefix cache` : 'prompt → output'],
      ['First token', duration(r.ttft_ms), 'front end’s clock'],
      ['End to end', duration(r.e2e_ms), 'front end’s clock'],
    ];
    const dl = element('dl', { class: 'tiles' }, ...tiles.map(([k, v, note]) => element('div', {}, element('dt', {}, k), element('dd', {}, v, element('small', {}, note)))));
    const wide = [['Model', r.model], ['Arrived', `${clock(new Date(r.arrival))}, ended ${clock(new Date(r.finished_at))}`], ['Trace', r.trace_id || absent]];
    dl.append(...wide.map(([k, v]) => element('div', { class: 'wide' }, element('dt', {}, k), element('dd', {}, v))));
    const scale = Math.max(...r.lanes.map((l) => l.total_ms ?? 0), 1e-3);
    this.body.replaceChildren(dl, element('p', { class: 'callout' }, note(r)), ...r.lanes.map((l) => lane(l, scale)));
  }
}

function note(r) {
  const own = 'Each lane starts at its own QUEUED and runs on its own engine core’s clock';
  if (r.lanes.length > 1) {
    return `${own}. Lanes overlap in reality: lengths may be compared, positions of two lanes may not, and nothing may be added across lanes.`;
  }
  return `${own}: 0 is when the core queued the request. The states follow each other without a gap and sum to the lane’s length.`;
}

function lane(l, scale) {
  const names = [`Stage ${l.stage}`, l.stage_name !== `stage_${l.stage}` && l.stage_name, l.type, `replica ${l.replica}`].filter(Boolean).join(' · ');
  const head = element('div', { class: 'lane-head' }, element('h3', {}, names), element('small', {}, `clock: ${l.clock}`));
  return element('section', { class: 'lane', 'data-stage': l.stage }, head, flow(l, scale), split(l));
}

// One line a state, in the order in which the request first came to it.
function flow(l, scale) {
  if (l.total_ms === null) {
    return element('p', { class: 'empty' }, 'The course in this stage was not observed.');
  }
  const lines = new Map();
  for (const s of l.stays) lines.set(s.state, [...(lines.get(s.state) ?? []), s]);
  const at = (ms) => `${(100 * ms) / scale}%`;
  const rows = [...lines].map(([state, stays]) => {
    const track = element('div', { class: 'flow-track' });
    for (const mark of [l.first_output_ms, l.last_output_ms]) {
      if (mark === null) continue;
      const line = element('i');
      line.style.left = at(mark);
      track.append(line);
    }
    for (const s of stays) {
      const bar = element('span', { class: stateClass(state), title: `${stateName(state)}: ${duration(s.ms)}, from ${duration(s.start_ms)}` });
      bar.style.left = at(s.start_ms);
      bar.style.width = at(s.ms);
      track.append(bar);
    }
    const sum = stays.reduce((t, s) => t + s.ms, 0);
    return element('div', { class: 'flow-row', 'data-state': state }, element('span', {}, stateName(state)), track,
      element('span', {}, stays.length > 1 ? element('small', { class: 'quiet' }, `${stays.length}× `) : null, duration(sum)));
  });
  const ticks = element('span', { class: 'ticks' }, ...[0, 0.25, 0.5, 0.75, 1].map((f) => element('b', {}, f ? duration(f * scale) : '0')));
  rows.push(element('div', { class: 'flow-row flow-axis', 'aria-hidden': 'true' }, element('span'), ticks, element('span')));
  if (l.left_out) rows.push(element('p', { class: 'quiet' }, `${number(l.left_out)} later state changes were not kept; the sums below are complete.`));
  return element('div', { class: 'flow' }, ...rows);
}

const meanings = {
  vllm_queued_ms: 'QUEUED → first SCHEDULED', vllm_prefill_ms: 'first SCHEDULED → first output', vllm_decode_ms: 'first → last output',
  vllm_num_preemptions: 'PREEMPTED events', vllm_input_wait_ms: 'inside queued', vllm_chunk_wait_ms: 'inside prefill and decode',
  vllm_kv_wait_ms: 'receiver: inside queued; sender: inside decode', vllm_preempted_ms: 'inside prefill and decode', vllm_unscheduled_wait_ms: 'QUEUED → end, if never scheduled',
};

// The phase split as the response and the log have it.
function split(l) {
  const rows = Object.entries(l.split).map(([name, v]) => {
    const value = v === null ? absent : name.endsWith('_ms') ? `${v.toLocaleString('en-US', { minimumFractionDigits: 3, maximumFractionDigits: 3 })} ms` : number(v);
    return element('tr', {}, element('td', {}, name), element('td', {}, meanings[name] ?? ''), element('td', { class: v === null ? 'absent' : null }, value));
  });
  return element('table', { class: 'split' }, element('tbody', {}, ...rows));
}
