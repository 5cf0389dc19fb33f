// Readable numbers, sizes, rates, durations and times. Absent values become "–".

import { h } from "./dom.js";

export const NONE = "–";
const absent = (value) => value === null || value === undefined || Number.isNaN(value);
const whole = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });

const scaled = (value, base, units) => {
  let step = 0;
  while (Math.abs(value) >= base * 0.9995 && step < units.length - 1) {
    value /= base;
    step += 1;
  }
  const digits = Math.abs(value) >= 100 || Number.isInteger(value) ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return [value.toFixed(digits), units[step]];
};

/** A count: 12,345, and from a hundred thousand on 123 k or 1.24 M. */
export const count = (value) => {
  if (absent(value)) return NONE;
  if (Math.abs(value) < 100_000) return whole.format(value);
  return scaled(value, 1000, ["", " k", " M", " G", " T"]).join("");
};

/** A position with every digit. */
export const exact = (value) => (absent(value) ? NONE : whole.format(value));

export const plural = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;

export const bytes = (value) => {
  if (absent(value)) return NONE;
  return scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]).join(" ");
};

/** A rate per second. */
export const rate = (value) => {
  if (absent(value)) return NONE;
  if (value > 0 && value < 0.01) return "<0.01/s";
  const [number, unit] = scaled(Math.round(value * 100) / 100, 1000, ["", "k", "M"]);
  return `${number}${unit && ` ${unit}`}/s`;
};

/** A rate for tables, where zeros are muted. */
export const quietRate = (value) => (value ? rate(value) : h("span.muted", rate(value)));

export const percent = (value) => (absent(value) ? NONE : `${(value * 100).toFixed(value < 0.1 && value > 0 ? 1 : 0)} %`);

/** A latency in seconds: 850 µs, 1.4 ms, 2.1 s, 3 min 20 s. */
export const latency = (seconds) => {
  if (absent(seconds)) return NONE;
  if (seconds === 0) return "0 ms";
  if (seconds >= 120) return duration(seconds);
  return scaled(seconds * 1e6, 1000, ["µs", "ms", "s"]).join(" ");
};

const SPANS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

/** A duration in seconds, in its two largest units: 3 min 12 s. */
export const duration = (seconds) => {
  if (absent(seconds)) return NONE;
  if (seconds < 1) return seconds <= 0 ? "0 s" : seconds < 0.001 ? "<1 ms" : `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1).replace(/\.0$/, "")} s`;
  let left = Math.round(seconds);
  const shown = [];
  for (const [size, unit] of SPANS) {
    const n = Math.floor(left / size);
    if (n) shown.push(`${n} ${unit}`);
    else if (shown.length) break;
    left -= n * size;
    if (shown.length === 2) break;
  }
  return shown.join(" ");
};

// Ages use the clock of the broker. A difference of less than two seconds is network latency.
let skew = 0;
export const setSkew = (server) => {
  const off = server - Date.now();
  skew = Math.abs(off) > 2000 ? off : 0;
};
export const now = () => Date.now() + skew;

/** Milliseconds since 1970 from ISO 8601 text, or from a number of seconds or milliseconds. */
export const millis = (value) => {
  if (absent(value) || value === "") return null;
  if (typeof value === "number") return value > 1e11 ? value : value * 1000;
  const at = Date.parse(value);
  return Number.isNaN(at) ? null : at;
};

const pad = (n, width = 2) => String(n).padStart(width, "0");

/** A time like 2026-11-17 06:31:04, in the time zone of this machine. */
export const stamp = (value) => {
  const at = millis(value);
  if (at === null) return NONE;
  const t = new Date(at);
  return `${t.getFullYear()}-${pad(t.getMonth() + 1)}-${pad(t.getDate())} ${clock(at)}`;
};

/** A day like 11-17. */
export const day = (at) => {
  const t = new Date(at);
  return `${pad(t.getMonth() + 1)}-${pad(t.getDate())}`;
};

export const clock = (at, seconds = true) => {
  const t = new Date(at);
  return `${pad(t.getHours())}:${pad(t.getMinutes())}${seconds ? `:${pad(t.getSeconds())}` : ""}`;
};

export const relative = (value) => {
  const at = millis(value);
  if (at === null) return NONE;
  const seconds = (now() - at) / 1000;
  if (Math.abs(seconds) < 1) return "now";
  const span = duration(Math.abs(seconds) < 10 ? Math.round(Math.abs(seconds)) : Math.abs(seconds)).replace(/( min| h| d) .*/, "$1");
  return seconds > 0 ? `${span} ago` : `in ${span}`;
};

/** "3 min ago", with the full time on hover. */
export const time = (value) => {
  const at = millis(value);
  return at === null ? NONE : h("time", { datetime: new Date(at).toISOString(), title: stamp(at) }, relative(at));
};

/** A time to come, like "in 3 min". One that has passed is "due". */
export const upcoming = (value) => (millis(value) !== null && millis(value) <= now() ? h("span", { title: stamp(value) }, "due") : time(value));

/** "3 min": the time since then. */
export const age = (value) => {
  const at = millis(value);
  return at === null ? NONE : h("time", { datetime: new Date(at).toISOString(), title: stamp(at) }, duration(Math.max(0, (now() - at) / 1000)));
};

/** An id, shortened to its first and last characters, complete on hover. */
export const short = (id, head = 8, tail = 4) => {
  if (!id) return NONE;
  return id.length <= head + tail + 1 ? id : h("span", { title: id }, `${id.slice(0, head)}…${id.slice(-tail)}`);
};
