// One message: payload, headers, status for each group, attempts and errors, trace and results.

import { del, post } from "../api.js";
import { confirm, confirmByName } from "../dialog.js";
import { h } from "../dom.js";
import { bytes, count, duration, exact, latency, millis, plural, stamp, time } from "../format.js";
import { jsonTree, parse } from "../json.js";
import { groupName } from "../lane_format.js";
import { statusOf } from "../messages.js";
import { badge, button, card, copyable, empty, facts, split, state, traceback } from "../components.js";
import { editPayload, parsed, pretty, push } from "../push.js";
import { api, go, link, where } from "../router.js";

const path = ({ params }) => api`/api/v1/messages/${params.partitionId}/${params.transactionId}`;

const again = async (ctx) => {
  const text = "A copy with a new id is pushed to the end of the partition. The message itself is not changed.";
  if (await confirm({ title: "Push the message again", text, label: "Push again" })) ctx.act(() => post(`${path(ctx)}/retry`), ({ messageId }) => `Pushed as ${messageId}.`);
};
const cancel = async (ctx) => {
  const text = "It is not delivered again to any group that has not finished it, and is no dead letter. A worker that handles it stops within a second.";
  if (await confirm({ title: "Cancel the message", text, label: "Cancel the message", kind: "danger" })) ctx.act(() => post(`${path(ctx)}/cancel`), "It is cancelled.");
};
const editAgain = async (ctx) => {
  const { queue, partition, payload: was, traceId, type, headers: some } = ctx.data.message;
  const payload = await editPayload({
    title: "Edit and push again", before: pretty(was), label: "Push",
    text: "A new message with this payload is pushed to the end of the partition, with the same headers, type and trace. The message itself is not changed.",
  });
  if (payload === null) return;
  try {
    await push(ctx, { queue, partition, payload: parsed(payload), ...(traceId && { traceId }), ...(type && { type }), ...(some && { headers: some }) });
  } catch (error) {
    await ctx.act(() => Promise.reject(error));
  }
};
const bury = async (ctx) => {
  const text = "It becomes a dead letter of every group that has not finished it. Dead letters can be replayed.";
  if (await confirm({ title: "Dead-letter the message", text, label: "Dead-letter", kind: "danger" })) ctx.act(() => post(`${path(ctx)}/dlq`, { error: "dead-lettered by hand" }), "It is now a dead letter.");
};
const remove = async (ctx) => {
  const text = "It is no longer delivered to any group, and does not become a dead letter. This cannot be undone.";
  if (!(await confirmByName({ title: "Delete the message", text, name: ctx.params.transactionId, label: "Delete the message" }))) return;
  const { queue, partition } = ctx.data.message;
  if (await ctx.act(() => del(path(ctx)), "Message deleted.")) go(link(["queues", queue, "partitions", partition]));
};

const over = (one) => ["completed", "dead_letter", "cancelled"].includes(one.status);

const payload = (ctx) =>
  card("Payload", { more: ctx.part("message", (one) => {
    const text = pretty(one.payload);
    return [h("span.note", bytes(new TextEncoder().encode(JSON.stringify(one.payload)).length)), copyable(text, "Copy")];
  }) }, ctx.part("message", (one) => jsonTree(one.payload, `${one.id} payload`)));

const identity = (ctx) =>
  card("Message", {}, ctx.part("message", (one) => facts([
    ["Queue", h("a", { href: link(["queues", one.queue]) }, one.queue)],
    ["Partition", h("a", { href: link(["queues", one.queue, "partitions", one.partition]) }, one.partition)],
    ["Position", exact(one.position)],
    ["Came", [time(one.createdAt), h("div.note", stamp(one.createdAt))]],
    ["Message id", copyable(one.id)],
    ["Transaction id", one.transactionId === one.id ? null : copyable(one.transactionId)],
    ["Trace id", one.traceId && copyable(one.traceId)],
    ["Type", one.type],
    ["Producer", one.producerSub],
    ["Encrypted", one.isEncrypted ? "yes" : null],
    ["Attempts allowed", count(one.maxAttempts)],
  ])));

const headers = (ctx) => {
  const list = Object.entries(ctx.data.message?.headers ?? {});
  return list.length ? card("Headers", {}, facts(list.map(([name, value]) => [name, h("span.mono", value)]))) : null;
};

