/** The open chat on the screen: one bubble for each entry, in the order of the log. */

import { ApprovalCard } from "./approval-card.js";
import { endsOffers } from "./entries.js";
import { OwnBubble } from "./own-bubble.js";
import { ReplyBubble } from "./reply-bubble.js";

export class Transcript {
  #root;
  #scroll;
  #actions;
  #chat = null;
  #bubbles = new Map();
  #changed = new Set();
  #rearranged = false;

  /** `actions` are those of approval-card.js, own-bubble.js and reply-bubble.js. */
  constructor(root, scroll, actions) {
    this.#root = root;
    this.#scroll = scroll;
    this.#actions = actions;
  }

  show(chat) {
    this.#chat = chat;
    this.#bubbles.clear();
    this.#root.replaceChildren();
    this.#rearranged = true;
    this.#scroll.atEnd = true;
  }

  /** Remembers what to paint; without an entry, anything may have come or gone. */
  note(entry) {
    if (entry) this.#changed.add(entry);
    if (!entry || !this.#bubbles.has(entry) || entry.seq || entry.state === "failed") this.#rearranged = true;
  }

  paint() {
    if (!this.#rearranged && !this.#changed.size) return;
    const swapping = [...this.#changed].map((entry) => this.#bubbles.get(entry)).find((bubble) => bubble?.willSwap);
    this.#scroll.around(() => {
      const fresh = this.#rearranged ? this.#arrange() : new Set();
      for (const entry of this.#changed) if (!fresh.has(entry)) this.#bubbles.get(entry)?.update();
    }, swapping?.node);
    this.#changed.clear();
    this.#rearranged = false;
  }

  reveal(entry) {
    this.#bubbles.get(entry)?.node.scrollIntoView({ block: "center" });
  }

  /** Makes the page's order the log's, from the end, so that a streaming bubble stays. Returns the new entries. */
  #arrange() {
    const entries = this.#chat.entries();
    const wanted = new Set(entries);
    for (const [entry, bubble] of this.#bubbles) {
      if (wanted.has(entry)) continue;
      bubble.node.remove();
      this.#bubbles.delete(entry);
    }
    const fresh = new Set();
    const newest = entries.findLast(endsOffers);
    let below = null;
    for (let index = entries.length - 1; index >= 0; index -= 1) {
      const entry = entries[index];
      if (!this.#bubbles.has(entry)) {
        fresh.add(entry);
        const Bubble = entry.own ? OwnBubble : entry.approval ? ApprovalCard : ReplyBubble;
        this.#bubbles.set(entry, new Bubble(entry, this.#actions));
      }
      const { node } = this.#bubbles.get(entry);
      if (node.nextSibling !== below || !node.isConnected) this.#root.insertBefore(node, below);
      below = node;
      if (entry.own || entry.approval) continue;
      this.#bubbles.get(entry).quote(this.#quoteFor(entry, entries[index - 1]));
      this.#bubbles.get(entry).offer(entry === newest);
    }
    return fresh;
  }

  #quoteFor(reply, above) {
    const answered = this.#chat.answeredBy(reply);
    return !answered.length || answered.includes(above) ? "" : answered[0].text;
  }
}
