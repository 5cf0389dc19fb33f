// Dead letters, grouped by error and one by one, to replay, edit or purge.

import { del, post } from "../api.js";
import { each } from "../bulk.js";
import { ask, confirm, confirmByName } from "../dialog.js";
import { h } from "../dom.js";
import { count, plural, time } from "../format.js";
import { glimpse, groupName, laneLink, queueLink } from "../names.js";
import { badge, button, card, empty } from "../components.js";
import { current, progress, replayAll } from "../replay.js";
import { link, where } from "../router.js";
import { chooser, searchBox, table } from "../table.js";

const LIMIT = 50;
const SHOWN = new Map([["replayed", "true"], ["all", undefined]]);

/** Errors that differ only in numbers, ids and quoted names count as one. */
const shape = (error) =>
  error.replace(/[0-9a-f]{8}-[0-9a-f-]{27,}|0x[0-9a-f]+/gi, "…").replace(/'[^']*'|"[^"]*"|`[^`]*`/g, "…").replace(/\d+(\.\d+)*/g, "…");

/** Rows with the same queue, group and error shape: { queue, group, error, errors, count, replayed, first, last }. */
export const merged = (rows) => {
  const found = new Map();
  for (const row of rows) {
    const key = JSON.stringify([row.queue, row.consumerGroup, shape(row.error)]);
    const one = found.get(key) ?? { key, queue: row.queue, group: row.consumerGroup, shape: shape(row.error), errors: [], count: 0, replayed: 0, first: row.firstFailedAt, last: row.lastFailedAt };
    one.errors.push(row.error);
    one.count += row.count;
    one.replayed += row.replayed;
    if (row.firstFailedAt < one.first) one.first = row.firstFailedAt;
    if (row.lastFailedAt > one.last) one.last = row.lastFailedAt;
    found.set(key, one);
  }
  return [...found.values()].sort((a, b) => b.count - b.replayed - (a.count - a.replayed) || b.count - a.count);
};

const waits = (rows) => rows.reduce((sum, one) => sum + one.count - one.replayed, 0);
const targetsOf = (one) => one.errors.map((error) => ({ queue: one.queue, consumerGroup: one.group, error }));

const replay = async (ctx, label, rows) => {
  const total = waits(rows);
  const values = await ask({
    title: `Replay ${plural(total, "dead letter")}?`,
    text: ["Each is pushed again to the end of its partition as a new message. A dead letter can be replayed only once."],
    fields: [{ name: "rate", label: "Messages per second", type: "number", hint: "Leave it empty to replay as fast as possible. A replay continues while this page is open, and can be stopped." }],
    label: "Replay",
  });
  if (values) replayAll(label, rows.flatMap(targetsOf), total, () => ctx.set({}), Number(values.rate) > 0 ? Number(values.rate) : undefined);
};

const purge = async (ctx, queue, rows) => {
  const many = rows.reduce((sum, one) => sum + one.count, 0);
  const sure = await confirmByName({
    title: `Purge ${plural(many, "dead letter")} of ${queue}?`,
    text: ["They are deleted for good, replayed ones included. This cannot be undone."],
    name: queue,
    label: "Purge",
  });
  if (!sure) return;
  await ctx.act(async () => {
    let purged = 0;
    for (const { queue: name, consumerGroup, error } of rows.flatMap(targetsOf)) purged += (await del(where("/api/v1/dlq", { queue: name, consumerGroup, error }))).purged;
    return purged;
  }, (purged) => `Purged ${plural(purged, "dead letter")} of ${queue}.`);
};

const byError = (ctx, { errors, complete }) => {
  const rows = merged(errors);
  const busy = Boolean(current.run?.running);
  const choose = (one) => link(["dead-letters"], { queue: one.queue, error: one.errors.length === 1 ? one.errors[0] : "", group: one.group });
  const queues = new Set(rows.map((one) => one.queue));
  const waiting = rows.filter((one) => one.count > one.replayed);
  return card("By error", {
    note: complete ? undefined : "the most frequent of more",
    more: [
      waiting.length > 1 && button(`Replay all ${count(waits(waiting))}`, { icon: "retry", disabled: busy, onclick: () => replay(ctx, ctx.query.queue ?? "all dead letters", waiting) }),
      queues.size === 1 && button("Purge all …", { icon: "trash", kind: "danger", onclick: () => purge(ctx, rows[0].queue, rows) }),
    ],
  },
  h("div.table-box", rows.length === 0
    ? empty("There are no dead letters.", ctx.query.queue || ctx.query.error ? "No dead letter matches the filter below." : "A message becomes a dead letter when its last attempt fails. Its lane continues with the next message.")
    : h("div.table-scroll", { tabindex: "0", role: "region", "aria-label": "Dead letters by error" }, h("table",
      h("thead", h("tr", ["Error", "Queue", "Group"].map((title) => h("th", { scope: "col" }, title)), ["Waiting", "Replayed"].map((title) => h("th.number", { scope: "col" }, title)), h("th", { scope: "col" }, "Last"), h("th", { scope: "col" }, h("span.hidden", "Actions")))),
      h("tbody", rows.map((one) => h("tr", { key: one.key },
        h("th.grow", { scope: "row" }, h("a.row-link.clamp", { href: choose(one), title: one.errors[0] }, one.errors.length === 1 ? one.errors[0] : one.shape), one.errors.length > 1 && h("span.note", ` ${count(one.errors.length)} texts`)),
        h("td", queueLink(one.queue)),
        h("td", groupName(one.group)),
        h("td.number", one.count > one.replayed ? badge(count(one.count - one.replayed), "critical") : "0"),
        h("td.number", count(one.replayed)),
        h("td", time(one.last)),
        h("td", h("span.buttons",
          button("Replay", { icon: "retry", disabled: busy || one.count === one.replayed, "aria-label": `Replay dead letters of ${one.queue} with ${one.shape}`, onclick: () => replay(ctx, one.shape, [one]) }),
          button("Purge", { icon: "trash", kind: "danger", "aria-label": `Purge dead letters of ${one.queue} with ${one.shape}`, onclick: () => purge(ctx, one.queue, [one]) }))))))))));
};

