// All queues, searched, sorted and paged by the broker.

import { post } from "../api.js";
import { each } from "../bulk.js";
import { spark } from "../chart.js";
import { ask } from "../dialog.js";
import { h } from "../dom.js";
import { age, count, plural, quietRate } from "../format.js";
import { badge, button, card, empty } from "../components.js";
import { api, go, link } from "../router.js";
import { paged, table } from "../table.js";

// Names of groups of queues are a column only if some queue shown has one.
const namespace = { title: "Namespace", hide: "narrow", cell: (one) => h("span.muted", named(one) ? one.namespace : "") };
const named = (one) => one.namespace && one.namespace !== one.name;

const columns = [
  { title: "Queue", sort: "name", grow: true, cell: (one) => [one.name, one.paused && [" ", badge("paused", "warning")], one.lanesStopped > 0 && [" ", badge(`${count(one.lanesStopped)} stopped`, "critical", "Blocked or parked lanes")], one.groups === 0 && one.messages.pending > 0 && [" ", badge("unread", "warning", "No consumer has ever popped from it")]] },
  { title: "Consumers", hide: "narrow", cell: (one) => (one.groups ? plural(one.groups, "group") : h("span.muted", "none")) },
  { title: "Partitions", number: true, hide: "narrow", cell: (one) => count(one.partitions) },
  { title: "Waiting", sort: "pending", order: "desc", number: true, cell: (one) => count(one.messages.pending) },
  { title: "Leased", number: true, hide: "narrow", cell: (one) => count(one.messages.processing) },
  { title: "Oldest", sort: "oldest", order: "desc", number: true, cell: (one) => age(one.oldestAt) },
  { title: "Pushed", sort: "rate", order: "desc", number: true, cell: (one) => quietRate(one.rates?.pushed) },
  { title: "Finished", number: true, hide: "narrow", cell: (one) => quietRate(one.rates?.acked) },
  { title: "Pushed, 5 min", hide: "narrow", cell: (one) => spark(one.spark, { label: `${one.name} over time` }) },
  { title: "Dead letters", sort: "deadLetters", order: "desc", number: true, cell: (one) => h("span", { class: one.messages.deadLetter ? "bad" : "muted" }, count(one.messages.deadLetter)) },
];

const make = async (ctx) => {
  const given = await ask({
    title: "New queue",
    text: "The first push to a queue also creates it. Options can be changed later.",
    label: "Create the queue",
    fields: [
      { name: "queue", label: "Name", required: true },
      { name: "ordering", label: "Order", type: "select", value: "per_key", options: [["per_key", "In order within each partition"], ["unordered", "Unordered: many messages of a partition at once"]] },
      { name: "namespace", label: "Namespace", hint: "Optional: groups queues of one team or product" },
    ],
  });
  if (!given) return;
  const made = await ctx.act(() => post("/api/v1/configure", { queue: given.queue, namespace: given.namespace || null, options: { ordering: given.ordering } }), `Queue ${given.queue} was created.`);
  if (made) go(link(["queues", given.queue]));
};

const key = (one) => one.name;

const bulk = (ctx) => ({
  of: "queue", name: key,
  actions: (rows) => ["pause", "resume"].map((verb) => {
    const chosen = rows.filter((one) => one.paused === (verb === "resume"));
    const [label, done] = verb === "pause" ? ["Pause", "Paused"] : ["Resume", "Resumed"];
    return button(`${label} ${count(chosen.length)}`, { icon: verb === "pause" ? "pause" : "play", disabled: !chosen.length, onclick: () => each(ctx, chosen, ({ name }) => post(`${api`/api/v1/queues/${name}`}/${verb}`), { done, of: "queue", key }) });
  }),
});

export default {
  title: () => "Queues",
  watch: (ctx) => ({ queues: paged("/api/v1/resources/queues", ctx, { sort: "trouble" }) }),
  actions: (ctx) => [button("New queue", { onclick: () => make(ctx) })],
  view: (ctx) =>
    card(null, {}, ctx.part("queues", ({ queues, total }) =>
      table(ctx, {
        label: "Queues", columns: queues.some(named) ? [columns[0], namespace, ...columns.slice(1)] : columns, rows: queues, total, sorted: { sort: "trouble" }, search: "Search queues",
        key, bulk: bulk(ctx),
        href: (one) => link(["queues", one.name]),
        empty: ctx.query.search
          ? empty(`No queue has “${ctx.query.search}” in its name.`)
          : empty("There are no queues yet.", "The first push to a queue creates it: fairlane push orders '{\"id\": 1}'"),
      }))),
};
