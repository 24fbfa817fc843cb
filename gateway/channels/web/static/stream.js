/** Text that is still being written: paragraphs and fenced code, as plain text nodes that grow. */

import { codeBox } from "./code-box.js";

const FENCE = /^ {0,3}(`{3,})\s*([\w+#.-]*)[^`]*$/;

/** Splits at ``` fences and blank lines into `{language, text}`; language is null for a paragraph. */
function blocks(text) {
  const found = [];
  let lines = [];
  let fence = null;
  const end = () => {
    if (fence || lines.length) found.push({ language: fence && fence[2], text: lines.join("\n") });
    lines = [];
  };
  for (const line of text.split("\n")) {
    const mark = line.match(FENCE);
    const closes = fence && mark && mark[1].length >= fence[1].length && !mark[2];
    if (closes || (mark && !fence)) {
      end();
      fence = closes ? null : mark;
    } else if (!fence && !line.trim()) end();
    else lines.push(line);
  }
  end();
  return found;
}

/** Makes `body` show `text`, touching only what changed since the last call. */
export function showStream(body, text) {
  const wanted = blocks(text);
  for (const [index, block] of wanted.entries()) {
    let node = body.children[index];
    const isCode = block.language !== null;
    if (!node || node.matches(".code") !== isCode || (isCode && node.dataset.language !== block.language)) {
      const fresh = isCode ? codeBox(block.language) : document.createElement("p");
      if (node) node.replaceWith(fresh);
      else body.append(fresh);
      node = fresh;
    }
    growText(isCode ? node.querySelector("code") : node, block.text);
  }
  while (body.children.length > wanted.length) body.lastChild.remove();
}

/** Appends where it can, so that a selection in the text survives. */
function growText(node, text) {
  const shown = node.textContent;
  if (shown === text) return;
  if (shown && text.startsWith(shown)) node.firstChild.appendData(text.slice(shown.length));
  else node.textContent = text;
}
