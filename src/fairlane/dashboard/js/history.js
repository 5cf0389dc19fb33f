// Charts of the broker's history, for all queues or one, with marks from the audit log. Selecting a range zooms.

import { chart, legend } from "./chart.js";
import { h } from "./dom.js";
import { count, latency, millis, rate, stamp } from "./format.js";
import { button, card, tabs } from "./components.js";
import { here, link, where } from "./router.js";

const SPANS = { 5: "5 min", 60: "1 h", 1440: "24 h", 10080: "7 d", 43200: "30 d" };

const MOST = 43_200;
const until = (ctx) => millis(ctx.query.until);
const minutes = (ctx) => (ctx.query.minutes in SPANS || (until(ctx) && ctx.query.minutes > 0 && ctx.query.minutes <= MOST) ? ctx.query.minutes : "5");

export const historyPath = (ctx, queue, group) => where("/api/v1/history", { queue, group, minutes: minutes(ctx), until: until(ctx) && ctx.query.until });

const show = (ctx, from, to) => ctx.setQuery({ minutes: String(Math.min(MOST, Math.max(5, Math.round((to - from) / 60_000)))), until: new Date(Math.min(to, Date.now())).toISOString() });

/** The choice of the time range. */
export const spans = (ctx) => {
  const [end, length] = [until(ctx) ?? Date.now(), minutes(ctx) * 60_000];
  const move = (by) => show(ctx, end - length + by * length, end + by * length);
  return h("div.bar",
    tabs(Object.keys(SPANS), until(ctx) ? "" : minutes(ctx), (one) => link(here().path, { ...ctx.query, until: "", minutes: one === "5" ? "" : one }), SPANS, "Period"),
    h("span.buttons", until(ctx) && h("span.note", `${stamp(end - length)} to ${stamp(end)}`),
      button("Earlier", { icon: "previous", kind: "quiet", onclick: () => move(-1) }),
      until(ctx) && button("Later", { icon: "next", kind: "quiet", onclick: () => move(1) }),
      until(ctx) && button("Now", { kind: "quiet", onclick: () => ctx.setQuery({ minutes: "", until: "" }) })));
};

/** Actions that are marked in charts, by their name in the audit log. */
const MARKS = {
  "specs.apply": "spec applied", "queues.pause": "paused", "queues.resume": "resumed", "pauses.set_everywhere": "paused or resumed everywhere", "queues.configure": "configured", "queues.set_options": "options changed",
  "queues.clear": "cleared", "queues.delete": "deleted", "groups.seek": "seek", "groups.seek_partition": "seek", "groups.resubscribe": "seek", "dead letters.replay": "dead letters replayed", "dead letters.purge": "dead letters purged", "tenants.limit": "quotas changed",
};
const EVERYWHERE = ["specs.apply", "pauses.set_everywhere"];
const MARKS_MAX = 200;

/** The paths of the newest entries of the audit log about a queue, or about all. Only callers with the scope `system` get marks. */
export const marksPaths = (ctx, queue) => {
  if (ctx.problems.marks?.status === 403) return {};
  return { marks: where("/api/v1/audit", { limit: MARKS_MAX, search: queue }), ...(queue && { marksOfAll: where("/api/v1/audit", { limit: 20, search: "specs.apply" }) }) };
};

const named = (target, queue) => target.split(/[/?=& ]/).some((part) => part === queue || part === encodeURIComponent(queue));
const marks = ({ data }, queue) =>
  [...(data.marks?.entries ?? []), ...(data.marksOfAll?.entries ?? [])]
    .filter((one) => one.outcome === "done" && MARKS[one.action] && (!queue || EVERYWHERE.includes(one.action) || named(one.target, queue)))
    .map((one) => ({ at: millis(one.at), text: `${MARKS[one.action]} by ${one.caller}` }));

const times = ({ from, stepSeconds, pushed }) => pushed.map((_, i) => millis(from) + i * stepSeconds * 1000);

