// Operations: accepted pushes and acks that are applied later, failed ones, and the journal.

import { post } from "../api.js";
import { each } from "../bulk.js";
import { confirm, confirmByName } from "../dialog.js";
import { h } from "../dom.js";
import { bytes, count, duration, latency, plural, rate, short, time } from "../format.js";
import { groupName, laneLink, queueLink } from "../names.js";
import { badge, button, card, empty, facts, meter, stat, state, tabs } from "../components.js";
import { api, link, where } from "../router.js";
import { searchBox, table } from "../table.js";

const LIMIT = 50;
const STATUSES = ["newest", "pending", "processing", "failed", "completed", "discarded"];

/** Retry or discard all failed operations, page by page. */
const settle = async (ctx, verb, queue) => {
  const chosen = queue ? { queue } : { all: true };
  await ctx.act(async () => {
    let done = 0;
    let refused = 0;
    let cursor = null;
    do {
      const page = await post(`/api/v1/operations/${verb}`, { ...chosen, ...(cursor && { cursor }) });
      done += page.done.length;
      refused += page.refused.length;
      cursor = page.cursor;
    } while (cursor);
    return { done, refused };
  }, ({ done, refused }) => `${verb === "retry" ? "Retried" : "Discarded"} ${plural(done, "operation")}${refused ? `; ${count(refused)} could not be and ${refused === 1 ? "is" : "are"} as before` : ""}.`);
};

const one = (ctx, verb, id) => ctx.act(() => post(api`/api/v1/operations/${id}/${verb}`), verb === "retry" ? "Queued again at the end of its lane." : "Discarded.");

const discard = async (ctx, id) => {
  const sure = await confirm({ title: "Discard this operation?", text: "Its messages or acks are lost for good, although their sender was told that they were accepted.", label: "Discard", kind: "danger" });
  if (sure) await one(ctx, "discard", id);
};

const discardAll = async (ctx, queue) => {
  const sure = await confirmByName({ title: `Discard all failed operations${queue ? ` of ${queue}` : ""}?`, text: "Their messages and acks are lost for good, although their senders were told that they were accepted.", name: queue || "discard", label: "Discard" });
  if (sure) await settle(ctx, "discard", queue);
};

const key = (row) => row.id;
const call = (verb) => ({ id }) => post(api`/api/v1/operations/${id}/${verb}`);

const discardChosen = async (ctx, rows) => {
  const sure = await confirm({ title: `Discard ${plural(rows.length, "operation")}?`, text: "Their messages and acks are lost for good, although their senders were told that they were accepted.", label: "Discard", kind: "danger" });
  if (sure) await each(ctx, rows, call("discard"), { done: "Discarded", of: "operation", key });
};

const bulk = (ctx) => ({
  of: "operation", name: key,
  actions: (rows) => {
    const retried = rows.filter((row) => row.status === "failed");
    const open = rows.filter((row) => ["failed", "pending"].includes(row.status));
    return [
      button(`Retry ${count(retried.length)}`, { icon: "retry", disabled: !retried.length, title: "Failed operations", onclick: () => each(ctx, retried, call("retry"), { done: "Retried", of: "operation", key }) }),
      button(`Discard ${count(open.length)} …`, { icon: "trash", kind: "danger", disabled: !open.length, title: "Failed and pending operations", onclick: () => discardChosen(ctx, open) }),
    ];
  },
});

const total = (stats, ...statuses) => stats.filter((row) => statuses.includes(row.status)).reduce((sum, row) => sum + row.count, 0);

const figures = (stats, { journal, dbHealthy }) =>
  h("div.stats",
    stat("Pending", count(total(stats, "pending")), { href: link(["operations"], { status: "pending" }), note: "accepted, not yet applied" }),
    stat("Processing", count(total(stats, "processing")), { href: link(["operations"], { status: "processing" }) }),
    stat("Failed", count(total(stats, "failed")), { kind: total(stats, "failed") ? "critical" : "", href: link(["operations"], { status: "failed" }), note: "need attention" }),
    stat("Store", dbHealthy ? "answers" : "unavailable", { kind: dbHealthy ? "good" : "critical", note: journal && !journal.storeUp ? `for ${duration(journal.awaySeconds)}` : "" }),
    stat("Journal", journal ? count(journal.messages) : "off", { note: journal ? "messages outside the store" : "" }));

const journalCard = ({ journal }) =>
  card("Journal", { note: "accepted while the store was unavailable" }, journal
    ? facts([
        ["State", journal.storeUp ? badge(journal.entries ? "draining into the store" : "empty", journal.entries ? "info" : "good") : badge("collecting: the store is unavailable", "critical")],
        ["Why", journal.whyNot],
        ["Waiting", `${plural(journal.messages, "message")} in ${plural(journal.entries, "entry", "entries")} of ${plural(journal.lanes, "lane")}`],
        ["Space", h("span", `${bytes(journal.bytes)} of ${bytes(journal.bytesMax)}`, meter(journal.bytes / Math.max(1, journal.bytesMax), "Journal space"))],
        ["Oldest", journal.oldestSeconds === null ? null : duration(journal.oldestSeconds)],
        ["Drain rate", journal.entries ? rate(journal.drainRate) : null],
        ["Failed", journal.failed ? badge(count(journal.failed), "critical") : "none"],
        ["Late acks", journal.acksLost ? count(journal.acksLost) : null],
      ])
    : h("p.muted", "This broker has no journal. It accepts nothing while its store is down."));

