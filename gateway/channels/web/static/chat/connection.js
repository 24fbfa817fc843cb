/** The socket: one that is open or being opened again, until it is closed for good. */

/** A gateway that was killed is back within seconds, and so is the page. After that the delays grow. */
const RETRY_MS = 300;
const SOON_MS = 5_000;
const FIRST_DELAY_MS = 1_000;
const LAST_DELAY_MS = 5_000;
/** A socket whose network has vanished looks open; an answer that does not come gives it away. */
const ANSWER_WITHIN_MS = 10_000;
const ANSWERED = new Set(["hello", "message", "resume", "chats", "feed", "history"]);

export class Connection {
  #token;
  #events;
  #socket = null;
  #attempt = 0;
  #lostAt = null;
  #retry = null;
  #deadline = null;

  /** True between the gateway's welcome and the loss of the socket. */
  open = false;

  /** `events`: welcomed(frame), frame(frame), lost(), refused(message). */
  constructor(token, events) {
    this.#token = token;
    this.#events = events;
    addEventListener("online", this.#now);
    addEventListener("pageshow", this.#now);
    document.addEventListener("visibilitychange", this.#now);
    this.#connect();
  }

  /** False when there is no connection; nothing is kept here for later. */
  send(frame) {
    if (!this.open) return false;
    this.#write(frame);
    return true;
  }

  close() {
    removeEventListener("online", this.#now);
    removeEventListener("pageshow", this.#now);
    document.removeEventListener("visibilitychange", this.#now);
    clearTimeout(this.#retry);
    this.#drop();
  }

  #connect() {
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(`${scheme}//${location.host}/ws`);
    this.#socket = socket;
    this.#expectAnswer();
    socket.onopen = () => this.#write({ type: "hello", token: this.#token, timezone: zone(), device: device() });
    socket.onmessage = ({ data }) => this.#onFrame(JSON.parse(data));
    socket.onclose = () => this.#again();
  }

  #onFrame(frame) {
    clearTimeout(this.#deadline);
    this.#deadline = null;
    if (frame.type === "welcome") {
      this.open = true;
      this.#events.welcomed(frame);
    } else if (frame.type === "error" && frame.code === "not_allowed" && !frame.id) {
      this.close();
      this.#events.refused(frame.message);
    } else {
      // Only now: a gateway that welcomes and hangs up at once must not be called in a tight circle.
      if (frame.type !== "error") this.#startOver();
      this.#events.frame(frame);
    }
  }

  #write(frame) {
    this.#socket.send(JSON.stringify(frame));
    if (ANSWERED.has(frame.type)) this.#expectAnswer();
  }

  #expectAnswer() {
    this.#deadline ??= setTimeout(() => this.#again(), ANSWER_WITHIN_MS);
  }

  /**
   * Lets go of the socket and comes back: at first about every RETRY_MS, then after a delay drawn from all of a growing
   * window (full jitter), so that a crowd does not come at once to a gateway that starts late.
   */
  #again() {
    this.#drop();
    const now = performance.now();
    this.#lostAt ??= now;
    const soon = now - this.#lostAt < SOON_MS;
    const window = soon ? RETRY_MS : Math.min(LAST_DELAY_MS, FIRST_DELAY_MS * 2 ** this.#attempt++);
    this.#retry = setTimeout(() => this.#connect(), (soon ? window / 2 : 0) + Math.random() * window);
    this.#events.lost();
  }

  #startOver() {
    this.#attempt = 0;
    this.#lostAt = null;
  }

  #drop() {
    clearTimeout(this.#deadline);
    this.#deadline = null;
    this.#socket.onopen = this.#socket.onmessage = this.#socket.onclose = null;
    this.#socket.close();
    this.open = false;
  }

  /** The person looks at the page, or the network is back: no more waiting. */
  #now = () => {
    if (document.hidden || this.#socket.readyState < WebSocket.CLOSING) return;
    clearTimeout(this.#retry);
    this.#startOver();
    this.#connect();
  };
}

/** What an answer of this page is said to come from, on the person's other devices. */
function device() {
  return matchMedia("(pointer: coarse) and (max-width: 48rem)").matches ? "phone" : "page";
}

/** Of the person, for their reminders. */
function zone() {
  return Intl.DateTimeFormat().resolvedOptions().timeZone ?? "";
}
