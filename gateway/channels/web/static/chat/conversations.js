/** All chats of the person: what is sent for them, what comes in, and how they survive a lost connection. */

import { Branches } from "../answers/branches.js";
import { Chat } from "./chat.js";
import { chatId, messageId } from "../ui/ids.js";
import * as outbox from "./outbox.js";
import { Feed } from "./feed.js";
import { sentence } from "../ui/dom.js";
import { read, write } from "../ui/storage.js";

/** How many chats are listened to at once; the open one is always among them. */
const FOLLOWED = 10;
const TICK_MS = 1_000;
/** How long an unclear state, and how long a running turn, may stay silent before the gateway is asked. */
const DOUBT_MS = 2_000;
const SILENCE_MS = 20_000;
/** Errors that go by: what was asked may be asked again. */
const PASSING = new Set(["unavailable", "overloaded"]);
/** An answer that took longer is told of also where it was not asked for. */
const LONG_MS = 20_000;

export class Conversations {
  #connection = null;
  #events;
  #chats = new Map();
  #followed = new Set();
  #historyAsked = new Set();
  #acknowledged = new Map();
  #feed = new Feed({
    ask: (after) => this.#connection.send({ type: "feed", ...(after ? { after } : {}) }),
    list: (limit) => this.#askList(limit),
    chat: (id) => this.#chats.get(id),
    learned: (chat, fact) => this.#learned(chat, fact),
    listed: (rows, whole) => this.#listed(rows, whole),
  });
  #branches = new Branches((frame) => this.#tell(frame), (id) => this.#events.branched(this.chat(id)));
  /** Messages that were sent from this page: their answers are awaited here. */
  #sentHere = new Set();
  #blank = null;
  #principal = read("principal");

  /** The chat on the screen. */
  current = null;

  /**
   * `events`: changed(chat, entry), spoken(chat, reply, telling), welcomed(), stranger(), lost(), refused(message),
   * deleted(chat, seconds), branched(chat), found(frame), trouble(message); welcomed gets the frame. Chat and entry are null when the list of chats
   * changed; seconds is 0 for a chat that was deleted elsewhere. `telling`: the person wants to know of the reply even while
   * they look at something else.
   */
  constructor(events) {
    this.#events = events;
  }

  /** Takes up what was left unsent; `connect(events)` opens the connection, with the events that it names. */
  start(connect) {
    for (const { id, chat, text, at, reason, media } of outbox.kept()) {
      this.chat(chat).say(id, text, at, media);
      if (reason) this.chat(chat).refuse(id, reason);
    }
    this.#connection = connect({
      welcomed: (frame) => this.#welcomed(frame),
      frame: (frame) => this.#take(frame),
      lost: () => {
        this.#historyAsked.clear();
        this.#events.lost();
      },
      refused: this.#events.refused,
    });
    setInterval(() => this.#tick(), TICK_MS);
    document.addEventListener("visibilitychange", () => this.#refresh());
    // Asking is how a dead connection is found out.
    addEventListener("offline", () => this.#refresh());
  }

  /** The chats to list, newest first: all that have something in them and are not deleted. */
  list() {
    const age = (chat) => (chat.at ? -chat.at : -Infinity);
    const listed = [...this.#chats.values()].filter((chat) => !chat.deleted && (chat.at || !chat.empty));
    return listed.sort((one, other) => age(one) - age(other));
  }

  chat(id) {
    if (!this.#chats.has(id)) this.#chats.set(id, new Chat(id, this.#events.changed));
    return this.#chats.get(id);
  }

  running(chat) {
    return chat.turn !== null || (chat.listedRunning && !this.#followed.has(chat));
  }

  unread(chat) {
    return chat.unread && !this.#watching(chat);
  }

  /** Something in the chat waits for the person: a line that they have not seen, or a question. */
  calls(chat) {
    return this.unread(chat) || (chat.asks && !this.#watching(chat));
  }

  rename(chat, title) {
    this.#keep(chat, { type: "label", title });
  }

  pin(chat, pinned) {
    this.#keep(chat, { type: "label", pinned });
  }

  /** Deletes a chat with everything; `deleted` tells for how long that can be taken back. */
  remove(chat) {
    chat.leaving = this.#keep(chat, { type: "delete" });
  }

  /** Asks for chats with a text; `found` gets the frame. */
  search(text) {
    this.#connection.send({ type: "search", text });
  }

  /** Rates an answer; "" takes that back. */
  rate(chat, { seq }, rating) {
    this.#keep(chat, { type: "rate", seq, rating });
  }

  /** Makes a chat that begins with the conversation up to an answer; `branched` tells of it. The promise is kept when that ended. */
  branch(chat, entry) {
    return this.#branches.ask(chat, entry);
  }

  /** Returns whether the person has a chat with this id. */
  has(id) {
    const chat = this.#chats.get(id);
    return Boolean(chat?.listed && !chat.deleted);
  }

  restore(chat) {
    this.#keep(chat, { type: "undelete" });
  }

  /** A deletion that cannot be taken back any more: the page forgets the chat, too. */
  forget(chat) {
    if (!chat.deleted || chat === this.current) return;
    this.#chats.delete(chat.id);
    this.#followed.delete(chat);
  }

  #keep(chat, frame) {
    return this.#tell({ ...frame, chat: chat.id });
  }

  #tell(frame) {
    const sent = this.#connection.send(frame);
    if (!sent) this.#events.trouble("You are not connected just now. Please try again in a moment.");
    return sent;
  }

  isBlank(chat) {
    return chat === this.#blank && chat.empty;
  }

  /** The chat without any message yet. */
  blank() {
    if (!this.#blank?.empty) {
      this.#blank = this.chat(chatId());
      this.#blank.loaded = true;
    }
    return this.#blank;
  }

  show(chat) {
    this.#acknowledge();
    this.current = chat;
    this.#follow(chat);
    this.#see(chat);
  }

  send(text, media = []) {
    this.current.deleted = false;
    const entry = this.current.say(messageId(), text, Date.now(), media);
    outbox.keep({ ...entry, chat: this.current.id });
    this.#sentHere.add(entry.id);
    this.#transmit(this.current, entry);
  }

  retry(chat, entry) {
    chat.retry(entry);
    outbox.keep({ ...entry, chat: chat.id });
    this.#transmit(chat, entry);
  }

  discard(chat, entry) {
    outbox.settle(entry.id);
    chat.discard(entry);
  }

  withdraw(chat, { id }) {
    this.#connection.send({ type: "withdraw", chat: chat.id, id });
  }

  approve(chat, entry, yes, always = false) {
    const { call, digest } = entry;
    if (this.#connection.send({ type: "approve", chat: chat.id, call, yes, digest, always })) chat.answering(entry);
    else this.#events.trouble("You are not connected just now. Please answer again in a moment.");
  }

  /** Returns the text of the newest own message here, and withdraws it where no turn has begun with it. */
  takeLast() {
    const entry = this.current.entries().findLast((one) => one.own && one.text && !one.withdrawn);
    if (entry && entry.ahead > 0 && entry.state === "received") this.withdraw(this.current, entry);
    return entry?.text ?? "";
  }

  stop(turn) {
    this.#connection.send({ type: "stop", chat: this.current.id, turn });
  }

  /** Kills the worker that answers here; only where the gateway offers it. */
  killWorker() {
    this.#connection.send({ type: "kill", chat: this.current.id });
  }

  loadOlder() {
    const chat = this.current;
    if (chat.loaded && chat.more) this.#askHistory(chat, { before: chat.oldest });
  }

  #transmit(chat, { id, text, media }) {
    const files = media.length ? { media: media.map((file) => file.ref) } : {};
    this.#connection.send({ type: "message", id, chat: chat.id, text, ...files });
  }

  #welcomed(frame) {
    const { principal } = frame;
    // Messages and marks that another person left in this browser are not this person's.
    if (principal !== (this.#principal ?? principal)) return this.#events.stranger();
    this.#principal = principal;
    write("principal", principal);
    const chats = [...this.#chats.values()];
    const busy = chats.filter((chat) => chat !== this.current && (chat.turn !== null || chat.unaccepted.length));
    this.#followed.clear();
    for (const chat of [this.current, ...busy].slice(0, FOLLOWED).reverse()) this.#follow(chat);
    for (const chat of chats) for (const entry of chat.unaccepted) this.#transmit(chat, entry);
    this.#feed.begin(frame.features ?? []);
    this.#events.welcomed(frame);
    this.#branches.askAgain();
  }

  /** Listens to a chat; if there are too many, lets go of an idle one, the longest unopened first. */
  #follow(chat) {
    this.#followed.delete(chat);
    this.#followed.add(chat);
    if (this.#followed.size > FOLLOWED) {
      const eldest = [...this.#followed];
      this.#followed.delete(eldest.find((other) => other !== chat && other.turn === null) ?? eldest[0]);
    }
    this.#ask(chat);
  }

  #ask(chat) {
    chat.lastFrameAt = Date.now();
    if (chat.loaded) this.#connection.send({ type: "resume", chat: chat.id, after: chat.top, mark: chat.mark });
    else this.#askHistory(chat);
  }

  #askHistory(chat, range = {}) {
    if (this.#historyAsked.has(chat)) return;
    if (this.#connection.send({ type: "history", chat: chat.id, ...range })) this.#historyAsked.add(chat);
  }

  #take(frame) {
    if (frame.type === "error") return this.#trouble(frame);
    if (frame.type === "feed") return this.#feed.take(frame);
    if (frame.type === "chats") return this.#listed(frame.chats, frame.whole);
    if (frame.type === "found") return this.#events.found(frame);
    if (frame.type === "deleted") return this.#deleted(this.chat(frame.chat), frame.undo_s);
    if (!frame.chat) return;
    const chat = this.chat(frame.chat);
    const first = !chat.loaded;
    const wasTorn = chat.torn;
    chat.take(frame);
    switch (frame.type) {
      case "accepted":
        outbox.settle(frame.id);
        break;
      case "message":
        outbox.settle(frame.id);
        break;
      case "reply":
        this.#see(chat);
        this.#spoken(chat, frame);
        this.#feed.refreshSoon();
        break;
      case "approval":
        this.#see(chat);
        this.#spoken(chat, frame);
        break;
      case "history":
        this.#historyAsked.delete(chat);
        if (first) for (const line of frame.lines.filter(({ seq }) => seq > chat.toldUpTo)) this.#spoken(chat, line);
        this.#see(chat);
        if (first) this.#ask(chat);
        break;
      case "resumed":
        if (!frame.reset) break;
        this.#acknowledged.delete(chat.id);
        this.#follow(chat);
        break;
    }
    if (chat.torn && !wasTorn) this.#ask(chat);
  }

  #trouble({ code, id, chat: about, message, retry_after: wait }) {
    if (code.startsWith("approval_") || PASSING.has(code)) this.#chats.get(about)?.unanswered();
    const advice = `${sentence(message)}${wait ? ` Try again in ${Math.ceil(wait)} s.` : ""}`;
    for (const chat of this.#chats.values()) {
      const entry = chat.refuse(id, advice);
      if (entry) return outbox.keep({ ...entry, chat: chat.id });
    }
    this.#historyAsked.clear();
    this.#branches.refused(about);
    // It may have been the answer to a history or resume, whose lines are still wanted.
    if (PASSING.has(code)) for (const chat of this.#followed) chat.doubtful = true;
    this.#events.trouble(advice);
  }

  #listed(rows, whole = false) {
    if (whole) {
      const there = new Set(rows.map(({ chat }) => chat));
      for (const chat of this.#chats.values()) {
        if (chat.listed && !chat.deleted && !there.has(chat.id) && !chat.unaccepted.length) this.#deleted(chat, 0);
      }
    }
    for (const { chat: id, title, pinned = false, preset = "", ...row } of rows) {
      const chat = this.chat(id);
      Object.assign(chat, { pinned, preset, listed: true, deleted: false });
      // Before its first message is accepted a chat has a title on this page alone; `/forget` leaves none.
      chat.title = title || (chat.unaccepted.length ? chat.title : "");
      chat.learn({ running: false, asks: false, ...row });
      if (!this.#feed.offered && chat.listedRunning && !this.#followed.has(chat) && this.#followed.size < FOLLOWED) this.#follow(chat);
    }
    this.#see(this.current);
    this.#events.changed(null, null);
    this.#branches.listed(rows);
  }

  /** A fact of the feed about a chat that is known here. */
  #learned(chat, { deleted, ...fact }) {
    // What this page deletes itself is answered by a frame of its own, with the time to take it back.
    if (deleted) return chat.leaving || chat.deleted || this.#deleted(chat, 0);
    if (fact.at) chat.deleted = false;
    const had = chat.newest;
    chat.learn(fact);
    this.#see(this.current);
    // Somebody looks elsewhere: the line itself says whether they are told, and with which words.
    if (chat.unread && chat.newest > had && document.visibilityState !== "visible" && !this.#followed.has(chat)) {
      chat.toldUpTo = had;
      this.#follow(chat);
    }
    this.#events.changed(null, null);
  }

  #spoken(chat, line) {
    if (line.type === "approval") {
      if (line.state === "open") this.#events.spoken(chat, { text: `May I run ${line.tool}? Please answer yes or no.` }, true);
      return;
    }
    if (line.type !== "reply" || line.kind === "withdrawn" || !(line.text || line.media?.length)) return;
    const { in_reply_to: ids = [], about = "" } = line;
    const awaited = !ids.length || ids.some((id) => this.#sentHere.has(id));
    const long = chat.busySince > 0 && Date.now() - chat.busySince > LONG_MS;
    this.#events.spoken(chat, line, awaited || Boolean(about) || long);
  }

  #deleted(chat, seconds) {
    chat.leaving = false;
    chat.deleted = true;
    this.#events.changed(null, null);
    this.#events.deleted(chat, seconds);
  }

  #askList(limit) {
    this.#connection.send({ type: "chats", limit });
  }

  #watching(chat) {
    return chat === this.current && !document.hidden;
  }

  /** The person has the chat before their eyes: it is read, and the gateway may trim what was shown. */
  #see(chat) {
    if (this.#watching(chat)) chat.see(chat.top);
  }

  /** Tells the gateway, and by it the person's other devices, how far the chat on the screen was read. */
  #acknowledge() {
    if (!this.current || !this.#watching(this.current)) return;
    const { id, top } = this.current;
    if (top <= (this.#acknowledged.get(id) ?? 0)) return;
    if (this.#connection.send({ type: "ack", chat: id, seq: top })) this.#acknowledged.set(id, top);
  }

  #refresh() {
    if (document.hidden) return;
    this.#see(this.current);
    this.#feed.refresh();
    this.#events.changed(null, null);
  }

  #tick() {
    if (!this.#connection.open) return;
    for (const chat of this.#followed) {
      const patience = chat.doubtful ? DOUBT_MS : chat.turn !== null ? SILENCE_MS : Infinity;
      if (Date.now() - chat.lastFrameAt > patience) this.#ask(chat);
    }
    this.#acknowledge();
  }
}
