// Names as people read them.

import { h } from "./dom.js";
import { link } from "./router.js";

/** The group that a pop without a group belongs to has a name that nobody gave. */
const GIVEN = { __QUEUE_MODE__: "no group", __COMMANDS__: "commands" };

export const groupName = (name) => (GIVEN[name] ? h("span.muted", { title: name }, GIVEN[name]) : name);
export const groupText = (name) => GIVEN[name] ?? name;

export const queueLink = (queue) => h("a", { href: link(["queues", queue]) }, queue);
export const groupLink = (queue, group) => h("a", { href: link(["groups", queue, group]) }, groupName(group));
export const laneLink = (queue, partition, group) => h("a", { href: link(["queues", queue, "partitions", partition], { group }) }, partition);

/** The beginning of a payload in one line. */
export const glimpse = (value, most = 90) => {
  const text = JSON.stringify(value) ?? "";
  return h("span.mono", { title: text.slice(0, 1000) }, text.length > most ? `${text.slice(0, most)}…` : text);
};
