// Display forms of names and payloads.

import { h } from "./dom.js";
import { groupName as ownOrNamed } from "./lane_format.js";
import { link } from "./router.js";

/** Display name of a group. Groups that nobody named get a readable one. */
export const groupText = (name) => (name === "__COMMANDS__" ? "commands" : ownOrNamed(name));
export const groupName = (name) => (groupText(name) === name ? name : h("span.muted", { title: name }, groupText(name)));

export const queueLink = (queue) => h("a", { href: link(["queues", queue]) }, queue);
export const groupLink = (queue, group) => h("a", { href: link(["groups", queue, group]) }, groupName(group));
export const laneLink = (queue, partition, group) => h("a", { href: link(["queues", queue, "partitions", partition], { group }) }, partition);

/** The beginning of a payload, in one line. */
export const glimpse = (value, most = 90) => {
  const text = JSON.stringify(value) ?? "";
  return h("span.mono", { title: text.slice(0, 1000) }, text.length > most ? `${text.slice(0, most)}…` : text);
};
