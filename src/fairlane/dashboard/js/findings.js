// Findings: problems that the broker reports, each with the page that shows it and the actions that may fix it.

import { del, post, send } from "./api.js";
import { ask, confirm } from "./dialog.js";
import { h } from "./dom.js";
import { plural, stamp, time } from "./format.js";
import { icon } from "./icons.js";
import { button } from "./components.js";
import { api, where } from "./router.js";

const KINDS = { critical: "critical", warning: "warning", notice: "muted" };
const SNOOZES = [["", "until it changes, at most a week"], ["3600", "for an hour"], ["28800", "for 8 hours"], ["86400", "for a day"], ["604800", "for a week"]];
const AGAIN = "The messages that stop the lanes are delivered again. Skip them if they cannot succeed.";

/** The findings that nobody snoozed. */
export const awake = (findings) => findings.filter((one) => !one.snoozedUntil);

const act = async (ctx, finding) => {
  const { label, method, path, body } = finding.action;
  const text = [finding.sentence, finding.kind === "lanes_stopped" && AGAIN, h("p.mono", `${method} ${path}`)].filter(Boolean);
  if (await confirm({ title: label, text, label })) ctx.act(() => send(method, path, body), `Done: ${label}.`);
};

const skip = async (ctx, { queue, group, partition, sentence, count }) => {
  const [label, lanes] = [`Skip ${plural(count, "message")}`, count > 1 ? "lanes" : "lane"];
  const text = [sentence, `Each message that stops a lane becomes a dead letter, which can be replayed. The ${lanes} continue${count > 1 ? "" : "s"} with the next message.`];
  if (await confirm({ title: `${label}?`, text, label })) ctx.act(() => post(api`/api/v1/queues/${queue}/resume`, { group, skip: true, ...(partition ? { partition } : { lanes: true }) }), ({ skipped }) => `${plural(skipped, "message")} skipped.`);
};

const snooze = async (ctx, { key, sentence }) => {
  const values = await ask({ title: "Snooze", text: [sentence, "It stays in all lists, folded, and in the metrics with snoozed=\"true\"."], label: "Snooze", fields: [{ name: "seconds", label: "How long", type: "select", value: "", options: SNOOZES }] });
  if (values) ctx.act(() => post("/api/v1/findings/snooze", { key, ...(values.seconds && { seconds: Number(values.seconds) }) }), "Snoozed.");
};

const row = (ctx, one, ...buttons) =>
  h("li.finding", { key: one.key, class: `is-${KINDS[one.severity] ?? "muted"}` },
    icon(one.severity === "notice" ? "info" : "alert", { "aria-label": one.severity, role: "img", "aria-hidden": undefined }),
    h("p", one.sentence, one.since && [" ", h("span.note", time(one.since))], one.snoozedUntil && [" ", h("span.note", `Snoozed by ${one.snoozedBy} until ${stamp(one.snoozedUntil)} at most.`)]),
    h("span.buttons", ...buttons, one.page && h("a.button", { href: `#${one.page}` }, "Look")));

const actions = (ctx, one) => [
  one.action && button(one.action.label, { kind: one.severity === "critical" ? "primary" : "", onclick: () => act(ctx, one) }),
  one.kind === "lanes_stopped" && button(one.count > 1 ? "Skip their messages" : "Skip the message", { onclick: () => skip(ctx, one) }),
  button("Snooze", { onclick: () => snooze(ctx, one) }),
];

export const findingList = (ctx, findings) => {
  const asleep = findings.filter((one) => one.snoozedUntil);
  return [
    h("ul.findings.flush", awake(findings).map((one) => row(ctx, one, ...actions(ctx, one)))),
    asleep.length > 0 && h("details.folded.flush", { key: "snoozed" }, h("summary", `${plural(asleep.length, "snoozed finding")}`),
      h("ul.findings", asleep.map((one) => row(ctx, one, button("End the snooze", { onclick: () => ctx.act(() => del(where("/api/v1/findings/snooze", { key: one.key })), "It is shown again.") }))))),
  ];
};
