/** A menu of actions that opens at a button; one is open at a time. */

import { icon, make } from "./dom.js";

let close = () => {};

/** `items` are `{label, symbol, action, danger}`. The keyboard works as in any menu; Escape goes back to the button. */
export function openMenu(button, label, items) {
  close();
  const rows = items.map(({ label: text, symbol, action, danger }) => {
    const run = () => {
      close();
      action();
    };
    const className = danger ? "danger" : "";
    return make("button", { type: "button", role: "menuitem", tabIndex: -1, className, onclick: run }, icon(symbol), text);
  });
  const menu = make("div", { className: "menu", role: "menu", ariaLabel: label }, ...rows);
  const outside = ({ target }) => !menu.contains(target) && !button.contains(target) && close();
  const leave = () => close();
  close = () => {
    close = () => {};
    document.removeEventListener("pointerdown", outside);
    removeEventListener("resize", leave);
    button.ariaExpanded = "false";
    menu.remove();
  };
  menu.addEventListener("keydown", (event) => {
    const at = rows.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[event.key];
    if (to !== undefined) rows.at(to % rows.length).focus();
    else if (event.key === "Escape" || event.key === "Tab") {
      close();
      button.focus();
    } else return;
    event.stopPropagation();
    if (event.key !== "Tab") event.preventDefault();
  });
  button.ariaExpanded = "true";
  // After the button: the Tab key and screen readers find it there.
  button.after(menu);
  const place = button.getBoundingClientRect();
  const below = place.bottom + menu.offsetHeight + 8 < innerHeight;
  menu.style.setProperty("--left", `${Math.max(8, Math.min(place.left, innerWidth - menu.offsetWidth - 8))}px`);
  menu.style.setProperty("--top", `${below ? place.bottom + 4 : Math.max(8, place.top - menu.offsetHeight - 4)}px`);
  rows[0].focus();
  document.addEventListener("pointerdown", outside);
  addEventListener("resize", leave);
}
