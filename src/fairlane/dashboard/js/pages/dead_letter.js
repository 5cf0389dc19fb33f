// One dead letter: its message, the error of each attempt, and a replay with another payload.

import { del, getText, post } from "../api.js";
import { confirm, confirmByName } from "../dialog.js";
import { h } from "../dom.js";
import { count, plural, time } from "../format.js";
import { jsonTree, parse } from "../json.js";
import { groupName, laneLink, queueLink } from "../names.js";
import { badge, button, card, copyable, empty, facts, split, traceback } from "../components.js";
import { editPayload, parsed, pretty } from "../push.js";
import { go, link, where } from "../router.js";

const path = ({ queue, id }) => where("/api/v1/dlq", { queue, ids: id, tracebacks: "true", limit: 1 });
const found = (ctx) => ctx.data.letter?.messages[0];

const again = async (ctx, data) => {
  const { queue, id } = ctx.params;
  await ctx.act(() => post("/api/v1/dlq/replay", { queue, ids: [id], ...(data === undefined ? {} : { data }) }),
    ({ replayed }) => (replayed.length ? "Replayed as a new message." : "It was already replayed; nothing was pushed."));
};

const replay = async (ctx) => {
  const sure = await confirm({ title: "Replay this dead letter?", text: "Its message is pushed again to the end of its partition.", label: "Replay" });
  if (sure) await again(ctx);
};

const edit = async (ctx) => {
  // Requested as text, so that long numbers keep all their digits.
  const text = await ctx.act(() => getText(path(ctx.params)));
  const [letter] = text === undefined ? [] : parse(text).messages;
  if (!letter) return;
  const payload = await editPayload({
    title: "Edit and replay", before: pretty(letter.data), label: "Replay with this payload",
    text: ["The dead letter is not changed. The new message has this payload, and its header replay-of names the original message."],
  });
  if (payload === null) return;
  try {
    await again(ctx, parsed(payload));
  } catch (error) {
    await ctx.act(() => Promise.reject(error));
  }
};

const purge = async (ctx) => {
  const { queue, id } = ctx.params;
  const sure = await confirmByName({ title: "Purge this dead letter?", text: "It is deleted for good.", name: queue, label: "Purge" });
  if (sure && (await ctx.act(() => del(where("/api/v1/dlq", { queue, ids: id })), "Purged.")) !== undefined) go(link(["dead-letters"], { queue }));
};

const attempts = ({ errors, retryCount }) => {
  const hidden = retryCount - errors.length;
  return card("Attempts", { note: plural(retryCount, "failed attempt") },
    h("ol.tries",
      hidden > 0 && h("li", { key: "hidden" }, h("span.muted", `${plural(hidden, "earlier attempt")} not shown`)),
      errors.map((one, i) => h("li.is-critical", { key: i }, h("b", `Attempt ${count(hidden + i + 1)}`), " ", time(one.at), h("p", one.error), traceback(one.traceback)))));
};

export default {
  title: () => "Dead letter",
  crumbs: (ctx) => [["Dead letters", link(["dead-letters"])], [ctx.params.queue, link(["dead-letters"], { queue: ctx.params.queue })]],
  watch: (ctx) => ({ letter: path(ctx.params) }),
  badges: (ctx) => (found(ctx)?.replayedAt ? [badge("replayed", "good")] : []),
  actions: (ctx) => {
    const letter = found(ctx);
    return letter
      ? [
          !letter.replayedAt && !letter.locked && button("Replay", { icon: "retry", kind: "primary", onclick: () => replay(ctx) }),
          !letter.replayedAt && !letter.locked && button("Edit and replay …", { icon: "edit", onclick: () => edit(ctx) }),
          button("Purge …", { icon: "trash", kind: "danger", onclick: () => purge(ctx) }),
        ].filter(Boolean)
      : [];
  },
  view: (ctx) => ctx.part("letter", ({ messages: [letter] }) => (letter === undefined
    ? empty("This dead letter no longer exists.", "It was purged, or its queue was deleted.", h("a.button", { href: link(["dead-letters"]) }, "All dead letters"))
    : split(
      [card("Payload", {}, letter.locked ? h("p.is-critical.problem", letter.locked) : jsonTree(letter.data, letter.id)), attempts(letter)],
      [card("Message", {}, facts([
        ["Queue", queueLink(letter.queue)],
        ["Partition", laneLink(letter.queue, letter.partition, letter.consumerGroup)],
        ["Group", groupName(letter.consumerGroup)],
        ["Created", time(letter.createdAt)],
        ["First failed", time(letter.firstFailedAt)],
        ["Last failed", time(letter.failedAt)],
        ["Replayed", letter.replayedAt && time(letter.replayedAt)],
        ["Replayed as", letter.replayedAs && copyable(letter.replayedAs)],
        ["transactionId", copyable(letter.transactionId)],
        ["Message id", copyable(letter.messageId)],
        ["traceId", letter.traceId && h("a.mono", { href: link(["traces", letter.traceId]) }, letter.traceId)],
        ["Dead letter", copyable(letter.id)],
      ]))]))),
};
