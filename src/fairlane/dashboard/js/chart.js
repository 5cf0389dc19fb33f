// Charts in SVG: sparklines, and areas and lines over time with an axis and values at the pointer.

import { h } from "./dom.js";
import { clock, day, stamp } from "./format.js";

const known = (value) => value !== null && value !== undefined;

// Unknown values are gaps, or are skipped if the points belong together.
const path = (points, x, y, joined = false) => {
  let text = "";
  let pen = "M";
  points.forEach((value, i) => {
    if (!known(value)) pen = joined && text ? "L" : "M";
    else {
      text += `${pen}${x(i).toFixed(1)} ${y(value).toFixed(1)}`;
      pen = "L";
    }
  });
  return text;
};

/** Points without a neighbour, as dots. */
const dots = (points, x, y, joined) => {
  const near = joined ? points.filter(known).length > 1 : undefined;
  return points.map((value, i) => (known(value) && !(near ?? (known(points[i - 1]) || known(points[i + 1]))) ? `M${x(i).toFixed(1)} ${y(value).toFixed(1)}h0` : "")).join("");
};

/** A sparkline: spark([1, 2, 3], { kind: "info" }). */
export const spark = (points, { width = 96, height = 24, kind = "accent", label = "" } = {}) => {
  const values = points ?? [];
  const first = values.findIndex(known);
  const last = values.findLastIndex(known);
  const max = Math.max(0, ...values.filter(known));
  if (last - first < 1 || max === 0) return h("svg.spark.is-flat", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label || "no activity" }, h("path.line", { d: `M0 ${height - 1.5}H${width}` }));
  const x = (i) => (i / (values.length - 1)) * width;
  const y = (value) => height - 1.5 - (value / max) * (height - 4);
  const line = path(values, x, y, true);
  return h("svg.spark", { viewBox: `0 0 ${width} ${height}`, class: `is-${kind}`, preserveAspectRatio: "none", role: "img", "aria-label": label || "over time" },
    h("path.area", { d: `${line}L${x(last)} ${height}L${x(first)} ${height}Z` }), h("path.line", { d: line }));
};

// A label of an axis without trailing zeros: "1.5/s".
const tidy = (text) => text.replace(/(\.\d*?)0+(?=\D|$)/, (_, digits) => (digits === "." ? "" : digits));

// Readable steps of an axis.
const niceMax = (value) => {
  if (value <= 0) return 1;
  const size = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((one) => one * size >= value * 1.0001) * size;
};

/**
 * Series over the same times: chart({ times: [ms, ...], series: [{ name, kind, points, area: true, joined: true }], format, height }).
 * Colours by kind: accent, good, warning, critical, violet, muted.
 * marks: [{ at: ms, text }] are events, shown as lines. zoom(from, to), in ms, is called when a range is selected with the mouse.
 */
export const chart = ({ times, series, format = String, height = 160, label = "", marks = [], zoom }) => {
  const n = times.length;
  const top = niceMax(Math.max(0, ...series.flatMap((one) => one.points.map((value) => value ?? 0))));
  const W = 1000;
  const x = (i) => (n < 2 ? W : (i / (n - 1)) * W);
  const y = (value) => height - (value / top) * (height - 6);
  const scale = [0, 0.5, 1].filter((share) => share !== 0.5 || (format(top / 2) !== format(top) && !(/^\d+$/.test(format(top / 2)) && top % 2))).map((share) => h("span.axis-y", { style: { bottom: `${(share * (height - 6) * 100) / height}%` } }, tidy(format(top * share))));
  return h("figure.chart", { "aria-label": label, role: "img", onpointermove: (event) => point(event, { times, series, format, marks }), onpointerdown: zoom && ((event) => select(event, times, zoom)), onpointerleave: (event) => event.currentTarget.classList.remove("is-pointed") },
    h("div.plot", { style: { "block-size": `${height}px` } },
      h("svg", { viewBox: `0 0 ${W} ${height}`, preserveAspectRatio: "none" },
        [0, 0.5, 1].map((share) => h("path.grid-line", { d: `M0 ${(height - share * (height - 6)).toFixed(1)}H${W}` })),
        series.map((one) => {
          const line = path(one.points, x, y, one.joined);
          return h("g", { class: `is-${one.kind}` }, one.area && line && h("path.area", { d: `${line}L${x(one.points.findLastIndex(known))} ${height}L${x(one.points.findIndex(known))} ${height}Z` }), h("path.line", { d: line }), h("path.dot", { d: dots(one.points, x, y, one.joined) }));
        })),
      scale, apart(inside(marks, times), times).map((one) => h("i.mark-line", { key: `${one.at} ${one.text}`, title: one.text, style: { "inset-inline-start": `${share(one.at, times) * 100}%` } })), !series.some((one) => one.points.some(known)) && h("p.empty", h("span", "No data in this period")), h("div.cursor", { static: true }), h("div.range", { static: true }), h("div.tip", { static: true })),
    h("div.axis-x", n > 1 ? ticks(times) : null));
};

