// Workers: current messages, rates, failures and last report.

import { h } from "../dom.js";
import { count, latency, millis, now, percent, plural, rate, short, time } from "../format.js";
import { groupLink, queueLink } from "../names.js";
import { badge, card, empty, meter, stat } from "../components.js";
import { paged, pager, searchBox } from "../table.js";

const LIMIT = 20; // workers per page; each is a card
const QUIET_SECONDS = 15;

/** Rates by worker and queue, from its last two reports, which count since it started. */
const rates = (ctx, workers) => {
  const last = (ctx.state.reports ??= new Map());
  for (const worker of workers) {
    const known = last.get(worker.id);
    if (known?.seenAt === worker.seenAt) continue;
    const seconds = known ? (millis(worker.seenAt) - millis(known.seenAt)) / 1000 : 0;
    const by = {};
    for (const row of worker.queues) {
      const before = known?.queues.find((one) => one.queue === row.queue && one.group === row.group);
      if (before && seconds > 0 && row.handled >= before.handled) by[JSON.stringify([row.queue, row.group])] = (row.handled - before.handled) / seconds;
    }
    last.set(worker.id, { seenAt: worker.seenAt, queues: worker.queues, by });
  }
  return (worker, row) => last.get(worker.id)?.by[JSON.stringify([row.queue, row.group])];
};

const sum = (list, of) => list.reduce((total, one) => total + of(one), 0);

const worker = (one, rateOf) => {
  const quiet = (now() - millis(one.seenAt)) / 1000 > QUIET_SECONDS;
  const inHand = sum(one.queues, (row) => row.inHand);
  return card(one.app, {
    key: one.id,
    note: `${one.hostname}, process ${one.pid}`,
    more: [quiet ? badge("quiet", "warning", "No recent heartbeat.") : badge(inHand ? "working" : "idle", inHand ? "info" : "muted"), h("span.muted", "heartbeat ", time(one.seenAt))],
  },
  h("div.table-scroll.flush", { tabindex: "0", role: "region", "aria-label": `Queues of ${one.app} on ${one.hostname}` }, h("table",
    h("thead", h("tr", h("th.grow", { scope: "col" }, "Queue"), h("th", { scope: "col" }, "Group"), h("th", { scope: "col" }, "In flight"), h("th.number", { scope: "col" }, "Rate"), h("th.number", { scope: "col" }, "Mean time"), h("th.number", { scope: "col" }, "Handled"), h("th.number", { scope: "col" }, "Failed"))),
    h("tbody", one.queues.map((row) => h("tr", { key: JSON.stringify([row.queue, row.group]) },
      h("th.grow", { scope: "row" }, queueLink(row.queue)), h("td", groupLink(row.queue, row.group)),
      h("td", h("span.in-hand", `${count(row.inHand)} of ${count(row.concurrency)}`, meter(row.concurrency ? row.inHand / row.concurrency : 0, `In flight of ${row.queue}`, "info"))),
      h("td.number", rate(rateOf(one, row))), h("td.number", row.handled ? latency(row.meanMs / 1000) : "–"), h("td.number", count(row.handled)),
      h("td.number", row.failed ? badge(`${count(row.failed)} (${percent(row.failed / Math.max(1, row.handled + row.failed))})`, "warning") : "0")))))),
  one.current.length
    ? h("p.works-on", h("span.muted", "Working on "), one.current.slice(0, 12).map((id) => h("span.badge.is-neutral.mono", { key: id, title: id }, short(id, 10, 4))), one.current.length > 12 && h("span.muted", ` and ${count(one.current.length - 12)} more`))
    : h("p.muted", "Idle."));
};

/** Workers that stopped reporting without leaving. */
const lostWorkers = (lost) =>
  card("Lost workers", { key: "lost", note: "They stopped reporting without leaving: killed, crashed or cut off. Their messages are delivered again when the leases end." },
    h("div.table-scroll.flush", { tabindex: "0", role: "region", "aria-label": "Lost workers" }, h("table",
      h("thead", h("tr", h("th.grow", { scope: "col" }, "App"), h("th", { scope: "col" }, "Host"), h("th.number", { scope: "col" }, "Process"), h("th", { scope: "col" }, "Queues"), h("th.number", { scope: "col" }, "Held"), h("th", { scope: "col" }, "Last heartbeat"))),
      h("tbody", lost.map((one) => h("tr", { key: one.id },
        h("th.grow", { scope: "row" }, badge("lost", "critical"), " ", one.app), h("td", one.hostname), h("td.number", one.pid),
        h("td", one.queues.map((row, i) => [i > 0 && ", ", queueLink(row.queue)])), h("td.number", count(sum(one.queues, (row) => row.inHand))), h("td", time(one.seenAt))))))));

export default {
  title: () => "Workers",
  watch: (ctx) => ({ workers: paged("/api/v1/workers", ctx, { limit: LIMIT }) }),
  view: (ctx) => ctx.part("workers", ({ workers, lost = [], total, machines, inHand, concurrency, failed }) => {
    const { search } = ctx.query;
    if (!total && !search && lost.length) return [h("section.card", { key: "none" }, empty("There are no live workers.", "All workers that were here are lost. Start them again.", undefined, "alert")), lostWorkers(lost)];
    if (!total && !search) return h("section.card", empty("There are no live workers.", "A running worker reports every few seconds: fairlane worker run my_module:app. Consumers that pop on their own are not listed.", undefined, "info"));
    const rateOf = rates(ctx, workers);
    const shown = sum(workers, (one) => sum(one.queues, (row) => rateOf(one, row) ?? 0));
    return [
      h("div.stats", { key: "stats" },
        stat("Workers", count(total), { note: search ? "matching" : plural(machines, "machine") }),
        stat("In flight", count(inHand), { note: `of ${count(concurrency)} at once` }),
        stat("Rate", rate(shown), { note: total > workers.length ? "of those shown" : "" }),
        stat("Failed", count(failed), { kind: failed ? "warning" : "", note: "since they started" })),
      (total > 5 || search) && h("div", { key: "search" }, searchBox(ctx, "Search apps, machines and queues")),
      !total && h("section.card", { key: "none" }, empty("No worker matches.")),
      lost.length > 0 && lostWorkers(lost),
      ...workers.map((one) => worker(one, rateOf)),
      pager(ctx, { rows: workers, total, limit: LIMIT }),
    ];
  }),
};
