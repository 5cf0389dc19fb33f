// Keyboard shortcuts: Ctrl-K searches everything, / searches the page, g and a letter open a page, j and k move through rows, ? shows the list.

import { h } from "./dom.js";
import { showMessage } from "./dialog.js";
import { nav } from "./routes.js";
import { go } from "./router.js";
import { searchEverything } from "./search.js";

const PATIENCE = 1500;
let waitsForLetter = 0;

const help = () => {
  const row = (keys, text) => h("div", h("dt", keys.map((one) => h("kbd", one))), h("dd", text));
  return showMessage({
    title: "Keyboard",
    text: [
      h("dl.keys", row(["Ctrl", "K"], "Search everything"), row(["/"], "Search this page"), row(["j", "k"], "Next and previous row"), row(["Enter"], "Open the row"), row(["Esc"], "Leave a field or dialog"),
        nav.flatMap((one) => one.items).map((one) => row(["g", one.key], one.label)), row(["?"], "This list")),
    ],
  });
};

const walk = (step) => {
  const links = [...document.querySelectorAll("main .row-link")];
  if (!links.length) return;
  const at = links.indexOf(document.activeElement);
  links[at < 0 ? (step > 0 ? 0 : links.length - 1) : Math.max(0, Math.min(links.length - 1, at + step))].focus();
};

export const keys = () =>
  document.addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey) {
      event.preventDefault();
      searchEverything();
      return;
    }
    const field = event.target.closest("input, textarea, select, [contenteditable]");
    if (event.key === "Escape" && field && !event.target.closest("dialog")) return field.blur();
    if (field || event.metaKey || event.ctrlKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (performance.now() < waitsForLetter) {
      waitsForLetter = 0;
      const found = nav.flatMap((one) => one.items).find((one) => one.key === event.key);
      if (found) {
        event.preventDefault();
        go(found.path);
      }
      return;
    }
    const act = { "/": () => document.querySelector("[data-search]")?.focus(), g: () => { waitsForLetter = performance.now() + PATIENCE; }, "?": help, j: () => walk(1), k: () => walk(-1) }[event.key];
    if (act) {
      event.preventDefault();
      act();
    }
  });

export { help };
