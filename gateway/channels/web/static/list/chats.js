/** The side list of chats; on a narrow screen a drawer. */

import { addressOf } from "../ui/addresses.js";
import { icon, make, setText, shortTime } from "../ui/dom.js";
import { openMenu } from "../ui/menu.js";
import { groupsOf } from "./groups.js";

const NARROW = matchMedia("(max-width: 760px)");

export class ChatList {
  #root;
  #conversations;
  #actions;
  #rows = new Map();
  #groups = new Map();
  /** The gateway can rename, pin and delete chats. */
  #kept = false;
  #exported = false;

  /** `actions`: pick(chat), rename(chat, title), pin(chat, pinned), save(chat, form), remove(chat). */
  constructor(root, conversations, actions) {
    this.#root = root;
    this.#conversations = conversations;
    this.#actions = actions;
  }

  /** Offers what the gateway can do with chats. */
  offer(features) {
    this.#kept = features.includes("chats");
    this.#exported = features.includes("export");
    this.#root.classList.toggle("kept", this.#kept);
  }

  paint() {
    const groups = groupsOf(this.#conversations.list());
    const shown = new Set(groups.flatMap(([, chats]) => chats));
    for (const [chat, row] of this.#rows) {
      if (shown.has(chat)) continue;
      row.item.remove();
      this.#rows.delete(chat);
    }
    let above = null;
    for (const [name, chats] of groups) {
      const group = this.#group(name);
      above = put(this.#root, group.section, above);
      let upper = null;
      for (const chat of chats) upper = put(group.list, this.#row(chat).item, upper);
    }
    for (const [name, { section, list }] of this.#groups) {
      if (list.childElementCount) continue;
      section.remove();
      this.#groups.delete(name);
    }
  }

  #group(name) {
    if (!this.#groups.has(name)) {
      const list = make("ul");
      this.#groups.set(name, { section: make("section", { ariaLabel: name }, make("h2", {}, name), list), list });
    }
    return this.#groups.get(name);
  }

  #row(chat) {
    const row = this.#rows.get(chat) ?? this.#make(chat);
    const unread = this.#conversations.unread(chat);
    const running = this.#conversations.running(chat);
    const asks = chat.asks && chat !== this.#conversations.current;
    const title = chat.title || "New chat";
    setText(row.title, title);
    setText(row.time, chat.at ? shortTime(chat.at) : "");
    setText(row.note, asks ? "needs your yes" : running ? "answering" : unread ? "unread" : "");
    if (row.menu.ariaLabel !== `Actions for ${title}`) row.menu.ariaLabel = `Actions for ${title}`;
    row.item.classList.toggle("asks", asks);
    row.item.classList.toggle("running", running && !asks);
    row.item.classList.toggle("unread", unread);
    if (chat === this.#conversations.current) row.link.setAttribute("aria-current", "page");
    else row.link.removeAttribute("aria-current");
    return row;
  }

  #make(chat) {
    const title = make("span", { className: "title" });
    const time = make("span", { className: "time" });
    const note = make("span", { className: "unseen" });
    const dot = make("span", { className: "dot", ariaHidden: "true" });
    const link = make("a", { className: "chat", href: addressOf(chat) }, title, note, dot, time);
    link.addEventListener("click", (event) => {
      // With a key or another button the browser opens a tab or a window.
      if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
      event.preventDefault();
      this.#actions.pick(chat);
    });
    const properties = { type: "button", className: "more", ariaHasPopup: "menu", ariaExpanded: "false" };
    const menu = make("button", { ...properties, onclick: () => this.#open(chat, row) }, icon("more"));
    const row = { item: make("li", { data: { chat: chat.id } }, link, menu), link, menu, title, time, note };
    this.#rows.set(chat, row);
    return row;
  }

  #open(chat, row) {
    if (row.menu.ariaExpanded === "true") return;
    const exports = [["md", "Markdown"], ["json", "JSON"]].map(([form, name]) => (
      { label: `Save as ${name}`, symbol: "export", action: () => this.#actions.save(chat, form) }
    ));
    openMenu(row.menu, "Chat", [
      { label: "Rename", symbol: "edit", action: () => this.#rename(chat, row) },
      { label: chat.pinned ? "Unpin" : "Pin", symbol: "pin", action: () => this.#actions.pin(chat, !chat.pinned) },
      ...(this.#exported ? exports : []),
      { label: "Delete", symbol: "delete", danger: true, action: () => this.#actions.remove(chat) },
    ]);
  }

  /** Writes the title in its row: Enter or leaving keeps it, Escape does not. */
  #rename(chat, row) {
    const input = make("input", { className: "rename", value: chat.title, maxLength: 120, ariaLabel: "Title of the chat" });
    let done = false;
    const end = (keep) => {
      if (done) return;
      done = true;
      const title = input.value.trim();
      const had = input.contains(document.activeElement);
      input.replaceWith(row.link);
      if (had) row.link.focus();
      if (keep && title && title !== chat.title) this.#actions.rename(chat, title);
    };
    input.addEventListener("keydown", (event) => {
      if (event.isComposing || (event.key !== "Enter" && event.key !== "Escape")) return;
      event.preventDefault();
      event.stopPropagation();
      end(event.key === "Enter");
    });
    input.addEventListener("blur", () => end(true));
    row.link.replaceWith(input);
    input.focus();
    input.select();
  }
}

/** Puts a node below another one of its parent, unless it is there already. Returns the node. */
function put(parent, node, above) {
  const place = above ? above.nextSibling : parent.firstChild;
  if (place !== node) parent.insertBefore(node, place);
  return node;
}

/** Opens and closes the drawer; the page under it cannot be reached while it is open. */
export class Drawer {
  #side = document.querySelector("#side");
  #main = document.querySelector("#app main");
  #opener = document.querySelector("#open-side");

  constructor() {
    this.#opener.addEventListener("click", () => this.#set(true));
    document.querySelector("#close-side").addEventListener("click", () => this.close());
    document.querySelector("#scrim").addEventListener("click", () => this.close());
    addEventListener("keydown", (event) => event.key === "Escape" && this.close());
    NARROW.addEventListener("change", () => this.#set(false));
    this.#set(false);
  }

  close() {
    if (!document.body.classList.contains("drawer")) return;
    this.#set(false);
    this.#opener.focus();
  }

  #set(open) {
    document.body.classList.toggle("drawer", open);
    this.#side.inert = NARROW.matches && !open;
    this.#main.inert = open;
    this.#opener.ariaExpanded = String(open);
    if (open) document.querySelector("#close-side").focus();
  }
}
