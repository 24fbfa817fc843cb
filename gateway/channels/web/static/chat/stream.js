/** Text that is still being written: headings, paragraphs and fenced code, as nodes that grow. */

import { codeBox } from "../ui/code-box.js";
import { make } from "../ui/dom.js";

const FENCE = /^ {0,3}(`{3,})\s*([\w+#.-]*)[^`]*$/;
const HEADING = /^(#{1,6}) +(.*)$/;
/** The few marks that would look odd in text that is still being written. */
const MARKS = /(`[^`\n]+`|\*\*[^*\n]+\*\*)/;
const ITEM = /^([ \t]*)[-*+] (?=\S)/gm;
const EMPTY_ITEM = /^[ \t]*[-*+] ?$/;
const MARKS_OF_CODE = /\x60[^\x60\n]*\x60/g;
/** A bold word of the last line that has begun and not ended. */
const OPEN_BOLD = /\*\*(?=[^\s*])[^*\n]*$/;

/** Splits at ``` fences, headings and blank lines into `{tag, language, text}`; a code block's tag is `pre`. */
function blocks(text) {
  const found = [];
  let lines = [];
  let fence = null;
  const end = () => {
    if (fence) found.push({ tag: "pre", language: fence[2], text: lines.join("\n") });
    else if (lines.length) found.push({ tag: "p", text: lines.join("\n") });
    lines = [];
  };
  for (const line of text.split("\n")) {
    const mark = line.match(FENCE);
    const heading = !fence && line.match(HEADING);
    const closes = fence && mark && mark[1].length >= fence[1].length && !mark[2];
    if (closes || (mark && !fence)) {
      end();
      fence = closes ? null : mark;
    } else if (heading) {
      end();
      found.push({ tag: `h${heading[1].length}`, text: heading[2] });
    } else if (!fence && !line.trim()) end();
    else lines.push(line);
  }
  end();
  return found;
}

/** The text of a block without a flicker of marks: bullets for items, and what its last line has opened is closed. */
function smooth(text, growing) {
  const shown = text.replaceAll(ITEM, "$1• ");
  return growing ? closeMarks(shown) : shown;
}

function closeMarks(text) {
  const line = text.slice(text.lastIndexOf("\n") + 1);
  if (EMPTY_ITEM.test(line)) return text.slice(0, -line.length);
  if (line.split("`").length % 2 === 0) return line.endsWith("`") ? text.slice(0, -1) : text + "`";
  const marks = line.replaceAll(MARKS_OF_CODE, "").match(/\*\*/g)?.length ?? 0;
  const bare = text.replace(/\*{1,2}$/, "");
  if (marks % 2) return OPEN_BOLD.test(bare) ? `${bare}**` : bare;
  return /(?:^|\s)\*$/.test(line) ? bare : text;
}

/** Makes `body` show `text`, touching only what changed since the last call. */
export function showStream(body, text) {
  const wanted = blocks(text);
  for (const [index, block] of wanted.entries()) {
    let node = body.children[index];
    if (!node || !fits(node, block)) {
      const fresh = block.tag === "pre" ? codeBox(block.language) : document.createElement(block.tag);
      if (node) node.replaceWith(fresh);
      else body.append(fresh);
      node = fresh;
    }
    if (block.tag === "pre") growText(node.querySelector("code"), block.text);
    else growWords(node, smooth(block.text, index === wanted.length - 1));
  }
  while (body.children.length > wanted.length) body.lastChild.remove();
}

function fits(node, { tag, language }) {
  return tag === "pre" ? node.matches(".code") && node.dataset.language === language : node.localName === tag;
}

/** Appends where it can, so that a selection in the text survives. */
function growText(node, text) {
  const shown = node.textContent;
  if (shown === text) return;
  if (shown && text.startsWith(shown)) node.firstChild.appendData(text.slice(shown.length));
  else node.textContent = text;
}

const sources = new WeakMap();

/** Does the same for text with marks: only nodes after the last finished mark are rebuilt. */
function growWords(node, text) {
  const shown = sources.get(node) ?? "";
  if (shown === text) return;
  sources.set(node, text);
  const more = text.slice(shown.length);
  const last = node.lastChild;
  if (text.startsWith(shown) && last instanceof Text && !/[`*]/.test(last.data + more)) last.appendData(more);
  else node.replaceChildren(...inlineNodes(text));
}

/** Text as nodes: **bold** and `code` as elements, everything else as it is. Unfinished marks stay text. */
function inlineNodes(text) {
  return text.split(MARKS).filter(Boolean).map((piece) => {
    if (piece.length > 2 && piece.startsWith("`") && piece.endsWith("`")) return make("code", {}, piece.slice(1, -1));
    if (piece.length > 4 && piece.startsWith("**") && piece.endsWith("**")) return make("strong", {}, piece.slice(2, -2));
    return document.createTextNode(piece);
  });
}
