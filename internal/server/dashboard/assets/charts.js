import { element, svg } from './dom.js';
import { duration, percent, stateClass, stateName } from './format.js';

const width = 300;
const height = 52;
const gap = 3500; // milliseconds: looks come every second; a longer pause is drawn as one

// Spark is a line over time in a card. Nothing is drawn where nothing was seen.
export class Spark {
  constructor(describe) {
    this.root = svg('svg', { class: 'spark', viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' });
    this.describe = describe;
    this.points = [];
    this.at = null;
    this.onHover = () => {};
    this.root.addEventListener('pointermove', (e) => this.hover(e.offsetX / this.root.clientWidth));
    this.root.addEventListener('pointerleave', () => this.hover(null));
  }

  // series: lists of values beside times; the first is filled.
  draw(times, series, from, to, most) {
    const x = (t) => (width * (t - from)) / (to - from);
    const top = Math.max(most ?? 0, ...series.flat().filter((v) => v !== null), 1e-9) * 1.12;
    const y = (v) => height - 2 - (v / top) * (height - 6);
    this.points = times.map((t, i) => ({ t, x: x(t) / width, values: series.map((s) => s[i]) }));
    const parts = [];
    series.forEach((values, k) => {
      for (const run of runs(times, values)) {
        const line = run.map((i) => `${x(times[i]).toFixed(1)},${y(values[i]).toFixed(1)}`).join(' ');
        if (k === 0) {
          parts.push(svg('polygon', { class: 'area', points: `${x(times[run[0]]).toFixed(1)},${height} ${line} ${x(times[run.at(-1)]).toFixed(1)},${height}` }));
        }
        parts.push(svg('polyline', { class: k ? 'line second' : 'line', points: line }));
      }
    });
    this.root.replaceChildren(...parts);
    if (this.at !== null) this.hover(this.at);
  }

  hover(at) {
    this.at = at;
    this.root.querySelector('.cross')?.remove();
    if (at === null || this.points.length === 0) {
      this.onHover(null);
      return;
    }
    const p = this.points.reduce((a, b) => (Math.abs(b.x - at) < Math.abs(a.x - at) ? b : a));
    this.root.append(svg('line', { class: 'cross', x1: p.x * width, x2: p.x * width, y1: 0, y2: height }));
    this.onHover(this.describe(p.values, new Date(p.t)));
  }
}

// Indices of the values that follow each other without a pause.
function runs(times, values) {
  const out = [];
  let run = [];
  values.forEach((v, i) => {
    if (run.length && (v === null || times[i] - times[run.at(-1)] > gap)) {
      out.push(run);
      run = [];
    }
    if (v !== null) run.push(i);
  });
  if (run.length) out.push(run);
  return out;
}

// A bar stacked from the ledger states of one stage.
export function stack(states) {
  const whole = states.reduce((sum, s) => sum + s.ms, 0);
  const label = states.map((s) => `${stateName(s.state)} ${percent(s.ms / whole)}`).join(', ');
  const bar = element('div', { class: 'stack', role: 'img', 'aria-label': label });
  for (const s of states) {
    const part = element('span', { class: stateClass(s.state), title: `${stateName(s.state)}: ${duration(s.ms)}, ${percent(s.ms / whole)}` });
    part.style.width = `${(100 * s.ms) / whole}%`;
    bar.append(part);
  }
  return bar;
}

// Moves an old bar to new widths where it shows the same states, so that it glides.
export function restack(slot, states) {
  const fresh = stack(states);
  const old = slot.firstElementChild;
  const same = old && old.children.length === fresh.children.length && [...old.children].every((c, i) => c.className === fresh.children[i].className);
  if (!same) {
    slot.replaceChildren(fresh);
    return;
  }
  old.setAttribute('aria-label', fresh.getAttribute('aria-label'));
  [...old.children].forEach((c, i) => {
    c.title = fresh.children[i].title;
    c.style.width = fresh.children[i].style.width;
  });
}
