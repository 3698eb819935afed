import { byId, text } from './dom.js';
import { ago, clock } from './format.js';
import { Replica } from './replica.js';
import { Requests } from './requests.js';
import { Detail } from './waterfall.js';

const every = 1000;
const slowest = 5000;
const patience = 4000; // milliseconds for an answer

// ask fetches one of the page's JSON answers; errors say what the server said.
async function ask(path) {
  const response = await fetch(new URL(path, import.meta.url), { cache: 'no-store', signal: AbortSignal.timeout(patience) })
    .catch(() => { throw new Unreachable('the server cannot be reached'); });
  const body = await response.json().catch(() => null);
  if (!response.ok) throw new Answer(body?.error ?? `the server answered ${response.status}`);
  if (body === null) throw new Answer('the server’s answer is no JSON');
  return body;
}

// Answer is an error that the server told, unlike one of the way to it.
class Answer extends Error {}
class Unreachable extends Error {}

const page = {
  window: 60,
  started: null, // of the server: a new one has new counters
  last: null, // Date of the last good answer
  newest: 0, // newest sample of the history
  replicas: new Map(),
  failures: 0,
};
const detail = new Detail(ask);
const requests = new Requests(ask, (key, opener) => detail.open(key, opener));

function show(state) {
  if (page.started !== state.started) {
    page.started = state.started;
    page.replicas.clear();
  }
  text(byId('model'), state.models.join(', '));
  byId('model').hidden = state.models.length === 0;
  byId('model').title = state.models.join(', ');
  text(byId('version'), state.version);
  document.title = state.models.length ? `${state.models[0]} · omni-engine` : 'omni-engine';
  requests.model = state.models[0];
  requests.recording = state.recording;
  const roots = [];
  for (const stage of state.stages) {
    for (const r of stage.replicas) {
      const key = `${stage.id}/${r.replica}`;
      if (!page.replicas.has(key)) page.replicas.set(key, new Replica());
      const view = page.replicas.get(key);
      view.update(stage, r, state);
      roots.push(view.root);
      page.newest = Math.max(page.newest, ...r.history.map((s) => s.at));
    }
  }
  const stages = byId('stages');
  if (roots.length !== stages.children.length || roots.some((r, i) => r !== stages.children[i])) stages.replaceChildren(...roots);
  stages.setAttribute('aria-busy', 'false');
}

function banner(kind, words) {
  const b = byId('banner');
  b.hidden = !words;
  b.dataset.kind = kind;
  text(b, words ?? '');
}

function link(state, words) {
  byId('link').dataset.state = state;
  text(byId('link').lastElementChild, words);
}

function good(state) {
  page.failures = 0;
  page.last = new Date();
  delete document.body.dataset.stale;
  link('live', 'Live');
  if (state.trouble) banner('bad', `The server is not healthy: ${state.trouble}`);
  else if (!state.recording) banner('warn', 'Recording is off (--no-log-stats or --disable-log-stats): there are no request times, only what the engine cores say of themselves.');
  else banner('', null);
}

function bad(err) {
  page.failures++;
  if (page.failures < 2 && page.last) return; // one miss is no news
  const since = page.last ? ` Figures are from ${clock(page.last)}, ${ago(page.last, Date.now())}.` : '';
  document.body.dataset.stale = '';
  if (err instanceof Unreachable) {
    link('lost', page.last ? `Stale since ${clock(page.last)}` : 'Not connected');
    banner('bad', `The server cannot be reached.${since} Trying again.`);
    return;
  }
  if (!(err instanceof Answer)) console.error(err); // ours
  link('lost', 'Error');
  banner('bad', `The dashboard’s data cannot be shown: ${err.message}.${since}`);
}

let timer = 0;
async function look() {
  clearTimeout(timer);
  const window = page.window;
  try {
    const state = await ask(`state?window=${window}&since=${page.newest}`);
    if (page.started !== null && page.started !== state.started && page.newest) {
      page.newest = 0; // a new server: its whole history, at the next look
      page.started = null;
      page.replicas.clear();
    }
    if (window === page.window) show(state);
    good(state);
    await requests.refresh();
  } catch (err) {
    bad(err);
  }
  clearTimeout(timer);
  if (document.visibilityState === 'visible') timer = setTimeout(look, Math.min(slowest, every * 2 ** Math.max(0, page.failures - 2)));
}

byId('windows').addEventListener('click', (e) => {
  const button = e.target.closest('button');
  if (!button) return;
  page.window = Number(button.dataset.window);
  for (const b of byId('windows').children) b.setAttribute('aria-pressed', String(b === button));
  look();
});
// Nobody looks at a hidden page, so it does not ask.
document.addEventListener('visibilitychange', () => {
  if (document.visibilityState === 'visible') look();
});
look();
