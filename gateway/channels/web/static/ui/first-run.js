/** The card of the first run: the demo model answers, and the owner chooses a real one. Folded, so that the prompts are seen first. */

import { icon, make, setText } from "./dom.js";
import { read, write } from "./storage.js";

const AWAY = "That could not be sent. Is the connection there?";

/** The model to begin with, whether a key is needed, and the usual address, as `shoal init` has them. */
const PROVIDERS = {
  anthropic: { title: "Anthropic", model: "claude-sonnet-4-5", key: true },
  openai: { title: "OpenAI", model: "gpt-5-mini", key: true },
  openrouter: { title: "OpenRouter", model: "anthropic/claude-sonnet-4.5", key: true },
  ollama: { title: "Ollama", model: "llama3.2", address: "http://127.0.0.1:11434" },
  vllm: { title: "vLLM", model: "", address: "http://127.0.0.1:8000/v1" },
  own: { title: "Another address", model: "", address: "" },
};

function field(id, label, control) {
  control.id = id;
  return make("p", { className: "field" }, make("label", { htmlFor: id }, label), control);
}

export class FirstRunCard {
  #provider = make("select", {}, ...Object.entries(PROVIDERS).map(([name, { title }]) => make("option", { value: name }, title)));
  #model = make("input", { type: "text", required: true, autocomplete: "off", spellcheck: false, maxLength: 500 });
  #address = make("input", { type: "url", autocomplete: "off", maxLength: 500 });
  #key = make("input", { type: "password", autocomplete: "off", maxLength: 500 });
  #go = make("button", { className: "primary" }, "Test and use it");
  #message = make("p", { className: "message", role: "status" });

  /** `ids` is what the ids of its fields begin with: two cards may stand on the page. */
  constructor(ids = "first-run") {
    this.#addressField = field(`${ids}-address`, "Address", this.#address);
    this.#keyField = field(`${ids}-key`, "Key", this.#key);
    const form = make("form", { ariaLabel: "Choose a model" },
      make("p", { className: "muted" }, "The key stays on this machine, in a file that only you can read."),
      field(`${ids}-provider`, "Provider", this.#provider),
      field(`${ids}-model`, "Model", this.#model),
      this.#addressField, this.#keyField,
      make("p", { className: "buttons" }, this.#go, make("button", { type: "button", onclick: () => this.#dismiss() }, "Not now")),
      this.#message);
    const title = make("summary", {}, icon("chevron"), make("span", {}, "This is the demo. ", make("strong", {}, "Use a real model")));
    this.node = make("details", { className: "first-run" }, title, form);
    this.#provider.addEventListener("change", () => this.#fill());
    form.addEventListener("submit", (event) => this.#submit(event));
    this.#fill();
  }

  #addressField;
  #keyField;
  #asking = false;

  static dismissed() {
    return read("first-run") === "later";
  }

  #dismiss() {
    write("first-run", "later");
    this.node.remove();
    document.querySelector("#composer textarea").focus();
  }

  #fill() {
    const { model, key, address } = PROVIDERS[this.#provider.value];
    this.#model.value = model;
    this.#address.value = address ?? "";
    this.#address.required = address !== undefined;
    this.#addressField.hidden = address === undefined;
    this.#key.required = Boolean(key);
    setText(this.#keyField.querySelector("label"), key ? "Key" : "Key, if it needs one");
    this.#say("");
  }

  #say(text, state = "") {
    setText(this.#message, text);
    this.#message.dataset.state = state;
    if (text) this.#message.scrollIntoView({ block: "nearest" });
  }

  async #submit(event) {
    event.preventDefault();
    const choice = { provider: this.#provider.value, model: this.#model.value.trim(), key: this.#key.value.trim() };
    if (!this.#addressField.hidden) choice.api_base = this.#address.value.trim();
    // Not by disabling the button: it would lose the focus, and Enter after a mistake would do nothing.
    if (this.#asking) return;
    this.#asking = true;
    this.#say(`Asking ${choice.model} one thing …`);
    try {
      const headers = { Authorization: `Bearer ${read("token")}`, "Content-Type": "application/json" };
      const answer = await fetch("/first-run", { method: "POST", headers, body: JSON.stringify(choice) });
      if (answer.ok) {
        this.#key.value = "";
        this.#say(`${choice.model} answers. Shoal starts again with it; this page stays as it is.`, "done");
        return;
      }
      this.#say((await answer.json()).detail ?? AWAY, "fault");
    } catch {
      this.#say(AWAY, "fault");
    }
    this.#asking = false;
  }
}
