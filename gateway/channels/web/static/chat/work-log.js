/** How an answer came about: what it cost, and, once it is opened, each tool with its arguments and result, and what the model thought. */

import { icon, make } from "../ui/dom.js";
import { read } from "../ui/storage.js";

/** Below it a chat is far from its limit: nothing is said unasked. */
const CONTEXT_SHOWN_PERCENT = 70;
const AWAY = "The steps cannot be read just now. Please close and open this again.";

/** Reads the steps of a turn: calls with `{name, arguments, result, ok}`, what the model wrote before them, and its thoughts. */
export async function readSteps(chat, turn) {
  const headers = { Authorization: `Bearer ${read("token")}` };
  const answer = await fetch(`/work/${chat.id}/${turn}`, { headers }).catch(() => null);
  const found = await answer?.json().catch(() => null);
  if (!answer?.ok || !found) throw new Error(found?.detail ?? AWAY);
  return found.steps;
}

/** A folded log of `work`; `ask` reads the steps when it is opened. */
export function workLog({ model, usd = 0, ms = 0, attempts = 1, tools = 0, tokens = 0, thoughts = false, context = 0, window: size = 0 }, ask) {
  const seconds = ms < 10_000 ? (ms / 1000).toFixed(1) : Math.round(ms / 1000);
  const percent = size ? Math.floor((100 * context) / size) : 0;
  const parts = [
    tools && count(tools, "tool"),
    `${seconds} s`,
    attempts > 1 && count(attempts, "attempt"),
    percent >= CONTEXT_SHOWN_PERCENT && `context ${percent} % full`,
  ].filter(Boolean);
  const facts = [
    model && `Model ${model}`,
    tokens && count(tokens, "token"),
    size && `context ${percent} % full: ${context.toLocaleString()} of ${count(size, "token")}`,
    usd && `about $${usd < 0.01 ? usd.toPrecision(2) : usd.toFixed(2)}`,
    attempts > 1 && `${attempts} attempts; times and costs are those of the last`,
  ].filter(Boolean);
  const body = make("div", {}, make("p", {}, facts.join(" · ")));
  const details = make("details", {}, make("summary", {}, icon("chevron"), parts.join(" · ")), body);
  if (tools || thoughts) details.addEventListener("toggle", () => details.open && fill(body, ask));
  return details;
}

async function fill(body, ask) {
  if (body.querySelector(".steps, .spinner")) return;
  body.querySelector(".failed")?.remove();
  const spinner = make("span", { className: "spinner" });
  body.append(spinner);
  try {
    const steps = await ask();
    body.append(make("ol", { className: "steps" }, ...steps.map(step)));
  } catch (error) {
    body.append(make("p", { className: "failed", role: "status" }, error.message));
  }
  spinner.remove();
}

function step({ thoughts, text, name, arguments: given, result, ok }) {
  if (thoughts) return make("li", {}, thoughtsBox(thoughts));
  if (text) return make("li", {}, make("p", {}, text));
  const outcome = ok ? "" : " failed";
  const parts = [make("code", {}, name), outcome];
  if (given) parts.push(make("pre", { tabIndex: 0, ariaLabel: `Arguments of ${name}`, role: "group" }, given));
  if (result) parts.push(make("pre", { tabIndex: 0, ariaLabel: `Result of ${name}`, role: "group" }, result));
  return make("li", {}, ...parts);
}

function thoughtsBox(thoughts) {
  const text = make("pre", { className: "thoughts", tabIndex: 0, ariaLabel: "Thoughts", role: "group", dir: "auto" }, thoughts);
  return make("details", {}, make("summary", {}, icon("chevron"), "Thoughts"), text);
}

function count(number, one) {
  return `${number.toLocaleString()} ${number === 1 ? one : `${one}s`}`;
}