const key = (one) => one.id;

const replayChosen = async (ctx, rows) => {
  const sure = await confirm({ title: `Replay ${plural(rows.length, "dead letter")}?`, text: "Each is pushed again to the end of its partition as a new message.", label: "Replay" });
  if (sure) await each(ctx, rows, ({ queue, id }) => post("/api/v1/dlq/replay", { queue, ids: [id] }), { done: "Replayed", of: "dead letter", key });
};

const purgeChosen = async (ctx, rows) => {
  const sure = await confirm({ title: `Purge ${plural(rows.length, "dead letter")}?`, text: "They are deleted for good. This cannot be undone.", label: "Purge", kind: "danger" });
  if (sure) await each(ctx, rows, ({ queue, id }) => del(where("/api/v1/dlq", { queue, ids: id })), { done: "Purged", of: "dead letter", key });
};

const bulk = (ctx) => ({
  of: "dead letter", name: (one) => one.transactionId,
  actions: (rows) => {
    const open = rows.filter((one) => !one.replayedAt && !one.locked);
    return [
      button(`Replay ${count(open.length)}`, { icon: "retry", disabled: !open.length, onclick: () => replayChosen(ctx, open) }),
      button(`Purge ${count(rows.length)} …`, { icon: "trash", kind: "danger", onclick: () => purgeChosen(ctx, rows) }),
    ];
  },
});

const letters = (ctx, { messages, total }) =>
  card("Messages", { note: total ? plural(total, "dead letter") : undefined },
    table(ctx, {
      label: "Dead letters",
      rows: messages, total, limit: LIMIT,
      key, bulk: bulk(ctx),
      href: (one) => link(["dead-letters", one.queue, one.id]),
      tools: [
        searchBox(ctx, "Error contains", "error"),
        chooser(ctx, "shown", [["", "not replayed"], ["replayed", "replayed"], ["all", "all"]], "Show"),
        ctx.query.queue && h("a.button", { href: link(["dead-letters"], { shown: ctx.query.shown }) }, h("span", [ctx.query.queue, ctx.query.partition].filter(Boolean).join(" / ")), " ×"),
      ],
      columns: [
        { title: "Message", cell: (one) => glimpse(one.data, 60) },
        { title: "Queue", cell: (one) => queueLink(one.queue) },
        { title: "Partition", cell: (one) => laneLink(one.queue, one.partition, one.consumerGroup) },
        { title: "Error", grow: true, cell: (one) => h("span.clamp", { title: one.errorMessage }, one.errorMessage) },
        { title: "Attempts", number: true, cell: (one) => count(one.retryCount) },
        { title: "Failed", cell: (one) => time(one.failedAt) },
        { title: "Replay", cell: (one) => one.replayedAt && badge("replayed", "good") },
      ],
      empty: empty("No dead letters.", "Nothing matches the filter above."),
    }));

export default {
  title: () => "Dead letters",
  watch: ({ query }) => ({
    errors: where("/api/v1/dlq/errors", { queue: query.queue, error: query.error, consumerGroup: query.group, partition: query.partition, limit: 500 }),
    letters: where("/api/v1/dlq", { queue: query.queue, error: query.error, consumerGroup: query.group, partition: query.partition, replayed: SHOWN.has(query.shown) ? SHOWN.get(query.shown) : "false", limit: LIMIT, offset: query.offset }),
  }),
  view: (ctx) => [
    progress(() => ctx.set({})),
    ctx.part("errors", (body) => byError(ctx, body)),
    ctx.part("letters", (body) => (body.total === 0 && ctx.data.errors?.errors.length === 0 ? null : letters(ctx, body))),
  ],
};
