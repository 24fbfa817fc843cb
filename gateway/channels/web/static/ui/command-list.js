/** The commands that fit what is being typed: a listbox over the composer, worked from the text field. */

import { make } from "./dom.js";

const TYPED = /^\/(\w*)$/;
const WRITTEN = /^\s*\/(\w+)(?:\s|$)/;
/** With more wrong letters than these a short word, or a long one, is another word. */
const SLIPS = { short: 1, long: 2 };
const LONG = 6;

export class CommandList {
  #list;
  #area;
  #commands = [];
  #options = [];
  #active = 0;
  /** Closed by the person; stays so until no command is being typed. */
  #dismissed = false;

  #pick;

  /** `pick(text)` is called with what is to stand in the text field. */
  constructor(list, area, pick) {
    this.#list = list;
    this.#area = area;
    this.#pick = pick;
    // The text field keeps the focus, and on a phone its keyboard.
    list.addEventListener("pointerdown", (event) => event.preventDefault());
    list.addEventListener("click", ({ target }) => {
      const option = target.closest("[role=option]");
      if (option) pick(`/${option.dataset.name} `);
    });
    area.addEventListener("blur", () => this.#show([]));
    area.addEventListener("focus", () => this.typed());
  }

  /** `commands`: the `{name, about}` that the gateway answers. */
  offer(commands) {
    this.#commands = commands;
    this.typed();
  }

  /** Says what is wrong with a text that begins like a command and is none; "" for any other. */
  doubt(text) {
    const word = text.match(WRITTEN)?.[1].toLowerCase();
    if (!word || !this.#commands.length || this.#commands.some(({ name }) => name === word)) return "";
    const near = this.#commands.map(({ name }) => [distance(word, name), name]).sort(([one], [other]) => one - other);
    const [slips, name] = near[0];
    const meant = slips <= (word.length < LONG ? SLIPS.short : SLIPS.long) ? ` Did you mean /${name}?` : "";
    return `There is no command /${word}.${meant} Send it again to say it as a message.`;
  }

  /** The text field has changed. */
  typed() {
    const [, start] = this.#area.value.match(TYPED) ?? [];
    if (start === undefined) this.#dismissed = false;
    const open = start !== undefined && !this.#dismissed && document.activeElement === this.#area;
    this.#show(open ? this.#commands.filter(({ name }) => name.startsWith(start.toLowerCase())) : []);
  }

  /** Handles a key if it belongs to the list; returns whether it did. */
  takes({ key, shiftKey }) {
    if (this.#list.hidden) return false;
    const step = { ArrowDown: 1, ArrowUp: -1 }[key];
    if (step) this.#activate((this.#active + step + this.#options.length) % this.#options.length);
    else if (key === "Escape") this.#dismiss();
    else if (key === "Tab" && !shiftKey) this.#pick(`/${this.#name} `);
    // Written in full it is sent.
    else if (key === "Enter" && !shiftKey && this.#area.value !== `/${this.#name}`) this.#pick(`/${this.#name} `);
    else return false;
    return true;
  }

  get #name() {
    return this.#options[this.#active].dataset.name;
  }

  #dismiss() {
    this.#dismissed = true;
    this.#show([]);
  }

  #show(commands) {
    this.#options = commands.map(({ name, about }, index) => {
      const word = make("span", { className: "word" }, `/${name}`);
      const text = make("span", { className: "about" }, about.replaceAll("`", ""));
      return make("li", { id: `command-${index}`, role: "option", data: { name } }, word, text);
    });
    this.#list.replaceChildren(...this.#options);
    this.#list.hidden = commands.length === 0;
    if (this.#list.hidden) this.#area.removeAttribute("aria-activedescendant");
    else this.#activate(0);
  }

  #activate(index) {
    this.#active = index;
    for (const [at, option] of this.#options.entries()) option.ariaSelected = String(at === index);
    this.#options[index].scrollIntoView({ block: "nearest" });
    this.#area.setAttribute("aria-activedescendant", this.#options[index].id);
  }
}

/** How many letters must be put in, taken out, changed or swapped with the next to make one word of the other. */
function distance(one, other) {
  const rows = [[...Array(other.length + 1).keys()]];
  for (let at = 1; at <= one.length; at++) {
    const row = [at];
    for (let to = 1; to <= other.length; to++) {
      const same = one[at - 1] === other[to - 1] ? 0 : 1;
      row[to] = Math.min(rows[at - 1][to] + 1, row[to - 1] + 1, rows[at - 1][to - 1] + same);
      const swapped = at > 1 && to > 1 && one[at - 1] === other[to - 2] && one[at - 2] === other[to - 1];
      if (swapped) row[to] = Math.min(row[to], rows[at - 2][to - 2] + 1);
    }
    rows.push(row);
  }
  return rows.at(-1).at(-1);
}