const groups = (ctx) =>
  card("Groups", {}, ctx.part("message", (one) => {
    const dead = new Set((ctx.data.dead?.messages ?? []).filter((letter) => letter.transactionId === one.transactionId).map((letter) => letter.consumerGroup));
    if (!one.consumerGroups?.length) return h("p.muted", "No group reads this queue yet.");
    return facts(one.consumerGroups.map((each) => [
      h("a", { href: link(["queues", one.queue, "partitions", one.partition], { group: each.name }) }, groupName(each.name)),
      h("span", state(dead.has(each.name) ? "dead" : each.cancelled ? "cancelled" : each.consumed ? "finished" : each.leaseExpiresAt ? "leased" : "waiting"), each.leaseExpiresAt && [" lease ends ", time(each.leaseExpiresAt)],
        each.progress && h("div.note", h("progress", { max: 1, value: each.progress.fraction }), ` ${Math.round(100 * each.progress.fraction)} % ${each.progress.text} `, time(each.progress.at))),
    ]));
  }));

const results = (ctx) => {
  const list = Object.entries(ctx.data.message?.results ?? {});
  if (!list.length) return null;
  return card("Results", {}, list.map(([group, one]) =>
    h("div", { key: group }, h("h3", groupName(group), " ", h("span.note", time(one.createdAt))), jsonTree(one.result, `${group} ${one.createdAt}`))));
};

// The timeline of a message: pushed, failed attempts with errors, notes of consumers, dead-lettered.
const story = (ctx) => {
  const one = ctx.data.message;
  const letters = (ctx.data.dead?.messages ?? []).filter((letter) => letter.transactionId === one.transactionId);
  // Lists of dead letters have no tracebacks. Those of this message come with the message, by the time of the failure.
  const frames = new Map((one.errors ?? []).map((each) => [each.at, each.traceback]));
  const events = [
    { at: one.createdAt, kind: "accent", text: "Pushed", more: `position ${exact(one.position)} of ${one.partition}` },
    ...letters.flatMap((letter) => [
      ...(letter.errors ?? []).map((each, i) => ({ at: each.at, kind: "warning", text: `Attempt ${i + 1} of ${groupName(letter.consumerGroup)} failed`, more: each.error, frames: frames.get(each.at) })),
      { at: letter.failedAt, kind: "critical", text: `Dead letter of ${groupName(letter.consumerGroup)}`, more: letter.errorMessage },
      letter.replayedAt && { at: letter.replayedAt, kind: "good", text: "Replayed", more: letter.replayedAs && `as ${letter.replayedAs}` },
    ]),
    ...(ctx.data.notes?.traces ?? []).map((note) => ({ at: note.created_at, kind: note.event_type === "error" ? "critical" : "info", text: note.event_type, more: groupName(note.consumer_group), data: note.data, id: note.id })),
    ...Object.entries(one.results ?? {}).map(([group, each]) => ({ at: each.createdAt, kind: "good", text: `Finished by ${groupName(group)} with a result` })),
  ].filter(Boolean);
  if (!letters.length) {
    const hidden = one.retryCount - (one.errors ?? []).length;
    events.push(...(one.errors ?? []).map((each, i) => ({ at: each.at, kind: "warning", text: `Attempt ${exact(hidden + i + 1)} failed`, more: each.error, frames: each.traceback })));
  }
  for (const each of one.consumerGroups ?? []) {
    const told = one.results?.[each.name] || letters.some((letter) => letter.consumerGroup === each.name);
    if (each.leaseExpiresAt) events.push({ at: null, kind: "info", text: `Delivered to ${groupName(each.name)}`, more: ["in flight, its lease ends ", time(each.leaseExpiresAt)] });
    else if (each.consumed && !told) events.push({ at: null, kind: "good", text: `Finished by ${groupName(each.name)}`, more: "Its time is stored only with a result." });
  }
  return events.sort((a, b) => (millis(a.at) ?? Infinity) - (millis(b.at) ?? Infinity));
};

const since = (ctx, at) => duration(Math.max(0, (millis(at) - millis(ctx.data.message.createdAt)) / 1000));

