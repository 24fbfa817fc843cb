/** What happens in all chats of the person, on any device and by itself; the lines of a chat come with the chat. */

/** The whole list of a person's chats; after an answer only the first rows of it are news. */
const LIST_LIMIT = 1_000;
const NEWS_LIMIT = 30;
const SOON_MS = 500;

export class Feed {
  /** This gateway has feeds; an older one is asked for the list again and again. */
  offered = false;

  #events;
  #cursor = "";
  #fresh = null;

  /** `events`: ask(after), list(limit), chat(id), learned(chat, fact), listed(rows, whole). */
  constructor(events) {
    this.#events = events;
  }

  /** The connection is there, perhaps again: what was missed comes, or the list. */
  begin(features) {
    this.offered = features.includes("feed");
    this.refresh();
  }

  refresh() {
    if (this.offered) this.#events.ask(this.#cursor);
    else this.#events.list(LIST_LIMIT);
  }

  /** A line came that the list may not show yet. */
  refreshSoon() {
    if (!this.offered) this.#listSoon();
  }

  take({ cursor, facts = [], chats = [], whole = false }) {
    this.#cursor = cursor;
    const rows = new Set(chats.map(({ chat }) => chat));
    for (const fact of facts) {
      const chat = this.#events.chat(fact.chat);
      if (chat) this.#events.learned(chat, fact);
      else if (!fact.deleted && !rows.has(fact.chat)) this.#listSoon();
    }
    if (whole || chats.length) this.#events.listed(chats, whole);
  }

  #listSoon() {
    clearTimeout(this.#fresh);
    this.#fresh = setTimeout(() => this.#events.list(NEWS_LIMIT), SOON_MS);
  }
}
