// The search dialog (Ctrl-K): pages, queues, partitions, messages, traces, operations and workers, by name or id.

import { get } from "./api.js";
import { draw, h } from "./dom.js";
import { groupText } from "./names.js";
import { icon } from "./icons.js";
import { go, link, where } from "./router.js";
import { nav } from "./routes.js";
import { statusOf } from "./messages.js";

const DELAY = 150; // milliseconds after the last key
const EACH = 5; // results of each kind

const named = (text) => nav.flatMap((one) => one.items)
  .filter((one) => one.label.toLowerCase().includes(text.toLowerCase()))
  .map((one) => ({ kind: "Page", icon: one.icon, text: one.label, href: `#${one.path}` }));

const message = (kind) => (one) => ({
  kind, icon: kind === "Trace" ? "trace" : "dead", text: one.transactionId, note: `${statusOf(one.status)}, ${one.queue} / ${one.partition}`,
  href: link(["messages", one.partitionId, one.transactionId]),
});

const found = ({ queues, partitions, messages, trace, operation }) => [
  ...messages.map(message("Message")),
  ...trace.map(message("Trace")),
  ...(operation ? [{ kind: "Operation", icon: "operations", text: operation.id, note: `${operation.status}${operation.queue ? `, ${operation.queue}` : ""}`, href: link(["operations"], { queue: operation.queue, status: operation.status }) }] : []),
  ...queues.map((name) => ({ kind: "Queue", icon: "queues", text: name, href: link(["queues", name]) })),
  ...partitions.map((one) => ({ kind: "Partition", icon: "next", text: one.partition, note: one.queue, href: link(["queues", one.queue, "partitions", one.partition]) })),
];

const consumers = ({ groups }) => groups.map((one) => ({ kind: "Group", icon: "groups", text: groupText(one.name), note: one.queueName, href: link(["groups", one.queueName, one.name]) }));
const workers = ({ workers: list }, text) => list.map((one) => ({ kind: "Worker", icon: "workers", text: one.app, note: `${one.hostname}, process ${one.pid}`, href: link(["workers"], { search: text }) }));

/** Ask for everything that matches. What the caller may not see is left out. */
const search = async (text) => {
  const none = () => [];
  const [best, more, live] = await Promise.all([
    get(where("/api/v1/search", { text, limit: EACH })),
    get(where("/api/v1/resources/groups", { search: text, limit: EACH })).then(consumers).catch(none),
    get(where("/api/v1/workers", { search: text, limit: EACH })).then((body) => workers(body, text)).catch(none),
  ]);
  return { rows: [...found(best), ...more, ...live], complete: best.complete };
};

const option = (one, i, { at, choose }) =>
  h("li.hit", { key: `${one.kind} ${one.href}`, id: `hit-${i}`, role: "option", "aria-selected": String(i === at), onclick: () => choose(one) },
    icon(one.icon), h("span.hit-text", one.text, one.note && h("span.note", one.note)), h("span.note", one.kind));

const sentence = ({ text, busy, problem, rows, complete }) => {
  if (problem) return problem;
  if (busy && !rows.length) return "Searching …";
  if (!rows.length) return `Nothing has “${text}” in its name, and no message or operation has this id.`;
  return complete ? "" : "Only the partitions that were written to last were searched for this id.";
};

let open = null;

/** Open the dialog, or close it if it is open. */
export const searchEverything = () => {
  if (open) return open.close();
  if (document.querySelector("dialog[open]")) return undefined;
  const before = document.activeElement;
  const box = document.createElement("dialog");
  box.className = "finder";
  const state = { text: "", rows: named(""), at: 0, busy: false, problem: "", complete: true };
  let timer;
  let turn = 0;
  const choose = (one) => {
    box.close();
    go(one.href);
  };
  const ask = async () => {
    const mine = (turn += 1);
    const { text } = state;
    const change = await search(text).then(({ rows, complete }) => ({ rows: [...named(text), ...rows], complete, problem: "" }), (error) => ({ problem: error.message }));
    if (mine !== turn) return;
    Object.assign(state, change, { busy: false });
    state.at = Math.min(state.at, Math.max(0, state.rows.length - 1));
    redraw();
  };
  const type = (event) => {
    const text = event.currentTarget.value.trim();
    Object.assign(state, { text, at: 0, rows: named(text), busy: text !== "", problem: "", complete: true });
    clearTimeout(timer);
    turn += 1;
    if (text) timer = setTimeout(ask, DELAY);
    redraw();
  };
  const move = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && state.rows.length) {
      event.preventDefault();
      state.at = (state.at + step + state.rows.length) % state.rows.length;
      redraw();
      box.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (state.rows[state.at]) choose(state.rows[state.at]);
    }
  };
  const redraw = () => draw(box,
    h("label.finder-field", icon("search"),
      h("input", {
        type: "text", role: "combobox", "aria-label": "Search everything", "aria-expanded": String(state.rows.length > 0), "aria-controls": "hits", "aria-autocomplete": "list",
        "aria-activedescendant": state.rows.length ? `hit-${state.at}` : undefined, placeholder: "Queue, partition, id, group, worker or page", autocomplete: "off", spellcheck: "false", autofocus: true, oninput: type, onkeydown: move,
      }), h("kbd", "Esc")),
    h("ul.hits", { id: "hits", role: "listbox", "aria-label": "Results" }, state.rows.map((one, i) => option(one, i, { at: state.at, choose }))),
    h("p.note.pad", { role: "status" }, sentence(state)));
  box.addEventListener("close", () => {
    clearTimeout(timer);
    turn += 1;
    open = null;
    box.remove();
    before?.focus?.();
  });
  box.addEventListener("click", (event) => event.target === box && box.close());
  document.body.append(box);
  open = box;
  redraw();
  box.showModal();
  box.querySelector("input").focus();
  return undefined;
};
