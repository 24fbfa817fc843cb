/** The person's ratings of answers, by the number of the answer. Each is a line of the log; the newest one counts. */
export class Ratings {
  #newest = new Map();

  /** Takes a line that rates another one; in pages of the log an older one may come later. */
  take({ seq, rates, rating = "" }) {
    if (seq > (this.#newest.get(rates)?.seq ?? 0)) this.#newest.set(rates, { seq, rating });
  }

  /** "up", "down" or "". */
  of(seq) {
    return this.#newest.get(seq)?.rating ?? "";
  }

  clear() {
    this.#newest.clear();
  }
}
