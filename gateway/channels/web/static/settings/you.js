/** The person: how the page looks, notifications, the time zone of their plans, and the way out. */

import { make, setText } from "../ui/dom.js";
import { drop, read, write } from "../ui/storage.js";
import { ask, button, part } from "./ask.js";

const THEMES = { system: "As the system", light: "Light", dark: "Dark" };
const NOTIFICATIONS = {
  on: "You are told of reminders, questions and long answers while you look at something else.",
  off: "You are not told of anything while you look at something else.",
  denied: "Your browser refuses notifications of this page; its own settings for the page allow them.",
  missing: "Your browser has no notifications here. It needs https, or a page on this computer.",
};

export function showPerson(place, { principal, timezone, usual_timezone: usual }, { notifier, signOut }) {
  place.replaceChildren(
    part("Theme", themes()),
    part("Notifications", ...notifications(notifier)),
    part("Time zone", ...zone(timezone, usual)),
    part("Signed in", make("p", {}, "You are ", make("strong", {}, principal), " here."), button("Sign out", signOut)),
  );
}

function themes() {
  const root = document.documentElement;
  const chosen = ["light", "dark"].includes(read("theme")) ? read("theme") : "system";
  const options = Object.entries(THEMES).map(([value, label]) => {
    const input = make("input", { type: "radio", name: "settings-theme", value, checked: value === chosen });
    return make("label", {}, input, label);
  });
  const group = make("fieldset", { className: "choices" }, make("legend", { className: "unseen" }, "Theme"), ...options);
  group.addEventListener("change", ({ target }) => {
    if (target.value === "system") {
      drop("theme");
      delete root.dataset.theme;
    } else {
      write("theme", target.value);
      root.dataset.theme = target.value;
    }
    document.dispatchEvent(new Event("themechange"));
  });
  return group;
}

function notifications(notifier) {
  const about = make("p", { role: "status" });
  const toggle = button("", async () => {
    await notifier.toggle();
    paint();
  });
  function paint() {
    const { state } = notifier;
    setText(about, NOTIFICATIONS[state]);
    setText(toggle, state === "on" ? "Turn off" : "Turn on");
    toggle.hidden = state === "denied" || state === "missing";
  }
  paint();
  return [about, toggle];
}

function zone(chosen, usual) {
  const browser = Intl.DateTimeFormat().resolvedOptions().timeZone || usual;
  const names = Intl.supportedValuesOf?.("timeZone") ?? [];
  const list = make("datalist", { id: "settings-zones" }, ...names.map((value) => make("option", { value })));
  const field = make("input", { id: "settings-zone", value: chosen, placeholder: browser, maxLength: 64, autocomplete: "off", spellcheck: false });
  field.setAttribute("list", "settings-zones");
  field.setAttribute("aria-describedby", "settings-zone-hint");
  const message = make("p", { role: "status" });
  const form = make("form", {},
    make("label", { htmlFor: "settings-zone" }, "Zone of your plans"), field, list,
    make("p", { className: "muted", id: "settings-zone-hint" },
      `Such as Europe/Berlin. Empty: the zone of the browser that you write in, here ${browser}. Plans that are made already keep theirs.`),
    make("button", { type: "submit", className: "primary" }, "Save"), message);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const { ok, found, fault } = await ask("PUT", "/settings/you", { timezone: field.value });
    if (ok) field.value = found.timezone;
    message.dataset.state = ok ? "" : "fault";
    setText(message, ok ? `Saved. Your plans use ${found.timezone || `${browser} here`} from now on.` : fault);
  });
  return [form];
}
