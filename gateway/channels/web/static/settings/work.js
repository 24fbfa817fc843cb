/** What goes on in all chats of the person: plans, background jobs, memory. */

import { count, none, STATES, sure } from "../about/about.js";
import { make, moment, setText } from "../ui/dom.js";
import { ask, button, chatLink, duration, number, part } from "./ask.js";

const MEMORIES = { chat: "One chat's memory", person: "Yours, in all chats", everybody: "Everybody's" };

export function showWork(place, found, { openChat }) {
  const lists = {
    plans: new Rows("Plans", "Nothing is planned. Ask for a reminder, or for something every morning."),
    jobs: new Rows("In the background", "Nothing runs, and nothing ended within the last hour."),
    memories: new Rows("Memory", "Nothing is remembered yet."),
  };
  const older = button("Look through older chats", readOn);
  const fault = faultLine();
  const more = make("div", { className: "more" }, older, fault);
  let skip;
  place.replaceChildren(...Object.values(lists).map(({ node }) => node), more);
  const seen = new Set();

  function add({ plans, jobs, memories, next }) {
    for (const plan of fresh("p", plans)) lists.plans.add(planRow(plan, lists.plans, openChat));
    for (const job of fresh("j", jobs)) lists.jobs.add(jobRow(job, openChat));
    for (const memory of fresh("m", memories)) lists.memories.add(memoryRow(memory, openChat));
    skip = next;
    const focused = document.activeElement === older;
    older.hidden = !next;
    if (focused && !next) lists.memories.focus();
  }

  /** Chats move in the list while it is read; what came before does not come again. */
  function fresh(kind, rows) {
    return rows.filter(({ chat, id = "", of = "" }) => {
      const name = `${kind} ${of && of !== "chat" ? of : chat} ${id}`;
      return !seen.has(name) && seen.add(name);
    });
  }

  async function readOn() {
    if (older.ariaDisabled === "true") return;
    // Not by disabling: the button would lose the focus.
    older.ariaDisabled = "true";
    const answer = await askFor(fault, "GET", `/settings/work?skip=${skip}`);
    older.ariaDisabled = "false";
    if (answer.ok) add(answer.found);
  }

  add(found);
}

/** A list under a heading, which says so when it is empty. */
class Rows {
  #list = make("ul");
  #empty;
  #heading;

  constructor(title, empty) {
    this.#empty = none(empty);
    this.node = part(title, this.#empty, this.#list);
    this.#heading = this.node.querySelector("h3");
    this.#heading.tabIndex = -1;
  }

  add(row) {
    this.#list.append(row);
    this.#empty.hidden = true;
  }

  /** The focus must not fall out of the dialog with the button that was pressed. */
  remove(row) {
    const next = row.nextElementSibling ?? row.previousElementSibling;
    row.remove();
    this.#empty.hidden = this.#list.childElementCount > 0;
    (next?.querySelector("button") ?? this.#heading).focus();
  }

  focus() {
    this.#heading.focus();
  }
}

/** Says a fault where the person is: the page under the dialog cannot be read. */
function faultLine() {
  return make("p", { className: "bad", role: "alert" });
}

async function askFor(line, method, path) {
  setText(line, "");
  const answer = await ask(method, path);
  if (!answer.ok) setText(line, answer.fault);
  return answer;
}

function item(title, chat, about, openChat, ...buttons) {
  const link = make("p", { className: "of" }, chatLink(chat, openChat));
  return make("li", {}, make("div", {}, make("p", {}, title), about, link, faultLine()), ...buttons);
}

function planRow(plan, rows, openChat) {
  const { chat, id, when, text, next, paused } = plan;
  const about = make("p", { className: "muted" }, paused ? `${when}; paused` : `${when}; next ${moment.format(next)}`);
  const remove = sure("Remove", `Remove the plan ${text}`, async () => {
    const { ok } = await askFor(row.querySelector("[role=alert]"), "DELETE", `/about/${chat}/plans/${id}`);
    if (ok) rows.remove(row);
    return ok;
  });
  const row = item(text, plan, about, openChat, remove);
  return row;
}

function jobRow(job, openChat) {
  const { chat, id, label, state, open, seconds, tokens } = job;
  const describe = (now) => `${STATES[now] ?? now}, ${duration(seconds)}, ${number(tokens)} tokens`;
  const about = make("p", { className: "muted", role: "status" }, describe(state));
  if (!open) return item(label, job, about, openChat);
  const cancel = sure("Cancel", `Cancel ${label}`, async () => {
    const { ok, found } = await askFor(row.querySelector("[role=alert]"), "DELETE", `/about/${chat}/jobs/${id}`);
    const now = ok && found.jobs.find((one) => one.id === id);
    if (ok) setText(about, describe(now?.state ?? "cancelled"));
    if (ok) row.querySelector("a").focus();
    cancel.hidden = ok;
    return ok;
  });
  const row = item(label, job, about, openChat, cancel);
  return row;
}

function memoryRow(memory, openChat) {
  const about = make("p", { className: "muted" }, count(memory.bytes, "byte"));
  const edit = button("Show", () => openChat(memory.chat, true), { ariaLabel: `Show the memory of ${memory.title || "New chat"}` });
  return item(MEMORIES[memory.of], memory, about, openChat, edit);
}
