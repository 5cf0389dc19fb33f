// Consumer groups of all queues, with how far each lags.

import { h } from "../dom.js";
import { count, duration, time } from "../format.js";
import { groupName, groupText, queueLink } from "../names.js";
import { badge, empty, stat } from "../parts.js";
import { link } from "../router.js";
import { chooser, table } from "../table.js";

const LIMIT = 100;
/** States in words: a group that never finished nor holds a message is Dead on the wire. */
export const STATES = { Stable: ["at work", "good"], Lagging: ["behind", "warning"], Dead: ["nothing read yet", "muted"] };
const BEGINS = { all: "with all messages", new: "with new messages", timestamp: "at a time" };

const COLUMNS = {
  lag: (a, b) => b.totalLag - a.totalLag,
  oldest: (a, b) => b.maxTimeLag - a.maxTimeLag,
  name: (a, b) => groupText(a.name).localeCompare(groupText(b.name)) || a.queueName.localeCompare(b.queueName),
  queue: (a, b) => a.queueName.localeCompare(b.queueName) || a.name.localeCompare(b.name),
};

export default {
  title: () => "Groups",
  watch: () => ({ groups: "/api/v1/consumer-groups" }),
  view: (ctx) => ctx.part("groups", (groups) => {
    const { search = "", offset = 0 } = ctx.query;
    const sort = Object.hasOwn(COLUMNS, ctx.query.sort ?? "") ? ctx.query.sort : "lag";
    const order = ctx.query.order ?? (["lag", "oldest"].includes(sort) ? "desc" : "asc");
    const found = groups.filter((one) => !(one.look && ctx.query.looks !== "yes") && `${groupText(one.name)} ${one.queueName}`.toLowerCase().includes(search.toLowerCase()));
    found.sort(COLUMNS[sort]);
    if (order === (["lag", "oldest"].includes(sort) ? "asc" : "desc")) found.reverse();
    const lagging = groups.filter((one) => one.partitionsWithLag > 0);
    return [
      h("div.stats", { key: "stats" },
        stat("Groups", count(groups.length)),
        stat("Behind", count(lagging.length), { note: "have messages to read" }),
        stat("To read", count(groups.reduce((sum, one) => sum + one.totalLag, 0)), { note: "messages, of all groups" }),
        stat("Oldest", duration(groups.reduce((most, one) => Math.max(most, one.maxTimeLag), 0)), { note: "waits for its group" })),
      h("section.card", { key: "groups" }, table(ctx, {
        label: "Groups", rows: found.slice(Number(offset), Number(offset) + LIMIT), total: found.length, limit: LIMIT,
        key: (one) => JSON.stringify([one.queueName, one.name]),
        href: (one) => link(["groups", one.queueName, one.name]),
        search: "Search groups and queues", sorted: { sort: "lag", order: "desc" },
        tools: chooser(ctx, "looks", [["", "of consumers"], ["yes", "of people's looks too"]], "Groups"),
        columns: [
          { title: "Group", sort: "name", grow: true, cell: (one) => groupName(one.name) },
          { title: "Queue", sort: "queue", cell: (one) => queueLink(one.queueName) },
          { title: "To read", sort: "lag", order: "desc", number: true, cell: (one) => count(one.totalLag) },
          { title: "Oldest waits", sort: "oldest", order: "desc", number: true, cell: (one) => (one.totalLag ? duration(one.maxTimeLag) : "–") },
          { title: "Partitions", number: true, cell: (one) => count(one.members) },
          { title: "of them behind", number: true, cell: (one) => count(one.partitionsWithLag) },
          { title: "State", cell: (one) => badge(...(one.look ? ["a look", "muted"] : STATES[one.state] ?? [one.state, "neutral"])) },
          { title: "Began", cell: (one) => BEGINS[one.subscriptionMode] ?? one.subscriptionMode },
          { title: "Since", cell: (one) => time(one.subscriptionCreatedAt) },
        ],
        empty: empty(search ? "No group has this in its name." : "There are no groups yet.", search ? undefined : "A group is made by the first pop in its name; each group reads every message of the queue."),
      })),
    ];
  }),
};
