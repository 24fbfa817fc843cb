/** Where the person writes. */

import { CommandList } from "./command-list.js";
import { setText, toast } from "./dom.js";
import { retryWith } from "../chat/steer.js";
import { drop, read, write } from "./storage.js";

const FINE_POINTER = matchMedia("(pointer: fine)");

export class Composer {
  #form;
  #area;
  #send;
  #stop;
  #queue;
  #commands;
  #attachments;
  #chat = null;
  #turn = null;
  #stopping = false;
  /** A text like a misspelt command, which was not sent at once. */
  #doubted = "";
  /** What is written takes the place of the newest message. */
  #editing = false;
  #edit;

  /**
   * `actions`: send(text, media), stop(), reveal(entry), takeLast() which returns the text of the newest own message
   * for another try; and the `attachments` of the message.
   */
  constructor(root, actions) {
    this.#attachments = actions.attachments;
    this.#form = root.querySelector("#composer");
    this.#area = this.#form.querySelector("textarea");
    this.#send = root.querySelector("#send");
    this.#stop = root.querySelector("#stop");
    this.#queue = root.querySelector("#queue");
    this.#commands = new CommandList(root.querySelector("#commands"), this.#area, (text) => this.#write(text));
    this.#area.addEventListener("input", () => this.#typed());
    this.#area.addEventListener("keydown", (event) => {
      // 229: Safari's Enter that ends a composition.
      if (event.isComposing || event.keyCode === 229) return;
      if (this.#commands.takes(event)) event.preventDefault();
      else if (event.key === "Enter" && !event.shiftKey) {
        event.preventDefault();
        this.#form.requestSubmit();
      } else if (event.key === "Escape" && this.#editing) {
        event.preventDefault();
        this.#endEdit();
        this.#write("");
      } else if (event.key === "Escape" && this.#turn !== null && !this.#stopping) {
        event.preventDefault();
        this.#stop.click();
      } else if (event.key === "ArrowUp" && !this.#area.value && !this.#attachments.ready) {
        const text = actions.takeLast();
        if (text) event.preventDefault();
        if (text) this.#write(text);
      }
    });
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      // Blank lines around go; the indentation of a first line of code stays.
      const text = this.#area.value.replace(/^\s*\n/, "").trimEnd();
      if (this.#attachments.busy) return toast("A file is still being sent; the message can go when it is there.");
      if (!text && !this.#attachments.ready) return;
      const doubt = this.#editing || this.#doubted === text ? "" : this.#commands.doubt(text);
      this.#doubted = doubt && text;
      if (doubt) return toast(doubt);
      this.#write("");
      const words = this.#editing ? retryWith(text) : text;
      this.#endEdit();
      actions.send(words, this.#attachments.take());
    });
    this.#stop.addEventListener("click", () => {
      this.#stopping = true;
      this.#update();
      actions.stop(this.#turn);
    });
    this.#edit = root.querySelector("#editing");
    this.#edit.querySelector("button").addEventListener("click", () => {
      this.#endEdit();
      this.#write("");
      this.focus();
    });
    this.#queue.addEventListener("click", () => actions.reveal(this.#chat.queued[0]));
    root.ownerDocument.addEventListener("keydown", (event) => this.#reach(event));
    root.ownerDocument.querySelector("#skip").addEventListener("click", (event) => {
      event.preventDefault();
      this.#area.focus();
    });
  }

  /** A slash begins a command from anywhere on the page, except where people write something else. */
  #reach({ key, ctrlKey, metaKey, altKey, target }) {
    if (key !== "/" || ctrlKey || metaKey || altKey) return;
    if (target.closest("input, textarea, select, dialog, [role=menu]") || !this.#form.getClientRects().length) return;
    this.#area.focus();
  }

  /** Each chat keeps its own draft, also over a reload. */
  show(chat) {
    this.#chat = chat;
    this.#turn = null;
    this.#endEdit();
    this.#area.value = read(`draft.${chat.id}`) ?? "";
    this.#commands.typed();
    this.#grow();
    this.paint();
  }

  /** Takes the newest message up to be changed: what is sent then is answered in its place. */
  edit(text) {
    this.#editing = true;
    this.#edit.hidden = false;
    this.#write(text);
    this.#area.focus();
  }

  #endEdit() {
    this.#editing = false;
    this.#edit.hidden = true;
  }

  /** Ready to type, except where that would bring up a keyboard over the page. */
  focus() {
    if (FINE_POINTER.matches) this.#area.focus();
  }

  /** The commands that the gateway answers. */
  offer(commands) {
    this.#commands.offer(commands);
  }

  paint() {
    if (this.#turn !== this.#chat.turn) {
      this.#turn = this.#chat.turn;
      this.#stopping = false;
    }
    const waiting = this.#chat.queued;
    this.#queue.hidden = waiting.length === 0;
    if (waiting.length) {
      const count = waiting.length === 1 ? "1 message is waiting" : `${waiting.length} messages are waiting`;
      setText(this.#queue, `${count}: ${waiting[0].text.slice(0, 120)}`);
    }
    this.#update();
  }

  #write(text) {
    this.#area.value = text;
    this.#typed();
  }

  #typed() {
    if (this.#area.value) write(`draft.${this.#chat.id}`, this.#area.value);
    else drop(`draft.${this.#chat.id}`);
    this.#commands.typed();
    this.#grow();
    this.#update();
  }

  /** For browsers whose style sheet cannot do it. */
  #grow() {
    if (CSS.supports("field-sizing", "content")) return;
    this.#area.style.height = "auto";
    this.#area.style.height = `${this.#area.scrollHeight}px`;
  }

  #update() {
    const empty = !this.#area.value.trim() && !this.#attachments.ready;
    const hadFocus = document.activeElement === this.#stop;
    this.#stop.hidden = this.#turn === null;
    this.#stop.disabled = this.#stopping;
    this.#send.hidden = this.#turn !== null && empty;
    this.#send.disabled = empty || this.#attachments.busy;
    if (hadFocus && (this.#stop.hidden || this.#stopping)) this.focus();
  }
}