/** The last known value. */
export const last = (points) => points?.findLast((one) => one !== null && one !== undefined);

/** The mean over the last seconds, because single seconds flicker. */
export const lately = ({ stepSeconds }, points, seconds = 10) => {
  const some = (points ?? []).slice(-Math.max(1, Math.round(seconds / stepSeconds)) - 1, -1).filter((one) => one !== null);
  return some.length ? some.reduce((sum, one) => sum + one, 0) / some.length : undefined;
};

const LEAST = 60;

/** The points from the first known one on, so that a broker that just started shows only its own time. */
export const trimmed = (body) => {
  const from = Math.max(0, Math.min(body.pushed.findIndex((one) => one !== null), body.pushed.length - LEAST));
  if (!from) return body;
  const columns = Object.entries(body).map(([name, value]) => [name, Array.isArray(value) ? value.slice(from) : value]);
  return { ...Object.fromEntries(columns), from: millis(body.from) + from * body.stepSeconds * 1000 };
};
const some = (points) => points?.some((one) => one !== null);

/** A chart of some series in a card. */
const figure = (title, body, series, format, more = {}) =>
  card(title, { key: title, more: legend(series) }, chart({ times: times(body), series, format, label: title, ...more }));

const throughput = (body, more) =>
  figure("Messages per second", body, [
    { name: "pushed", kind: "accent", points: body.pushed, area: true, value: rate(lately(body, body.pushed)) },
    { name: "finished", kind: "good", points: body.acked, value: rate(lately(body, body.acked)) },
  ], rate, more);

const errors = (body, more) =>
  figure("Failures per second", body, [
    { name: "failed", kind: "warning", points: body.failed, area: true, value: rate(lately(body, body.failed)) },
    { name: "dead letters", kind: "critical", points: body.dead, value: rate(lately(body, body.dead)) },
  ], rate, more);

const milliseconds = (ms) => latency(ms === undefined ? undefined : ms / 1000);

const waits = (body, more) =>
  figure("Time in the queue", body, [
    { name: "mean", kind: "violet", points: body.waitMeanMs, area: true, joined: true, value: milliseconds(last(body.waitMeanMs)) },
    { name: "longest", kind: "muted", points: body.waitMaxMs, joined: true, value: milliseconds(last(body.waitMaxMs)) },
  ], milliseconds, more);

const latencies = (body, more) =>
  figure("Latency, p99", body, ["push", "pop", "ack"].map((verb, i) => {
    const points = body[`${verb}P99Ms`] ?? [];
    return { name: verb, kind: ["accent", "violet", "good"][i], points, joined: true, value: milliseconds(last(points)) };
  }), milliseconds, more);

const depths = (body, more) =>
  figure("Waiting", body, [{ name: "messages", kind: "warning", points: body.depth ?? [], area: true, joined: true, value: count(last(body.depth)) }], count, more);

/** The lag of one group. */
export const lag = (ctx, whole) => {
  const body = trimmed(whole);
  const series = [{ name: "to read", kind: "accent", points: body.lag, area: true, joined: true, value: count(last(body.lag)) }];
  return h("div.stack", spans(ctx), figure("Messages to read", body, series, (value) => count(Math.round(value)), { marks: marks(ctx, ctx.params.queue), zoom: (from, to) => show(ctx, from, to) }));
};

/** The charts that have something to show, in rows. `queue` chooses the marks. */
export const charts = (ctx, whole, queue) => {
  const body = trimmed(whole);
  const more = { marks: marks(ctx, queue), zoom: (from, to) => show(ctx, from, to) };
  return h("div.stack", spans(ctx), h("div.charts", throughput(body, more), some(body.depth) && depths(body, more), some(body.waitMeanMs) && waits(body, more),
    [...body.failed, ...body.dead].some((one) => one > 0) && errors(body, more), some(body.pushP99Ms) && latencies(body, more)));
};
