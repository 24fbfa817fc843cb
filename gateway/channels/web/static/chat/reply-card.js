/** An answer: being thought about, streamed, or finished. */

import { AnswerTools, isAnswer } from "../answers/tools.js";
import { copyButton, furnish } from "../ui/code-box.js";
import { icon, make, timestamp } from "../ui/dom.js";
import { mediaList } from "../ui/media.js";
import { showStream } from "./stream.js";
import { takeoverList } from "./takeovers.js";
import { workLog } from "./work-log.js";

const ORIGINS = { schedule: "Scheduled", subagent: "From a subagent" };
const QUOTE_CHARACTERS = 120;

/** The rule where a conversation ended: the agent knows nothing of what stands above, but for its memory. */
function ruleBelow() {
  const words = make("span", { ariaHidden: "true" }, "New conversation");
  return make("div", { className: "rule", role: "separator", ariaLabel: "New conversation" }, words);
}

export class ReplyCard {
  #entry;
  #body = make("div", { className: "body", dir: "auto" });
  #progress = make("div", { className: "progress" });
  #takeovers = make("div", { className: "takeovers" });
  #quote = null;
  #buttons = null;
  #tools = null;
  #actions;

  /** `actions`: those of answers/tools.js, say(text), again(entry), origin(id), which makes a link, steps(turn), which resolves to the steps of a turn or fails with the reason. */
  constructor(entry, actions) {
    this.#entry = entry;
    this.#actions = actions;
    this.node = make("article", { className: "card reply", ariaLabel: "Shoal" }, this.#body, this.#progress, this.#takeovers);
    this.node.dataset.turn = entry.turn;
    this.update();
  }

  /** True while the streamed text stands where the finished answer will: the next update swaps the words. */
  get willSwap() {
    return this.#entry.done && this.node.dataset.state === "streaming" && this.#body.childElementCount > 0;
  }

  update() {
    if (!this.#entry.done) return this.#stream(this.#entry);
    this.#finish(this.#entry);
    this.#tools?.update();
    if (this.#entry.replaced) this.#markReplaced();
  }

  /** Names the message that is answered; `text` is empty when it stands right above. */
  quote(text) {
    const short = text.length > QUOTE_CHARACTERS ? `${text.slice(0, QUOTE_CHARACTERS)}…` : text;
    if (!short) this.#quote?.remove();
    else if (!this.#quote?.isConnected) {
      this.#quote = make("p", { className: "quote", title: "In reply to" }, icon("reply"), make("span", {}, short));
      this.node.prepend(this.#quote);
    }
  }

  /** Shows the answers on offer, which only the newest word of the agent does, until the person writes. */
  offer(newest) {
    const { done, buttons } = this.#entry;
    if (!newest || !done || !buttons.length) {
      this.#buttons?.remove();
      this.#buttons = null;
    } else if (!this.#buttons) {
      const press = (label) => make("button", { type: "button", onclick: () => this.#actions.say(label) }, label);
      this.#buttons = make("div", { className: "buttons", role: "group", ariaLabel: "Answers" }, ...buttons.map(press));
      this.node.insertBefore(this.#buttons, this.node.querySelector("footer"));
    }
  }

  #stream({ text, tools, atWork, note, ended, waiting, takeovers }) {
    takeoverList(this.#takeovers, takeovers);
    this.node.dataset.state = "streaming";
    this.node.hidden = waiting && !text;
    this.node.ariaBusy = "true";
    showStream(this.#body, text);
    if (ended || waiting) this.#progress.replaceChildren();
    else if (note) this.#showDoing(make("span", { className: "note" }, note));
    else if (atWork) this.#showDoing(make("code", {}, tools.at(-1)));
    else if (!text) this.#showThinking();
    else this.#progress.replaceChildren();
  }

  #showThinking() {
    if (this.#progress.querySelector(".dots")) return;
    const dots = make("span", { className: "dots", role: "img", ariaLabel: "Thinking" });
    dots.append(make("i"), make("i"), make("i"));
    this.#progress.replaceChildren(dots);
  }

  #showDoing(what) {
    if (this.#progress.textContent === what.textContent) return;
    this.#progress.replaceChildren(make("span", { className: "spinner" }), what);
  }

  #markReplaced() {
    if (this.node.classList.contains("replaced")) return;
    this.node.classList.add("replaced");
    this.node.querySelector(":scope > footer")?.prepend(make("span", { className: "mark" }, "Replaced"));
  }

  #finish({ seq, turn, text, html, kind, tools, at, media, said, about, sources, takeovers, work, branchOf }) {
    if (this.node.dataset.state === "done") return;
    takeoverList(this.#takeovers, takeovers);
    this.node.hidden = false;
    Object.assign(this.node.dataset, { state: "done", seq, kind: said ? "said" : kind });
    this.node.ariaBusy = "false";
    if (ORIGINS[about]) this.node.prepend(make("p", { className: "origin" }, ORIGINS[about]));
    if (html) {
      this.#body.innerHTML = html;
      furnish(this.#body);
    } else showStream(this.#body, text);
    if (branchOf) (this.#body.lastElementChild ?? this.#body).append(" ", this.#actions.origin(branchOf));
    this.#progress.replaceWith(...mediaList(media));
    const footer = make("footer");
    if (kind === "stopped") footer.append(make("span", { className: "mark" }, "Stopped"));
    if (sources.length) {
      const title = "Text of others may have shaped this answer. I ask before I act on it; /trust or /new ends that.";
      footer.append(make("span", { className: "read", title }, `After reading ${sources.join(", ")}`));
    }
    if (text) footer.append(copyButton(() => text, "Copy", "quiet"));
    if (isAnswer(this.#entry)) {
      this.#tools = new AnswerTools(this.#entry, this.#actions);
      footer.append(...this.#tools.nodes);
    }
    if (kind === "apology") footer.append(this.#again());
    footer.append(timestamp(at));
    if (work) this.node.append(workLog(work, () => this.#actions.steps(this.#entry.turn)));
    else if (tools.length) this.node.append(this.#used(tools));
    this.node.append(footer);
    if (kind === "command" && turn > 0) this.node.append(ruleBelow());
  }

  /** Sends what could not be answered once more, as a new message. */
  #again() {
    const press = () => this.#actions.again(this.#entry);
    return make("button", { type: "button", className: "link again", onclick: press }, "Try again");
  }

  #used(tools) {
    const count = tools.length === 1 ? "Used 1 tool" : `Used ${tools.length} tools`;
    const steps = tools.map((tool) => make("li", {}, make("code", {}, tool)));
    return make("details", {}, make("summary", {}, icon("chevron"), count), make("ol", {}, ...steps));
  }
}
