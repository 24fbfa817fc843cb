/** Own messages not accepted by the gateway yet. A stored key each, so that two tabs never overwrite each other. */

import { drop, keys, read, write } from "../ui/storage.js";

const START = "outbox.";

/** Keeps `{id, chat, text, at, reason, media}`; `reason` is why the gateway refused it, empty while it waits. */
export function keep({ id, chat, text, at, reason, media }) {
  write(START + id, JSON.stringify({ id, chat, text, at, reason, media }));
}

export function settle(id) {
  drop(START + id);
}

/** Everything kept, in the order it was written. */
export function kept() {
  return keys(START)
    .map((key) => JSON.parse(read(key)))
    .sort((one, other) => one.at - other.at);
}
