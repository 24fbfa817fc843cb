/**
 * One chat as the page knows it: its lines by sequence number, own messages on their way, and answers being written.
 * No DOM and no socket. An entry is one card; it stays the same object from the first sign of it to the end, so
 * that "sending" becomes a line of the log, and a streamed answer the final one, in place.
 */

import { approvalEntry, ownEntry, replyEntry } from "./entries.js";
import { Ratings } from "../answers/ratings.js";

export class Chat {
  title = "";
  pinned = false;
  /** It was in the gateway's list; deleted means that it is not any more, or not for long. */
  listed = false;
  deleted = false;
  /** Time of the last line, in ms of the gateway's clock; 0 while no message has reached it. */
  at = 0;
  /** The newest line that there is, here or not, and the newest one that the person has seen on any device. */
  newest = 0;
  seen = 0;
  /** A turn waits for the person's yes. */
  asks = false;
  /** This page has asked for its deletion. */
  leaving = false;
  /** When this page learnt that a turn runs, and the newest line of which a hidden page has told the person. */
  busySince = 0;
  toldUpTo = Infinity;
  /** The gateway's word on whether a turn runs; it counts while this page does not follow the chat. */
  listedRunning = false;
  /** The newest page of the log is loaded; `more`: older pages exist. */
  loaded = false;
  more = false;
  /** Every line up to this number is here, or older than what was asked for. */
  top = 0;
  lastFrameAt = 0;
  /** Lines may be missing here, for example after a turn that ended without a reply. */
  doubtful = false;

  #lines = new Map();
  #marks = new Map();
  #highest = 0;
  #pending = new Set();
  #own = new Map();
  #live = new Map();
  #answeredTurns = new Set();
  /** Every turn up to this number is over, and what it had written is dropped. */
  #overUpTo = 0;
  #dropped = new Set();
  #withdrawn = new Set();
  /** Turns in whose place a later message came. */
  #replaced = new Set();
  /** Messages that joined the turn of an earlier one, by their numbers. */
  #joined = new Set();
  #awaiting = new Set();
  /** Questions whether a tool may run, by their names, and answers to some that are not here yet. */
  #questions = new Map();
  #settled = new Map();
  #ratings = new Ratings();
  #changed;

  /** `changed(chat, entry)` is called for every entry that came, changed or went. */
  constructor(id, changed) {
    this.id = id;
    this.#changed = (entry) => changed(this, entry);
  }