const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800].map((seconds) => seconds * 1000);
const DAY = 86_400_000;

/** Ticks at round times of this time zone. Midnight has the day, if hours are shown. */
const ticks = (times) => {
  const [from, to] = [times[0], times[times.length - 1]];
  const step = STEPS.find((one) => (to - from) / one <= (one < 60_000 ? 4 : 5)) ?? STEPS.at(-1);
  const zone = new Date(from).getTimezoneOffset() * 60_000;
  const label = (at) => (step >= 3_600_000 && (at - zone) % DAY === 0 ? day(at) : clock(at, step < 60_000));
  const found = [];
  for (let at = Math.ceil((from - zone) / step) * step + zone; at <= to; at += step) found.push(at);
  return found.filter((at) => share(at, times) < 0.97).map((at) => h("span", { key: at, style: { "inset-inline-start": `${share(at, times) * 100}%` } }, label(at)));
};

const share = (at, times) => (at - times[0]) / (times[times.length - 1] - times[0]);
const inside = (marks, times) => (times.length > 1 ? marks.filter(({ at }) => at >= times[0] && at <= times[times.length - 1]) : []);

// Marks that would be drawn over each other are one line. All of them are listed at the pointer.
const apart = (marks, times) => [...new Map(marks.map((one) => [Math.round(share(one.at, times) * 200), one])).values()];

/** Select a range with the mouse. */
const select = (event, times, zoom) => {
  if (event.pointerType !== "mouse" || event.button !== 0 || times.length < 2) return;
  const figure = event.currentTarget;
  const [box, range] = [figure.querySelector(".plot").getBoundingClientRect(), figure.querySelector(".range")];
  const of = ({ clientX }) => Math.max(0, Math.min(1, (clientX - box.left) / box.width));
  const first = of(event);
  const bounds = (other) => [Math.min(first, of(other)), Math.max(first, of(other))];
  const move = (moved) => {
    const [from, to] = bounds(moved);
    range.style.setProperty("inset-inline", `${from * 100}% ${100 - to * 100}%`);
    figure.classList.toggle("is-selected", to - from > 0.01);
  };
  const end = (last) => {
    removeEventListener("pointermove", move);
    figure.classList.remove("is-selected");
    const [from, to] = bounds(last);
    const span = times[times.length - 1] - times[0];
    if (to - from > 0.01) zoom(times[0] + from * span, times[0] + to * span);
  };
  event.preventDefault();
  addEventListener("pointermove", move);
  addEventListener("pointerup", end, { once: true });
};

const point = (event, { times, series, format, marks }) => {
  const figure = event.currentTarget;
  const box = figure.querySelector(".plot").getBoundingClientRect();
  const there = Math.max(0, Math.min(1, (event.clientX - box.left) / box.width));
  const i = Math.round(there * (times.length - 1));
  const [cursor, tip] = [figure.querySelector(".cursor"), figure.querySelector(".tip")];
  const left = times.length < 2 ? 100 : (i / (times.length - 1)) * 100;
  cursor.style.setProperty("inset-inline-start", `${left}%`);
  tip.style.setProperty("inset-inline-start", `${left}%`);
  tip.classList.toggle("is-left", there > 0.6);
  const row = (one) => {
    const line = document.createElement("span");
    line.className = `is-${one.kind}`;
    line.append(Object.assign(document.createElement("i"), {}), `${one.name} `, Object.assign(document.createElement("b"), { textContent: known(one.points[i]) ? format(one.points[i]) : "–" }));
    return line;
  };
  const near = inside(marks, times).filter((one) => Math.abs(share(one.at, times) - there) < 0.015);
  tip.replaceChildren(Object.assign(document.createElement("time"), { textContent: times[times.length - 1] - times[0] > 86_400_000 ? stamp(times[i]) : clock(times[i]) }), ...series.map(row), ...near.map((one) => Object.assign(document.createElement("span"), { className: "note", textContent: `${clock(one.at)} ${one.text}` })));
  figure.classList.add("is-pointed");
};

/** The legend of a chart: names and colours of its series and, if given, their last values. */
export const legend = (series) =>
  h("div.legend", series.map((one) => h("span", { key: one.name, class: `is-${one.kind}` }, h("i"), one.name, one.value !== undefined && h("b", one.value))));
