// The options of a queue: their meaning, their values, and a form to change them.

import { patch } from "./api.js";
import { ask } from "./dialog.js";
import { h } from "./dom.js";
import { count, duration } from "./format.js";
import { badge, button } from "./components.js";
import { api } from "./router.js";

const seconds = (off) => ({ type: "number", unit: "seconds", show: (value) => (value ? duration(value) : off) });
const millis = (off) => ({ type: "number", unit: "milliseconds", show: (value) => (value ? duration(value / 1000) : off) });
const flag = { type: "checkbox", show: (value) => (value ? "yes" : "no") };

// Options by their names on the wire: [group, name, label, default, meaning, kind].
const OPTIONS = [
  ["Delivery", "ordering", "Order", "per_key", "In order within each partition, or unordered: many messages of a partition at once. It cannot be changed once the queue has partitions.",
    { type: "select", options: [["per_key", "per_key: in order within each partition"], ["fifo", "fifo: same as per_key"], ["unordered", "unordered"]], show: String }],
  ["Delivery", "leaseTime", "Lease", 300, "Time that a consumer has for popped messages. After that they are delivered again.", seconds("none")],
  ["Delivery", "priority", "Priority", 0, "Queues with a higher priority come first if several are popped together.", { type: "number", show: count }],
  ["Delivery", "delayedProcessing", "Delay", 0, "Messages are delivered only after this time.", seconds("none")],
  ["Delivery", "windowBuffer", "Quiet time", 0, "A partition is not read while its newest message is younger than this. Then it is delivered completely.", seconds("none")],
  ["Delivery", "maxSize", "Capacity", 0, "Largest number of messages that some group has not finished. A push beyond it is refused whole.", { type: "number", show: (value) => (value ? count(value) : "no limit") }],
  ["Delivery", "maxRunning", "Running messages", 0, "Largest number of messages that the consumers of a group hold at the same time.", { type: "number", show: (value) => (value ? count(value) : "no limit") }],
  ["Delivery", "rate", "Rate", "", "Largest number of messages that are delivered to a group in a time: 10/1m is ten a minute.", { type: "text", empty: "", show: (value) => value || "no limit" }],
  ["Delivery", "maxRunningPerKey", "Running messages of a key", 0, "The same for each key, which is the partition with all its priorities. For unordered queues.", { type: "number", show: (value) => (value ? count(value) : "no limit") }],
  ["Delivery", "ratePerKey", "Rate of a key", "", "Largest number of messages of each key that are delivered to a group in a time: 10/1m is ten a minute.", { type: "text", empty: "", show: (value) => value || "no limit" }],
  ["Delivery", "dedupSeconds", "Deduplication window", 86400, "Time for which a transactionId is remembered, so that a repeated push is a duplicate.", seconds("not at all")],
  ["Failure", "retryLimit", "Retries", 3, "Number of retries. A message is delivered at most one time more often.", { type: "number", show: count }],
  ["Failure", "retryDelay", "First backoff", 0, "Delay after the first failed attempt. It doubles with each further one.", millis("none")],
  ["Failure", "maxRetryDelay", "Maximum backoff", 60000, "Largest delay between attempts.", millis("none")],
  ["Failure", "retryJitter", "Backoff jitter", false, "Each delay is randomly shortened by up to half, so that lanes that failed together do not retry together.", flag],
  ["Failure", "onExhausted", "After the last attempt", "dead_letter", "dead_letter: the message is set aside and the lane continues. block: the lane waits until the message is retried or removed. park: the lane waits until it is resumed.",
    { type: "select", options: [["dead_letter", "dead_letter: the lane continues"], ["block", "block: the lane waits for the message"], ["park", "park: the lane waits to be resumed"]], show: String }],
  ["Failure", "deadLetterQueue", "Dead letter queue", false, "Name of a queue that also gets each dead letter as a message.", { type: "text", show: (value) => (value === true ? "yes" : value || "none") }],
  ["Failure", "dlqAfterMaxRetries", "Dead letters after retries", false, "Accepted for compatibility with clients. Dead letters are always kept.", flag],
  ["Age", "ttl", "Expires after", 0, "Messages older than this expire, unless they are leased.", seconds("never")],
  ["Age", "maxWaitTimeSeconds", "Maximum wait", 0, "Like the expiry above, but only for messages without a failed attempt.", seconds("no limit")],
  ["Age", "onExpiry", "On expiry", "dead_letter", "Expired messages become dead letters with the error “expired”, or are dropped and only counted.",
    { type: "select", options: [["dead_letter", "dead_letter"], ["drop", "drop"]], show: String }],
  ["Retention", "retentionEnabled", "Retention", false, "Apply the two rules below.", flag],
  ["Retention", "retentionSeconds", "Delete all messages after", 0, "Age at which messages are deleted, read or not, unless they are leased.", seconds("never")],
  ["Retention", "completedRetentionSeconds", "Delete finished messages after", 0, "Age at which messages that every group has finished are deleted.", seconds("never")],
  ["Retention", "deadLetterRetentionSeconds", "Delete dead letters after", 0, "Time since their last failure.", seconds("never")],
  ["Placement", "cell", "Cell", "", "Cell that the queue was created in, if its options named one. It cannot be changed.", { type: "text", fixed: true, show: (value) => value || "chosen by size" }],
  ["Retention", "encryptionEnabled", "Encryption", false, "Payloads are encrypted at rest. A broker without a key stores and delivers nothing.", flag],
];

const change = async (ctx, queue, [, name, label, , about, kind], value) => {
  const given = await ask({
    title: `${label} of ${queue}`,
    text: about,
    label: "Save",
    fields: [{ name, label: kind.unit ? `${label}, in ${kind.unit}` : label, type: kind.type, options: kind.options, value: kind.type === "text" && !value ? "" : value, min: 0, hint: kind.unit ? "0 turns it off" : undefined }],
  });
  if (!given) return;
  const set = kind.type === "text" ? given[name] || (kind.empty ?? false) : given[name];
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
        h("dd", !kind.fixed && button("Change", { kind: "quiet", "aria-label": `Change ${label}`, onclick: () => change(ctx, queue, one, value) })));
    })))));
};
