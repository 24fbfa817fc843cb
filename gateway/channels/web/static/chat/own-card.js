/** A message of the person's, with its state of delivery. */

import { icon, make, setText, timestamp } from "../ui/dom.js";
import { mediaList } from "../ui/media.js";

const LONG_CHARACTERS = 1_800;
const LONG_LINES = 24;

export class OwnCard {
  #entry;
  #actions;
  #text = make("div", { className: "text", dir: "auto" });
  #meta = make("footer");

  /** `actions`: retry(entry), discard(entry), withdraw(entry). */
  constructor(entry, actions) {
    this.#entry = entry;
    this.#actions = actions;
    this.#text.textContent = entry.text;
    this.#text.hidden = !entry.text;
    const properties = { className: "card own", ariaLabel: "You", data: { id: entry.id } };
    this.node = make("article", properties, ...mediaList(entry.media), this.#text, this.#meta);
    if (entry.text.length > LONG_CHARACTERS || entry.text.split("\n").length > LONG_LINES) this.#fold();
    this.update();
  }

  update() {
    const entry = this.#entry;
    this.node.dataset.state = entry.withdrawn ? "withdrawn" : entry.state;
    if (entry.seq) this.node.dataset.seq = entry.seq;
    // The gateway may write another text than was sent: what `/retry` answers again.
    setText(this.#text, entry.text);
    this.#text.hidden = !entry.text;
    this.node.classList.toggle("replaced", entry.replaced);
    delete this.#meta.dataset.steer;
    this.#meta.replaceChildren(...this.#status(entry));
  }

  #status(entry) {
    if (entry.state === "sending") return [make("span", { className: "status" }, "Sending…")];
    if (entry.state === "failed") {
      return [
        make("span", { className: "status", role: "alert" }, icon("alert"), `Not sent. ${entry.reason}`),
        make("button", { type: "button", className: "link", onclick: () => this.#actions.retry(entry) }, "Try again"),
        make("button", { type: "button", className: "link", onclick: () => this.#actions.discard(entry) }, "Discard"),
      ];
    }
    if (entry.replaced) return [timestamp(entry.at), make("span", { className: "status" }, "Replaced")];
    if (entry.withdrawn) return [timestamp(entry.at), make("span", { className: "status" }, "Withdrawn")];
    if (entry.dropped) return [timestamp(entry.at), make("span", { className: "status" }, "Not answered")];
    const where = entry.ahead > 0 ? `Received, ${entry.ahead} ahead of you` : "";
    const tick = make("span", { className: "status", title: "Received" }, icon("check"), where);
    if (!where) tick.append(make("span", { className: "unseen" }, "Received"));
    if (!where) return [timestamp(entry.at), tick];
    const withdraw = () => this.#actions.withdraw(entry);
    return [
      timestamp(entry.at), tick,
      make("button", { type: "button", className: "link", onclick: withdraw }, "Withdraw"),
    ];
  }

  #fold() {
    const toggle = make("button", { type: "button", className: "link unfold", ariaExpanded: "false" }, "Show all");
    toggle.addEventListener("click", () => {
      const folded = this.#text.classList.toggle("folded");
      toggle.ariaExpanded = String(!folded);
      toggle.textContent = folded ? "Show all" : "Show less";
    });
    this.#text.classList.add("folded");
    this.#text.after(toggle);
  }
}
