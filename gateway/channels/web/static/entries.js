/** The two kinds of bubbles, as data. `seq` is 0 until the entry is a line of the log; times are in ms. */

/**
 * `state` is sending, received or failed (then `reason` says why); `ahead` counts the turns to be run first. `dropped`
 * means that it gets no answer.
 */
export function ownEntry(id, text, at) {
  return { own: true, id, text, at, seq: 0, turn: 0, state: "sending", ahead: 0, reason: "", dropped: false };
}

/**
 * `text` is what was streamed (up to `deltaSeq` of `attempt`), then the final text, with its `html`.
 * `tools` are the steps so far, `atWork` says that the last one is the latest news. `ended` means that the turn is
 * over, `done` that the reply is here; `kind` is reply, stopped, apology, notice or command.
 */
export function replyEntry(turn) {
  return {
    own: false, turn, seq: 0, text: "", html: "", kind: "reply", at: 0, inReplyTo: [],
    attempt: 0, deltaSeq: -1, tools: [], atWork: false, ended: false, done: false,
  };
}
