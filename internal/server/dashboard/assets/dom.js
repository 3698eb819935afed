// Elements are made by hand and filled by textContent only: ids, models and traces come from users.
export function element(name, attributes = {}, ...children) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === 'class') e.className = value;
    else e.setAttribute(key, value);
  }
  e.append(...children.filter((c) => c !== null && c !== undefined));
  return e;
}

export function svg(name, attributes = {}, ...children) {
  const e = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  e.append(...children);
  return e;
}

export const byId = (id) => document.getElementById(id);

// Sets a text only when it changed, so that a selection survives a refresh.
export function text(e, value) {
  if (e.textContent !== value) e.textContent = value;
}
