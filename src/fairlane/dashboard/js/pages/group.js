// One group of one queue: its lag over time, its lanes, and seeks.

import { del, post } from "../api.js";
import { confirmByName } from "../dialog.js";
import { h } from "../dom.js";
import { count, duration, millis, plural, stamp, time } from "../format.js";
import { historyPath, lag, marksPaths } from "../history.js";
import { lanesPath, laneTable } from "../lane_table.js";
import { groupText, queueLink } from "../names.js";
import { badge, button, card, empty, facts, stat } from "../components.js";
import { api, go, link } from "../router.js";
import { seek } from "../seek.js";
import { groupState } from "./groups.js";

const forget = async (ctx) => {
  const { group, queue } = ctx.params;
  const sure = await confirmByName({ title: `Delete the group ${groupText(group)} of ${queue}?`, text: ["Its position, its failures and its dead letters are deleted. Messages are kept. If it pops again, it starts over."], name: groupText(group), label: "Delete" });
  if (sure && (await ctx.act(() => del(api`/api/v1/consumer-groups/${group}/queues/${queue}`), "Deleted.")) !== undefined) go(link(["groups"]));
};

const stateStat = (ctx, summary) => {
  const [name, kind] = groupState(summary, ctx.params.queue, ctx.shared.findings);
  return [name, { kind: ["critical", "warning"].includes(kind) ? kind : "" }];
};

const pausedAt = (ctx) => ctx.data.pauses?.groups[ctx.params.group];

export default {
  title: (ctx) => groupText(ctx.params.group),
  crumbs: (ctx) => [["Groups", link(["groups"])], [ctx.params.queue, link(["queues", ctx.params.queue])]],
  watch: (ctx) => {
    const { queue, group } = ctx.params;
    return { summary: api`/api/v1/consumer-groups/${group}/queues/${queue}`, lanes: lanesPath(ctx, queue, group, { urgent: true }), pauses: api`/api/v1/queues/${queue}/pauses`, use: api`/api/v1/queues/${queue}/utilisation`, history: historyPath(ctx, queue, group), ...marksPaths(ctx, queue) };
  },
  badges: (ctx) => (pausedAt(ctx) ? [badge("paused", "warning", stamp(millis(pausedAt(ctx))))] : []),
  actions: (ctx) => {
    const { queue, group } = ctx.params;
    const verb = pausedAt(ctx) ? "resume" : "pause";
    return [
      button(pausedAt(ctx) ? "Resume" : "Pause", { icon: pausedAt(ctx) ? "play" : "pause", onclick: () => ctx.act(() => post(api`/api/v1/queues/${queue}/${verb}`, { group }), verb === "pause" ? "Paused. This group gets no more messages." : "Resumed.") }),
      button("Seek …", { icon: "seek", onclick: () => seek(ctx, queue, group) }),
      button("Delete …", { icon: "trash", kind: "danger", onclick: () => forget(ctx) }),
    ];
  },
  view: (ctx) => {
    const { queue, group } = ctx.params;
    if (ctx.problems.summary?.status === 404) return empty("This group does not exist.", "It was deleted, or has never popped.", h("a.button", { href: link(["groups"]) }, "All groups"));
    return ctx.part("summary", (summary) => [
      h("div.stats", { key: "stats" },
        stat("To read", count(summary.totalLag), { note: `in ${plural(summary.partitionsWithLag, "partition")}` }),
        stat("Oldest waits", summary.totalLag ? duration(summary.maxTimeLag) : "–", { kind: summary.maxTimeLag > 300 ? "warning" : "" }),
        stat("Partitions", count(summary.members)),
        stat("State", ...stateStat(ctx, summary))),
      ctx.part("history", (history) => lag(ctx, history)),
      card("Lanes", {}, h("div.flush", ctx.part("lanes", (body) => laneTable(ctx, body, { queue, group, here: ["groups", queue, group], urgent: true, use: ctx.data.use?.groups.find((one) => one.consumerGroup === group) })))),
      card("About", { key: "about" }, facts([["Queue", queueLink(queue)], ["Began", summary.subscriptionMode], ["From", summary.subscriptionTimestamp && stamp(summary.subscriptionTimestamp)], ["Since", time(summary.subscriptionCreatedAt)], ["Paused", pausedAt(ctx) && time(pausedAt(ctx))]])),
    ]);
  },
};
