/** Code and tables in boxes of their own, and buttons that copy. */

import { icon, make } from "./dom.js";

const COPIED_MS = 1_600;

/** A button that copies what `text()` returns and says so for a moment. */
export function copyButton(text, label, className = "") {
  const word = make("span", {}, label);
  const button = make("button", { type: "button", className: `copy ${className}` }, icon("copy"), word);
  button.addEventListener("click", async () => {
    await copy(text());
    button.firstChild.replaceWith(icon("check"));
    word.textContent = "Copied";
    setTimeout(() => {
      button.firstChild.replaceWith(icon("copy"));
      word.textContent = label;
    }, COPIED_MS);
  });
  return button;
}

async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // Plain-HTTP addresses have no clipboard object; the old way still works there.
  const area = make("textarea", { value: text, className: "unseen" });
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

/** A box with the language, a copy button, and `pre`, or an empty one to write into. */
export function codeBox(language, pre = make("pre", {}, make("code"))) {
  const head = make("header", {}, make("span", {}, language || "text"), copyButton(() => pre.textContent, "Copy"));
  pre.tabIndex = 0;
  return make("div", { className: "code", data: { language } }, head, pre);
}

/** Finishes HTML that came from the gateway: boxes around code and wide tables, links in a new tab. */
export function furnish(body) {
  for (const pre of body.querySelectorAll("pre")) {
    const language = pre.querySelector("code")?.className.match(/language-(\S+)/)?.[1] ?? "";
    const place = document.createComment("");
    pre.replaceWith(place);
    place.replaceWith(codeBox(language, pre));
  }
  for (const table of body.querySelectorAll("table")) {
    const box = make("div", { className: "table", tabIndex: 0, role: "region", ariaLabel: "Table" });
    table.replaceWith(box);
    box.append(table);
  }
  // Wide ones can be scrolled, which the keyboard needs a place for.
  for (const formula of body.querySelectorAll(".formula")) formula.tabIndex = 0;
  for (const link of body.querySelectorAll("a[href]")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer";
  }
}
