/** A question whether a tool may run: all that would run, two buttons, how long there is time, and what came of it. */

import { icon, make, setText, timestamp } from "../ui/dom.js";

const TICK_MS = 1_000;
/** A longer card names its size, so that whoever scrolls knows when the end is reached. */
const LONG_LINES = 12;
const LONG_CHARACTERS = 1_000;
/** Where an answer was given, when it was not here. */
const WHERE = { page: " on the page", phone: " on a phone", terminal: " in a terminal", web: " on the page", api: " over the API" };

export class ApprovalCard {
  #entry;
  #actions;
  #left = make("span", { className: "left" });
  #outcome = make("p", { className: "outcome", role: "status" });
  #takeBack = make("button", { type: "button", className: "take-back", onclick: () => this.#askAgain() }, "Ask again from now on");
  #buttons;
  #timer = null;

  /** `actions`: approve(entry, yes, always), takeBack(entry). */
  constructor(entry, actions) {
    this.#entry = entry;
    this.#actions = actions;
    const after = entry.sources.length > 0 ? `After reading ${entry.sources.join(", ")}: may I run ` : "May I run ";
    const title = make("p", { className: "question" }, icon("alert"), make("span", {}, after, make("code", {}, entry.tool), " with exactly this?"));
    this.#buttons = make("div", { className: "buttons", role: "group", ariaLabel: `May ${entry.tool} run?` },
      // Only a call that is known to change nothing is invited to be allowed.
      make("button", { type: "button", className: entry.safe ? "yes first" : "yes", onclick: () => this.#press(true) }, "Yes"),
      make("button", { type: "button", className: "no", onclick: () => this.#press(false) }, "No"),
      ...(entry.standing ? [this.#alwaysButton()] : []),
      this.#left);
    this.node = make("article", { className: "card approval", ariaLabel: "Shoal asks" },
      title, ...this.#whole(entry.arguments), ...this.#touches(entry.touches), this.#buttons, this.#outcome, this.#takeBack,
      make("footer", {}, timestamp(entry.at)));
    Object.assign(this.node.dataset, { seq: entry.seq, turn: entry.turn, call: entry.call });
    this.node.addEventListener("keydown", (event) => this.#key(event));
    this.update();
  }

  #alwaysButton() {
    const covers = this.#entry.tool === "exec" ? "this same command" : `every ${this.#entry.tool}`;
    const title = `A yes to ${covers} from now on, in this chat. /always lists it and takes it back.`;
    return make("button", { type: "button", className: "always", title, onclick: () => this.#press(true, true) }, "Always in this chat");
  }

  /** What the call reaches, as far as that is sure: `label: value` each. */
  #touches(touches) {
    if (!touches.length) return [];
    const parts = touches.map((one) => {
      const at = one.indexOf(": ");
      return make("span", {}, make("dt", {}, one.slice(0, at)), make("dd", {}, one.slice(at + 2)));
    });
    return [make("dl", { className: "touches", ariaLabel: "What it touches" }, ...parts)];
  }

  /** All of it, a number at each line: a long line that goes on below does not look like another one. */
  #whole(text) {
    const lines = text.split("\n");
    const characters = [...text].length;
    const shown = make("pre", { tabIndex: 0, dir: "ltr", ariaLabel: "What would run" },
      ...lines.map((line) => make("span", { className: "line" }, `${line}\n`)));
    if (lines.length <= LONG_LINES && characters <= LONG_CHARACTERS) return [shown];
    const size = `${lines.length.toLocaleString("en")} lines, ${characters.toLocaleString("en")} characters: scroll to read all of it`;
    return [make("p", { className: "size" }, size), shown];
  }

  update() {
    const entry = this.#entry;
    const late = entry.state === "open" && Date.now() >= entry.expiresAt;
    const state = late ? "expired" : entry.state;
    this.node.dataset.state = state;
    this.#buttons.hidden = state !== "open";
    for (const button of this.#buttons.querySelectorAll("button")) button.disabled = entry.sent;
    setText(this.#outcome, this.#outcomeText(state));
    this.#takeBack.hidden = state !== "yes" || !entry.answer?.standing || entry.takenBack;
    setText(this.#left, state === "open" ? `${this.#span(entry.expiresAt - Date.now())} left` : "");
    if (state === "open") this.#timer ??= setInterval(() => this.#tick(), TICK_MS);
    else this.#rest();
  }

  #askAgain() {
    this.#entry.takenBack = true;
    this.#takeBack.hidden = true;
    this.#actions.takeBack(this.#entry);
  }

  #outcomeText(state) {
    switch (state) {
      case "yes": return `${this.#said("yes")}${this.#entry.answer?.standing ? " From now on I do not ask about this in this chat." : ""}`;
      case "no": return `${this.#said("no").slice(0, -1)}: it did not run.`;
      case "expired": return "Nobody answered in time: it did not run.";
      case "over": return "Not asked any more.";
      default: return "";
    }
  }

  /** Who answered, and on which other device. */
  #said(word) {
    const { here, answer } = this.#entry;
    const who = answer?.by_name || "You";
    const where = here ? "" : WHERE[answer?.where] ?? (answer?.where ? ` in ${answer.where}` : "");
    return `${who} said ${word}${where}.`;
  }

  #span(ms) {
    const seconds = Math.max(0, Math.ceil(ms / 1000));
    return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
  }

  #tick() {
    if (this.node.isConnected) this.update();
    else this.#rest();
  }

  #rest() {
    clearInterval(this.#timer);
    this.#timer = null;
  }

  #key(event) {
    const yes = { y: true, n: false }[event.key.toLowerCase()];
    if (yes === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.#press(yes);
  }

  #press(yes, always = false) {
    if (this.node.dataset.state !== "open" || this.#entry.sent) return;
    this.#actions.approve(this.#entry, yes, always);
  }
}