  /** In the order of the log. Answers under way come last, because their line will be the next one. */
  entries() {
    const shown = [...this.#lines.values()].filter((line) => !line.hidden);
    const lines = shown.sort((one, other) => one.seq - other.seq);
    return [...lines, ...this.#pending, ...this.#live.values()];
  }

  get empty() {
    return this.#lines.size + this.#pending.size + this.#live.size === 0;
  }

  get oldest() {
    return Math.min(...this.#lines.keys());
  }

  /** Its first lines are older than what the gateway keeps. */
  get cut() {
    return this.loaded && !this.more && this.#lines.size > 0 && this.oldest > 1;
  }

  /** The mark of line `top`; 0 if that is not known. A log with another line there is another log. */
  get mark() {
    return this.#marks.get(this.top) ?? 0;
  }

  /** Holds lines that follow a missing one. */
  get torn() {
    return this.loaded && this.#highest > this.top;
  }

  /** The turn that runs or is next to run; null when nothing is to be done here. */
  get turn() {
    const live = [...this.#live.values()].find((entry) => !entry.ended);
    const [waiting] = this.#awaiting;
    return (live ?? waiting)?.turn ?? null;
  }

  /** A worker is at work on an answer here. */
  get working() {
    return [...this.#live.values()].some((entry) => !entry.ended && !entry.waiting);
  }

  /** Own messages that are accepted and wait for an earlier turn to end. */
  get queued() {
    return [...this.#awaiting].filter((entry) => entry.ahead > 0);
  }

  /** Messages to send again after a reconnect, oldest first. */
  get unaccepted() {
    return [...this.#pending].filter((entry) => entry.state === "sending");
  }

  /** The own messages that a reply answers, as far as they are here. */
  answeredBy(reply) {
    if (reply.inReplyTo.length) return reply.inReplyTo.map((id) => this.#own.get(id)).filter(Boolean);
    return reply.done ? [] : [...this.#own.values()].filter((entry) => entry.turn === reply.turn);
  }

  get unread() {
    return this.newest > this.seen;
  }

  /** The person has seen the lines up to `seq`, here or on another device. */
  see(seq) {
    this.seen = Math.max(this.seen, seq);
  }

  /** A fact of the feed, or a row of the list: what is known of the chat without its lines. */
  learn({ at = 0, seq = 0, seen = 0, running, asks }) {
    this.at = Math.max(this.at, at);
    this.newest = Math.max(this.newest, seq);
    this.see(seen);
    if (running && !this.listedRunning) this.busySince = Date.now();
    this.listedRunning = running ?? this.listedRunning;
    this.asks = asks ?? this.asks;
  }

  /** An own message, shown at once. */
  say(id, text, at, media = []) {
    const entry = ownEntry(id, text, at, media);
    this.#own.set(id, entry);
    this.#pending.add(entry);
    this.#name(text);
    this.#changed(entry);
    return entry;
  }

  retry(entry) {
    Object.assign(entry, { state: "sending", reason: "" });
    this.#changed(entry);
  }

  discard(entry) {
    this.#pending.delete(entry);
    this.#own.delete(entry.id);
    this.#changed(entry);
  }

  /** The gateway refused a message. Returns its entry, or null when it is not one that waits here. */
  refuse(id, reason) {
    const entry = this.#own.get(id);
    if (!this.#pending.has(entry)) return null;
    Object.assign(entry, { state: "failed", reason });
    this.#changed(entry);
    return entry;
  }

  take(frame) {
    this.lastFrameAt = Date.now();
    if (frame.mark && !this.#lines.has(frame.seq)) this.#marks.set(frame.seq, frame.mark);
    switch (frame.type) {
      case "accepted": return this.#accepted(frame);
      case "message": return this.#message(frame);
      case "turn": return this.#turn(frame);
      case "joined": return this.#join(frame);
      case "delta": return this.#delta(frame);
      case "progress": return this.#progress(frame);
      case "reply": return frame.rates ? this.#rate(frame) : this.#reply(frame);
      case "approval": return this.#approval(frame);
      case "history": return this.#history(frame);
      case "resumed": return this.#resumed(frame);
    }
  }

  #accepted({ id, turn, ahead = 0 }) {
    const entry = this.#own.get(id);
    if (!entry) return;
    entry.state = "received";
    if (turn > this.#overUpTo && !this.#answeredTurns.has(turn) && !this.#joined.has(turn)) {
      Object.assign(entry, { turn, ahead });
      this.#awaiting.add(entry);
      if (!ahead) this.#liveEntry(turn);
    }
    this.#changed(entry);
  }

  #message({ seq, id, text, turn, at, media = [], replaces = 0 }) {
    if (this.#lines.has(seq)) return;
    const entry = this.#own.get(id) ?? ownEntry(id, text, at);
    this.#pending.delete(entry);
    this.#own.set(id, entry);
    this.#name(text);
    if (replaces) this.#replace(replaces);
    entry.dropped = this.#dropped.has(id);
    entry.withdrawn = this.#withdrawn.has(id);
    const when = at || Date.now();
    Object.assign(entry, { seq, text, media, at: when, turn: turn ?? entry.turn, state: "received", reason: "" });
    this.see(seq);
    this.#place(entry);
  }

  #turn({ turn, state }) {
    if (state === "started") {
      for (const entry of this.#awaiting) if (entry.turn === turn) this.#setAhead(entry, 0);
      this.#liveEntry(turn);
    } else if (this.#live.has(turn)) {
      const entry = this.#live.get(turn);
      entry.ended = true;
      this.doubtful = true;
      this.#changed(entry);
    }
  }

  /** The turn that runs answers these waiting messages, too. */
  #join({ messages }) {
    for (const turn of messages) this.#joined.add(turn);
    for (const waiting of this.#awaiting) {
      if (this.#joined.has(waiting.turn)) this.#release(waiting);
      else this.#setAhead(waiting, waiting.ahead - messages.filter((turn) => turn < waiting.turn).length);
    }
  }

  /** Ignores text of an older attempt, repeated text, and text after a gap: a full delta follows. */
  #delta({ turn, attempt, seq, text, full, takeovers }) {
    const entry = this.#liveEntry(turn);
    if (!entry || attempt < entry.attempt) return;
    const known = attempt > entry.attempt ? -1 : entry.deltaSeq;
    if (full ? seq <= known : seq !== known + 1) return;
    entry.draft = full || known < 0 ? text : entry.draft + text;
    if (takeovers) entry.takeovers = takeovers;
    // Another worker, or the next step, begins again: text that a person has seen stays until there is more of it.
    if (entry.draft.length > entry.text.length) entry.text = entry.draft;
    // The last text of an attempt may come after the question for which it waits.
    const waiting = entry.waiting && attempt === entry.attempt;
    Object.assign(entry, { attempt, deltaSeq: seq, atWork: false, note: "", waiting });
    this.#changed(entry);
  }

  /** What the agent does; a note says why it does nothing, and is no step. */
  #progress({ turn, text, note = false }) {
    const entry = this.#liveEntry(turn);
    if (!entry) return;
    if (!note && entry.tools.at(-1) !== text) entry.tools.push(text);
    Object.assign(entry, { atWork: !note, note: note ? text : "" });
    this.#changed(entry);
  }

  #reply({ seq, turn, text, html, kind = "reply", in_reply_to: inReplyTo = [], at, media = [], buttons = [], said = false, about = "", sources = [], takeovers = [], unfinished = false, work = null, tokens = 0, branch_of: branchOf = "" }) {
    if (this.#lines.has(seq)) return;
    // Notices and the answers of commands do not belong to a turn.
    const outsideTurn = kind === "notice" || kind === "command";
    if (kind === "withdrawn") return this.#withdraw(seq, inReplyTo, at);
    // A notice outside of turns that names messages says that they were not read.
    if (kind === "notice" && !turn) this.#drop(inReplyTo);
    if (kind === "command") this.#endUpTo(turn, inReplyTo);
    const entry = (!outsideTurn && this.#live.get(turn)) || replyEntry(turn);
    if (!outsideTurn) {
      this.#live.delete(turn);
      this.#answeredTurns.add(turn);
      for (const id of inReplyTo) this.#answeredTurns.add(this.#own.get(id)?.turn);
    }
    // A reply from an older page says nothing about what is waiting now.
    const endsTurn = !outsideTurn && seq > this.top;
    for (const waiting of this.#awaiting) {
      if (inReplyTo.includes(waiting.id) || (endsTurn && waiting.turn === turn)) this.#release(waiting);
      else if (endsTurn && waiting.turn > turn) this.#setAhead(waiting, waiting.ahead - 1);
    }
    if (endsTurn) this.#closeQuestions((asked) => asked.turn === turn, at || Date.now());
    this.doubtful ||= !outsideTurn && this.turn !== null;
    const hidden = kind === "reply" && !text && !media.length;
    Object.assign(entry, { seq, text, html, kind, inReplyTo, at: at || Date.now(), media, buttons, said, about, sources, takeovers, unfinished, work: work && { ...work, tokens }, hidden, branchOf, rating: this.#ratings.of(seq) });
    if (this.#replaced.has(turn)) this.#markReplaced(entry);
    entry.done = true;
    this.#place(entry);
  }

  /** The person rated an answer, here or on another device. The line itself is not shown. */
  #rate(frame) {
    const { seq, at, rates } = frame;
    if (this.#lines.has(seq)) return;
    this.#ratings.take(frame);
    const entry = this.#lines.get(rates);
    if (entry) {
      entry.rating = this.#ratings.of(rates);
      this.#changed(entry);
    }
    this.see(seq);
    this.#place({ seq, at, hidden: true });
  }

  /** Another message came in the place of this turn: what belongs to it stays, and is marked. */
  #replace(turn) {
    this.#replaced.add(turn);
    for (const line of this.#lines.values()) if (!line.own && line.turn === turn) this.#markReplaced(line);
  }

  #markReplaced(reply) {
    for (const entry of [reply, ...this.answeredBy(reply)]) {
      entry.replaced = true;
      this.#changed(entry);
    }
  }

  /** A command ended all turns up to `turn` (0: none); their messages, named after its own, get no answer. */
  #endUpTo(turn, [, ...dropped]) {
    this.#overUpTo = Math.max(this.#overUpTo, turn);
    this.#closeQuestions((asked) => asked.turn <= turn);
    for (const [other, entry] of this.#live) {
      if (other > turn) continue;
      this.#live.delete(other);
      this.#changed(entry);
    }
    for (const waiting of this.#awaiting) if (waiting.turn <= turn) this.#release(waiting);
    this.#drop(dropped);
  }

  #drop(ids) {
    for (const id of ids) {
      this.#dropped.add(id);
      const entry = this.#own.get(id);
      if (!entry) continue;
      entry.dropped = true;
      this.#changed(entry);
    }
  }

  /** The person took messages back, here or on another device. The line itself is not shown. */
  #withdraw(seq, ids, at) {
    for (const id of ids) {
      this.#withdrawn.add(id);
      const entry = this.#own.get(id);
      if (!entry) continue;
      entry.withdrawn = true;
      const awaited = this.#awaiting.has(entry);
      const live = this.#live.get(entry.turn);
      this.#live.delete(entry.turn);
      if (live) this.#changed(live);
      this.#release(entry);
      for (const waiting of awaited ? this.#awaiting : []) {
        if (waiting.turn > entry.turn) this.#setAhead(waiting, waiting.ahead - 1);
      }
      this.#changed(entry);
    }
    this.see(seq);
    this.#place({ seq, at, hidden: true });
  }

  /** A question, or the answer to one: that line itself is not shown. */
  #approval(frame) {
    const { seq, call, state, at } = frame;
    if (this.#lines.has(seq)) return;
    if (state !== "open") {
      this.#settled.set(call, frame);
      const asked = this.#questions.get(call);
      if (asked) asked.answer = frame;
      this.#settle(asked, state);
      this.see(seq);
      return this.#place({ seq, at, hidden: true });
    }
    const entry = approvalEntry(frame);
    const over = this.#answeredTurns.has(entry.turn) || entry.turn <= this.#overUpTo;
    entry.answer = this.#settled.get(call) ?? null;
    entry.state = entry.answer?.state ?? (over ? "over" : "open");
    this.#questions.set(call, entry);
    this.#place(entry);
    this.#wait(entry.turn, entry.state === "open");
  }

  /** This page's answer is under way. */
  answering(entry) {
    entry.sent = true;
    entry.here = true;
    this.#changed(entry);
  }

  /** The decision made here did not count: the request is open again. */
  unanswered() {
    for (const entry of this.#questions.values()) {
      if (!entry.sent) continue;
      entry.here = false;
      this.#settle(entry, entry.state);
    }
  }

  #settle(entry, state) {
    if (!entry) return;
    Object.assign(entry, { state, sent: false });
    this.#changed(entry);
    if (state !== "open") this.#wait(entry.turn, false);
  }

  /** Their turn has ended at this time: nobody answered, or there was nothing to answer any more. */
  #closeQuestions(which, at = Date.now()) {
    for (const entry of this.#questions.values()) {
      if (entry.state === "open" && which(entry)) this.#settle(entry, at >= entry.expiresAt ? "expired" : "over");
    }
  }

  /** Returns whether the card of a turn has anything to show while its request is open. */
  #wait(turn, waiting) {
    const live = this.#live.get(turn);
    if (!live || live.waiting === waiting) return;
    live.waiting = waiting;
    this.#changed(live);
  }

  #history({ lines = [], more = false }) {
    if (!this.loaded) this.top = Math.max(this.top, lines.at(-1)?.seq ?? 0);
    this.loaded = true;
    this.more = more;
    for (const line of lines) this.take(line);
    this.#changed(null);
  }

  /** All lines up to `seq` have been sent. A turn that is neither in them nor running has ended. */
  #resumed({ seq, running = null, reset }) {
    this.doubtful = false;
    if (reset) return this.#forget();
    this.top = Math.max(this.top, seq);
    this.#climb();
    for (const [turn, entry] of this.#live) {
      if (turn === running) continue;
      this.#live.delete(turn);
      this.#changed(entry);
    }
    this.#closeQuestions((asked) => asked.turn !== running);
    this.unanswered();
    for (const entry of this.#awaiting) {
      if (running === null || entry.turn < running) this.#release(entry);
    }
    if (running !== null) this.#liveEntry(running);
    this.#changed(null);
  }

  #forget() {
    const pending = [...this.#pending];
    for (const map of [this.#ratings, this.#questions, this.#settled, this.#lines, this.#marks, this.#own, this.#live, this.#answeredTurns, this.#dropped, this.#withdrawn, this.#replaced, this.#joined,
      this.#awaiting]) {
      map.clear();
    }
    for (const entry of pending) this.#own.set(entry.id, entry);
    Object.assign(this, { loaded: false, more: false, top: 0, newest: 0 });
    this.#highest = this.#overUpTo = 0;
    this.#changed(null);
  }

  /** The card of a turn under way; none once its reply is here. */
  #liveEntry(turn) {
    if (turn <= this.#overUpTo || this.#answeredTurns.has(turn)) return null;
    let entry = this.#live.get(turn);
    if (!entry) {
      entry = replyEntry(turn);
      entry.waiting = [...this.#questions.values()].some((asked) => asked.turn === turn && asked.state === "open");
      this.#live.set(turn, entry);
      this.#changed(entry);
    }
    entry.ended = false;
    return entry;
  }

  /** Names a chat after its first message that is not a command. */
  #name(text) {
    if (!text.startsWith("/")) this.title ||= text.slice(0, 80);
  }

  #place(entry) {
    this.#lines.set(entry.seq, entry);
    this.#highest = Math.max(this.#highest, entry.seq);
    this.newest = Math.max(this.newest, entry.seq);
    // Questions do not count, as in the gateway's list: a row keeps its place and time when the page is loaded again.
    if (!entry.approval && !(entry.hidden && !entry.text)) this.at = Math.max(this.at, entry.at);
    this.#climb();
    this.#changed(entry);
  }

  #climb() {
    while (this.#lines.has(this.top + 1)) this.top += 1;
  }

  #release(entry) {
    this.#awaiting.delete(entry);
    this.#setAhead(entry, 0);
  }

  #setAhead(entry, ahead) {
    if (entry.ahead === Math.max(0, ahead)) return;
    entry.ahead = Math.max(0, ahead);
    this.#changed(entry);
  }
}
