// Numbers and times as text. What is null was not observed: it is a dash, never a zero.
export const absent = '–';

// Milliseconds with three significant digits and the unit that suits them.
export function duration(ms) {
  if (ms === null || ms === undefined) return absent;
  if (ms === 0) return '0 ms';
  if (ms < 1) return `${Math.max(1, Math.round(ms * 1000))} µs`;
  if (ms < 10) return `${ms.toFixed(2)} ms`;
  if (ms < 100) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10000) return `${(ms / 1000).toFixed(2)} s`;
  if (ms < 100000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 7200000) return `${Math.floor(ms / 60000)} min ${Math.round(ms / 1000) % 60} s`;
  return `${(ms / 3600000).toFixed(1)} h`;
}

export function number(n) {
  if (n === null || n === undefined) return absent;
  if (n >= 1e9) return `${(n / 1e9).toFixed(2)} G`;
  if (n >= 1e6) return `${(n / 1e6).toFixed(2)} M`;
  return Math.round(n).toLocaleString('en-US');
}

// A rate keeps a decimal where it is small.
export function rate(n) {
  if (n === null || n === undefined) return absent;
  return n > 0 && n < 10 ? n.toFixed(1) : number(n);
}

export function percent(f) {
  if (f === null || f === undefined) return absent;
  const p = 100 * f;
  return `${p > 0 && p < 10 ? p.toFixed(1) : Math.round(p)} %`;
}

export function ago(then, now) {
  const s = Math.max(0, Math.round((now - then) / 1000));
  if (s < 60) return `${s} s ago`;
  if (s < 3600) return `${Math.floor(s / 60)} min ago`;
  return `${Math.floor(s / 3600)} h ago`;
}

export function clock(date) {
  return date.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit' });
}

export function span(seconds) {
  if (seconds > 59.5 && seconds < 90) return 'minute';
  return seconds < 60 ? `${Math.round(seconds)} s` : `${Math.round(seconds / 60)} min`;
}

export function plural(n, word) {
  return `${number(n)} ${word}${n === 1 ? '' : 's'}`;
}

const names = {
  queued: 'Queued', waiting_input: 'Waiting for input', waiting_grammar: 'Waiting for grammar', waiting_kv_load: 'Waiting for KV', prefill: 'Prefill',
  decode: 'Decode', recompute: 'Recompute', waiting_chunk: 'Waiting for chunk', requeued: 'Requeued', preempted: 'Preempted',
  waiting_kv_ack: 'KV hand-over', waiting_session: 'Waiting for user', paused: 'Paused', uncollected: 'Uncollected',
};

export const stateName = (state) => names[state] ?? state;
export const stateClass = (state) => `s-${state in names ? state : 'other'}`;
