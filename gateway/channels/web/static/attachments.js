/** Files that go with the next message of a chat: picked, pasted or dropped, and sent ahead while it is written. */

import { icon, make, toast } from "./dom.js";
import { size, upload } from "./media.js";

export class Attachments {
  #list;
  #input;
  #changed;
  #chat = null;
  #waiting = new Map();
  #limits = { files: 4, bytes: 10 * 1024 * 1024 };

  /** `changed()` is called when something came, is there, or went. */
  constructor(root, dropOn, changed) {
    this.#list = root.querySelector("#attachments");
    this.#input = root.querySelector("#files");
    this.#changed = changed;
    root.querySelector("#attach").addEventListener("click", () => this.#input.click());
    this.#input.addEventListener("change", () => {
      this.add(this.#input.files);
      this.#input.value = "";
    });
    root.querySelector("textarea").addEventListener("paste", (event) => {
      if (!event.clipboardData?.files.length) return;
      event.preventDefault();
      this.add(event.clipboardData.files);
    });
    dropOn.addEventListener("dragover", (event) => this.#drag(event, true));
    dropOn.addEventListener("dragleave", (event) => this.#drag(event, false));
    dropOn.addEventListener("drop", (event) => {
      this.#drag(event, false);
      if (event.dataTransfer?.files.length) this.add(event.dataTransfer.files);
    });
    this.dropOn = dropOn;
  }

  limit(files, bytes) {
    if (files) this.#limits = { files, bytes };
  }

  show(chat) {
    this.#chat = chat;
    this.#paint();
  }

  get #files() {
    return this.#waiting.get(this.#chat) ?? [];
  }

  /** Whether a file is still on its way. */
  get busy() {
    return this.#files.some((one) => one.state === "sending");
  }

  get ready() {
    return this.#files.some((one) => one.state === "ready");
  }

  add(files) {
    for (const file of files) {
      if (this.#files.length >= this.#limits.files) {
        toast(`A message can have ${this.#limits.files} files.`);
        break;
      }
      if (file.size > this.#limits.bytes) toast(`${file.name} is larger than ${size(this.#limits.bytes)}.`);
      else this.#send(this.#chat, file);
    }
  }

  /** Takes the files for a message. */
  take() {
    const ready = this.#files.filter((one) => one.state === "ready").map((one) => one.media);
    this.#waiting.delete(this.#chat);
    this.#paint();
    return ready;
  }

  #send(chat, file) {
    const one = { file, state: "sending", share: 0, media: null, reason: "" };
    const sending = upload(chat.id, file, (share) => {
      one.share = share;
      this.#paint();
    });
    one.stop = sending.stop;
    this.#waiting.set(chat, [...(this.#waiting.get(chat) ?? []), one]);
    sending.done.then(
      (media) => Object.assign(one, { media, state: "ready" }),
      ({ message }) => Object.assign(one, { state: "failed", reason: message }),
    ).then(() => this.#paint());
    this.#paint();
  }

  #remove(one) {
    one.stop();
    this.#waiting.set(this.#chat, this.#files.filter((other) => other !== one));
    this.#paint();
  }

  #drag(event, over) {
    if (![...(event.dataTransfer?.types ?? [])].includes("Files")) return;
    event.preventDefault();
    this.dropOn.classList.toggle("dropping", over);
  }

  #paint() {
    this.#list.replaceChildren(...this.#files.map((one) => this.#item(one)));
    this.#list.hidden = this.#files.length === 0;
    this.#changed();
  }

  #item(one) {
    const { file, state, share, reason } = one;
    const told = { sending: `${Math.round(share * 100)} %`, ready: size(file.size), failed: reason }[state];
    const status = make("span", { className: "muted", role: state === "failed" ? "alert" : "status" }, told);
    const label = `Remove ${file.name}`;
    const remove = make("button", { type: "button", ariaLabel: label, title: label, onclick: () => this.#remove(one) }, icon("close"));
    return make("li", { data: { state } }, icon("file"), make("span", { className: "name" }, file.name), status, remove);
  }
}
