// Retention: what the rules of the queues deleted in the last day, and running them now.

import { post } from "../api.js";
import { confirm } from "../dialog.js";
import { h } from "../dom.js";
import { count, millis, plural, time } from "../format.js";
import { badge, button, card, empty, stat } from "../components.js";
import { link } from "../router.js";
import { table } from "../table.js";

const RULES = { dead_letters: "dead letters", partitions: "partitions" }; // what a rule deletes if not messages

const run = async (ctx) => {
  const text = "The rules of all queues are applied now. They also run by themselves, every few minutes.";
  if (!(await confirm({ title: "Apply the retention rules", text, label: "Apply them now" }))) return;
  ctx.act(() => post("/api/v1/retention/run"), ({ deleted }) => (deleted.length ? `Deleted ${plural(deleted.reduce((sum, one) => sum + one.messages, 0), "row")}.` : "Nothing was old enough to delete."));
};

/** Deletions of the same queue by the same rule, together. */
const together = (history) => {
  const found = new Map();
  for (const one of history) {
    const key = JSON.stringify([one.queue, one.rule]);
    const sum = found.get(key) ?? { key, queue: one.queue, rule: one.rule, messages: 0, unread: 0, at: one.at };
    found.set(key, { ...sum, messages: sum.messages + one.messages, unread: sum.unread + one.unread, at: millis(one.at) > millis(sum.at) ? one.at : sum.at });
  }
  return [...found.values()].sort((a, b) => b.unread - a.unread || b.messages - a.messages);
};

const of = (rule) => RULES[rule] ?? "messages";
const sum = (rows, name) => rows.reduce((total, one) => total + one[name], 0);

export default {
  title: () => "Retention",
  load: () => ({ deleted: "/api/v1/retention/history" }),
  actions: (ctx) => [button("Apply now …", { icon: "play", onclick: () => run(ctx) })],
  view: (ctx) => ctx.part("deleted", ({ history }) => {
    const rows = together(history);
    const messages = rows.filter((one) => of(one.rule) === "messages");
    return [
      h("div.stats", { key: "totals" },
        stat("Deleted messages", count(sum(messages, "messages")), { note: "in the last day" }),
        stat("Deleted unread", count(sum(messages, "unread")), { kind: sum(messages, "unread") ? "warning" : "", note: "some group had not finished them" }),
        stat("Deleted dead letters", count(sum(rows.filter((one) => one.rule === "dead_letters"), "messages")))),
      card("Deletions by queue and rule", { key: "rows", note: "the options of a queue set its rules" }, h("div.flush", table(ctx, {
        label: "Deletions by queue and rule", rows, whole: true, key: (one) => one.key, href: (one) => link(["queues", one.queue], { view: "options" }),
        empty: empty("Nothing was deleted in the last day.", "Without a rule nothing is ever deleted. The rules of a queue are among its options."),
        columns: [
          { title: "Queue", grow: true, cell: (one) => one.queue },
          { title: "Rule", cell: (one) => one.rule.replaceAll("_", " ") },
          { title: "Deleted", number: true, cell: (one) => `${count(one.messages)} ${of(one.rule)}` },
          { title: "Unread", number: true, cell: (one) => (one.unread ? badge(count(one.unread), "warning", "Some group had not finished them") : h("span.muted", "0")) },
          { title: "Last", number: true, cell: (one) => time(one.at) },
        ],
      }))),
    ];
  }),
};
