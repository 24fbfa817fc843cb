/** What runs here, and the settings that are not the defaults. */

import { none } from "../about/about.js";
import { make } from "../ui/dom.js";
import { duration, part } from "./ask.js";

const STATES = { on: "connected", off: "off", away: "cannot be reached" };

export function showInstallation(place, { version, processes, channels, settings }) {
  place.replaceChildren(
    part(`Shoal ${version}`, ...processTable(processes)),
    part("Channels", ...channelRows(channels)),
    part("Settings that are not the defaults",
      none("Those of this gateway. Secrets are masked; what may be one is left out. Other processes may have others."),
      ...settings.map(sectionOf)),
  );
}

function processTable(processes) {
  if (!processes.length) return [none("No process is known just now.")];
  const titles = ["Process", "Machine", "Version", "Up", "Running"];
  const head = make("tr", {}, ...titles.map((title) => make("th", { scope: "col" }, title)));
  const rows = processes.map(({ kind, name, host, version, seconds, running, slots, draining }) => {
    const busy = draining ? "closing" : slots ? `${running} of ${slots}` : "";
    return make("tr", {}, ...[`${kind} ${name}`, host, version, duration(seconds), busy].map((cell) => make("td", {}, cell)));
  });
  const table = make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
  return [make("div", { className: "wide", tabIndex: 0, role: "region", ariaLabel: "Processes" }, table)];
}

function channelRows(channels) {
  if (!channels.length) return [none("The page alone: no other channel is connected.")];
  return [make("ul", {}, ...channels.map(({ name, state, why }) => {
    const about = `${STATES[state] ?? state}${why ? `: ${why}` : ""}`;
    return make("li", {}, make("div", {}, make("p", {}, name), none(about)));
  }))];
}

function sectionOf({ section, rows, about, page }) {
  const lines = rows.map(({ name, value }) => make("li", {}, make("code", {}, `${name} = ${value}`)));
  const meaning = about ? [make("details", {}, make("summary", {}, `What [${section}] means`), none(about))] : [];
  return make("div", { className: "section" }, make("h4", {}, `[${section}]`), make("ul", { className: "lines" }, ...lines), ...meaning,
    make("p", { className: "muted" }, "Explained in ", make("code", {}, page), "."));
}
