// A table of stored messages.

import { h } from "./dom.js";
import { exact, time } from "./format.js";
import { empty, state } from "./components.js";
import { link } from "./router.js";
import { chooser, table } from "./table.js";

const STATUS = { pending: "waiting", processing: "leased", completed: "finished", dead_letter: "dead", cancelled: "cancelled" };

/** The status of a message, in the words for lanes. */
export const statusOf = (status) => STATUS[status] ?? status;

export const messageTable = (ctx, { messages, next }, { partition = true, status = true } = {}) =>
  table(ctx, {
    label: "Messages", rows: messages, next, key: (one) => `${one.partitionId} ${one.position}`,
    href: (one) => link(["messages", one.partitionId, one.transactionId]),
    tools: status && chooser(ctx, "status", [["", "any"], ...Object.entries(STATUS)], "State"),
    empty: empty("No matching messages."),
    columns: [
      { title: "Transaction", clip: true, cell: (one) => h("span.mono", { title: one.transactionId }, one.transactionId) },
      partition && { title: "Partition", cell: (one) => one.partition },
      { title: "Position", number: true, hide: "narrow", cell: (one) => exact(one.position) },
      { title: "State", cell: (one) => state(statusOf(one.status)) },
      { title: "Finished by", number: true, hide: "narrow", cell: (one) => one.busStatus && `${one.busStatus.consumedBy} of ${one.busStatus.totalGroups} groups` },
      { title: "Came", cell: (one) => time(one.createdAt) },
    ].filter(Boolean),
  });
