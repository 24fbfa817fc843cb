/** What the newest answer and message offer: answer again, edit, continue. All of it is a command or a message. */

import { make } from "../ui/dom.js";
import { isChoice } from "./entries.js";

const RETRY = "/retry";
const CONTINUE = "Please continue where you stopped.";

/** The command that answers the newest message again, or `text` in its place. */
export function retryWith(text = "") {
  return text ? `${RETRY} ${text}` : RETRY;
}

/** Buttons at the newest answer and at the message that it answers; `able` says that the gateway knows /retry. */
export class Steering {
  #actions;
  #able = false;

  /** `actions`: say(text), edit(text). */
  constructor(actions) {
    this.#actions = actions;
  }

  offer(commands) {
    this.#able = commands.some(({ name }) => name === "retry");
  }

  /** Puts the buttons into the cards of a chat. */
  paint(chat, cards) {
    // The choice of a model, for example, leaves them: its answer is the next one.
    const newest = chat.entries().findLast((entry) => !isChoice(entry));
    const ended = newest?.done && !["command", "notice"].includes(newest.kind) && chat.turn === null;
    const asked = ended ? chat.answeredBy(newest) : [];
    const may = this.#able && asked.length > 0;
    for (const [entry, { node }] of cards) {
      const footer = node.querySelector(":scope > footer");
      const wanted = entry === newest && ended ? this.#ofAnswer(newest, may) : may && entry === asked.at(-1) ? this.#ofMessage(asked) : [];
      const key = wanted.map(({ textContent }) => textContent).join();
      if (!footer || (footer.dataset.steer ?? "") === key) continue;
      for (const old of footer.querySelectorAll(".steer")) old.remove();
      footer.dataset.steer = key;
      const time = footer.querySelector("time");
      for (const button of wanted) footer.insertBefore(button, time);
    }
  }

  #ofAnswer({ kind, unfinished }, may) {
    const again = () => this.#actions.say(retryWith());
    const on = () => this.#actions.say(CONTINUE);
    const cut = kind === "stopped" || unfinished;
    return [...(cut ? [button("Continue", on)] : []), ...(may && kind !== "apology" ? [button("Answer again", again)] : [])];
  }

  #ofMessage(asked) {
    const text = asked.map((entry) => entry.text).filter(Boolean).join("\n\n");
    return [button("Edit", () => this.#actions.edit(text))];
  }
}

function button(label, onclick) {
  return make("button", { type: "button", className: "steer", onclick }, label);
}
