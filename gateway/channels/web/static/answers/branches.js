/** Branches: chats that begin with the conversation of another one. */

import { addressOf } from "../ui/addresses.js";
import { make } from "../ui/dom.js";
import { chatId } from "../ui/ids.js";

/** Branches that this page has asked for. After a reconnect it asks again, with the same names, so each is made once. */
export class Branches {
  #asked = new Map();
  #send;
  #made;

  /** `send(frame)` returns whether it was sent; `made(id)` is called when the chat is there. */
  constructor(send, made) {
    this.#send = send;
    this.#made = made;
  }

  /** Returns a promise that is kept when the branch is there or was refused. One that is being made is not asked for again. */
  ask(chat, { seq }) {
    for (const { frame, ended } of this.#asked.values()) if (frame.chat === chat.id && frame.seq === seq) return ended;
    const frame = { type: "branch", chat: chat.id, seq, to: chatId() };
    if (!this.#send(frame)) return Promise.resolve();
    const ended = new Promise((end) => this.#asked.set(frame.to, { frame, end }));
    this.#asked.get(frame.to).ended = ended;
    return ended;
  }

  askAgain() {
    for (const { frame } of this.#asked.values()) this.#send(frame);
  }

  /** Rows of the list have come. */
  listed(rows) {
    for (const { chat } of rows) if (this.#end(chat)) this.#made(chat);
  }

  /** The gateway refused something about a chat, which may be its branch. */
  refused(about) {
    for (const [to, { frame }] of this.#asked) if (frame.chat === about) this.#end(to);
  }

  /** Returns whether that branch was asked for. */
  #end(to) {
    this.#asked.get(to)?.end();
    return this.#asked.delete(to);
  }
}

/** A link from a branch to the chat that it began in, for as long as the person has that. */
export function linkToOrigin(chat, pick) {
  const link = make("a", { className: "to-origin", href: addressOf(chat), hidden: true, data: { chat: chat.id } }, "Open that chat");
  link.addEventListener("click", (event) => {
    // With a key or another button the browser opens a tab or a window.
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    pick(chat);
  });
  return link;
}

/** `has(id)` says whether the person has that chat. */
export function paintLinksToOrigin(root, has) {
  for (const link of root.querySelectorAll(".to-origin")) link.hidden = !has(link.dataset.chat);
}
