/** The settings: a dialog with a section at a time. Each is read again whenever it is looked at. */

import { icon, make } from "../ui/dom.js";
import { read } from "../ui/storage.js";
import { ask, faultNote } from "./ask.js";
import { showInstallation } from "./installation.js";
import { showModels } from "./models.js";
import { showUsage } from "./usage.js";
import { showWork } from "./work.js";
import { showPerson } from "./you.js";

const SECTIONS = {
  you: { title: "You", render: showPerson },
  work: { title: "Your work", render: showWork },
  usage: { title: "Usage", render: showUsage },
  models: { title: "Models", render: showModels },
  installation: { title: "This installation", render: showInstallation, owner: true },
};

export class Settings {
  #actions;
  #dialog;
  #panel = make("div", { id: "settings-panel", role: "tabpanel", tabIndex: 0 });
  #tabs = new Map();

  /** Waits for the style sheet, which is fetched now, too. */
  static async make(actions) {
    const href = new URL("settings.css", import.meta.url).pathname;
    const sheet = make("link", { rel: "stylesheet", href });
    const loaded = new Promise((done, fail) => {
      sheet.onload = done;
      sheet.onerror = fail;
    });
    document.head.append(sheet);
    await loaded;
    return new Settings(actions);
  }

  constructor(actions) {
    this.#actions = actions;
    const owner = read("principal") === "owner";
    for (const [name, { title, owner: restricted }] of Object.entries(SECTIONS)) {
      if (restricted && !owner) continue;
      const tab = make("button", { type: "button", role: "tab", id: `settings-${name}`, onclick: () => this.#select(name) }, title);
      tab.setAttribute("aria-controls", "settings-panel");
      this.#tabs.set(name, tab);
    }
    const tablist = make("div", { role: "tablist", ariaLabel: "Sections" }, ...this.#tabs.values());
    tablist.addEventListener("keydown", (event) => this.#move(event));
    const close = make("button", { type: "button", className: "icon", ariaLabel: "Close", onclick: () => this.close() }, icon("close"));
    const head = make("header", {}, make("h2", { id: "settings-title" }, "Settings"), close);
    this.#dialog = make("dialog", { id: "settings" }, head, tablist, this.#panel);
    this.#dialog.setAttribute("aria-labelledby", "settings-title");
    this.#dialog.addEventListener("click", ({ target }) => target === this.#dialog && this.close());
    this.#dialog.addEventListener("close", () => actions.closed());
    document.body.append(this.#dialog);
  }

  get open() {
    return this.#dialog.open;
  }

  show(section) {
    this.#dialog.showModal();
    const name = this.#tabs.has(section) ? section : "you";
    this.#select(name);
    this.#tabs.get(name).focus();
  }

  close() {
    this.#dialog.close();
  }

  #select(name) {
    for (const [other, tab] of this.#tabs) {
      const chosen = other === name;
      tab.ariaSelected = String(chosen);
      tab.tabIndex = chosen ? 0 : -1;
    }
    this.#panel.setAttribute("aria-labelledby", `settings-${name}`);
    history.replaceState(history.state, "", name === "you" ? "/settings" : `/settings#${name}`);
    this.#panel.scrollTop = 0;
    this.#read(name);
  }

  /** An answer that comes after another section was chosen is not shown. */
  async #read(name) {
    const place = make("div", {}, make("p", { className: "muted", role: "status" }, "Loading …"));
    this.#panel.replaceChildren(place);
    const { ok, found, fault } = await ask("GET", `/settings/${name}`);
    if (!ok) return place.replaceChildren(faultNote(fault, () => this.#readAgain(name)));
    SECTIONS[name].render(place, found, {
      ...this.#actions,
      reload: () => this.#panel.contains(place) && this.#readAgain(name),
      openChat: (...given) => this.#leaveFor(...given),
    });
  }

  /** The button that was pressed goes; the focus must not fall out of the dialog with it. */
  #readAgain(name) {
    this.#panel.focus();
    this.#read(name);
  }

  #leaveFor(chat, withPanel = false) {
    this.#dialog.addEventListener("close", () => this.#actions.openChat(chat, withPanel), { once: true });
    this.close();
  }

  #move(event) {
    const names = [...this.#tabs.keys()];
    const at = names.findIndex((name) => this.#tabs.get(name) === document.activeElement);
    const steps = { ArrowDown: at + 1, ArrowRight: at + 1, ArrowUp: at - 1, ArrowLeft: at - 1, Home: 0, End: names.length - 1 };
    if (!(event.key in steps)) return;
    event.preventDefault();
    const name = names.at(steps[event.key] % names.length);
    this.#select(name);
    this.#tabs.get(name).focus();
  }
}
