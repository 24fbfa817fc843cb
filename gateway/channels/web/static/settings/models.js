/** The models: which there are, whether they answer, and their keys, of which none is shown. */

import { none } from "../about/about.js";
import { copyButton } from "../ui/code-box.js";
import { make, sentence, setText } from "../ui/dom.js";
import { FirstRunCard } from "../ui/first-run.js";
import { ask, button, faultNote, part } from "./ask.js";

const ROLES = { usual: "Usual model", fallback: "Asked when others cannot answer" };

export function showModels(place, found, { reload }) {
  // Only the owner's answer says what else is known.
  if (found.asked === undefined) return place.replaceChildren(part("Models that you may choose", ...choices(found.models)));
  const notes = [];
  if (!found.asked) notes.push(faultNote("No worker answers just now: only names are known.", reload));
  if (found.first_run) notes.push(new FirstRunCard("settings-first-run").node);
  const cards = found.models.map((model) => card(model, found.replace_key && model.role === "usual"));
  place.replaceChildren(part("Models", ...notes, make("ul", { className: "models" }, ...cards)));
}

function choices(models) {
  if (models.length === 1) return [none("There is one model here, and nothing to choose.")];
  const rows = models.map(({ preset, about }) => make("li", {}, make("div", {}, make("p", {}, preset || "Usual model"), about ? none(about) : "")));
  return [none("Choose one for a chat at its head, or with /model."), make("ul", {}, ...rows)];
}

function card(model, replaceable) {
  const { role, preset, model: name, about, problem } = model;
  const title = preset || ROLES[role];
  const result = make("p", { className: "result", role: "status" });
  const buttons = role === "fallback" || problem ? [] : [testButton(title, preset, result)];
  const lines = [
    make("p", {}, make("strong", {}, title), " ", make("code", {}, name)),
    none(way(model)),
    ...(about ? [none(about)] : []),
    ...(problem ? [make("p", { className: "bad" }, sentence(problem))] : []),
  ];
  const key = model.provider === "demo" ? [] : [replaceable ? keyForm(name) : keyLines(model)];
  return make("li", {}, make("div", {}, ...lines, result, ...key), ...buttons);
}

function way({ provider, host, client, key, needs_key: needed, state, why, refused }) {
  if (provider === undefined) return "Nothing else is known without a worker.";
  if (provider === "demo") return "Built in; it needs no key.";
  const keyed = key ? "a key is set" : needed ? "no key is set here; LiteLLM may find one" : "needs no key";
  const now = state === "closed" ? `paused: ${why}` : state === "trying" ? "being tried again" : refused ? "the key was refused" : "ok";
  return [provider || "unknown provider", ...(host ? [`at ${host}`] : []), ...(client ? [`by ${client}`] : []), keyed, ...(state ? [now] : [])].join(" · ");
}

function testButton(title, preset, result) {
  const test = button("Test", async () => {
    if (test.ariaDisabled === "true") return;
    // Not by disabling: the button would lose the focus.
    test.ariaDisabled = "true";
    delete result.dataset.state;
    setText(result, "Asking it one thing …");
    const { ok, found, fault } = await ask("POST", `/settings/models/test${preset ? `?preset=${encodeURIComponent(preset)}` : ""}`);
    test.ariaDisabled = "false";
    result.dataset.state = ok && found.ok ? "done" : "fault";
    setText(result, ok ? sentence(found.text) : fault);
  }, { ariaLabel: `Test ${title}` });
  return test;
}

function keyForm(name) {
  const field = make("input", { type: "password", required: true, autocomplete: "off", maxLength: 500, ariaLabel: `New key for ${name}` });
  const message = make("p", { role: "status" });
  const form = make("form", {}, field, make("button", { type: "submit", className: "primary" }, "Test and use it"), message);
  let asking = false;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (asking) return;
    asking = true;
    delete message.dataset.state;
    setText(message, `Asking ${name} one thing …`);
    const { ok, fault } = await ask("PUT", "/settings/models/key", { key: field.value.trim() });
    asking = false;
    if (ok) field.value = "";
    message.dataset.state = ok ? "done" : "fault";
    setText(message, ok ? "It answers. Shoal starts again with this key; the page stays as it is." : fault);
  });
  return fold("Replace the key", none("The key stays on this machine, in the file that has it now."), form);
}

function keyLines({ toml, role }) {
  const text = role === "fallback"
    ? "In shoal.toml of the workers, with the key in their environment; then start them again."
    : "In shoal.toml of the workers, with the key in a file that only they can read; then start them again.";
  const box = make("pre", { tabIndex: 0, ariaLabel: "Lines for shoal.toml", role: "region" }, toml);
  return fold("Set or replace the key", none(text), box, copyButton(() => toml, "Copy"));
}

function fold(title, ...children) {
  return make("details", {}, make("summary", {}, title), ...children);
}
