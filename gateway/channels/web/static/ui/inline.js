/** The few marks of Markdown that would look odd in text that is still being written. */

const MARKS = /(`[^`\n]+`|\*\*[^*\n]+\*\*)/;

/** Text as nodes: **bold** and `code` as elements, everything else as it is. Unfinished marks stay text. */
export function inlineNodes(text) {
  return text.split(MARKS).filter(Boolean).map((piece) => {
    if (piece.length > 2 && piece.startsWith("`") && piece.endsWith("`")) return element("code", piece.slice(1, -1));
    if (piece.length > 4 && piece.startsWith("**") && piece.endsWith("**")) return element("strong", piece.slice(2, -2));
    return document.createTextNode(piece);
  });
}

function element(tag, text) {
  const node = document.createElement(tag);
  node.textContent = text;
  return node;
}
