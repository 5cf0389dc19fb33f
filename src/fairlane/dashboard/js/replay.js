// Replays of many dead letters, in steps, so that there is progress to show and a replay can be stopped. A replay
// continues while other pages are shown.

import { post } from "./api.js";
import { h } from "./dom.js";
import { count, plural } from "./format.js";
import { icon } from "./icons.js";
import { button } from "./components.js";

const STEP = 50;
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

/** The current or last replay: { label, total, done, running, stopped, problem }. */
export const current = { run: null };

/** Replay the dead letters of `targets` ({ queue, consumerGroup, error }), at most `rate` per second. Calls `changed` after each step. */
export const replayAll = async (label, targets, total, changed, rate) => {
  const step = rate ? Math.max(1, Math.min(STEP, Math.floor(rate / 2))) : STEP;
  const run = { label, total, done: 0, running: true, stopped: false, problem: null };
  current.run = run;
  changed();
  try {
    for (const target of targets) {
      let some = step;
      while (some === step && !run.stopped) {
        const began = Date.now();
        some = (await post("/api/v1/dlq/replay", { ...target, limit: step })).replayed.length;
        run.done += some;
        changed();
        if (rate && run.done < total) await sleep(Math.max(0, began + (some / rate) * 1000 - Date.now()));
      }
    }
  } catch (error) {
    run.problem = error.message;
  }
  run.running = false;
  changed();
};

const sentence = ({ done, total, running, stopped, problem, label }) => {
  if (problem) return `Stopped after ${plural(done, "message")}: ${problem}`;
  if (running) return `Replaying ${label}: ${count(done)} of ${count(total)}`;
  return stopped ? `Stopped: ${plural(done, "message was", "messages were")} replayed, the others are unchanged.` : `Replayed ${plural(done, "message")}: ${label}${/[.…]$/.test(label) ? "" : "."}`;
};

/** The progress bar of the replay. Nothing before the first one. */
export const progress = (changed) => {
  const { run } = current;
  if (!run) return null;
  const share = run.running ? run.done / Math.max(1, run.total) : run.problem || run.stopped ? run.done / Math.max(1, run.total) : 1;
  const kind = run.problem ? "critical" : run.running ? "accent" : run.stopped ? "warning" : "good";
  return h("section.card.progress-card", { key: "progress", class: `is-${kind}` },
    h("div.progress-line", icon(run.problem ? "alert" : run.running ? "retry" : "check"), h("p", { role: "status" }, sentence(run)),
      run.running
        ? button("Stop", { onclick: () => { run.stopped = true; changed(); } })
        : button("Dismiss", { kind: "quiet", onclick: () => { current.run = null; changed(); } })),
    h("div.progress", { role: "progressbar", "aria-label": "Replay", "aria-valuemin": 0, "aria-valuemax": run.total, "aria-valuenow": Math.min(run.done, run.total) },
      h("span", { style: { "inline-size": `${Math.min(1, share) * 100}%` } })));
};
