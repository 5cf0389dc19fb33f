// One queue: rates, lagging groups, stopped lanes, messages and options.

import { del, post } from "../api.js";
import { confirmByName } from "../dialog.js";
import { h } from "../dom.js";
import { age, count, duration, percent, plural, time } from "../format.js";
import { charts, historyPath, marksPaths } from "../history.js";
import { findingList } from "../findings.js";
import { groupName, QUEUE_MODE } from "../lane_format.js";
import { lanesPath, laneTable } from "../lane_table.js";
import { messageTable } from "../messages.js";
import { optionList } from "../options.js";
import { badge, button, card, empty, meter, stat, tabs } from "../components.js";
import { api, go, link, where } from "../router.js";
import { pushByHand } from "../push.js";
import { tail } from "../tail.js";
import { seek } from "../seek.js";
import { chooser, table } from "../table.js";

const GROUPS = 20; // groups shown of a queue that has very many
const VIEWS = { lanes: "Lanes", messages: "Messages", tail: "Live tail", scheduled: "Scheduled", options: "Options" };

const view = (ctx) => (ctx.query.view in VIEWS ? ctx.query.view : "lanes");
const groups = (ctx) => (ctx.data.use?.groups ?? []).map((one) => one.consumerGroup);
const group = (ctx) => ctx.query.group ?? (groups(ctx).includes(QUEUE_MODE) || !groups(ctx).length ? QUEUE_MODE : groups(ctx)[0]);
const name = (ctx) => ctx.params.queue;

const pause = (ctx, verb, body, what) => ctx.act(() => post(where(`${api`/api/v1/queues/${name(ctx)}/`}${verb}`, {}), body), `${what} is ${verb === "pause" ? "paused" : "resumed"}.`);

const clear = async (ctx) => {
  const text = "All messages in all partitions are deleted, finished or not. Dead letters and options are kept. This cannot be undone.";
  if (await confirmByName({ title: "Clear the queue", text, name: name(ctx), label: "Clear the queue" })) ctx.act(() => del(api`/api/v1/queues/${name(ctx)}/clear`), `${name(ctx)} is empty.`);
};

const remove = async (ctx) => {
  const text = "The queue is deleted with its messages, groups, dead letters and options. This cannot be undone.";
  if (!(await confirmByName({ title: "Delete the queue", text, name: name(ctx), label: "Delete the queue" }))) return;
  if (await ctx.act(() => del(api`/api/v1/resources/queues/${name(ctx)}`), `${name(ctx)} is deleted.`)) go("#/queues");
};

const resumeLanes = (ctx) => ctx.act(() => post(api`/api/v1/queues/${name(ctx)}/resume`, { group: group(ctx), lanes: true }), ({ resumed }) => `${plural(resumed, "lane")} resumed.`);

const figures = (ctx) =>
  ctx.part("queue", ({ totals }) =>
    h("div.stats",
      stat("Waiting", count(totals.pending), { note: ctx.data.use && plural(ctx.data.use.partitions, "partition") }),
      stat("Leased", count(totals.processing)),
      stat("Finished", count(totals.completed)),
      stat("Failed", count(totals.failed), { note: "not finished yet", kind: totals.failed ? "warning" : "" }),
      stat("Dead letters", count(totals.deadLetter), { kind: totals.deadLetter ? "critical" : "", href: link(["dead-letters"], { queue: name(ctx) }) }),
      ctx.data.use?.capacity && stat("Free capacity", count(ctx.data.use.remaining), { note: `of ${count(ctx.data.use.capacity)}`, chart: meter(ctx.data.use.depth / ctx.data.use.capacity, "Used capacity") })));

