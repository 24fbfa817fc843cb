/** A question whether a tool may run: what exactly, two buttons, how long there is time, and what came of it. */

import { icon, make, setText, timestamp } from "../ui/dom.js";

const TICK_MS = 1_000;

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
    const title = make("p", { className: "question" }, icon("alert"), "May I run ", make("code", {}, entry.tool), " with exactly this?");
    this.#buttons = make("div", { className: "buttons", role: "group", ariaLabel: `May ${entry.tool} run?` },
      make("button", { type: "button", className: "yes", onclick: () => this.#press(true) }, "Yes"),
      make("button", { type: "button", className: "no", onclick: () => this.#press(false) }, "No"),
      this.#left);
    this.node = make("article", { className: "card approval", ariaLabel: "Shoal asks" },
      title, make("pre", { tabIndex: 0, dir: "ltr" }, entry.arguments), this.#buttons, this.#outcome,
      make("footer", {}, timestamp(entry.at)));
    Object.assign(this.node.dataset, { seq: entry.seq, turn: entry.turn, call: entry.call });
    this.node.addEventListener("keydown", (event) => this.#key(event));
    this.update();
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
