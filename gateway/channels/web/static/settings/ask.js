/** Questions to the gateway about settings. */

import { make, sentence } from "../ui/dom.js";
import { read } from "../ui/storage.js";

const NOT_READ = "That could not be read just now. Please try again in a moment.";
const NOT_DONE = "That could not be done just now. Please try again in a moment.";

/** Asks, and returns `{ok, found}`; `fault` is a sentence for the person where it is not ok. */
export async function ask(method, path, body) {
  const headers = { Authorization: `Bearer ${read("token")}` };
  if (body) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body) }).catch(() => null);
  const found = await answer?.json().catch(() => null);
  if (answer?.ok && found) return { ok: true, found };
  const away = method === "GET" ? NOT_READ : NOT_DONE;
  return { ok: false, fault: found?.detail ? sentence(found.detail) : away };
}

/** What stands where an answer would, if there is none. */
export function faultNote(fault, again) {
  return make("div", { className: "fault", role: "alert" }, make("p", {}, fault), button("Try again", again));
}

export function button(label, action, properties = {}) {
  return make("button", { type: "button", className: "quiet", onclick: action, ...properties }, label);
}

export function part(title, ...children) {
  return make("section", {}, make("h3", {}, title), ...children);
}

/** The chat's title as a link that stays on this page. */
export function chatLink({ chat, title }, open) {
  return make("a", {
    href: `/c/${chat}`,
    onclick: (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
      event.preventDefault();
      open(chat);
    },
  }, title || "New chat");
}

export function number(value) {
  return value.toLocaleString();
}

export function dollars(usd) {
  return usd ? `$${usd.toFixed(usd < 1 ? 4 : 2)}` : "";
}

/** `2 min`, `3 h`, `4 days`. */
export function duration(seconds) {
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7_200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172_800 ? `${Math.round(seconds / 3_600)} h` : `${Math.round(seconds / 86_400)} days`;
}