const groupTable = (ctx) =>
  card("Groups", {
    note: "each group receives all messages",
    more: groups(ctx).length > GROUPS && h("a", { href: link(["groups"], { queue: name(ctx) }) }, `All ${count(groups(ctx).length)} groups`),
  }, ctx.part("use", ({ groups: every }) => {
    const list = every.length > GROUPS ? [...every].sort((a, b) => b.pending - a.pending).slice(0, GROUPS) : every;
    return table(ctx, {
      label: "Groups of the queue", rows: list, whole: true, key: (one) => one.consumerGroup,
      empty: empty("This queue has not been popped yet.", `The first pop of a group creates it: fairlane pop ${name(ctx)} --group billing`),
      columns: [
        { title: "Group", grow: true, cell: (one) => [h("a.row-link", { href: link(["queues", name(ctx)], { ...ctx.query, group: one.consumerGroup, view: "", state: "unfinished", after: "" }) }, groupName(one.consumerGroup)),
          ctx.data.pauses?.groups[one.consumerGroup] && [" ", badge("paused", "warning")], one.blocked + one.parked > 0 && [" ", badge(`${count(one.blocked + one.parked)} stopped`, "critical", "Blocked or parked lanes")], one.retrying > 0 && [" ", badge(`${count(one.retrying)} retrying`, "warning")]] },
        { title: "Lag", number: true, cell: (one) => count(one.pending) },
        list.some((one) => one.oldestAt) && { title: "Oldest", number: true, cell: (one) => age(one.oldestAt) },
        { title: "Lanes with messages", number: true, hide: "narrow", cell: (one) => `${count(one.partitionsWithMessages)} of ${count(one.partitions)}` },
        { title: "Leased", number: true, hide: "narrow", cell: (one) => count(one.partitionsLeased) },
        { title: "Busy", number: true, hide: "narrow", cell: (one) => percent(one.utilisation) },
        { title: "", cell: (one) => h("span.buttons",
          button("Seek", { icon: "seek", kind: "quiet", onclick: () => seek(ctx, name(ctx), one.consumerGroup) }),
          ctx.data.pauses?.groups[one.consumerGroup]
            ? button("Resume", { icon: "play", kind: "quiet", onclick: () => pause(ctx, "resume", { group: one.consumerGroup }, groupName(one.consumerGroup)) })
            : button("Pause", { icon: "pause", kind: "quiet", onclick: () => pause(ctx, "pause", { group: one.consumerGroup }, groupName(one.consumerGroup)) })) },
      ].filter(Boolean),
    });
  }));

const used = (ctx) => ctx.data.use?.groups.find((one) => one.consumerGroup === group(ctx));

const lanes = (ctx) => {
  if (ctx.data.use && !groups(ctx).length) return empty("This queue has not been popped yet.", "A lane is a partition as one group sees it. The messages are listed under Messages.");
  const tools = groups(ctx).length > 1 && chooser(ctx, "group", groups(ctx).slice(0, GROUPS).map((one) => [one, groupName(one)]), "Group");
  return ctx.part("lanes", (body) => laneTable(ctx, body, { queue: name(ctx), group: group(ctx), here: ["queues", name(ctx)], tools, urgent: true, use: used(ctx) }));
};

const scheduled = (ctx) =>
  ctx.part("scheduled", ({ messages, next }) =>
    table(ctx, {
      label: "Scheduled messages", rows: messages, next, key: (one) => one.id,
      empty: empty("There are no scheduled messages.", "Push one with a delay: fairlane push … --delay-ms 60000"),
      columns: [
        { title: "Due", cell: (one) => time(one.deliverAt) },
        { title: "Partition", cell: (one) => h("a", { href: link(["queues", name(ctx), "partitions", one.partition], { group: group(ctx) }) }, one.partition) },
        { title: "Transaction", grow: true, cell: (one) => h("span.mono", one.transactionId) },
        { title: "", cell: (one) => h("span.buttons",
          button("Deliver now", { kind: "quiet", onclick: () => ctx.act(() => post(api`/api/v1/scheduled/${name(ctx)}/${one.partition}/${one.transactionId}`, { delayMs: 0 }), "Delivered now.") }),
          button("Cancel", { kind: "quiet", onclick: () => ctx.act(() => del(api`/api/v1/scheduled/${name(ctx)}/${one.partition}/${one.transactionId}`), "Cancelled.") })) },
      ],
    }));

