/** Making elements and asking for a repaint. */

/** A new element: properties (or attributes, or `data`, or `on…` listeners) by name, then its children. */
export function make(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "data") Object.assign(node.dataset, value);
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in node) node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

/** Sets the text of a node, leaving the page alone when it is there already. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const SVG = "http://www.w3.org/2000/svg";

/** One of the symbols at the head of index.html. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `#icon-${name}`);
  svg.setAttribute("aria-hidden", "true");
  svg.append(use);
  return svg;
}

/**
 * Wraps `paint` so that many requests in one frame cost one call.
 * A hidden page gets no animation frames, but its title still has to tell of news.
 */
export function oncePerFrame(paint) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    const run = () => {
      asked = false;
      paint();
    };
    if (document.hidden) setTimeout(run, 100);
    else requestAnimationFrame(run);
  };
}

/** An error of the gateway, which begins small like all of its texts for programs, as a sentence. */
export function sentence(text) {
  const ended = /[.!?…]$/.test(text) ? text : `${text}.`;
  return ended.charAt(0).toUpperCase() + ended.slice(1);
}

/** A passing note about something that went wrong. */
export function toast(text) {
  const shelf = document.querySelector("#toasts");
  if ([...shelf.children].some((note) => note.textContent === text)) return;
  const note = make("p", { className: "toast" }, icon("alert"), text);
  note.addEventListener("click", () => note.remove());
  shelf.append(note);
  setTimeout(() => note.remove(), 7000);
}

const clock = new Intl.DateTimeFormat(undefined, { hour: "numeric", minute: "2-digit" });
const weekday = new Intl.DateTimeFormat(undefined, { weekday: "short" });
const date = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
export const moment = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "short" });
const DAY_MS = 86_400_000;

/** The time today, the weekday within a week, else the date. `at` is in ms. */
export function shortTime(at) {
  if (new Date(at).toDateString() === new Date().toDateString()) return clock.format(at);
  return Date.now() - at < 6 * DAY_MS ? weekday.format(at) : date.format(at);
}

/** A <time> that says the hour and, when pointed at, the whole date. */
export function timestamp(at) {
  const day = new Date(at).toDateString() === new Date().toDateString() ? "" : `${date.format(at)}, `;
  return make("time", { dateTime: new Date(at).toISOString(), title: moment.format(at) }, day + clock.format(at));
}
