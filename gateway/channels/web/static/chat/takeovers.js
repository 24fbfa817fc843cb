/** What a person reads about workers that died while they wrote an answer. */

import { icon, make } from "../ui/dom.js";

/** As much of a worker's name as tells two of them apart; `shoal top` shows more. */
const NAME_CHARACTERS = 4;

/** Makes `node` list `takeovers`: one line for each worker that died. */
export function takeoverList(node, takeovers) {
  for (const { lost, by, after_ms: ms } of takeovers.slice(node.childElementCount)) {
    const time = ms < 10_000 ? `${ms} ms` : `${Math.round(ms / 1000)} s`;
    const [died, next] = [lost, by].map((name) => make("code", { title: name }, name.slice(0, NAME_CHARACTERS)));
    node.append(make("p", {}, icon("takeover"), make("span", {}, "Worker ", died, " died; ", next, ` went on after ${time}`)));
  }
}
