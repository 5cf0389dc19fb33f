// Seek dialog: moves a group in a queue or in one partition, after a preview of the effect.

import { get, post } from "./api.js";
import { ask } from "./dialog.js";
import { h } from "./dom.js";
import { count, plural, stamp } from "./format.js";
import { api, where } from "./router.js";

const target = ({ to, time, position }) => {
  if (to === "time") return { timestamp: new Date(time).toISOString() };
  return { beginning: { toBeginning: true }, end: { toEnd: true }, position: { position: Number(position) } }[to];
};
const ready = ({ to, time, position }) => (to === "time" ? time !== "" : to === "position" ? position !== "" : true);
const path = (queue, group, partition) =>
  partition === undefined ? api`/api/v1/consumer-groups/${group}/queues/${queue}/seek` : api`/api/v1/consumer-groups/${group}/queues/${queue}/partitions/${partition}/seek`;

/** Ask for the target, show the preview, and seek. */
export const seek = async (ctx, queue, group, partition) => {
  let asked = "";
  let found = null;
  const look = (values, again) => {
    if (partition !== undefined || !ready(values)) return null;
    const wanted = where(path(queue, group), target(values));
    if (wanted !== asked) {
      asked = wanted;
      found = null;
      get(wanted).then((body) => { if (asked === wanted) { found = body; again(); } }, () => {});
    }
    if (!found) return h("p.note", "Counting …");
    return h("p", `${plural(found.again, "message")} would be delivered again, ${count(found.skipped)} would be skipped${found.complete ? "." : `; counted in the first ${plural(found.partitions, "partition")}.`}`);
  };
  const given = await ask({
    title: partition === undefined ? `Seek ${group} in ${queue}` : `Seek ${group} in ${partition}`,
    text: "The group continues from there. Its current leases are released.",
    label: "Seek",
    fields: [
      { name: "to", label: "To", type: "select", value: "time", options: [["time", "A time"], ["beginning", "The beginning: all messages are delivered again"], ["end", "The end: all waiting messages are skipped"], ...(partition === undefined ? [] : [["position", "A position"]])] },
      { name: "time", label: "Messages pushed at or after", type: "datetime-local", step: 1, value: stamp(Date.now() - 3600_000).replace(" ", "T"), required: true, when: ({ to }) => to === "time" },
      { name: "position", label: "Position", type: "number", min: 0, required: true, when: ({ to }) => to === "position" },
    ],
    preview: look,
  });
  if (given) ctx.act(() => post(path(queue, group, partition), target(given)), (answer) => `${group} continues from there${answer.partitionsUpdated === undefined ? "" : ` in ${plural(answer.partitionsUpdated, "partition")}`}.`);
};
