/** Tokens and money: today, this month, day by day, and the chats that used most. */

import { none } from "../about/about.js";
import { make } from "../ui/dom.js";
import { chatLink, dollars, number, part } from "./ask.js";

const DAYS = 30;

export function showUsage(place, { today, month, days, date, chats, limits }, { openChat }) {
  const figures = make("dl", { className: "figures" }, figure("Today", today), figure("This month", month));
  place.replaceChildren(
    part("You, in all your chats", figures, none("Days begin at midnight UTC. Requests over the API are counted, too.")),
    part(`The last ${DAYS} days`, bars(days, date)),
    part("Chats of today", none(budgetText(limits)), ...chatRows(chats, limits, openChat)),
  );
}

function figure(title, { tokens, usd }) {
  const cost = dollars(usd);
  const about = make("dd", { className: "muted" }, cost ? `about ${cost}` : "no known cost");
  return make("div", {}, make("dt", {}, title), make("dd", {}, `${number(tokens)} tokens`), about);
}

function budgetText({ tokens, usd }) {
  const limits = [...(tokens ? [`${number(tokens)} tokens`] : []), ...(usd ? [`$${usd}`] : [])];
  return limits.length ? `Each chat may use ${limits.join(" and ")} a day.` : "Chats have no budget here.";
}

function bars(days, date) {
  const known = new Map(days.map((day) => [day.date, day.tokens]));
  const last = Date.parse(`${date}T00:00:00Z`);
  const shown = Array.from({ length: DAYS }, (_, at) => new Date(last - (DAYS - 1 - at) * 86_400_000).toISOString().slice(0, 10));
  const most = Math.max(1, ...known.values());
  const columns = shown.map((day) => {
    const tokens = known.get(day) ?? 0;
    const bar = make("span", { title: `${day}: ${number(tokens)} tokens` });
    bar.style.setProperty("--part", tokens / most);
    return bar;
  });
  const busiest = [...known].reduce((best, day) => (day[1] > best[1] ? day : best), ["", 0]);
  const label = busiest[1] ? `Tokens of each day; most on ${busiest[0]}: ${number(busiest[1])}` : "Nothing was used yet";
  return make("figure", {},
    make("div", { className: "bars", role: "img", ariaLabel: label }, ...columns),
    make("figcaption", { className: "muted" }, make("span", {}, shown[0]), make("span", {}, shown.at(-1))));
}

function chatRows(chats, limits, openChat) {
  if (!chats.length) return [none("Nothing was used today.")];
  return [make("ul", {}, ...chats.map((chat) => {
    const cost = dollars(chat.usd);
    const about = make("p", { className: "muted" }, `${number(chat.tokens)} tokens${cost ? `, about ${cost}` : ""}`);
    return make("li", {}, make("div", {}, make("p", {}, chatLink(chat, openChat)), about, ...meters(chat, limits)));
  }))];
}

/** How much of its budget a chat has used; the nearer one of two limits. */
function meters(chat, limits) {
  const parts = [limits.tokens && chat.tokens / limits.tokens, limits.usd && chat.usd / limits.usd];
  const used = Math.max(...parts);
  if (!used) return [];
  const percent = `${Math.min(100, Math.round(100 * used))} % of the budget of the day`;
  const bar = make("meter", { min: 0, max: 1, high: limits.warn_at, optimum: 0, value: used, ariaLabel: percent });
  return [make("p", { className: "meter" }, bar, make("span", { className: "muted" }, percent))];
}
