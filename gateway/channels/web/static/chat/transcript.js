/** The open chat on the screen: one card for each entry, in the order of the log. */

import { ApprovalCard } from "./approval-card.js";
import { endsOffers } from "./entries.js";
import { OwnCard } from "./own-card.js";
import { ReplyCard } from "./reply-card.js";

/** From so many cards on, those far away are not laid out. */
const MANY = 100;

export class Transcript {
  #root;
  #scroll;
  #actions;
  #chat = null;
  #cards = new Map();
  #changed = new Set();
  #rearranged = false;
  #resting = false;
  #steering;

  /** `actions` are those of approval-card.js, own-card.js and reply-card.js; `steering` is a Steering. */
  constructor(root, scroll, actions, steering) {
    this.#steering = steering;
    this.#root = root;
    this.#scroll = scroll;
    this.#actions = actions;
  }

  show(chat) {
    this.#chat = chat;
    this.#cards.clear();
    this.#root.replaceChildren();
    this.#rearranged = true;
    this.#scroll.atEnd = true;
  }

  /** Remembers what to paint; without an entry, anything may have come or gone. */
  note(entry) {
    if (entry) this.#changed.add(entry);
    if (!entry || !this.#cards.has(entry) || entry.seq || entry.state === "failed") this.#rearranged = true;
  }

  paint() {
    if (!this.#rearranged && !this.#changed.size) return;
    const swapping = [...this.#changed].map((entry) => this.#cards.get(entry)).find((card) => card?.willSwap);
    this.#scroll.around(() => {
      const fresh = this.#rearranged ? this.#arrange() : new Set();
      for (const entry of this.#changed) if (!fresh.has(entry)) this.#cards.get(entry)?.update();
      this.#steering.paint(this.#chat, this.#cards);
    }, swapping?.node);
    this.#changed.clear();
    this.#rearranged = false;
    if (this.#cards.size > MANY) this.#rest();
  }

  /** Lets finished cards rest, two frames after they were laid out: from then on their size is known. */
  #rest() {
    if (this.#resting) return;
    this.#resting = true;
    const laidOut = [...this.#cards].filter(([{ own, done }, { node }]) => (own || done) && !node.classList.contains("rested"));
    const rest = () => {
      this.#resting = false;
      for (const [, { node }] of laidOut) node.classList.add("rested");
    };
    requestAnimationFrame(() => requestAnimationFrame(rest));
  }

  reveal(entry) {
    this.#cards.get(entry)?.node.scrollIntoView({ block: "center" });
  }

  /** Makes the page's order the log's, from the end, so that a streaming card stays. Returns the new entries. */
  #arrange() {
    const entries = this.#chat.entries();
    const wanted = new Set(entries);
    for (const [entry, card] of this.#cards) {
      if (wanted.has(entry)) continue;
      card.node.remove();
      this.#cards.delete(entry);
    }
    const fresh = new Set();
    const newest = entries.findLast(endsOffers);
    let below = null;
    for (let index = entries.length - 1; index >= 0; index -= 1) {
      const entry = entries[index];
      if (!this.#cards.has(entry)) {
        fresh.add(entry);
        const Card = entry.own ? OwnCard : entry.approval ? ApprovalCard : ReplyCard;
        this.#cards.set(entry, new Card(entry, this.#actions));
      }
      const { node } = this.#cards.get(entry);
      if (node.nextSibling !== below || !node.isConnected) this.#root.insertBefore(node, below);
      below = node;
      if (entry.own || entry.approval) continue;
      this.#cards.get(entry).quote(this.#quoteFor(entry, entries[index - 1]));
      this.#cards.get(entry).offer(entry === newest);
    }
    return fresh;
  }

  #quoteFor(reply, above) {
    const answered = this.#chat.answeredBy(reply);
    return !answered.length || answered.includes(above) ? "" : answered[0].text;
  }
}
