// Consumer groups of all queues, with how far each lags.

import { h } from "../dom.js";
import { count, duration, time } from "../format.js";
import { groupName, queueLink } from "../names.js";
import { badge, empty, stat } from "../parts.js";
import { link } from "../router.js";
import { chooser, paged, table } from "../table.js";

const LIMIT = 100;
/** States in words: a group that never finished nor holds a message is Dead on the wire. */
export const STATES = { Stable: ["at work", "good"], Lagging: ["behind", "warning"], Dead: ["nothing read yet", "muted"] };
const BEGINS = { all: "with all messages", new: "with new messages", timestamp: "at a time" };

export default {
  title: () => "Groups",
  watch: (ctx) => ({ groups: paged("/api/v1/resources/groups", ctx, { limit: LIMIT, queue: ctx.query.queue, looks: ctx.query.looks === "yes" ? "true" : undefined }) }),
  view: (ctx) => ctx.part("groups", ({ groups, total, lagging, toRead, oldestSeconds }) => {
    const { search = "", queue } = ctx.query;
    return [
      h("div.stats", { key: "stats" },
        stat("Groups", count(total), { note: search || queue ? "that fit" : "" }),
        stat("Behind", count(lagging), { note: "have messages to read" }),
        stat("To read", count(toRead), { note: "messages, of all groups" }),
        stat("Oldest", duration(oldestSeconds), { note: "waits for its group" })),
      h("section.card", { key: "groups" }, table(ctx, {
        label: "Groups", rows: groups, total, limit: LIMIT,
        key: (one) => JSON.stringify([one.queueName, one.name]),
        href: (one) => link(["groups", one.queueName, one.name]),
        search: "Search groups and queues", sorted: { sort: "lag", order: "desc" },
        tools: [
          chooser(ctx, "looks", [["", "of consumers"], ["yes", "of people's looks too"]], "Groups"),
          queue && h("a.button", { href: link(["groups"]) }, h("span", queue), " ×"),
        ],
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
