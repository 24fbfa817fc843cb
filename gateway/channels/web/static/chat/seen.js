/** Up to which time each chat has been read in this browser. */

import { read, write } from "../ui/storage.js";

export class Seen {
  #times = new Map(JSON.parse(read("seen") ?? "[]"));
  /** On the first visit ever, what is there already is not news. */
  #firstVisit = read("seen") === null;

  isBehind({ id, at }) {
    return at > (this.#times.get(id) ?? 0);
  }

  mark(id, at) {
    if (!this.isBehind({ id, at })) return;
    this.#times.set(id, at);
    this.#save();
  }

  forget(id) {
    if (this.#times.delete(id)) this.#save();
  }

  /** A chat appeared in the gateway's list. */
  notice({ id, at }) {
    if (this.#firstVisit) this.mark(id, at);
  }

  /** The first list is through: whatever comes now is news. */
  begun() {
    if (!this.#firstVisit) return;
    this.#firstVisit = false;
    this.#save();
  }

  #save() {
    write("seen", JSON.stringify([...this.#times]));
  }
}
