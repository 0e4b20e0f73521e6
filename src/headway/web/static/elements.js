// Elements of the page. Text is always set as text, never as markup.

const MAX_RATIO = 3;

/** Return an element: attributes by name, `on…` as listeners, children as text or elements. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) listen(made, name.slice(2), value);
    else if (name === "class") made.className = value;
    else if (name === "colour") made.style.setProperty("--colour", value);
    else if (name === "share") made.style.setProperty("--share", value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

const listeners = new WeakMap();

/** Call a listener for an event of an element; `update` hands it on to the element that stays. */
function listen(made, event, listener) {
  if (!listeners.has(made)) listeners.set(made, {});
  listeners.get(made)[event] = listener;
  made.addEventListener(event, call);
}

const call = (event) => listeners.get(event.currentTarget)[event.type](event);

/** Make an element contain these children; what is there already stays, with its focus and selection. */
export function update(parent, ...children) {
  const wanted = children.flat(Infinity).filter((child) => child !== null && child !== undefined);
  wanted.forEach((next, index) => {
    const old = parent.childNodes[index];
    const node = typeof next === "string" ? document.createTextNode(next) : next;
    if (old === undefined) parent.append(node);
    else if (old !== node && !sync(old, node)) old.replaceWith(node);
  });
  while (parent.childNodes.length > wanted.length) parent.lastChild.remove();
}

/** Make an element like another one; return whether that is possible. */
function sync(old, next) {
  if (old.nodeName !== next.nodeName || old.id !== next.id) return false;
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== next.data) old.data = next.data;
    return true;
  }
  if (Object.keys(listeners.get(next) ?? {}).join() !== Object.keys(listeners.get(old) ?? {}).join()) return false;
  if (listeners.has(next)) listeners.set(old, listeners.get(next));
  for (const { name } of [...old.attributes]) if (name !== "style" && !next.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of next.attributes) {
    if (name !== "style" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (old.style.cssText !== next.style.cssText) old.style.cssText = next.style.cssText;
  update(old, ...next.childNodes);
  return true;
}

/** Replace what an element contains. */
export function fill(parent, ...children) {
  parent.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
}

/** Show a tip with a text at a point of its parent; hide it if there is none (null). */
export function showTip(tip, text, x, y) {
  tip.hidden = text === null;
  if (text === null) return;
  tip.textContent = text;
  tip.style.left = `${Math.max(0, Math.min(x + 12, tip.parentElement.clientWidth - tip.offsetWidth - 4))}px`;
  tip.style.top = `${y + 16}px`;
}

/** Return the rows of a table of facts: [name, text]. */
export function factRows(facts) {
  return facts.map(([name, text]) => element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, text)));
}

/** Return whether the page is laid out for paper. */
export const isPrinting = () => document.documentElement.hasAttribute("data-printing");

/** Size a canvas to its box in device pixels; return {context, width, height, ratio} in CSS pixels. */
export function sized(canvas) {
  const box = canvas.getBoundingClientRect();
  const ratio = isPrinting() ? MAX_RATIO : Math.min(MAX_RATIO, window.devicePixelRatio || 1);
  const width = Math.max(1, Math.round(box.width)), height = Math.max(1, Math.round(box.height));
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return { context, width, height, ratio };
}
