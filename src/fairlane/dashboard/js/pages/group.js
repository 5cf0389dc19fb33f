// One group of one queue: how far behind it is over time, its lanes, and where it may be sent.

import { del, post } from "../api.js";
import { chart } from "../chart.js";
import { confirmByName } from "../dialog.js";
import { h } from "../dom.js";
import { count, duration, millis, now, plural, stamp, time } from "../format.js";
import { groupText, queueLink } from "../names.js";
import { badge, button, card, empty, facts, stat } from "../parts.js";
import { api, go, link } from "../router.js";
import { seek } from "../seek.js";
import { STATES } from "./groups.js";
import { table } from "../table.js";

const SAMPLES = 600;
const LIMIT = 50;
const forget = async (ctx) => {
  const { group, queue } = ctx.params;
  const sure = await confirmByName({ title: `Delete the group ${groupText(group)} of ${queue}?`, text: ["How far it was, its failures and its dead letters are forgotten. Messages stay. If it pops again it begins anew."], name: groupText(group), label: "Delete" });
  if (sure && (await ctx.act(() => del(api`/api/v1/consumer-groups/${group}/queues/${queue}`), "Deleted.")) !== undefined) go(link(["groups"]));
};

const pausedAt = (ctx) => ctx.data.pauses?.groups[ctx.params.group];

/** Lag since this page is open; what the broker remembers comes before it. */
const sampled = (ctx, summary) => {
  const samples = (ctx.state.samples ??= []);
  const at = now();
  if (!samples.length || at - samples[samples.length - 1].at >= 1000) samples.push({ at, lag: summary.totalLag, oldest: summary.maxTimeLag });
  if (samples.length > SAMPLES) samples.shift();
  return samples;
};

const over = (ctx, summary) => {
  const samples = sampled(ctx, summary);
  return card("Messages to read", { note: "since this page is open" },
    chart({ label: "Messages to read over time", times: samples.map((one) => one.at), series: [{ name: "to read", kind: "accent", area: true, points: samples.map((one) => one.lag) }], format: (value) => count(Math.round(value)) }));
};

const WORST = (a, b) => Boolean(b.halted) - Boolean(a.halted) || b.attempts - a.attempts || b.timeLagSeconds - a.timeLagSeconds || b.offsetLag - a.offsetLag;

const lanes = (ctx, all) => {
  const { queue, group } = ctx.params;
  const offset = Number(ctx.query.offset ?? 0);
  const found = all.filter((one) => one.partition.toLowerCase().includes((ctx.query.search ?? "").toLowerCase())).sort(WORST);
  return card("Lanes", { note: "those that need a look first" }, table(ctx, {
    label: "Lanes", rows: found.slice(offset, offset + LIMIT), total: found.length, limit: LIMIT, search: "Search partitions", key: (one) => one.partitionId,
    href: (one) => link(["queues", queue, "partitions", one.partition], { group }),
    columns: [
      { title: "Partition", grow: true, cell: (one) => one.partition },
      { title: "State", cell: (one) => (one.halted ? badge(one.halted, "critical") : one.leaseActive ? badge("leased", "info") : one.attempts ? badge("failed", "warning") : one.offsetLag ? badge("waiting") : badge("finished", "good")) },
      { title: "Finished", number: true, cell: (one) => count(one.totalConsumed) },
      { title: "To read", number: true, cell: (one) => count(one.offsetLag) },
      { title: "Oldest", number: true, cell: (one) => (one.offsetLag ? duration(one.timeLagSeconds) : "–") },
      { title: "Failed attempts", number: true, cell: (one) => count(one.attempts) },
      { title: "Error", grow: true, cell: (one) => one.error && h("span.clamp", { title: one.error }, one.error) },
      { title: "Next try", cell: (one) => (one.offsetLag ? time(one.nextTryAt) : "–") },
      { title: "Dead", number: true, cell: (one) => (one.deadLetters ? h("a", { href: link(["dead-letters"], { queue, group }) }, count(one.deadLetters)) : "0") },
    ],
    empty: empty("This group has no lanes here.", "A lane comes with the first message of a partition."),
  }));
};

export default {
  title: (ctx) => groupText(ctx.params.group),
  crumbs: (ctx) => [["Groups", link(["groups"])], [ctx.params.queue, link(["queues", ctx.params.queue])]],
  watch: ({ params }) => ({ groups: "/api/v1/consumer-groups", lanes: api`/api/v1/consumer-groups/${params.group}`, pauses: api`/api/v1/queues/${params.queue}/pauses` }),
  badges: (ctx) => (pausedAt(ctx) ? [badge("paused", "warning", stamp(millis(pausedAt(ctx))))] : []),
  actions: (ctx) => {
    const { queue, group } = ctx.params;
    const verb = pausedAt(ctx) ? "resume" : "pause";
    return [
      button(pausedAt(ctx) ? "Resume" : "Pause", { icon: pausedAt(ctx) ? "play" : "pause", onclick: () => ctx.act(() => post(api`/api/v1/queues/${queue}/${verb}`, { group }), verb === "pause" ? "Paused: nothing more is handed out to this group." : "Resumed.") }),
      button("Seek …", { icon: "seek", onclick: () => seek(ctx, queue, group) }),
      button("Delete …", { icon: "trash", kind: "danger", onclick: () => forget(ctx) }),
    ];
  },
  view: (ctx) => ctx.part("groups", (groups) => {
    const { queue, group } = ctx.params;
    const summary = groups.find((one) => one.queueName === queue && one.name === group);
    if (!summary) return empty("This group is not there.", "It was deleted, or nobody has popped in its name.", h("a.button", { href: link(["groups"]) }, "All groups"));
    return [
      h("div.stats", { key: "stats" },
        stat("To read", count(summary.totalLag), { note: `in ${plural(summary.partitionsWithLag, "partition")}` }),
        stat("Oldest waits", summary.totalLag ? duration(summary.maxTimeLag) : "–", { kind: summary.maxTimeLag > 300 ? "warning" : "" }),
        stat("Partitions", count(summary.members)),
        stat("State", (STATES[summary.state] ?? [summary.state])[0], { note: `of ${queue}` })),
      over(ctx, summary),
      ctx.part("lanes", (byQueue) => lanes(ctx, byQueue[queue]?.partitions ?? [])),
      card("About", { key: "about" }, facts([["Queue", queueLink(queue)], ["Began", summary.subscriptionMode], ["From", summary.subscriptionTimestamp && stamp(summary.subscriptionTimestamp)], ["Since", time(summary.subscriptionCreatedAt)], ["Paused", pausedAt(ctx) && time(pausedAt(ctx))]])),
    ];
  }),
};
