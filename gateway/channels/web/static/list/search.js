/** The search in all chats: Ctrl-K or the button. */

import { addressOf } from "../ui/addresses.js";
import { make, shortTime } from "../ui/dom.js";

const TYPING_MS = 200;

export class Search {
  #dialog = document.querySelector("#search");
  #button = document.querySelector("#find");
  #input = this.#dialog.querySelector("input");
  #status = this.#dialog.querySelector("p");
  #list = this.#dialog.querySelector("ul");
  #ask;
  #pick;
  #timer = null;

  /** `ask(text)` sends a search, whose answer comes to `show`; `pick(id)` opens a chat. */
  constructor(ask, pick) {
    this.#ask = ask;
    this.#pick = pick;
    this.#button.addEventListener("click", () => this.#open());
    addEventListener("keydown", (event) => {
      if (this.#button.hidden || event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.shiftKey) return;
      event.preventDefault();
      this.#open();
    });
    this.#input.addEventListener("input", () => {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.#typed(), TYPING_MS);
    });
    this.#dialog.addEventListener("keydown", (event) => this.#move(event));
    this.#dialog.addEventListener("click", ({ target }) => target === this.#dialog && this.#dialog.close());
  }

  offer(features) {
    this.#button.hidden = !features.includes("search");
  }

  show({ text, chats, whole }) {
    if (text !== this.#input.value.trim()) return;
    this.#list.replaceChildren(...chats.map((found) => this.#row(found)));
    const count = chats.length === 1 ? "1 chat" : `${chats.length} chats`;
    this.#status.textContent = `${count}${whole ? "" : "; there may be more: search for a longer text"}`;
  }

  #row({ chat: id, title, at, excerpt }) {
    const head = make("span", { className: "title" }, title || "New chat");
    const link = make("a", { href: addressOf({ id }) }, head, make("span", { className: "time" }, shortTime(at)));
    if (excerpt) link.append(make("span", { className: "excerpt" }, excerpt));
    link.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
      event.preventDefault();
      this.#dialog.close();
      this.#pick(id);
    });
    return make("li", {}, link);
  }

  #open() {
    if (this.#dialog.open) return;
    this.#dialog.showModal();
    this.#input.select();
  }

  #typed() {
    const text = this.#input.value.trim();
    if (text) return this.#ask(text);
    this.#list.replaceChildren();
    this.#status.textContent = "";
  }

  /** The arrows go through the results; Enter in the field opens the first one. */
  #move(event) {
    const links = [...this.#list.querySelectorAll("a")];
    const at = links.indexOf(document.activeElement);
    // In a search field the browser's Escape only empties it.
    if (event.key === "Escape") this.#dialog.close();
    else if (event.key === "ArrowDown") links[at + 1]?.focus();
    else if (event.key === "ArrowUp") (links[at - 1] ?? this.#input).focus();
    else if (event.key === "Enter" && at < 0 && !event.isComposing) links[0]?.click();
    else return;
    event.preventDefault();
  }
}
