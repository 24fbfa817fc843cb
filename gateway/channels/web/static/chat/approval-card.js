/** A question whether a tool may run: all that would run, two buttons, how long there is time, and what came of it. */

import { icon, make, setText, timestamp } from "../ui/dom.js";

const TICK_MS = 1_000;
/** A longer card names its size, so that whoever scrolls knows when the end is reached. */
const LONG_LINES = 12;
const LONG_CHARACTERS = 1_000;

export class ApprovalCard {
  #entry;
  #actions;
  #left = make("span", { className: "left" });
  #outcome = make("p", { className: "outcome", role: "status" });
  #buttons;
  #timer = null;

  /** `actions`: approve(entry, yes). */
  constructor(entry, actions) {
    this.#entry = entry;
    this.#actions = actions;
    const after = entry.sources.length > 0 ? `After reading ${entry.sources.join(", ")}: may I run ` : "May I run ";
    const title = make("p", { className: "question" }, icon("alert"), make("span", {}, after, make("code", {}, entry.tool), " with exactly this?"));
    this.#buttons = make("div", { className: "buttons", role: "group", ariaLabel: `May ${entry.tool} run?` },
      make("button", { type: "button", className: "yes", onclick: () => this.#press(true) }, "Yes"),
      make("button", { type: "button", className: "no", onclick: () => this.#press(false) }, "No"),
      this.#left);
    this.node = make("article", { className: "card approval", ariaLabel: "Shoal asks" },
      title, ...this.#whole(entry.arguments), this.#buttons, this.#outcome,
      make("footer", {}, timestamp(entry.at)));
    Object.assign(this.node.dataset, { seq: entry.seq, turn: entry.turn, call: entry.call });
    this.node.addEventListener("keydown", (event) => this.#key(event));
    this.update();
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
    setText(this.#left, state === "open" ? `${this.#span(entry.expiresAt - Date.now())} left` : "");
    if (state === "open") this.#timer ??= setInterval(() => this.#tick(), TICK_MS);
    else this.#rest();
  }

  #outcomeText(state) {
    switch (state) {
      case "yes": return "You said yes.";
      case "no": return "You said no: it did not run.";
      case "expired": return "Nobody answered in time: it did not run.";
      case "over": return "Not asked any more.";
      default: return "";
    }
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

  #press(yes) {
    if (this.node.dataset.state !== "open" || this.#entry.sent) return;
    this.#actions.approve(this.#entry, yes);
  }
}
