/** What a person does with one answer: rate it, or begin a branch with it. */

import { icon, make, setText } from "../ui/dom.js";

const RATINGS = { up: "Good answer", down: "Bad answer" };
const BRANCH = "Branch from here";

/** Returns whether an entry is an answer of the agent's, to which the tools belong. */
export function isAnswer({ kind, text, done }) {
  return done && Boolean(text) && (kind === "reply" || kind === "stopped");
}

export class AnswerTools {
  #entry;
  #thumbs = new Map();

  /** `actions`: can(feature), rate(entry, rating), branch(entry), a promise. `nodes` are the buttons, as far as the gateway can. */
  constructor(entry, actions) {
    this.#entry = entry;
    const rate = actions.can("rate") ? [this.#rating(actions)] : [];
    this.nodes = [...rate, ...(actions.can("branch") ? this.#branch(actions) : [])];
    this.update();
  }

  update() {
    for (const [rating, button] of this.#thumbs) button.ariaPressed = String(rating === this.#entry.rating);
  }

  #branch(actions) {
    const status = make("span", { className: "unseen", role: "status" });
    const button = tool("branch", "branch", BRANCH, async () => {
      if (button.ariaDisabled === "true") return;
      // Not by disabling: the button would lose the focus.
      button.ariaDisabled = "true";
      setText(status, "Making the branch …");
      await actions.branch(this.#entry);
      button.ariaDisabled = "false";
      setText(status, "");
    });
    return [button, status];
  }

  #rating(actions) {
    for (const [rating, label] of Object.entries(RATINGS)) {
      // Pressed again, it is taken back.
      const press = () => actions.rate(this.#entry, this.#entry.rating === rating ? "" : rating);
      this.#thumbs.set(rating, tool("thumb", rating, label, press));
    }
    return make("span", { className: "rating", role: "group", ariaLabel: "Rate this answer" }, ...this.#thumbs.values());
  }
}

function tool(symbol, name, label, onclick) {
  const properties = { type: "button", className: `tool quiet ${name}`, title: label, ariaLabel: label, onclick };
  return make("button", properties, icon(symbol));
}