const backlogs = (lanes) =>
  card("Deepest backlogs", {}, lanes.length
    ? h("div.table-scroll.flush", { tabindex: "0", role: "region", "aria-label": "Deepest backlogs" }, h("table",
        h("thead", h("tr", h("th", { scope: "col" }, "Queue"), h("th", { scope: "col" }, "Partition"), h("th", { scope: "col" }, "Of"), h("th.number", { scope: "col" }, "Open"), h("th", { scope: "col" }, "Moved"))),
        h("tbody", lanes.map((lane) => h("tr", h("td", queueLink(lane.queue)), h("td", laneLink(lane.queue, lane.partition, lane.consumerGroup)), h("td", lane.consumerGroup ? groupName(lane.consumerGroup) : "pushes"), h("td.number", count(lane.depth)), h("td", time(lane.movedAt)))))))
    : h("p.muted", "No lane has open operations."));

const columns = (ctx) => [
  { title: "Operation", cell: (row) => h("span.mono", short(row.id)) },
  { title: "Kind", cell: (row) => row.operation_type.toLowerCase().replace("_", " ") },
  { title: "Status", cell: (row) => state(row.status) },
  { title: "Queue", cell: (row) => (row.queue ? queueLink(row.queue) : "–") },
  { title: "Partition", cell: (row) => (row.queue ? laneLink(row.queue, row.partition, row.consumer_group) : row.partition) },
  { title: "Messages", number: true, cell: (row) => count(row.messages) },
  { title: "Accepted", cell: (row) => time(row.created_at) },
  { title: "Took", number: true, cell: (row) => latency(row.latency_seconds) },
  { title: "Error", grow: true, cell: (row) => row.error_message && h("span.clamp", { title: row.error_message }, row.error_message) },
  { title: "In", cell: (row) => row.durability },
  { title: h("span.hidden", "Actions"), cell: (row) => h("span.buttons",
    row.status === "failed" && button("Retry", { "aria-label": `Retry ${row.id}`, onclick: () => one(ctx, "retry", row.id) }),
    ["failed", "pending"].includes(row.status) && button("Discard", { kind: "danger", "aria-label": `Discard ${row.id}`, onclick: () => discard(ctx, row.id) })) },
];

const LOCAL = "only this broker's journal: the store does not answer";

// Failed and pending operations come before the others, unless a status is chosen.
const attention = (ctx, { operations: failed, cursor }, { operations: open, complete }) =>
  failed.length + open.length > 0 && card("Failed and pending", { key: "attention", note: complete ? undefined : LOCAL, more: cursor && h("a", { href: link(["operations"], { status: "failed" }) }, "All failed") },
    table(ctx, { label: "Failed and pending operations", rows: [...failed, ...open], whole: true, key, bulk: bulk(ctx), columns: columns(ctx) }));

const list = (ctx, { operations, cursor, complete }) =>
  card(ctx.query.status ? "Operations" : "Completed, newest first", { key: "list", note: complete ? undefined : LOCAL },
    table(ctx, {
      label: "Operations", rows: operations, next: cursor, limit: LIMIT, key, columns: columns(ctx), bulk: ["failed", "pending"].includes(ctx.query.status) && bulk(ctx),
      tools: [
        searchBox(ctx, "Queue (full name)", "queue"),
        tabs(STATUSES, ctx.query.status || "newest", (name) => link(["operations"], { queue: ctx.query.queue, status: name === "newest" ? "" : name })),
      ],
      empty: empty(ctx.query.status || ctx.query.queue ? "No operations match the filter." : "There are no operations.", "A push or ack becomes an operation, answered with 202, when the store is busy or down. It is applied later, in order."),
    }));

export default {
  title: () => "Operations",
  watch: ({ query }) => ({
    stats: "/api/v1/operations/stats",
    journal: "/api/v1/status/buffers",
    ...(!query.status && { failed: where("/api/v1/operations", { status: "failed", queue: query.queue, limit: LIMIT }), pending: where("/api/v1/operations", { status: "pending", queue: query.queue, limit: LIMIT }) }),
    list: where("/api/v1/operations", { status: query.status || "completed", order: ["", "completed", "discarded"].includes(query.status ?? "") ? "desc" : "", queue: query.queue, cursor: query.after, limit: LIMIT }),
  }),
  actions: (ctx) => (ctx.data.stats && total(ctx.data.stats.stats, "failed")
    ? [
        button(ctx.query.queue ? "Retry failed of this queue" : "Retry all failed", { icon: "retry", kind: "primary", onclick: () => settle(ctx, "retry", ctx.query.queue) }),
        button(ctx.query.queue ? "Discard its failed operations …" : "Discard all failed …", { icon: "trash", kind: "danger", onclick: () => discardAll(ctx, ctx.query.queue) }),
      ]
    : []),
  view: (ctx) => [
    ctx.part("stats", ({ stats }) => ctx.part("journal", (journal) => figures(stats, journal))),
    !ctx.query.status && ctx.part("failed", (failed) => ctx.part("pending", (pending) => attention(ctx, failed, pending))),
    ctx.part("list", (body) => list(ctx, body)),
    h("div.grid", ctx.part("journal", journalCard), ctx.part("stats", ({ lanes }) => backlogs(lanes))),
  ],
};
