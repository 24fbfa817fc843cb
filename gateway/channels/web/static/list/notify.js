/** Tells of answers, reminders and questions while the person looks at something else, if they wish. */

import { setText } from "../ui/dom.js";
import { read, write } from "../ui/storage.js";

const CHARACTERS = 200;

export class Notifier {
  #button;
  #on = false;

  constructor(button) {
    this.#button = button;
    // Browsers have no notifications on pages without TLS, except on this computer.
    button.hidden = !("Notification" in window) || Notification.permission === "denied";
    this.#on = !button.hidden && Notification.permission === "granted" && read("notify") === "1";
    button.addEventListener("click", () => this.toggle());
    this.#paint();
  }

  /** `reveal` puts the chat on the screen when the person follows the notification. */
  tell({ id, title }, text, reveal) {
    if (!this.#on || document.visibilityState === "visible") return;
    const options = { body: text.slice(0, CHARACTERS), icon: "/static/favicon.svg", tag: id };
    const shown = new Notification(title || "Shoal", options);
    shown.onclick = () => {
      window.focus();
      shown.close();
      reveal();
    };
  }

  /** `on` or `off`; `denied` by the browser for this page, or `missing` there. */
  get state() {
    if (!("Notification" in window)) return "missing";
    return Notification.permission === "denied" ? "denied" : this.#on ? "on" : "off";
  }

  async toggle() {
    if (!this.#on && (await Notification.requestPermission()) !== "granted") {
      this.#button.hidden = Notification.permission === "denied";
      return;
    }
    this.#on = !this.#on;
    write("notify", this.#on ? "1" : "0");
    this.#paint();
  }

  #paint() {
    this.#button.setAttribute("aria-pressed", String(this.#on));
    setText(this.#button.querySelector("span"), this.#on ? "Notifications are on" : "Notify me of news");
  }
}
