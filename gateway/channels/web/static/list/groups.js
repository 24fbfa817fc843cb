/** Groups of the list of chats by the day of their last activity. */

const DAY_MS = 86_400_000;
const month = new Intl.DateTimeFormat(undefined, { month: "long", year: "numeric" });

/** Returns `[name, chats]` for each group, in the order of the list; `chats` come newest first. */
export function groupsOf(chats, now = Date.now()) {
  const midnight = new Date(now).setHours(0, 0, 0, 0);
  const groups = new Map();
  for (const chat of [...chats.filter(({ pinned }) => pinned), ...chats.filter(({ pinned }) => !pinned)]) {
    const name = nameOf(chat, midnight);
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(chat);
  }
  return [...groups];
}

function nameOf({ pinned, at }, midnight) {
  if (pinned) return "Pinned";
  if (!at || at >= midnight) return "Today";
  // A day of the clock change has 23 or 25 hours: noon is always within the day.
  const days = Math.round((midnight - new Date(at).setHours(0, 0, 0, 0)) / DAY_MS);
  if (days === 1) return "Yesterday";
  if (days <= 7) return "Previous 7 days";
  return days <= 30 ? "Previous 30 days" : month.format(at);
}
