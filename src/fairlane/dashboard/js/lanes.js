// The lanes of a group of one queue: by state, searched and paged by the broker.

import { h } from "./dom.js";
import { age, count, time } from "./format.js";
import { groupName, laneBar } from "./lane.js";
import { empty, state, tabs } from "./parts.js";
import { api, link } from "./router.js";
import { paged, table } from "./table.js";

const STATES = ["", "unfinished", "blocked", "parked", "failed", "leased", "paused", "delayed", "waiting", "finished"];

const chosen = ({ query }) => query.state || query.search || query.after;

export const lanesPath = (ctx, queue, group, { urgent } = {}) =>
  paged(api`/api/v1/queues/${queue}/lanes`, ctx, { group, ...(urgent && !chosen(ctx) ? { sort: "urgent" } : { state: ctx.query.state === "all" ? "" : ctx.query.state }) });

/**
 * The body of a page of lanes as a table; `here` is the address parts of the page, `tools` what stands before the states,
 * `urgent`: unless something is chosen, lanes that need a look come first.
 */
export const laneTable = (ctx, { lanes: rows, next, complete }, { queue, group, here, tools, urgent }) => [
  complete === false && rows.length > 0 && h("p.note.flush.pad", urgent && !chosen(ctx) ? "There are more; choose a state or search for a name." : "Not all partitions were looked at: Next goes on, and a search for how a name begins finds it at once."),
  table(ctx, {
    label: "Lanes", rows, next, part: complete === false, search: "Search partitions",
    tools: [tools, tabs(urgent ? ["", "all", ...STATES.slice(1)] : STATES, ctx.query.state ?? "", (one) => link(here, { ...ctx.query, state: one, after: "" }), { "": urgent ? "most urgent" : "all" }, "States")],
    key: (one) => one.partition,
    href: (one) => link(["queues", queue, "partitions", one.partition], { group }),
    empty: complete === false
      ? empty("None among those that were looked at so far.", "Next looks at more. A search for how a name begins finds it at once, among any number.")
      : empty((urgent && !chosen(ctx)) || (ctx.query.state === "unfinished" && !ctx.query.search) ? `${groupName(group)} has finished everything.` : ctx.query.state || ctx.query.search ? "No lane is like that." : "There is no partition yet.", chosen(ctx) || urgent ? undefined : "A partition is made by the first push to it."),
    columns: [
      { title: "Partition", grow: true, cell: (one) => one.partition },
      { title: "State", cell: (one) => state(one.state) },
      { title: "Lane", hide: "narrow", cell: laneBar },
      { title: "Waiting", number: true, cell: (one) => count(one.waiting ?? one.head - one.committed) },
      { title: "Oldest", number: true, cell: (one) => age(one.oldestAt) },
      { title: "Failures", number: true, hide: "narrow", cell: (one) => h("span", { title: one.error ?? "", class: one.failures ? "bad" : "muted" }, count(one.failures)) },
      rows.some((one) => one.error) && { title: "Error", hide: "narrow", cell: (one) => one.error && h("span.clamp", { title: one.error }, one.error) },
      { title: "Next", hide: "narrow", cell: (one) => (one.state === "leased" ? ["lease ends ", time(one.leaseEndsAt)] : one.nextTryAt && one.failures ? ["again ", time(one.nextTryAt)] : "") },
    ].filter(Boolean),
  }),
];
