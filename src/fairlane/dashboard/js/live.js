// Live data: one event stream for all paths that a page watches.
//
//   const stop = watch({ queue: "/api/v1/..." }, (name, body, problem) => ...)
//
// The broker sends a snapshot, then differences (JSON merge patch). If no stream can be opened, every path is
// polled by GET every two seconds. A hidden tab has no stream, because browsers open few connections to one host.

import { get, problem } from "./api.js";

const POLL = 2000;

export const merge = (was, patch) => {
  if (patch === null || typeof patch !== "object" || Array.isArray(patch)) return patch;
  const now = was !== null && typeof was === "object" && !Array.isArray(was) ? { ...was } : {};
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) delete now[name];
    else now[name] = merge(now[name], value);
  }
  return now;
};

/** "live" while a stream is open, "polling" without one, "away" while the broker does not answer. */
export const connection = { state: "connecting", onchange: () => {} };

const setState = (state) => {
  if (connection.state === state) return;
  connection.state = state;
  connection.onchange(state);
};

export const watch = (paths, onChange) => {
  const names = new Map();
  for (const [name, path] of Object.entries(paths)) names.set(path, [...(names.get(path) ?? []), name]);
  const bodies = new Map();
  const polled = new Set();
  let source = null;
  let timer = null;
  let stopped = false;

  const put = (path, body) => {
    bodies.set(path, body);
    for (const name of names.get(path) ?? []) onChange(name, body, null);
  };
  const fail = (path, error) => {
    for (const name of names.get(path) ?? []) onChange(name, undefined, error);
  };

  const ask = async (path) => {
    try {
      const body = await get(path);
      if (!stopped) put(path, body);
    } catch (error) {
      if (!stopped) fail(path, error);
      if (error.status === 0) setState("away");
    }
  };
  const poll = async () => {
    if (timer || stopped || document.hidden) return;
    timer = setTimeout(() => { timer = null; poll(); }, POLL);
    await Promise.all([...polled].map(ask));
    if (!source && !stopped && connection.state !== "away") setState("polling");
    if (!source && connection.state === "away") setState(await get("/livez").then(() => "polling", () => "away"));
  };

  const open = () => {
    if (stopped || source || document.hidden || !names.size) return;
    source = new EventSource(`/api/v1/live?${[...names.keys()].map((path) => `watch=${encodeURIComponent(path)}`).join("&")}`);
    const on = (type, handle) => source.addEventListener(type, (event) => handle(JSON.parse(event.data)));
    source.onopen = () => { polled.clear(); setState("live"); };
    on("snapshot", ({ path, body }) => put(path, body));
    on("change", ({ path, patch }) => put(path, merge(bodies.get(path), patch)));
    on("problem", ({ path, status, body }) => fail(path, problem(status, body)));
    source.onerror = () => {
      if (source?.readyState !== EventSource.CLOSED) return setState("away");
      source = null; // refused: no such route, or too many streams
      for (const path of names.keys()) polled.add(path);
      poll();
      setTimeout(open, 15_000);
    };
  };
  const close = () => {
    source?.close();
    source = null;
    clearTimeout(timer);
    timer = null;
  };
  const seen = () => {
    if (document.hidden) close();
    else {
      open();
      if (polled.size) poll();
    }
  };

  document.addEventListener("visibilitychange", seen);
  open();
  return () => {
    stopped = true;
    document.removeEventListener("visibilitychange", seen);
    close();
  };
};
