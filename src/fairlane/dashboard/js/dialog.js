// Dialogs before an action, and short messages after it.

import { draw, h } from "./dom.js";
import { icon } from "./icons.js";

const show = (build) =>
  new Promise((resolve) => {
    const before = document.activeElement;
    const box = document.createElement("dialog");
    let answer = null;
    const close = (value) => {
      answer = value;
      box.close();
    };
    box.addEventListener("close", () => {
      box.remove();
      before?.focus?.();
      resolve(answer);
    });
    box.addEventListener("click", (event) => event.target === box && close(null));
    document.body.append(box);
    const state = {};
    const redraw = () => draw(box, build({ close, redraw, state }));
    redraw();
    box.showModal();
    (box.querySelector("[autofocus]") ?? box.querySelector("input, textarea, select, button.is-primary, button"))?.focus();
  });

const frame = (title, { close, submit, label, kind, ready = true }, ...inside) =>
  h("form", { onsubmit: (event) => { event.preventDefault(); if (ready) submit(); }, "aria-labelledby": "dialog-title" },
    h("header", h("h2", { id: "dialog-title" }, title), h("button.icon-button", { type: "button", "aria-label": "Close", onclick: () => close(null) }, icon("close"))),
    h("div.dialog-body", ...inside),
    h("footer", h("button.button", { type: "button", onclick: () => close(null) }, label ? "Cancel" : "Close"),
      label && h("button.button", { type: "submit", class: `is-${kind}`, disabled: !ready }, label)));

const sentences = (text) => [text].flat().map((one) => (typeof one === "string" ? h("p", one) : one));

/** A confirmation. Resolves to true or null. */
export const confirm = ({ title, text, label, kind = "primary" }) =>
  show(({ close }) => frame(title, { close, submit: () => close(true), label, kind }, sentences(text)));

/** A confirmation of something destructive: the name must be typed. Resolves to true or null. */
export const confirmByName = ({ title, text, name, label }) =>
  show(({ close, redraw, state }) =>
    frame(title, { close, submit: () => close(true), label, kind: "danger", ready: state.typed === name }, sentences(text),
      h("label.field", h("span", "Type ", h("b.mono", name), " to confirm"),
        h("input", { type: "text", autocomplete: "off", spellcheck: "false", autofocus: true, oninput: (event) => { state.typed = event.currentTarget.value; redraw(); } }))));

/**
 * Ask for values. fields: [{ name, label, type: "text" | "number" | "select" | "checkbox" | "textarea" | "datetime-local", value, options, hint, required, when: (values) => bool }]
 * Resolves to the values by name, or null. `preview(values, redraw)` may return a tree to show below the fields.
 */
export const ask = ({ title, text = [], fields, label, kind = "primary", preview }) =>
  show(({ close, redraw, state }) => {
    state.values ??= Object.fromEntries(fields.map((one) => [one.name, one.value ?? (one.type === "checkbox" ? false : "")]));
    const shown = fields.filter((one) => !one.when || one.when(state.values));
    const ready = shown.every((one) => !one.required || String(state.values[one.name]).trim() !== "");
    const set = (one, el) => {
      state.values[one.name] = one.type === "checkbox" ? el.checked : one.type === "number" && el.value !== "" ? Number(el.value) : el.value;
      redraw();
    };
    return frame(title, { close, submit: () => close({ ...state.values }), label, kind, ready }, sentences(text), shown.map((one) => field(one, state.values[one.name], set)), preview?.(state.values, redraw));
  });

const field = (one, value, set) => {
  const listens = { oninput: (event) => set(one, event.currentTarget) };
  const named = { name: one.name, min: one.min, max: one.max, step: one.step, placeholder: one.placeholder };
  const control =
    one.type === "select" ? h("select", { ...named, ...listens }, one.options.map(([key, text]) => h("option", { key, value: key, selected: key === value }, text)))
    : one.type === "textarea" ? h("textarea.mono", { ...named, ...listens, rows: one.rows ?? 8, value, spellcheck: "false" })
    : one.type === "checkbox" ? h("input", { ...named, ...listens, type: "checkbox", checked: value })
    : h("input", { ...named, ...listens, type: one.type ?? "text", value, autocomplete: "off" });
  return h("label.field", { key: one.name, class: one.type === "checkbox" ? "is-check" : "" }, h("span", one.label), control, one.hint && h("small", one.hint));
};

/** A dialog with text to read. */
export const showMessage = ({ title, text }) => show(({ close }) => frame(title, { close, submit: () => close(true) }, sentences(text)));

/** A short message at the edge of the page. Kinds: good, critical. */
export const toast = (text, kind = "good") => {
  const box = document.createElement("div");
  box.className = `toast is-${kind}`;
  draw(box, icon(kind === "good" ? "check" : "alert"), h("span", text), h("button.icon-button", { type: "button", "aria-label": "Dismiss", onclick: () => box.remove() }, icon("close")));
  document.getElementById("toasts").append(box);
  setTimeout(() => box.remove(), kind === "good" ? 4000 : 12_000);
};
