/** Keeps the reader's place: at the end if that is where they are, else on the words they were reading. */

/** Within this many pixels of the end, the reader is at the end. */
const NEAR_PX = 24;
/** This near the first line, older ones are wanted. */
const TOP_PX = 400;

export class Scroll {
  #scroller;
  #content;
  #jump;
  #reachedTop;
  #top = 0;
  #news = false;

  atEnd = true;

  /** `reachedTop()` is called when the reader comes near the first line. */
  constructor(scroller, content, jump, reachedTop) {
    this.#scroller = scroller;
    this.#content = content;
    this.#jump = jump;
    this.#reachedTop = reachedTop;
    scroller.addEventListener("scroll", () => this.#follow(), { passive: true });
    jump.addEventListener("click", () => this.toEnd());
    const resized = new ResizeObserver(() => this.atEnd && this.toEnd());
    resized.observe(scroller);
    resized.observe(content);
  }

  toEnd() {
    this.#scroller.scrollTop = this.#scroller.scrollHeight;
    this.#settle(true);
  }

  /** Runs `change` on the content. `swapped` is a card whose words it replaces by others of about equal length. */
  around(change, swapped = null) {
    const anchor = this.atEnd ? null : this.#firstVisible();
    const before = anchor?.getBoundingClientRect();
    change();
    if (this.atEnd) this.toEnd();
    else if (anchor?.isConnected) this.#restore(anchor, before, anchor === swapped);
    this.#lookUp();
  }

  #restore(anchor, before, swapped) {
    const after = anchor.getBoundingClientRect();
    const edge = this.#scroller.getBoundingClientRect().top;
    const hidden = edge - before.top;
    const stays = swapped && hidden > 0 ? edge - (hidden / before.height) * after.height : before.top;
    this.#scroller.scrollTop += after.top - stays;
  }

  /** Something came while the reader was elsewhere. */
  tellNews() {
    this.#news = !this.atEnd;
    this.#label();
  }

  #firstVisible() {
    const edge = this.#scroller.getBoundingClientRect().top;
    return [...this.#content.children].find((node) => node.getBoundingClientRect().bottom > edge);
  }

  /** Only the reader moves up; the page itself only ever moves down, so going up is leaving the end. */
  #follow() {
    const { scrollTop, scrollHeight, clientHeight } = this.#scroller;
    const gap = scrollHeight - clientHeight - scrollTop;
    const up = scrollTop < this.#top - 1;
    this.#top = scrollTop;
    this.#lookUp();
    if (gap < 2 || (!up && gap < NEAR_PX)) this.#settle(true);
    else if (up) this.#settle(false);
  }

  #lookUp() {
    if (this.#scroller.scrollTop < TOP_PX) this.#reachedTop();
  }

  #settle(atEnd) {
    this.atEnd = atEnd;
    this.#top = this.#scroller.scrollTop;
    if (atEnd) this.#news = false;
    this.#label();
  }

  #label() {
    this.#jump.hidden = this.atEnd;
    this.#jump.classList.toggle("news", this.#news);
    this.#jump.lastElementChild.textContent = this.#news ? "New messages" : "";
    this.#jump.ariaLabel = this.#news ? "Show the new messages" : "Go to the end";
  }
}
