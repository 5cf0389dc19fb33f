// Components of pages: cards, badges, buttons, lists of facts and empty states.

import { h } from "./dom.js";
import { NONE } from "./format.js";
import { icon } from "./icons.js";

/** A box with a heading. `more` is shown to the right of the heading. */
export const card = (title, { more, note, key, class: name = "" } = {}, ...children) =>
  h("section.card", { key, class: name },
    title && h("header.card-head", h("h2", title), note && h("span.note", note), more && h("div.card-more", more)),
    ...children);

/** Cards in as many columns as fit. */
export const grid = (...children) => h("div.grid", ...children);
/** Two columns, the first one wider. */
export const split = (wide, narrow) => h("div.split", h("div.stack", wide), h("div.stack", narrow));

/** A number with its name: stat("Pushed", "120/s", { note, chart, kind: "warning", href }). */
export const stat = (name, value, { note, chart, kind, href, title } = {}) =>
  h(href ? "a.stat" : "div.stat", { href, title, class: kind ? `is-${kind}` : "" },
    h("span.stat-name", name), h("span.stat-value", value), h("span.stat-note", note ?? ""), chart);

/** A badge. Kinds: neutral, info, good, warning, critical, muted. */
export const badge = (text, kind = "neutral", title) => h("span.badge", { class: `is-${kind}`, title }, text);

const STATES = {
  finished: "good", leased: "info", waiting: "neutral", ready: "neutral", delayed: "muted", failed: "warning", blocked: "critical", parked: "critical",
  paused: "warning", dead: "critical", idle: "muted", completed: "good", cancelled: "muted", processing: "info", pending: "neutral", retried: "warning",
};
/** The state of a lane, message or operation, with its colour and its name. */
export const state = (name) => (name ? badge(name, STATES[name] ?? "neutral") : NONE);

/** button("Pause", { icon: "pause", kind: "primary" | "danger" | "quiet", onclick }). */
export const button = (label, { icon: name, kind = "", onclick, ...more } = {}) =>
  h("button.button", { type: "button", class: kind && `is-${kind}`, onclick, ...more }, name && icon(name), h("span", label));

/** Names and values in a list: facts([["Partition", "p7"], ...]). Entries without a value are left out. */
export const facts = (list) =>
  h("dl.facts", list.filter((one) => one && one[1] !== undefined && one[1] !== null).map(([name, value]) =>
    h("div", { key: name }, h("dt", name), h("dd", value))));

/** A bar for a share from 0 to 1. */
export const meter = (share, label, kind = share > 0.9 ? "critical" : share > 0.7 ? "warning" : "info") =>
  h("div.meter", { class: `is-${kind}`, role: "meter", "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": Math.round(share * 100), "aria-label": label },
    h("span", { style: { "inline-size": `${Math.max(0, Math.min(1, share)) * 100}%` } }));

/** The empty state of a table or list: what it means, and what to do. */
export const empty = (sentence, hint, action, kind = "check") =>
  h("div.empty", { class: `is-${kind}` }, icon(kind), h("p", sentence), hint && h("p.muted", hint), action);

export const failed = (problem, again) =>
  h("div.failed", { role: "alert" }, icon("alert"), h("p", problem.message),
    problem.code && h("p.muted", `${problem.status || ""} ${problem.code}`.trim()), again && button("Try again", { onclick: again }));

/** A bar above a page with old data, because it could not be read again. */
export const stale = (problem, again) =>
  h("div.stale", { key: "stale", role: "status" }, icon("alert"), h("p", `This page is not up to date: ${problem.message}${/[.?!]$/.test(problem.message) ? "" : "."} `, h("span.note", "It is loaded again by itself.")), button("Try again", { onclick: again }));

/** A bar above lists that lack the queues of a cell. */
export const incomplete = (finding) =>
  h("div.stale", { key: finding.sentence, role: "status" }, icon("alert"), h("p", finding.sentence), h("a.button", { href: `#${finding.page}` }, "Look"));

/** The frames of a failed handler, folded. Null if there are none. */
export const traceback = (frames) => (frames ? h("details.frames", h("summary", "Traceback"), h("pre.code", { tabindex: "0" }, frames)) : null);

export const waiting = () => h("div.waiting", { role: "status", "aria-busy": "true", "aria-label": "Loading" }, h("i"), h("i"), h("i"));

/** A text that is copied by a click. */
export const copyable = (text, shown = text) =>
  h("button.copyable", { type: "button", title: "Copy", onclick: (event) => copy(text, event.currentTarget) }, h("span.mono", shown), icon("copy"));

const copy = async (text, el) => {
  try {
    await navigator.clipboard.writeText(text);
    el.classList.add("is-copied");
    setTimeout(() => el.classList.remove("is-copied"), 1200);
  } catch {
    getSelection().selectAllChildren(el); // copying is not allowed here: select the text instead
  }
};

/** Links to choose from: tabs(["all", "failed"], chosen, (name) => href, labels?, what they choose). */
export const tabs = (names, chosen, href, labels = {}, what = "Views") =>
  h("nav.tabs", { "aria-label": what }, names.map((name) =>
    h("a", { key: name, href: href(name), "aria-current": name === chosen ? "page" : undefined }, labels[name] ?? name)));
