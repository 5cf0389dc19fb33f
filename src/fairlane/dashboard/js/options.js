// The options of a queue: what each does, its value, and a way to change it.

import { patch } from "./api.js";
import { ask } from "./dialog.js";
import { h } from "./dom.js";
import { count, duration } from "./format.js";
import { badge, button } from "./parts.js";
import { api } from "./router.js";

const seconds = (off) => ({ type: "number", unit: "seconds", show: (value) => (value ? duration(value) : off) });
const millis = (off) => ({ type: "number", unit: "milliseconds", show: (value) => (value ? duration(value / 1000) : off) });
const flag = { type: "checkbox", show: (value) => (value ? "yes" : "no") };

// By their names on the wire: [group, name, label, default, what it does, kind].
const OPTIONS = [
  ["Delivery", "ordering", "Order", "per_key", "In order within each partition, or unordered: many messages of a partition at once. A queue that has partitions keeps to its kind.",
    { type: "select", options: [["per_key", "per_key: in order within each partition"], ["fifo", "fifo: the same"], ["unordered", "unordered"]], show: String }],
  ["Delivery", "leaseTime", "Lease", 300, "How long a consumer has for the messages that it popped. After that they come again.", seconds("none")],
  ["Delivery", "priority", "Priority", 0, "Among queues that are popped together, those with a higher one come first.", { type: "number", show: count }],
  ["Delivery", "delayedProcessing", "Delay", 0, "A message is not delivered before it is this old.", seconds("none")],
  ["Delivery", "windowBuffer", "Quiet time", 0, "A partition is not read while its newest message is younger than this; then all of it comes.", seconds("none")],
  ["Delivery", "maxSize", "Most messages", 0, "Messages that not every group has finished, in all partitions. A push beyond it is refused whole.", { type: "number", show: (value) => (value ? count(value) : "no limit") }],
  ["Delivery", "dedupSeconds", "Ids remembered", 86400, "How long a transactionId is known, so that a repeated push is a duplicate.", seconds("not at all")],
  ["Failure", "retryLimit", "Retries", 3, "Failed attempts that are followed by another: deliveries in all are one more.", { type: "number", show: count }],
  ["Failure", "retryDelay", "First backoff", 0, "How long the lane sleeps after the first failed attempt. It doubles with each further one.", millis("none")],
  ["Failure", "maxRetryDelay", "Longest backoff", 60000, "No sleep is longer than this.", millis("none")],
  ["Failure", "retryJitter", "Spread backoff", false, "Each sleep lasts half to all of its length, so that lanes that failed together do not return together.", flag],
  ["Failure", "onExhausted", "After the last attempt", "dead_letter", "dead_letter: the message is set aside and the lane goes on. block: the lane waits until the message is tried again or taken away. park: the lane waits until it is resumed.",
    { type: "select", options: [["dead_letter", "dead_letter: the lane goes on"], ["block", "block: the lane waits for the message"], ["park", "park: the lane waits to be resumed"]], show: String }],
  ["Failure", "deadLetterQueue", "Dead letter queue", false, "The name of a queue that gets each dead letter as a message too.", { type: "text", show: (value) => (value === true ? "yes" : value || "none") }],
  ["Failure", "dlqAfterMaxRetries", "Dead letters after retries", false, "Accepted as clients send it. Dead letters are always kept.", flag],
  ["Age", "ttl", "Expires after", 0, "A message that is older than this expires, unless it is leased.", seconds("never")],
  ["Age", "maxWaitTimeSeconds", "Longest wait", 0, "The same, but only while no attempt of it has failed.", seconds("no limit")],
  ["Age", "onExpiry", "When it expires", "dead_letter", "It becomes a dead letter with the error “expired”, or is dropped and only counted.",
    { type: "select", options: [["dead_letter", "dead_letter"], ["drop", "drop"]], show: String }],
  ["Retention", "retentionEnabled", "Retention", false, "Whether the two rules below hold.", flag],
  ["Retention", "retentionSeconds", "All messages go after", 0, "At this age, read or not, unless they are leased.", seconds("never")],
  ["Retention", "completedRetentionSeconds", "Finished messages go after", 0, "Those that every group has finished.", seconds("never")],
  ["Retention", "deadLetterRetentionSeconds", "Dead letters go after", 0, "Counted from their last failure.", seconds("never")],
  ["Retention", "encryptionEnabled", "Encryption", false, "Payloads are encrypted at rest. Without a key nothing is stored or delivered.", flag],
];

const change = async (ctx, queue, [, name, label, , about, kind], value) => {
  const given = await ask({
    title: `${label} of ${queue}`,
    text: about,
    label: "Save",
    fields: [{ name, label: kind.unit ? `${label}, in ${kind.unit}` : label, type: kind.type, options: kind.options, value: kind.type === "text" && !value ? "" : value, min: 0, hint: kind.unit ? "0 turns it off" : undefined }],
  });
  if (!given) return;
  const set = kind.type === "text" ? given[name] || false : given[name];
  ctx.act(() => patch(api`/api/v1/resources/queues/${queue}`, { options: { [name]: set } }), `${label} of ${queue} is ${kind.show(set)} now.`);
};

export const optionList = (ctx, queue, options) => {
  const groups = Map.groupBy(OPTIONS.filter(([, name]) => name in options), ([group]) => group);
  return h("div.options.flush", [...groups].map(([group, list]) =>
    h("section", { key: group }, h("h3", group), h("dl", list.map((one) => {
      const [, name, label, usual, about, kind] = one;
      const value = options[name];
      return h("div.option", { key: name },
        h("dt", label, h("span.mono.note", name)),
        h("dd", h("p", h("b", kind.show(value)), value !== usual && badge("set", "info", `Usually ${kind.show(usual)}`)), h("p.note", about)),
        h("dd", button("Change", { kind: "quiet", "aria-label": `Change ${label}`, onclick: () => change(ctx, queue, one, value) })));
    })))));
};
