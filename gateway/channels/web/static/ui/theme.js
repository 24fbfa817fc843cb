/* Light or dark. A plain script in the head, so that the first paint already has the right colours. */
"use strict";

{
  const KEY = "shoal.theme";
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");

  const systemTheme = () => (system.matches ? "dark" : "light");
  const theme = () => root.dataset.theme ?? systemTheme();

  /* A choice that agrees with the system is not kept: the page then follows the system again. */
  function choose(name) {
    try {
      if (name === systemTheme()) {
        delete root.dataset.theme;
        localStorage.removeItem(KEY);
      } else {
        root.dataset.theme = name;
        localStorage.setItem(KEY, name);
      }
    } catch {
      root.dataset.theme = name;
    }
  }

  function restore() {
    try {
      const kept = localStorage.getItem(KEY);
      if (kept === "light" || kept === "dark") root.dataset.theme = kept;
    } catch {
      /* Without storage the system decides. */
    }
  }

  function label() {
    const other = theme() === "dark" ? "Light theme" : "Dark theme";
    document.querySelector("#theme span").textContent = other;
  }

  restore();
  document.addEventListener("DOMContentLoaded", () => {
    label();
    system.addEventListener("change", label);
    document.addEventListener("themechange", label);
    document.querySelector("#theme").addEventListener("click", () => {
      choose(theme() === "dark" ? "light" : "dark");
      label();
    });
  });
}
