/** A note about something that can be taken back for a while. */

import { make } from "./dom.js";

/** `undo()` is called when the person wants it back, else `over()`, once the time has passed. */
export function offerUndo(text, seconds, { undo, over }) {
  const button = make("button", { type: "button", className: "link" }, "Undo");
  const note = make("p", { className: "toast" }, make("span", {}, text), button);
  const end = setTimeout(() => {
    note.remove();
    over();
  }, seconds * 1000);
  button.addEventListener("click", () => {
    clearTimeout(end);
    note.remove();
    undo();
  });
  document.querySelector("#toasts").append(note);
}
