// Overview: how fast, how deep, how old, and what is worth acting on.

import { card, stat } from "../parts.js";
import { count, duration, latency, rate } from "../format.js";
import { h } from "../dom.js";

export default {
  title: () => "Overview",
  watch: () => ({ overview: "/api/v1/resources/overview", engine: "/api/v1/status/engine" }),
  view: (ctx) => [
    ctx.part("overview", ({ messages, queues, partitions, throughput, lag }) =>
      h("div.stats",
        stat("Pushed", rate(throughput.ingestedPerSecond)), stat("Finished", rate(throughput.processedPerSecond)),
        stat("Waiting", count(messages.pending), { note: `in ${count(partitions)} partitions of ${count(queues)} queues` }),
        stat("Oldest", duration(lag.time.max)), stat("Dead letters", count(messages.deadLetter), { kind: messages.deadLetter ? "critical" : "" }))),
    card("Latency", {}, ctx.part("engine", ({ operations }) =>
      h("div.stats", ["push", "pop", "ack"].map((verb) => stat(`${verb}, p99`, latency(operations[verb].p99_ms / 1000)))))),
  ],
};
