// Charts of the broker's history, for all queues or one.

import { chart, legend } from "./chart.js";
import { h } from "./dom.js";
import { count, latency, millis, rate } from "./format.js";
import { card, tabs } from "./components.js";
import { here, link, where } from "./router.js";

const SPANS = { 5: "5 min", 60: "1 h", 1440: "24 h", 10080: "7 d", 43200: "30 d" };

const minutes = (ctx) => (ctx.query.minutes in SPANS ? ctx.query.minutes : "5");

export const historyPath = (ctx, queue, group) => where("/api/v1/history", { queue, group, minutes: minutes(ctx) });

/** The choice of the time range. */
export const spans = (ctx) =>
  tabs(Object.keys(SPANS), minutes(ctx), (one) => link(here().path, { ...ctx.query, minutes: one === "5" ? "" : one }), SPANS, "Period");

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

const figure = (title, body, series, format, { note, key } = {}) =>
  card(title, { key, note, more: legend(series) }, chart({ times: times(body), series, format, label: title }));

export const throughput = (body) =>
  figure("Messages by second", body, [
    { name: "pushed", kind: "accent", points: body.pushed, area: true, value: rate(lately(body, body.pushed)) },
    { name: "finished", kind: "good", points: body.acked, value: rate(lately(body, body.acked)) },
    { name: "failed", kind: "critical", points: body.failed, value: rate(lately(body, body.failed)) },
  ], rate);

export const latencies = (body) =>
  figure("Latency, p99", body, ["push", "pop", "ack"].map((verb, i) => {
    const points = body[`${verb}P99Ms`] ?? [];
    return { name: verb, kind: ["accent", "violet", "good"][i], points, joined: true, value: latency(last(points) === undefined ? undefined : last(points) / 1000) };
  }), (ms) => latency(ms / 1000));

export const depths = (body) =>
  figure("Waiting", body, [{ name: "messages", kind: "warning", points: body.depth ?? [], area: true, joined: true, value: count(last(body.depth)) }], count);

/** The lag of one group. */
export const lag = (ctx, whole) => {
  const body = trimmed(whole);
  return h("div.stack", h("div.bar", spans(ctx)), figure("Messages to read", body, [{ name: "to read", kind: "accent", points: body.lag, area: true, joined: true, value: count(last(body.lag)) }], (value) => count(Math.round(value))));
};

/** The three charts, in one row if they fit. */
export const charts = (ctx, whole) => {
  const body = trimmed(whole);
  return h("div.stack", h("div.bar", spans(ctx)), h("div.charts", throughput(body), some(body.depth) && depths(body), some(body.pushP99Ms) && latencies(body)));
};
