// A payload as a folding tree. It is shown as text, never as markup. Folded parts are not in the document.

import { h, visible } from "./dom.js";
import { plural } from "./format.js";

const SHOWN = 100;
const LONG = 2000;

const text = (className, value) => Object.assign(document.createElement("span"), { className, textContent: visible(value) });

const leaf = (value) => {
  if (value === null) return text("j-null", "null");
  if (value instanceof Exact) return text("j-number", value.source);
  if (typeof value !== "string") return text(`j-${typeof value}`, String(value));
  const whole = JSON.stringify(value);
  const span = text("j-string", whole.length > LONG ? `${whole.slice(0, LONG)}…` : whole);
  if (whole.length > LONG) {
    const more = Object.assign(document.createElement("button"), { type: "button", className: "j-more", textContent: `show all ${whole.length.toLocaleString("en-GB")} characters` });
    more.addEventListener("click", () => { span.textContent = visible(whole); more.remove(); });
    const both = document.createElement("span");
    both.append(span, " ", more);
    return both;
  }
  return span;
};

const isBranch = (value) => value !== null && typeof value === "object" && !(value instanceof Exact);

const line = (key, value, depth) => {
  const row = document.createElement("div");
  const name = key === null ? [] : [text("j-key", typeof key === "number" ? key : JSON.stringify(key)), text("j-mark", ": ")];
  if (!isBranch(value)) {
    row.append(...name, leaf(value));
    return row;
  }
  const entries = Array.isArray(value) ? value.map((one, i) => [i, one]) : Object.entries(value);
  const [from, to] = Array.isArray(value) ? "[]" : "{}";
  if (!entries.length) {
    row.append(...name, text("j-mark", from + to));
    return row;
  }
  const fold = document.createElement("details");
  const summary = document.createElement("summary");
  summary.append(...name, text("j-mark", from), text("j-count", plural(entries.length, Array.isArray(value) ? "item" : "field")), text("j-mark", to));
  fold.append(summary);
  const fill = () => {
    if (fold.childElementCount > 1) return;
    const inside = document.createElement("div");
    inside.className = "j-inside";
    add(inside, entries, 0, depth);
    fold.append(inside);
  };
  fold.addEventListener("toggle", () => fold.open && fill());
  if (depth < 2 || (depth < 4 && entries.length <= 12)) {
    fold.open = true;
    fill();
  }
  row.append(fold);
  return row;
};

const add = (parent, entries, from, depth) => {
  for (const [key, value] of entries.slice(from, from + SHOWN)) parent.append(line(key, value, depth + 1));
  const left = entries.length - from - SHOWN;
  if (left <= 0) return;
  const more = Object.assign(document.createElement("button"), { type: "button", className: "j-more", textContent: `${left.toLocaleString("en-GB")} more` });
  more.addEventListener("click", () => { more.remove(); add(parent, entries, from + SHOWN, depth); });
  parent.append(more);
};

/** A number as it was written, if a double would change it. */
export class Exact {
  constructor(source) {
    this.source = source;
  }

  toJSON() {
    return JSON.rawJSON ? JSON.rawJSON(this.source) : Number(this.source);
  }
}

/** Parse without losing digits, in browsers that report the source text of numbers. */
export const parse = (json) =>
  JSON.parse(json, (key, value, context) =>
    typeof value === "number" && context?.source !== undefined && !Number.isSafeInteger(value) && String(value) !== context.source ? new Exact(context.source) : value);

/** A value as a collapsible tree. `key` changes with the value. */
export const jsonTree = (value, key) => h("div.json", { key, static: true, mount: (el) => el.append(line(null, value, 0)) });
