// One lane: a partition as one group sees it, why it does not advance, and the messages around the cursor.

import { del, post } from "../api.js";
import { confirm, confirmByName } from "../dialog.js";
import { h } from "../dom.js";
import { age, count, duration, exact, now, plural, millis, time } from "../format.js";
import { icon } from "../icons.js";
import { groupName, laneCells, laneLegend, laneRoad, QUEUE_MODE, stateOf } from "../lane_format.js";
import { badge, button, card, empty, facts, split, state, waiting } from "../components.js";
import { api, link, where } from "../router.js";
import { seek } from "../seek.js";
import { chooser, table } from "../table.js";

const BEFORE = 12;
const AROUND = 40;
const KINDS = { paused: "warning", parked: "critical", blocked: "critical", backing_off: "warning", leased: "info", operations_pending: "info", sealed: "critical", limited: "warning", ready: "good", empty: "good" };

const groups = (ctx) => (ctx.data.use?.groups ?? []).map((one) => one.consumerGroup);
const group = (ctx) => ctx.query.group ?? (groups(ctx).includes(QUEUE_MODE) || !groups(ctx).length ? QUEUE_MODE : groups(ctx)[0]);

// The first message around the cursor. It moves in steps, so that not every ack fetches new messages.
const first = (lane) => Math.max(lane.start ?? 0, Math.floor((lane.committed - BEFORE) / 8) * 8);

const next = (ctx) => (ctx.data.messages?.messages ?? []).find((one) => one.position === ctx.data.lane?.committed);

const acts = (ctx) => {
  const { queue, partition } = ctx.params;
  const body = { group: group(ctx), partition };
  const name = `${partition} for ${groupName(group(ctx))}`;
  return {
    resume: () => ctx.act(() => post(api`/api/v1/queues/${queue}/resume`, body), `${name} was resumed.`),
    resumeAll: () => ctx.act(() => post(api`/api/v1/queues/${queue}/resume`, { partition }), `${partition} was resumed.`),
    park: () => ctx.act(() => post(api`/api/v1/queues/${queue}/pause`, body), `${name} is paused.`),
    release: async (lease) => {
      const text = "Its messages can be popped again at once, without counting a failed attempt. The consumer that holds them now can no longer ack them.";
      if (await confirm({ title: "Release the lease", text, label: "Release" })) ctx.act(() => post(api`/api/v1/lease/${lease}/release`), "Lease released.");
    },
    skip: async (message) => {
      const text = `Message ${message.position} becomes a dead letter of ${groupName(group(ctx))}, and can be replayed. The lane continues with the next message.`;
      if (!(await confirm({ title: "Skip the message", text, label: "Skip it" }))) return;
      ctx.act(() => post(api`/api/v1/messages/${message.partitionId}/${message.transactionId}/dlq`, { consumerGroup: group(ctx), error: "skipped by hand" }), "It is now a dead letter.");
    },
    cancel: async (message) => {
      const text = `Message ${message.position} is not delivered again to any group that has not finished it. Other messages of the lane go on.`;
      if (!(await confirm({ title: "Cancel the message", text, label: "Cancel the message", kind: "danger" }))) return;
      ctx.act(() => post(api`/api/v1/messages/${message.partitionId}/${message.transactionId}/cancel`), "It is cancelled.");
    },
    clear: async () => {
      const text = "All messages of this partition are deleted, for every group. Dead letters are kept. This cannot be undone.";
      if (await confirmByName({ title: "Clear the partition", text, name: partition, label: "Clear the partition" })) ctx.act(() => del(where(api`/api/v1/queues/${queue}/clear`, { partition })), `${partition} is empty.`);
    },
  };
};

const explanation = (ctx) =>
  ctx.part("explain", ({ reason, sentence, until }) => {
    const act = acts(ctx);
    const message = next(ctx);
    const lease = (ctx.data.leases?.leases ?? []).find((one) => one.partition === ctx.params.partition);
    const stopped = ["blocked", "parked", "paused"].includes(reason);
    const wide = reason === "paused" && !ctx.data.pauses?.partitions[ctx.params.partition];
    return h("div.explain", { class: `is-${KINDS[reason] ?? "muted"}`, role: "status" },
      icon({ good: "check", info: "info" }[KINDS[reason]] ?? "alert"),
      h("div", h("p", sentence), until && h("span.note", "ends ", time(until))),
      h("span.buttons",
        stopped && button(reason === "blocked" ? "Try again" : "Resume", { icon: "retry", kind: "primary", onclick: wide ? act.resume : reason === "paused" ? act.resumeAll : act.resume }),
        (stopped || reason === "backing_off") && message && button("Skip the message", { icon: "skip", onclick: () => act.skip(message) }),
        reason === "leased" && message && button("Cancel the message", { kind: "danger", onclick: () => act.cancel(message) }),
        reason === "leased" && lease && button("Release the lease", { icon: "release", onclick: () => act.release(lease.leaseId) })));
  });

const drawing = (ctx) =>
  ctx.part("lane", (lane) => {
    const scheduled = (ctx.data.scheduled?.messages ?? []).filter((one) => one.partition === ctx.params.partition).length;
    const dead = (ctx.data.messages?.messages ?? []).filter((one) => one.status === "dead_letter").map((one) => one.position);
    return card("The lane", { more: state(lane.state), note: `of ${groupName(group(ctx))}` },
      laneRoad(lane, { scheduled, dead }),
      laneLegend(lane, { scheduled, dead: lane.deadLetters }),
      h("h3", "Around the cursor"),
      ctx.data.messages ? laneCells(lane, [...ctx.data.messages.messages].sort((a, b) => a.position - b.position)) : waiting());
  });

