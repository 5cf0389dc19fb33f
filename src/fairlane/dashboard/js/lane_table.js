// The lanes of a group of one queue, filtered, searched and paged by the broker.

import { get, post } from "./api.js";
import { each } from "./bulk.js";
import { confirm } from "./dialog.js";
import { h } from "./dom.js";
import { age, count, millis, plural, time, upcoming } from "./format.js";
import { groupName, laneBar } from "./lane_format.js";
import { button, empty, state, tabs } from "./components.js";
import { api, link, where } from "./router.js";
import { paged, table } from "./table.js";

// Lanes that need attention first, those with equal states by name: customer-2 before customer-199. The others by age.
const RANKS = ["blocked", "parked", "failed", "paused"];
const rank = ({ state: name }) => (RANKS.includes(name) ? RANKS.indexOf(name) : RANKS.length);
const names = new Intl.Collator("en", { numeric: true });
const since = ({ oldestAt }) => millis(oldestAt) ?? Infinity;
const byUrgency = (a, b) => rank(a) - rank(b) || (rank(a) === RANKS.length && since(a) - since(b)) || names.compare(a.partition, b.partition);

/** How many lanes have a state, by the numbers of the group; undefined if nobody counts them. */
const sizes = (use) => use && { blocked: use.blocked, parked: use.parked, failed: use.retrying, paused: use.paused, leased: use.partitionsLeased, unfinished: use.partitionsWithMessages };
const chip = (name, text, many) => [text, many > 0 && " ", many > 0 && h("b.chip-count", { key: name }, count(many))];

const STATES = ["", "unfinished", "blocked", "parked", "failed", "leased", "paused", "delayed", "waiting", "finished"];

const chosen = ({ query }) => query.state || query.search || query.after;

export const lanesPath = (ctx, queue, group, { urgent } = {}) =>
  paged(api`/api/v1/queues/${queue}/lanes`, ctx, { group, ...(urgent && !chosen(ctx) ? { sort: "urgent" } : { state: ctx.query.state === "all" ? "" : ctx.query.state }) });

const STOPPED = new Set(["blocked", "parked", "paused"]);
const key = (one) => one.partition;

const resume = (ctx, rows, { queue, group }) =>
  each(ctx, rows, ({ partition }) => post(api`/api/v1/queues/${queue}/resume`, { group, partition }), { done: "Resumed", of: "lane", key });

const skip = async (ctx, rows, { queue, group }) => {
  const text = `The next message of ${rows.length === 1 ? "the lane" : "each lane"} becomes a dead letter of ${groupName(group)}, and can be replayed. The lanes continue with the message after it.`;
  if (!(await confirm({ title: `Skip ${plural(rows.length, "message")}?`, text, label: "Skip" }))) return;
  await each(ctx, rows, async ({ partition, committed }) => {
    const { messages: [next] } = await get(where("/api/v1/messages", { queue, partition, position: String(committed), limit: 1 }));
    if (next?.position !== committed) throw new Error(`${partition} has moved on.`);
    await post(api`/api/v1/messages/${next.partitionId}/${next.transactionId}/dlq`, { consumerGroup: group, error: "skipped by hand" });
  }, { done: "Skipped the message of", of: "lane", key });
};

const bulk = (ctx, of) => ({
  of: "lane", name: key,
  actions: (rows) => {
    const stopped = rows.filter((one) => STOPPED.has(one.state));
    const failing = rows.filter((one) => one.failures > 0 || one.state === "blocked" || one.state === "parked");
    return [
      button(`Resume ${count(stopped.length)}`, { icon: "play", disabled: !stopped.length, title: "Blocked, parked and paused lanes", onclick: () => resume(ctx, stopped, of) }),
      button(`Skip the next message of ${count(failing.length)}`, { icon: "skip", disabled: !failing.length, title: "Lanes whose next message has failed", onclick: () => skip(ctx, failing, of) }),
    ];
  },
});

const chips = (many, urgent) => Object.fromEntries(STATES.map((one) => [one, chip(one, one || (urgent ? "most urgent" : "all"), many?.[one])]));

// A page of several keeps the order of the broker.
const sorted = (ctx, rows, { urgent, next }) => {
  if (urgent && !chosen(ctx)) return [...rows].sort(byUrgency);
  return next || ctx.query.after ? rows : [...rows].sort((a, b) => names.compare(a.partition, b.partition));
};

/**
 * The body of a page of lanes as a table; `here` has the parts of the page's address, `tools` the controls before the
 * states. With `urgent`, lanes that need attention come first unless a filter is set.
 */
export const laneTable = (ctx, { lanes: rows, next, complete }, { queue, group, here, tools, urgent, use }) => [
  complete === false && rows.length > 0 && h("p.note.flush.pad", urgent && !chosen(ctx) ? "There are more. Choose a state or search by name." : "Not all partitions were checked. Choose Next to continue; a search by the beginning of a name is fast."),
  table(ctx, {
    label: "Lanes", rows: sorted(ctx, rows, { urgent, next }), next, part: complete === false, search: "Search partitions",
    tools: [tools, tabs(urgent ? ["", "all", ...STATES.slice(1)] : STATES, ctx.query.state ?? "", (one) => link(here, { ...ctx.query, state: one, after: "" }), chips(sizes(use), urgent), "States")],
    key, bulk: bulk(ctx, { queue, group }),
    href: (one) => link(["queues", queue, "partitions", one.partition], { group }),
    empty: complete === false
      ? empty("No matches in the lanes checked so far.", "Choose Next to check more. A search by the beginning of a name is fast.")
      : empty((urgent && !chosen(ctx)) || (ctx.query.state === "unfinished" && !ctx.query.search) ? `${groupName(group)} has finished everything.` : ctx.query.state || ctx.query.search ? "No matching lanes." : "There are no partitions yet.", chosen(ctx) || urgent ? undefined : "The first push to a partition creates it."),
    columns: [
      { title: "Partition", grow: true, cell: (one) => one.partition },
      { title: "State", cell: (one) => state(one.state) },
      { title: "Lane", hide: "narrow", cell: laneBar },
      { title: "Waiting", number: true, cell: (one) => count(one.waiting ?? one.head - one.committed) },
      { title: "Oldest", number: true, cell: (one) => age(one.oldestAt) },
      { title: "Failures", number: true, hide: "narrow", cell: (one) => h("span", { title: one.error ?? "", class: one.failures ? "bad" : "muted" }, count(one.failures)) },
      rows.some((one) => one.error) && { title: "Error", hide: "narrow", cell: (one) => one.error && h("span.clamp", { title: one.error }, one.error) },
      { title: "Next", hide: "narrow", cell: (one) => (one.state === "leased" ? ["lease ends ", time(one.leaseEndsAt)] : one.nextTryAt && one.failures ? ["retry ", upcoming(one.nextTryAt)] : "") },
    ].filter(Boolean),
  }),
];
