// Schedules with their next tick, to create, pause, resume or run now.

import { del, get, post } from "../api.js";
import { ask, confirmByName } from "../dialog.js";
import { h } from "../dom.js";
import { duration, stamp, time, upcoming } from "../format.js";
import { statusOf } from "../messages.js";
import { queueLink } from "../names.js";
import { checked, parsed } from "../push.js";
import { badge, button, empty, state } from "../components.js";
import { api, link } from "../router.js";
import { paged, table } from "../table.js";

const MISSED = { skip: "skip", once: "push once", all: "push each" };

const when = (one) => (one.cron
  ? h("span", h("span.mono", one.cron), " ", h("span.muted", one.timezone))
  : `every ${duration(one.everySeconds)}`);

const last = (run) => {
  if (!run) return h("span.muted", "never");
  const at = run.partitionId ? h("a", { href: link(["messages", run.partitionId, run.transactionId]) }, time(run.at)) : time(run.at);
  return h("span", at, " ", run.status ? state(statusOf(run.status)) : h("span.muted", "deleted"));
};

const act = (ctx, one, verb, done) => ctx.act(() => post(api`/api/v1/schedules/${one.name}/${verb}`), done);

const remove = async (ctx, one) => {
  const sure = await confirmByName({ title: `Delete the schedule ${one.name}?`, text: "It pushes no more messages. Messages that it has pushed are kept.", name: one.name, label: "Delete" });
  if (sure) await ctx.act(() => del(api`/api/v1/schedules/${one.name}`), "Deleted.");
};

const isThere = async (path) => {
  try {
    return await get(path);
  } catch (problem) {
    if (problem.status === 404) return null;
    throw problem;
  }
};

const define = async ({ name, data, kind, cron, timezone, everySeconds, ...more }) => {
  const path = api`/api/v1/schedules/${name.trim()}`;
  if (await isThere(path)) throw new Error(`The schedule ${name.trim()} exists. Delete it first, or choose another name.`);
  const times = kind === "cron" ? { cron: cron.trim(), timezone: timezone.trim() } : { everySeconds };
  return post(path, { ...more, ...times, ...(data.trim() && { data: parsed(data) }) });
};

const create = async (ctx) => {
  const isCron = ({ kind }) => kind === "cron";
  const values = await ask({
    title: "New schedule", text: "It pushes a message at each of its times.", label: "Create the schedule",
    fields: [
      { name: "name", label: "Name", required: true, placeholder: "nightly-report" },
      { name: "queue", label: "Queue", required: true, placeholder: "reports" },
      { name: "kind", label: "Times", type: "select", value: "cron", options: [["cron", "by a cron expression"], ["every", "by an interval"]] },
      { name: "cron", label: "Cron expression", required: true, placeholder: "0 2 * * *", hint: "Minute, hour, day of month, month, day of week", when: isCron },
      { name: "timezone", label: "Time zone", required: true, value: "UTC", placeholder: "Europe/Berlin", when: isCron },
      { name: "everySeconds", label: "Seconds", type: "number", min: 1, required: true, when: (all) => !isCron(all) },
      { name: "data", label: "Payload (JSON)", type: "textarea", rows: 4, hint: "Without one, the name of the schedule and the time of the tick" },
      { name: "missed", label: "Missed ticks", type: "select", value: "once", options: Object.entries(MISSED) },
    ],
    preview: ({ data }) => checked(data),
  });
  if (values) await ctx.act(() => define(values), `${values.name.trim()} is scheduled.`);
};

export default {
  title: () => "Schedules",
  actions: (ctx) => [button("New schedule", { onclick: () => create(ctx) })],
  watch: (ctx) => ({ schedules: paged("/api/v1/schedules", ctx) }),
  view: (ctx) => ctx.part("schedules", ({ schedules, total }) => {
    const { search } = ctx.query;
    return h("section.card", table(ctx, {
      label: "Schedules", rows: schedules, total, search: "Search schedules and queues", sorted: { sort: "name" }, key: (one) => one.name,
      columns: [
        { title: "Schedule", sort: "name", grow: true, cell: (one) => h("b", one.name) },
        { title: "Pushes to", sort: "queue", cell: (one) => h("span", queueLink(one.queue), one.partition !== "Default" && h("span.muted", ` ${one.partition}`)) },
        { title: "When", cell: when },
        { title: "Last", cell: (one) => last(one.lastRun) },
        { title: "Next", sort: "next", cell: (one) => (one.pausedAt ? badge("paused", "warning", `since ${stamp(one.pausedAt)}`) : one.refused ? badge("refused", "critical", one.refused) : upcoming(one.nextAt)) },
        { title: "Then", cell: (one) => (one.nextRuns.length > 1 ? h("details.runs", h("summary", time(one.nextRuns[1])), h("ol", one.nextRuns.map((at) => h("li", { key: at }, stamp(at))))) : "–") },
        { title: "Missed ticks", cell: (one) => MISSED[one.missed] ?? one.missed },
        { title: h("span.hidden", "Actions"), cell: (one) => h("span.buttons",
          button("Run now", { icon: "play", "aria-label": `Run now: ${one.name}`, onclick: () => act(ctx, one, "run", ({ queue }) => `Pushed once to ${queue}.`) }),
          one.pausedAt
            ? button("Resume", { "aria-label": `Resume ${one.name}`, onclick: () => act(ctx, one, "resume", "Resumed. It continues with its next tick.") })
            : button("Pause", { "aria-label": `Pause ${one.name}`, onclick: () => act(ctx, one, "pause", "Paused. It pushes nothing until it is resumed.") }),
          button("Delete", { kind: "danger", "aria-label": `Delete ${one.name}`, onclick: () => remove(ctx, one) })) },
      ],
      empty: empty(search ? "No schedule matches." : "There are no schedules.", search ? undefined : "A schedule pushes messages by an interval or a cron expression. Declare one in a spec, run fairlane schedule set, or create it here."),
    }));
  }),
};