const messages = (ctx) =>
  card(ctx.data.lane ? "Messages around the cursor" : "Messages", {}, ctx.part("messages", ({ messages: list }) => {
    const lane = ctx.data.lane;
    const rows = [...list].sort((a, b) => a.position - b.position);
    return table(ctx, {
      label: "Messages around the cursor", rows, total: rows.length, limit: AROUND, key: (one) => one.position,
      href: (one) => link(["messages", one.partitionId, one.transactionId]),
      empty: empty("No messages are stored around the cursor.", "Messages deleted by retention are not shown."),
      columns: [
        { title: "Position", number: true, cell: (one) => exact(one.position) },
        { title: "State", cell: (one) => h("span.buttons", state(lane ? stateOf(lane, one) : one.status), lane && one.position === lane.committed && lane.head > lane.committed && badge("next", "info")) },
        { title: "Transaction", clip: true, cell: (one) => [h("span.mono", one.transactionId), one.preview && h("div.preview.mono", one.preview)] },
        { title: "Came", cell: (one) => time(one.createdAt) },
      ],
    });
  }));

const numbers = (ctx) =>
  card("Numbers", {}, ctx.part("explain", (one) => {
    const lane = ctx.data.lane;
    return facts([
      ["Waiting", plural(one.waiting, "message")],
      ["Next position", exact(one.position)],
      ["Head", exact(one.head)],
      ["Oldest unfinished", one.oldestAt && age(one.oldestAt)],
      ["Failed attempts", `${one.attempts} of ${one.attemptsMax}`],
      ["Last error", one.error],
      ["Leased", one.leased ? plural(one.leased, "message") : "nothing"],
      ["Lease ends", one.leaseEndsAt && [time(one.leaseEndsAt)]],
      ["Next try", one.nextTryAt && millis(one.nextTryAt) > now() ? time(one.nextTryAt) : null],
      ["Operations waiting", one.operations || null],
      ["Dead letters", one.deadLetters ? h("a", { href: link(["dead-letters"], { queue: ctx.params.queue, partition: ctx.params.partition }) }, count(one.deadLetters)) : "none"],
      ["Expired", one.expired || null],
      ["Partition id", lane?.partitionId && h("span.mono", lane.partitionId)],
    ]);
  }));

const upcoming = (ctx) => {
  const rows = (ctx.data.scheduled?.messages ?? []).filter((one) => one.partition === ctx.params.partition);
  if (!rows.length) return null;
  return card("Scheduled", {}, facts(rows.slice(0, 8).map((one) => [duration(Math.max(0, (millis(one.deliverAt) - now()) / 1000)), h("span.mono", one.transactionId)])));
};

export default {
  title: (ctx) => ctx.params.partition,
  crumbs: ({ params }) => [["Queues", link(["queues"])], [params.queue, link(["queues", params.queue])]],
  badges: (ctx) => [ctx.data.lane && state(ctx.data.lane.state)],
  watch: (ctx) => {
    const { queue, partition } = ctx.params;
    const use = { use: api`/api/v1/queues/${queue}/utilisation` };
    if (!ctx.query.group && !groups(ctx).length) return { ...use, messages: where("/api/v1/messages", { queue, partition, from: "1970-01-01T00:00:00Z", limit: AROUND }) };
    return {
      ...use,
      pauses: api`/api/v1/queues/${queue}/pauses`,
      explain: where(api`/api/v1/explain/${queue}/${partition}`, { group: group(ctx) }),
      lane: where(api`/api/v1/queues/${queue}/lanes/${partition}`, { group: group(ctx) }),
      leases: where("/api/v1/leases", { queue, consumerGroup: group(ctx), limit: 1000 }),
      scheduled: where(api`/api/v1/scheduled/${queue}`, { limit: 200 }),
      ...(ctx.data.lane && { messages: where("/api/v1/messages", { queue, partition, position: String(first(ctx.data.lane)), limit: AROUND }) }),
    };
  },
  actions: (ctx) => {
    const act = acts(ctx);
    if (!ctx.query.group && !groups(ctx).length) return [button("Clear", { icon: "trash", kind: "danger", onclick: act.clear })];
    const reason = ctx.data.explain?.reason;
    return [
      groups(ctx).length > 1 && chooser(ctx, "group", groups(ctx).map((one) => [one, groupName(one)]), "Group"),
      !["paused", "parked", "blocked"].includes(reason) && button("Pause the lane", { icon: "pause", onclick: act.park }),
      button("Seek", { icon: "seek", onclick: () => seek(ctx, ctx.params.queue, group(ctx), ctx.params.partition) }),
      button("Clear", { icon: "trash", kind: "danger", onclick: act.clear }),
    ];
  },
  view: (ctx) => {
    if (ctx.problems.use && !ctx.data.use) return ctx.part("use");
    if (ctx.data.use && !ctx.query.group && !groups(ctx).length) return [card(null, {}, empty("This queue has not been popped yet.", "Each group that reads the partition has a lane here.")), messages(ctx)];
    if (ctx.problems.explain && !ctx.data.explain) return ctx.part("explain");
    return [explanation(ctx), split([drawing(ctx), messages(ctx)], [numbers(ctx), upcoming(ctx)])];
  },
};
