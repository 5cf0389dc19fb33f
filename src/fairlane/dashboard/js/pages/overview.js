// Overview: findings, rates, depth, age and free capacity.

import { spark } from "../chart.js";
import { h } from "../dom.js";
import { awake, findingList } from "../findings.js";
import { age, bytes, count, duration, latency, plural, quietRate, rate } from "../format.js";
import { charts, historyPath, last, lately, marksPaths, trimmed } from "../history.js";
import { icon } from "../icons.js";
import { card, empty, facts, meter, split, stat, waiting } from "../components.js";
import { link } from "../router.js";
import { table } from "../table.js";

const stats = (ctx) =>
  ctx.part("overview", ({ messages, queues, partitions, throughput, lag }) => {
    const past = ctx.data.history && trimmed(ctx.data.history);
    const flow = (points) => past && spark(points);
    const oldest = lag?.time?.max ?? 0;
    const p99 = past ? last(past.pushP99Ms) : ctx.data.engine?.operations.push.p99_ms;
    return h("div.stats",
      stat("Pushed", rate(past ? lately(past, past.pushed) : throughput.ingestedPerSecond), { chart: flow(past?.pushed) }),
      stat("Finished", rate(past ? lately(past, past.acked) : throughput.processedPerSecond), { chart: flow(past?.acked) }),
      stat("Waiting", count(messages.pending), { note: `${plural(partitions, "partition")}, ${plural(queues, "queue")}`, chart: past?.depth && spark(past.depth, { kind: "warning" }), href: link(["queues"], { sort: "pending", order: "desc" }) }),
      stat("Oldest unfinished", duration(oldest), { href: link(["queues"], { sort: "oldest", order: "desc" }) }),
      stat("Leased", count(messages.processing)),
      stat("Dead letters", count(messages.deadLetter), { kind: messages.deadLetter ? "critical" : "", href: link(["dead-letters"]) }),
      stat("Push, p99", latency(p99 === undefined ? undefined : p99 / 1000), { chart: past?.pushP99Ms && spark(past.pushP99Ms, { kind: "violet" }) }));
  });

const worth = (ctx) => {
  const { findings } = ctx.shared;
  if (findings === undefined) return null;
  const calm = !awake(findings).length && h("p.calm", { key: "calm" }, icon("check"), "Nothing is stuck. Problems that need attention appear here.");
  if (calm) return [calm, findings.length > 0 && card(null, { key: "worth" }, findingList(ctx, findings))];
  return card("Needs attention", { key: "worth", note: plural(awake(findings).length, "finding") }, findingList(ctx, findings));
};

const deepest = (ctx) =>
  card("Queues with the most waiting messages", { more: h("a", { href: link(["queues"]) }, "All queues") },
    ctx.part("queues", ({ queues }) => table(ctx, {
      label: "Queues with the most waiting messages",
      rows: queues,
      whole: true,
      key: (one) => one.name,
      href: (one) => link(["queues", one.name]),
      empty: empty("There are no queues yet.", "The first push to a queue creates it: fairlane push orders '{\"id\": 1}'"),
      columns: [
        { title: "Queue", cell: (one) => one.name, grow: true },
        { title: "Waiting", number: true, cell: (one) => count(one.messages.pending) },
        { title: "Oldest", number: true, hide: "narrow", cell: (one) => age(one.oldestAt) },
        { title: "Finished", number: true, cell: (one) => quietRate(one.rates?.acked) },
        { title: "", hide: "narrow", cell: (one) => spark(one.spark, { label: `${one.name} over time` }) },
        { title: "Dead", number: true, cell: (one) => h("span", { class: one.messages.deadLetter ? "bad" : "muted" }, count(one.messages.deadLetter)) },
      ],
    })));

const use = (ctx) =>
  card("Store and operations", {}, ctx.part("engine", ({ connections, admission, queue }) => {
    const { push, ack } = admission.kinds;
    const open = (kind) => (ctx.data.operations?.stats ?? []).filter((one) => one.operation_type === kind && ["pending", "processing"].includes(one.status)).reduce((sum, one) => sum + one.count, 0);
    const failed = (ctx.data.operations?.stats ?? []).filter((one) => one.status === "failed").reduce((sum, one) => sum + one.count, 0);
    const staged = ctx.data.staged?.queues ?? [];
    const gauge = (name, share, text) => h("div.gauge", h("div", h("span", name), h("b", text)), meter(share, name));
    return h("div.gauges",
      gauge("Connections to the store", connections.total ? connections.busy / connections.total : 0, `${connections.busy} of ${connections.total} busy`),
      gauge("A push would wait", push.wait_seconds / push.wait_seconds_max, `${latency(push.wait_seconds)} of ${duration(push.wait_seconds_max)}`),
      gauge("An ack would wait", ack.wait_seconds / ack.wait_seconds_max, `${latency(ack.wait_seconds)} of ${duration(ack.wait_seconds_max)}`),
      gauge("Push operations", open("push") / push.operations_max, `${count(open("push"))} of ${count(push.operations_max)}`),
      gauge("Ack operations", open("ack") / ack.operations_max, `${count(open("ack"))} of ${count(ack.operations_max)}`),
      facts([
        ["Staged messages", staged.length ? `${count(staged.reduce((sum, one) => sum + one.messages, 0))}, the oldest ${age(staged[0].oldestAt)}` : null],
        ["Failed operations", failed ? h("a.bad", { href: link(["operations"], { status: "failed" }) }, count(failed)) : "none"],
        ["Long polls waiting", count(queue.parked)],
        ["Requests in flight", count(queue.pending)],
      ]));
  }));

const journal = (ctx) =>
  card("Journal", { note: "accepts pushes and acks while the store is unavailable" }, ctx.part("buffers", ({ journal: one }) => {
    if (!one) return h("p.muted", "Off. Pushes and acks are refused while the store is down.");
    return h("div.gauges",
      h("div.gauge", h("div", h("span", one.storeUp ? "The store answers" : `The store has been down for ${duration(one.awaySeconds)}`), h("b", `${bytes(one.bytes)} of ${bytes(one.bytesMax)}`)), meter(one.bytes / one.bytesMax, "Journal", one.storeUp ? undefined : "warning")),
      facts([
        ["Waiting", `${plural(one.messages, "message")} in ${plural(one.lanes, "lane")}`],
        ["Oldest", one.entries ? duration(one.oldestSeconds) : null],
        ["Drains at", one.entries ? rate(one.drainRate) : null],
        ["Failed", one.failed ? h("span.bad", count(one.failed)) : "none"],
        ["Why", one.whyNot],
      ]));
  }));

export default {
  title: () => "Overview",
  watch: (ctx) => ({
    overview: "/api/v1/resources/overview",
    engine: "/api/v1/status/engine",
    operations: "/api/v1/operations/stats",
    staged: "/api/v1/staged",
    buffers: "/api/v1/status/buffers",
    history: historyPath(ctx),
    ...marksPaths(ctx),
    queues: "/api/v1/resources/queues?limit=8&sort=pending&order=desc",
  }),
  view: (ctx) => [
    worth(ctx),
    stats(ctx),
    ctx.data.history ? charts(ctx, ctx.data.history) : ctx.problems.history ? null : waiting(),
    split(deepest(ctx), [use(ctx), journal(ctx)]),
  ],
};
