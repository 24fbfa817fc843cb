/** Opens the settings: the button, Ctrl-, and the address `/settings`. What they show is fetched at the first opening. */

import { toast } from "../ui/dom.js";

const PATH = "/settings";

export class SettingsOpener {
  #button = document.querySelector("#open-settings");
  #actions;
  #settings = null;
  #opening = false;
  /** The address of the page wants them: not before the gateway is known to have any. */
  #wanted = location.pathname === PATH ? location.hash.slice(1) || "you" : null;

  /** `actions`: notifier, signOut(), openChat(id, withPanel), home() puts the chat's address back. */
  constructor(actions) {
    this.#actions = actions;
    this.#button.addEventListener("click", () => this.#open());
    addEventListener("keydown", (event) => {
      if (this.#button.hidden || event.key !== "," || !(event.ctrlKey || event.metaKey) || event.altKey) return;
      event.preventDefault();
      if (!document.querySelector("dialog[open]")) this.#open();
    });
    addEventListener("popstate", () => {
      if (location.pathname === PATH) this.#open(location.hash.slice(1), false);
      else this.#settings?.close();
    });
  }

  offer(features) {
    this.#button.hidden = !features.includes("settings");
    if (this.#wanted === null || this.#button.hidden) return;
    this.#open(this.#wanted);
    this.#wanted = null;
  }

  async #open(section = "you", named = true) {
    if (this.#opening || this.#settings?.open) return;
    this.#opening = true;
    try {
      const { Settings } = await import("../settings/settings.js");
      this.#settings ??= await Settings.make({ ...this.#actions, closed: () => this.#closed() });
    } catch {
      return toast("The settings could not be loaded. Is the connection there?");
    } finally {
      this.#opening = false;
    }
    if (named && location.pathname !== PATH) history.pushState(history.state, "", PATH);
    this.#settings.show(section);
  }

  /** In place of the entry, not by going back: that comes late, when a chat may have been opened already. */
  #closed() {
    if (location.pathname === PATH) this.#actions.home();
  }
}
