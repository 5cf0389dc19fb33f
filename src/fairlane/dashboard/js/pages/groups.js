// Consumer groups of all queues, with their lag.

import { h } from "../dom.js";
import { count, duration, plural, time } from "../format.js";
import { groupName, queueLink } from "../names.js";
import { badge, empty, stat } from "../components.js";
import { link } from "../router.js";
import { chooser, paged, table } from "../table.js";

const LIMIT = 100;
/** States with their kinds. A group that has finished nothing and holds no message is Dead on the wire. */
const STATES = { Lagging: ["behind", "warning"], Dead: ["not started", "muted"] };

/** The state of a group and its kind, with what the findings know of it. */
export const groupState = (one, queue, findings = []) => {
  if (one.look) return ["viewer", "muted"];
  const ofGroup = findings.filter((finding) => finding.queue === queue && finding.group === one.name);
  const lanes = ofGroup.find(({ kind }) => kind === "lanes_stopped");
  if (lanes) return [`${plural(lanes.count, "lane")} stopped`, "critical"];
  if (ofGroup.some(({ kind }) => kind === "group_stopped")) return ["stopped", "critical"];
  return STATES[one.state] ?? (one.totalLag ? ["waiting", "neutral"] : ["up to date", "good"]);
};
const BEGINS = { all: "with all messages", new: "with new messages", timestamp: "at a time" };

export default {
  title: () => "Groups",
  watch: (ctx) => ({ groups: paged("/api/v1/resources/groups", ctx, { limit: LIMIT, queue: ctx.query.queue, looks: ctx.query.looks === "yes" ? "true" : undefined }) }),
  view: (ctx) => ctx.part("groups", ({ groups, total, lagging, toRead, oldestSeconds }) => {
    const { search = "", queue } = ctx.query;
    return [
      h("div.stats", { key: "stats" },
        stat("Groups", count(total), { note: search || queue ? "matching" : "" }),
        stat("With messages to read", count(lagging), { note: "groups" }),
        stat("To read", count(toRead), { note: "messages, of all groups" }),
        stat("Oldest", duration(oldestSeconds), { note: "oldest waiting message" })),
      h("section.card", { key: "groups" }, table(ctx, {
        label: "Groups", rows: groups, total, limit: LIMIT,
        key: (one) => JSON.stringify([one.queueName, one.name]),
        href: (one) => link(["groups", one.queueName, one.name]),
        search: "Search groups and queues", sorted: { sort: "lag", order: "desc" },
        tools: [
          chooser(ctx, "looks", [["", "of consumers"], ["yes", "of consumers and viewers"]], "Groups"),
          queue && h("a.button", { href: link(["groups"]) }, h("span", queue), " ×"),
        ],
        columns: [
          { title: "Group", sort: "name", grow: true, cell: (one) => groupName(one.name) },
          { title: "Queue", sort: "queue", cell: (one) => queueLink(one.queueName) },
          { title: "To read", sort: "lag", order: "desc", number: true, cell: (one) => count(one.totalLag) },
          { title: "Oldest waits", sort: "oldest", order: "desc", number: true, cell: (one) => (one.totalLag ? duration(one.maxTimeLag) : "–") },
          { title: "Partitions", number: true, cell: (one) => count(one.members) },
          { title: "Partitions behind", number: true, cell: (one) => count(one.partitionsWithLag) },
          { title: "State", cell: (one) => badge(...groupState(one, one.queueName, ctx.shared.findings)) },
          { title: "Began", cell: (one) => BEGINS[one.subscriptionMode] ?? one.subscriptionMode },
          { title: "Since", cell: (one) => time(one.subscriptionCreatedAt) },
        ],
        empty: empty(search ? "No group matches." : "There are no groups yet.", search ? undefined : "The first pop of a group creates it. Each group reads every message of the queue."),
      })),
    ];
  }),
};
