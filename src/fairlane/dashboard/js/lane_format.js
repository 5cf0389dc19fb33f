// Drawings of a lane: finished, leased, failed, waiting, delayed and dead messages, up to the head.

import { h } from "./dom.js";
import { count, exact } from "./format.js";
import { link } from "./router.js";

export const QUEUE_MODE = "__QUEUE_MODE__";
/** The name of a group. The queue's own group has a readable one. */
export const groupName = (group) => (group === QUEUE_MODE || !group ? "the queue's own group" : group);

/** The parts of a lane, in order: [state, from, to). */
const spans = ({ start = 0, committed, leasedTo, head, state, failures }) => {
  const leased = Math.max(committed, leasedTo ?? committed);
  const stuck = leased === committed && head > committed && (failures > 0 || state === "blocked" || state === "parked") ? committed + 1 : leased;
  return [["finished", start, committed], ["leased", committed, leased], ["failed", leased, stuck], ["waiting", stuck, head]].filter(([, from, to]) => to > from);
};

/** A small bar for tables. */
export const laneBar = (lane) => {
  const total = Math.max(1, lane.head - (lane.start ?? 0));
  const text = spans(lane).map(([name, from, to]) => `${count(to - from)} ${name}`).join(", ") || "empty";
  let x = 0;
  return h("svg.lane-bar", { viewBox: "0 0 100 8", preserveAspectRatio: "none", role: "img", "aria-label": text },
    h("title", text), h("rect.l-empty", { width: 100, height: 8 }),
    spans(lane).map(([name, from, to]) => {
      const width = Math.max(2, ((to - from) / total) * 100);
      const rect = h(`rect.l-${name}`, { key: name, x: Math.min(x, 98), width, height: 8 });
      x += width;
      return rect;
    }));
};

const W = 1000;

/** The whole lane with its cursor, and the messages that wait for their time. */
export const laneRoad = (lane, { scheduled = 0, dead = [] } = {}) => {
  const from = lane.start ?? 0;
  const room = scheduled ? W * 0.86 : W;
  const total = Math.max(1, lane.head - from);
  const x = (position) => ((position - from) / total) * room;
  const cursor = x(lane.committed);
  return h("figure.road",
    h("svg", { viewBox: `0 0 ${W} 46`, preserveAspectRatio: "none", "aria-hidden": "true" },
      h("rect.l-empty", { x: 0, y: 10, width: room, height: 26, rx: 3 }),
      spans(lane).map(([name, a, b]) => h(`rect.l-${name}`, { key: name, x: x(a), y: 10, width: Math.max(3, x(b) - x(a)), height: 26 })),
      dead.filter((one) => one >= from).map((one) => h("rect.l-dead", { key: one, x: x(one), y: 10, width: Math.max(2, x(one + 1) - x(one)), height: 26 })),
      scheduled > 0 && h("rect.l-delayed", { x: room + 8, y: 10, width: W - room - 8, height: 26 }),
      h("path.l-cursor", { d: `M${cursor} 2V44` })),
    h("figcaption.road-marks",
      h("span", { style: { "inset-inline-start": "0" } }, exact(from)),
      cursor > 80 && cursor < room - 80 && h("b", { style: { "inset-inline-start": `${cursor / 10}%` } }, `cursor ${exact(lane.committed)}`),
      h("span.end", { style: { "inset-inline-start": `${room / 10}%` } }, `head ${exact(lane.head)}`)));
};

/** The legend, with counts. */
export const laneLegend = (lane, { scheduled = 0, dead = 0 } = {}) => {
  const size = Object.fromEntries(spans(lane).map(([name, from, to]) => [name, to - from]));
  return h("div.legend.lane-legend",
    [["finished", size.finished], ["leased", size.leased], ["failed", size.failed], ["waiting", size.waiting], ["delayed", scheduled], ["dead", dead]].map(([name, n]) =>
      h("span", { key: name }, h("i", { class: `l-${name}` }), name, h("b", count(n ?? 0)))));
};

/** The state of one message of a lane, by position. */
export const stateOf = (lane, message) => {
  if (message.status === "dead_letter") return "dead";
  if (message.status === "cancelled") return "finished";
  const found = spans(lane).find(([, from, to]) => message.position >= from && message.position < to);
  return found?.[0] ?? (message.position < lane.committed ? "finished" : "waiting");
};

/** Messages around the cursor as cells with links. */
export const laneCells = (lane, messages) =>
  h("div.cells", messages.map((one) => {
    const name = stateOf(lane, one);
    return h("a.cell", { key: one.position, class: `l-${name}${one.position === lane.committed ? " is-next" : ""}`, href: link(["messages", one.partitionId, one.transactionId]), title: `${exact(one.position)}: ${name}`, "aria-label": `Message ${one.position}, ${name}` }, h("span", String(one.position)));
  }));
