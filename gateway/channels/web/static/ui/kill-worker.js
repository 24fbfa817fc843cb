/** The button that kills the worker of the answer being written: in the demo, for its owner. */

import { make, setText, icon } from "./dom.js";

/** A click shows, even when the next worker takes over before it could be seen. */
const PRESSED_MS = 600;

export class KillWorker {
  #offered = false;
  #node = make("button", { type: "button", id: "kill-worker", hidden: true, title: "As kill -9 does. The answer goes on." },
    icon("kill"), make("span", {}, "Kill the worker"));

  constructor(dock, kill) {
    dock.prepend(this.#node);
    this.#node.addEventListener("click", () => {
      kill();
      this.#say("Killed");
      setTimeout(() => this.#say("Kill the worker"), PRESSED_MS);
    });
  }

  offer(offered) {
    this.#offered = offered;
  }

  /** `working`: a worker is at work in the chat on the screen. */
  paint(working) {
    this.#node.hidden = !(this.#offered && working);
  }

  #say(text) {
    setText(this.#node.lastChild, text);
  }
}