const timeline = (ctx) =>
  card("Timeline", { note: "what the store knows" }, ctx.part("message", () =>
    h("ol.timeline", story(ctx).map((one, i) =>
      h("li", { key: `${one.at} ${i}`, class: `is-${one.kind}` },
        h("div", h("p", h("b", one.text), one.at && [" ", h("span.note", { title: stamp(one.at) }, time(one.at), i > 0 && `, ${since(ctx, one.at)} after the push`)]), one.more && h("p.note", one.more), traceback(one.frames),
          one.data !== undefined && one.data !== null && jsonTree(one.data, one.id)))))));

// From the first push of the trace to shortly after the last. An unfinished message extends to the end.
const waterfall = (ctx) => {
  if (!ctx.data.message?.traceId) return null;
  return card("Trace across queues", { note: "messages with the same trace id" }, ctx.part("trace", ({ messages }) => {
    const rows = [...messages].sort((a, b) => millis(a.createdAt) - millis(b.createdAt));
    if (!rows.length) return empty("No message of this trace is stored anymore.");
    const begin = millis(rows[0].createdAt);
    const end = begin + Math.max(10, (millis(rows.at(-1).createdAt) - begin) * 1.15);
    const share = (at) => `${((at - begin) / (end - begin)) * 100}%`;
    return h("div.waterfall", rows.map((one) => {
      const [from, to] = [millis(one.createdAt), !over(one) ? end : millis(one.createdAt)];
      const kind = { completed: "good", dead_letter: "critical", processing: "info" }[one.status] ?? "accent";
      return h("a.fall", { key: one.id, class: one.transactionId === ctx.params.transactionId ? "is-here" : "", href: link(["messages", one.partitionId, one.transactionId]) },
        h("span.name", `${one.queue} / ${one.partition}`),
        h("span.track", { class: `is-${kind}`, title: `${statusOf(one.status)}, ${stamp(one.createdAt)}` }, h("i", { style: { "inset-inline-start": share(from), "inline-size": share(begin + to - from) } })),
        h("span.note", from === begin ? "begin" : `+${from - begin < 10_000 ? latency((from - begin) / 1000) : duration((from - begin) / 1000)}`));
    }));
  }));
};

export default {
  title: (ctx) => (ctx.data.message ? `Message ${exact(ctx.data.message.position)}` : "Message"),
  crumbs: (ctx) => {
    const one = ctx.data.message;
    return [["Queues", link(["queues"])], ...(one ? [[one.queue, link(["queues", one.queue])], [one.partition, link(["queues", one.queue, "partitions", one.partition])]] : [])];
  },
  badges: (ctx) => [ctx.data.message && state(statusOf(ctx.data.message.status)), ctx.data.message?.retryCount > 0 && badge(`${plural(ctx.data.message.retryCount, "failed attempt")}`, "warning")],
  load: (ctx) => ({ message: { path: path(ctx), parse } }),
  watch: (ctx) => {
    const one = ctx.data.message;
    return {
      notes: api`/api/v1/traces/${ctx.params.partitionId}/${ctx.params.transactionId}`,
      now: path(ctx),
      ...(one && { dead: where("/api/v1/dlq", { queue: one.queue, partition: one.partition, limit: 200 }) }),
      ...(one?.traceId && { trace: where("/api/v1/messages", { traceId: one.traceId, limit: 200 }) }),
    };
  },
  actions: (ctx) => (ctx.data.message ? [
    button("Push again", { icon: "retry", onclick: () => again(ctx) }),
    !ctx.data.message.isEncrypted && button("Edit and push again …", { icon: "edit", onclick: () => editAgain(ctx) }),
    !over(ctx.data.message) && button("Cancel the message", { kind: "danger", onclick: () => cancel(ctx) }),
    !over(ctx.data.message) && button("Dead-letter", { kind: "danger", onclick: () => bury(ctx) }),
    button("Delete", { icon: "trash", kind: "danger", onclick: () => remove(ctx) }),
  ] : []),
  view: (ctx) => {
    // The stream has the status. The payload is from the answer that was parsed without losing digits.
    if (ctx.data.message && ctx.data.now) Object.assign(ctx.data.message, ctx.data.now, { payload: ctx.data.message.payload });
    if (!ctx.data.message) return ctx.part("message");
    return [split([payload(ctx), results(ctx), waterfall(ctx), timeline(ctx)], [identity(ctx), groups(ctx), headers(ctx)])];
  },
};
