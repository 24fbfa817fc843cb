/** Entries of a chat, the data that cards show. `seq` is 0 until the entry is a line of the log; times are in ms. */

const COMMAND = /^\s*\/\w+(\s|$)/;

/**
 * `state` is sending, received or failed (then `reason` says why); `ahead` counts the turns to be run first. `dropped`
 * means that it gets no answer, `withdrawn` that the person took it back.
 */
export function ownEntry(id, text, at, media = []) {
  const marks = { dropped: false, withdrawn: false, replaced: false };
  return { own: true, id, text, media, at, seq: 0, turn: 0, state: "sending", ahead: 0, reason: "", ...marks };
}

/**
 * `draft` is what was streamed (up to `deltaSeq` of `attempt`); `text` is the longest draft, then the final text, with
 * its `html`.
 * `tools` are the steps so far, `atWork` says that the last one is the latest news; `note` says why nothing happens.
 * `ended` means that the turn is
 * over, `done` that the reply is here; `kind` is reply, stopped, apology, notice or command. `said` marks a notice that
 * is the agent's own word, with `media` and `buttons`; a reply that only ends its turn is `hidden`. `about` is what the
 * turn began with when nobody had written: schedule or subagent. `sources` name others whose text the turn had read. `waiting` means that the turn waits for the answer to a
 * question, and has nothing else to show. `takeovers` name workers that died while they wrote it,
 * `work` says how it came about. `rating` is the person's: up, down or "". `branchOf` names the chat of which this one
 * is a branch, at its head.
 */
export function replyEntry(turn) {
  return {
    own: false, turn, seq: 0, text: "", draft: "", html: "", kind: "reply", at: 0, inReplyTo: [],
    media: [], buttons: [], said: false, about: "", sources: [], takeovers: [], unfinished: false, work: null, rating: "", branchOf: "", replaced: false, hidden: false, waiting: false, attempt: 0, deltaSeq: -1, tools: [], atWork: false, note: "", ended: false, done: false,
  };
}

/**
 * A request to run a tool. `call` names it, `digest` covers its exact arguments; after `expiresAt` it is refused.
 * `sources` are the strangers whose text the agent has read.
 * `touches` says what the call reaches; `safe`: it is known to change nothing; `standing`: a yes can be given for good.
 * `state` is open, yes, no, expired, or over (its turn has ended); `sent` means that this page's answer is under way,
 * `here` that it was given here, and `answer` is the frame of it.
 */
export function approvalEntry(frame) {
  const { call, tool, arguments: shown = "", digest = "", expires_at: expiresAt = 0, sources = [], turn, seq, at } = frame;
  const { touches = [], safe = false, standing = false } = frame;
  const marks = { own: false, approval: true, state: "open", sent: false, here: false, answer: null };
  const asked = { call, tool, arguments: shown, digest, expiresAt, sources, touches, safe, standing };
  return { ...marks, ...asked, turn, seq, at: at || Date.now() };
}

/** Returns whether an entry is a command, or the answer to one that changed no turn. */
export function isChoice({ own, kind, turn, text }) {
  return own ? COMMAND.test(text) : kind === "command" && !turn;
}

/**
 * Returns whether suggested answers of earlier lines end with this one: the person wrote, or the agent sent something
 * else. Notices and commands with their answers leave them, except a command that ended the turns.
 */
export function endsOffers({ own, approval, done, said, kind, turn, text }) {
  if (own) return !COMMAND.test(text);
  if (approval || !done) return false;
  if (kind === "command") return turn > 0;
  return said || kind !== "notice";
}
