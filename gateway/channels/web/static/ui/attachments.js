/** Files that go with the next message of a chat: picked, pasted or dropped, and sent ahead while it is written. */

import { icon, make, setText, toast } from "./dom.js";
import { size, upload } from "./media.js";

const PICTURES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);

export class Attachments {
  #list;
  #input;
  #button;
  #changed;
  #lit;
  #chat = null;
  #waiting = new Map();
  #limits = { files: 4, bytes: 10 * 1024 * 1024 };

  /** `changed()` is called when something came, is there, or went; `dropOn` is lit while files are over the page. */
  constructor(root, dropOn, changed) {
    this.#list = root.querySelector("#attachments");
    this.#input = root.querySelector("#files");
    this.#changed = changed;
    this.#button = root.querySelector("#attach");
    this.#button.addEventListener("click", () => this.#input.click());
    this.#input.addEventListener("change", () => {
      this.add(this.#input.files);
      this.#input.value = "";
    });
    root.querySelector("textarea").addEventListener("paste", (event) => {
      if (!event.clipboardData?.files.length) return;
      event.preventDefault();
      this.add(event.clipboardData.files);
    });
    // On the whole page: a file dropped outside the target would make the browser leave the page.
    addEventListener("dragover", (event) => this.#drag(event, true));
    addEventListener("dragleave", (event) => this.#drag(event, false));
    addEventListener("drop", (event) => {
      this.#drag(event, false);
      if (event.dataTransfer?.files.length) this.add(event.dataTransfer.files);
    });
    this.#lit = dropOn;
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
    for (const [index, file] of [...files].entries()) {
      if (this.#files.filter((one) => one.state !== "failed").length >= this.#limits.files) {
        const left = [...files].slice(index).map(({ name }) => name);
        toast(`A message can have ${this.#limits.files} files. Left out: ${left.join(", ")}.`);
        break;
      }
      if (file.size > this.#limits.bytes) toast(`${file.name} is larger than ${size(this.#limits.bytes)}.`);
      else this.#send(this.#chat, file);
    }
  }

  /** Takes the files for a message. What was refused stays until the person takes it off. */
  take() {
    const ready = this.#files.filter((one) => one.state === "ready").map((one) => one.media);
    this.#waiting.set(this.#chat, this.#files.filter((one) => one.state !== "ready"));
    this.#paint();
    return ready;
  }

  #send(chat, file) {
    const one = { file, state: "sending", share: 0, media: null, reason: "" };
    Object.assign(one, this.#item(one));
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
    const at = this.#files.indexOf(one);
    this.#waiting.set(this.#chat, this.#files.filter((other) => other !== one));
    this.#paint();
    const next = this.#files[at] ?? this.#files.at(-1);
    (next?.remove ?? this.#button).focus();
  }

  #drag(event, over) {
    if (![...(event.dataTransfer?.types ?? [])].includes("Files")) return;
    event.preventDefault();
    this.#lit.classList.toggle("dropping", over);
  }

  /** A picture shows itself, any other file its sign. */
  #sign(file) {
    if (!PICTURES.has(file.type)) return icon("file");
    const src = URL.createObjectURL(file);
    const picture = make("img", { className: "thumb", alt: "", src });
    // Once it is drawn, or cannot be, nobody reads the address again.
    picture.onload = () => URL.revokeObjectURL(src);
    picture.onerror = () => {
      URL.revokeObjectURL(src);
      picture.replaceWith(icon("file"));
    };
    return picture;
  }

  /** An item stays the same node, so that the one in focus keeps it. */
  #paint() {
    const wanted = new Set(this.#files.map((one) => one.item));
    for (const item of [...this.#list.children]) if (!wanted.has(item)) item.remove();
    for (const { item, status, file, state, share, reason } of this.#files) {
      if (!item.isConnected) this.#list.append(item);
      item.dataset.state = state;
      if (state === "failed") status.setAttribute("role", "alert");
      setText(status, { sending: `${Math.round(share * 100)} %`, ready: size(file.size), failed: reason }[state]);
    }
    this.#list.hidden = this.#files.length === 0;
    this.#changed();
  }

  #item(one) {
    const { name } = one.file;
    const status = make("span", { className: "muted" });
    const label = `Remove ${name}`;
    const remove = make("button", { type: "button", ariaLabel: label, title: label, onclick: () => this.#remove(one) }, icon("close"));
    const item = make("li", {}, this.#sign(one.file), make("span", { className: "name", title: name }, name), status, remove);
    return { item, status, remove };
  }
}
