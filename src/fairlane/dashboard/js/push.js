// Pushes of messages by hand: a new message, or a copy of another with a changed payload.

import { post } from "./api.js";
import { ask } from "./dialog.js";
import { difference } from "./diff.js";
import { h } from "./dom.js";
import { Exact, parse } from "./json.js";

/** A payload as indented JSON. Long numbers keep all their digits. */
export const pretty = (value) => JSON.stringify(value, (_, one) => (one instanceof Exact ? one.toJSON() : one), 2);

const mistake = (text) => {
  try {
    parse(text);
    return null;
  } catch (error) {
    return error.message;
  }
};

const SIGNS = { "+": "added", "-": "removed", "…": "gap" };

const changes = (before, after) => {
  const lines = difference(before, after);
  if (!lines.some((one) => one.sign === "+" || one.sign === "-")) return h("p", "Valid JSON. The payload is not changed.");
  return [h("p", "Valid JSON. Changes:"), h("pre.code.diff", { tabindex: "0", "aria-label": "Changes" }, lines.map((one, i) => h("div", { key: i, class: SIGNS[one.sign] ?? "" }, h("span.sign", one.sign), one.text)))];
};

/** What is wrong with a payload, or how it differs from `before`. */
export const checked = (payload, before) => {
  if (!payload.trim()) return null;
  const wrong = mistake(payload);
  if (wrong) return h("p.is-critical.problem", { role: "alert" }, wrong);
  return before === undefined ? h("p", "Valid JSON.") : h("div", changes(before, payload));
};

/** The parsed payload. Throws an error with a sentence if it is not JSON. */
export const parsed = (payload) => {
  const wrong = mistake(payload);
  if (wrong) throw new Error(`Nothing was done: the payload is not JSON. ${wrong}`);
  return parse(payload);
};

/** Ask for a payload, with a preview of the changes. Resolves to the text, or null. */
export const editPayload = async ({ title, text, before, label }) => {
  const values = await ask({
    title, text, label,
    fields: [{ name: "payload", label: "Payload (JSON)", type: "textarea", rows: 14, value: before, required: true }],
    preview: ({ payload }) => checked(payload, before),
  });
  return values ? values.payload : null;
};

const pushed = ([one]) => {
  if (one.status === "duplicate") return "Not pushed: a message with this transactionId exists.";
  return one.operationId ? "Accepted. The message is stored when the store allows it." : `Pushed as ${one.transaction_id}.`;
};

export const push = (ctx, item) => ctx.act(() => post("/api/v1/push", { items: [item] }), pushed);

/** Ask for a new message of a queue, and push it. */
export const pushByHand = async (ctx, queue, partition = "Default") => {
  const values = await ask({
    title: `Push a message to ${queue}`, label: "Push",
    fields: [
      { name: "payload", label: "Payload (JSON)", type: "textarea", rows: 8, required: true, placeholder: '{"order": 1001}' },
      { name: "partition", label: "Partition", value: partition, required: true },
      { name: "transactionId", label: "transactionId", hint: "Optional. A second message with the same id is a duplicate." },
    ],
    preview: ({ payload }) => checked(payload),
  });
  if (!values) return;
  let payload;
  try {
    payload = parsed(values.payload);
  } catch (error) {
    await ctx.act(() => Promise.reject(error));
    return;
  }
  await push(ctx, { queue, partition: values.partition, payload, ...(values.transactionId.trim() && { transactionId: values.transactionId.trim() }) });
};