const SHOWN = {
  lanes,
  scheduled,
  messages: (ctx) => ctx.part("messages", (body) => messageTable(ctx, body)),
  tail: (ctx) => ctx.part("tail", (body) => tail(ctx, body)),
  options: (ctx) => ctx.part("queue", ({ options }) => optionList(ctx, name(ctx), options)),
};

export default {
  title: name,
  crumbs: () => [["Queues", link(["queues"])]],
  badges: (ctx) => [
    ctx.data.pauses?.pausedAt && badge(["paused ", time(ctx.data.pauses.pausedAt)], "warning"),
    ctx.data.queue?.options.ordering === "unordered" && badge("unordered", "muted"),
    ctx.data.queue?.options.delayedProcessing > 0 && badge(`delay ${duration(ctx.data.queue.options.delayedProcessing)}`, "muted"),
  ],
  watch: (ctx) => ({
    queue: where(api`/api/v1/resources/queues/${name(ctx)}`, { limit: 1 }),
    use: api`/api/v1/queues/${name(ctx)}/utilisation`,
    pauses: api`/api/v1/queues/${name(ctx)}/pauses`,
    history: historyPath(ctx, name(ctx)),
    ...marksPaths(ctx, name(ctx)),
    ...(view(ctx) === "lanes" && (ctx.query.group || groups(ctx).length > 0) && { lanes: lanesPath(ctx, name(ctx), group(ctx), { urgent: true }) }),
    ...(view(ctx) === "messages" && { messages: where("/api/v1/messages", { queue: name(ctx), limit: 50, status: ctx.query.status, before: ctx.query.after, from: "1970-01-01T00:00:00Z" }) }),
    ...(view(ctx) === "tail" && { tail: where("/api/v1/messages", { queue: name(ctx), limit: 50, from: "1970-01-01T00:00:00Z" }) }),
    ...(view(ctx) === "scheduled" && { scheduled: where(api`/api/v1/scheduled/${name(ctx)}`, { limit: 50, after: ctx.query.after }) }),
  }),
  actions: (ctx) => [
    button("Push …", { icon: "next", onclick: () => pushByHand(ctx, name(ctx)) }),
    ctx.data.pauses?.pausedAt
      ? button("Resume", { icon: "play", kind: "primary", onclick: () => pause(ctx, "resume", {}, name(ctx)) })
      : button("Pause", { icon: "pause", onclick: () => pause(ctx, "pause", {}, name(ctx)) }),
    button("Clear", { kind: "danger", onclick: () => clear(ctx) }),
    button("Delete", { icon: "trash", kind: "danger", onclick: () => remove(ctx) }),
  ],
  view: (ctx) => {
    if (ctx.problems.queue && !ctx.data.queue) return ctx.part("queue");
    const worth = (ctx.shared.findings ?? []).filter((one) => one.queue === name(ctx));
    return [
      worth.length > 0 && card("Needs attention", { key: "worth" }, findingList(ctx, worth)),
      figures(ctx),
      ctx.data.history && charts(ctx, ctx.data.history, name(ctx)),
      groupTable(ctx),
      card(null, {},
        h("div.card-tabs.flush", tabs(Object.keys(VIEWS), view(ctx), (one) => link(["queues", name(ctx)], { group: ctx.query.group, view: one === "lanes" ? "" : one, minutes: ctx.query.minutes }), VIEWS),
          view(ctx) === "lanes" && groups(ctx).length > 0 && button("Resume stopped lanes", { icon: "retry", kind: "quiet", title: "Restart the attempts of blocked and parked lanes of the group", onclick: () => resumeLanes(ctx) })),
        h("div.flush", { key: view(ctx) }, SHOWN[view(ctx)](ctx))),
    ];
  },
};
