/** The side list of chats; on a narrow screen a drawer. */

import { make, setText, shortTime } from "../ui/dom.js";

const NARROW = matchMedia("(max-width: 760px)");

export class ChatList {
  #list;
  #conversations;
  #pick;
  #rows = new Map();

  /** `pick(chat)` is called when a chat is chosen. */
  constructor(list, conversations, pick) {
    this.#list = list;
    this.#conversations = conversations;
    this.#pick = pick;
  }

  paint() {
    let above = null;
    for (const chat of this.#conversations.list()) {
      const row = this.#row(chat);
      const place = above ? above.nextSibling : this.#list.firstChild;
      if (place !== row.item) this.#list.insertBefore(row.item, place);
      above = row.item;
    }
  }

  #row(chat) {
    const row = this.#rows.get(chat) ?? this.#make(chat);
    const unread = this.#conversations.unread(chat);
    const running = this.#conversations.running(chat);
    setText(row.title, chat.title || "New chat");
    setText(row.time, chat.at ? shortTime(chat.at) : "");
    setText(row.note, running ? "answering" : unread ? "unread" : "");
    row.item.classList.toggle("running", running);
    row.item.classList.toggle("unread", unread);
    if (chat === this.#conversations.current) row.button.setAttribute("aria-current", "true");
    else row.button.removeAttribute("aria-current");
    return row;
  }

  #make(chat) {
    const title = make("span", { className: "title" });
    const time = make("span", { className: "time" });
    const note = make("span", { className: "unseen" });
    const dot = make("span", { className: "dot", ariaHidden: "true" });
    const button = make("button", { type: "button", onclick: () => this.#pick(chat) }, title, note, dot, time);
    const row = { item: make("li", { data: { chat: chat.id } }, button), button, title, time, note };
    this.#rows.set(chat, row);
    return row;
  }
}

/** Opens and closes the drawer; the page under it cannot be reached while it is open. */
export class Drawer {
  #side = document.querySelector("#side");
  #main = document.querySelector("main");
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
