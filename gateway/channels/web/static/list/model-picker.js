/** The model of the chat on the screen, chosen among the presets of the operator by `/model`. */

import { make } from "../ui/dom.js";

const USUAL = "default";

export class ModelPicker {
  #select;
  #presets = [];

  /** `choose(name)` is asked for with the name of a preset, or "" for the usual model. */
  constructor(select, choose) {
    this.#select = select;
    select.addEventListener("change", () => choose(select.value));
  }

  /** Presets that the gateway offers; without any there is nothing to choose. */
  offer(presets) {
    this.#presets = presets;
    const options = [["", "Usual model"], ...presets.map((name) => [name, name])];
    this.#select.replaceChildren(...options.map(([value, label]) => make("option", { value }, label)));
    this.#select.hidden = !presets.length;
  }

  paint(chat) {
    const chosen = this.#presets.includes(chat.preset) ? chat.preset : "";
    if (this.#select.value !== chosen) this.#select.value = chosen;
  }
}

/** The command that chooses a model for a chat. */
export function modelCommand(name) {
  return `/model ${name || USUAL}`;
}
