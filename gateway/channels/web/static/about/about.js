/** The panel about the chat on the screen: what is planned, what runs in the background, the memory, the files. */

import { copyButton } from "../ui/code-box.js";
import { make, moment, setText, toast } from "../ui/dom.js";
import { mediaList } from "../ui/media.js";
import { read } from "../ui/storage.js";

const AWAY = "That could not be done just now. Please try again in a moment.";
const SURE_MS = 4_000;
const WHOSE = { chat: "this chat", person: "you, in all your chats", everybody: "everybody who talks to me" };
export const STATES = { queued: "waiting", ok: "done", timeout: "out of time", poison: "failed" };

export class About {
  #dialog = document.querySelector("#about");
  #button = document.querySelector("#open-about");
  #offered = false;
  #chat = null;

  constructor() {
    this.#dialog.querySelector("#close-about").addEventListener("click", () => this.#dialog.close());
    this.#dialog.addEventListener("click", ({ target }) => target === this.#dialog && this.#dialog.close());
    this.#button.addEventListener("click", () => this.open());
  }

  offer(features) {
    this.#offered = features.includes("about");
  }

  /** Nothing can be said of a chat without a message. */
  paint(chat) {
    this.#chat = chat;
    this.#button.hidden = !this.#offered || chat.empty;
  }

  async open(chat = this.#chat) {
    this.#chat = chat;
    this.#show({});
    this.#dialog.showModal();
    await this.#ask("GET", "");
  }

  /** Every answer, also to a change, is what is so now. */
  async #ask(method, path, body) {
    const headers = { Authorization: `Bearer ${read("token")}` };
    const chat = this.#chat;
    const answer = await fetch(`/about/${chat.id}${path}`, { method, headers, body: body && JSON.stringify(body) }).catch(() => null);
    const found = await answer?.json().catch(() => null);
    if (answer?.ok && found) {
      if (chat === this.#chat) this.#show(found);
      return true;
    }
    toast(found?.detail ?? AWAY);
    return false;
  }

  #show({ plans, jobs, memory, files, share }) {
    const parts = [
      ["Plans", plans && this.#plans(plans)],
      ["In the background", jobs && this.#jobs(jobs)],
      ["Memory", memory && this.#memory(memory)],
      ["Files", files && this.#files(files)],
      ["Share", share && this.#share(share)],
    ];
    const sections = parts.map(([title, rows]) => make("section", {}, make("h3", {}, title), ...(rows ?? [none("Loading …")])));
    this.#dialog.querySelector("#about-parts").replaceChildren(...sections);
  }

  #plans(plans) {
    if (!plans.length) return [none("Nothing is planned. Ask for a reminder, or for something every morning.")];
    return [
      make("ul", {}, ...plans.map(({ id, when, text, next, paused }) => {
        const about = paused ? `${when}; paused` : `${when}; next ${moment.format(next)}`;
        return row(text, about, sure("Remove", `Remove the plan ${text}`, () => this.#ask("DELETE", `/plans/${id}`)));
      })),
    ];
  }

  #jobs(jobs) {
    if (!jobs.length) return [none("Nothing runs, and nothing ended within the last hour.")];
    return [
      make("ul", {}, ...jobs.map(({ id, label, state, open, seconds, rounds, tokens }) => {
        const age = seconds < 120 ? `${seconds} s` : `${Math.round(seconds / 60)} min`;
        const about = `${STATES[state] ?? state}, ${age}, ${rounds} model ${rounds === 1 ? "call" : "calls"}, ${tokens} tokens`;
        const cancel = () => this.#ask("DELETE", `/jobs/${id}`);
        return row(label, about, ...(open ? [sure("Cancel", `Cancel ${label}`, cancel)] : []));
      })),
    ];
  }

  #memory({ text, version, of, writable, history }) {
    const notes = history ? ` There ${history === 1 ? "is 1 note" : `are ${history} notes`} of earlier conversations: /memory search finds them.` : "";
    const note = make("p", { className: "muted" }, `What I remember of ${WHOSE[of]}.${notes}`);
    if (!writable) return [note, make("pre", { tabIndex: 0 }, text || "Nothing yet.")];
    const save = make("button", { type: "submit", className: "primary", disabled: true }, "Save");
    const field = make("textarea", { value: text, rows: text ? 10 : 4, dir: "auto", ariaLabel: "Memory", placeholder: "Nothing yet." });
    const form = make("form", {}, field, save);
    field.addEventListener("input", () => { save.disabled = field.value === text; });
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      save.disabled = true;
      if (await this.#ask("PUT", "/memory", { text: field.value, version })) this.#tellSaved();
      else save.disabled = false;
    });
    return [note, form];
  }

  /** In the form that the answer has put in the place of the one that was sent. */
  #tellSaved() {
    const form = this.#dialog.querySelector("form");
    form.append(make("p", { className: "muted", role: "status" }, "Saved. I know it from your next message on."));
    form.querySelector("textarea").focus();
  }

  #share({ days, path, until }) {
    if (!days) return [none("Sharing is off here.")];
    const make_ = () => this.#ask("POST", "/share");
    if (!path) {
      const about = `Whoever gets the link reads this chat as it is now, with its files, for ${count(days, "day")}; nothing that comes later.`;
      return [none(about), make("button", { type: "button", className: "primary", onclick: make_ }, "Make a link")];
    }
    const field = make("input", { value: location.origin + path, readOnly: true, ariaLabel: "Link", onfocus: () => field.select() });
    const again = make("button", { type: "button", onclick: make_ }, "Renew");
    again.title = "A new link, to the chat as it is now; the one before ends";
    const buttons = [copyButton(() => field.value, "Copy"), again, sure("End", "End the link", () => this.#ask("DELETE", "/share"))];
    return [none(`Whoever has this link can read what was said until it was made. It ends on ${moment.format(until)}.`), field, make("div", { className: "row" }, ...buttons)];
  }

  #files(files) {
    return files.length ? mediaList(files) : [none("No files in the newest messages.")];
  }
}

export function count(number, one) {
  return `${number} ${number === 1 ? one : `${one}s`}`;
}

export function none(text) {
  return make("p", { className: "muted" }, text);
}

export function row(title, about, ...buttons) {
  return make("li", {}, make("div", {}, make("p", {}, title), make("p", { className: "muted" }, about)), ...buttons);
}

/** A button that is pressed twice. */
export function sure(label, title, action) {
  const button = make("button", { type: "button", className: "quiet", ariaLabel: title }, label);
  let timer = null;
  const calm = () => {
    timer = null;
    setText(button, label);
    button.ariaLabel = title;
  };
  button.addEventListener("click", () => {
    if (timer) {
      clearTimeout(timer);
      calm();
      button.disabled = true;
      action().then((done) => { button.disabled = done; });
      return;
    }
    timer = setTimeout(calm, SURE_MS);
    setText(button, `${label}?`);
    button.ariaLabel = `${title}: press again`;
  });
  return button;
}
