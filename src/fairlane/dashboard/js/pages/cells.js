// Cells: the databases that share the queues of the store, with their contents.

import { h } from "../dom.js";
import { bytes, count, rate } from "../format.js";
import { badge, card, stat } from "../components.js";

const STATES = {
  open: ["open", "good", "It gets new queues."],
  full: ["closed", "muted", "It gets no new queues, and serves those that it has."],
  joining: ["joining", "info", "It gets queues when every broker knows it."],
};
const known = (value, show) => (value === undefined || value === null ? "–" : show(value));
const sum = (cells, of) => cells.reduce((total, one) => total + (of(one) ?? 0), 0);
const state = (one) => (one.error ? badge("does not answer", "critical", one.error) : badge(...STATES[one.state]));

const totals = (cells) => {
  const away = cells.filter((one) => one.error).length;
  const note = away ? "without the cells that do not answer" : "";
  return h("div.stats", { key: "totals" },
    stat("Cells", count(cells.length), { kind: away ? "critical" : "", note: away ? `${count(away)} ${away > 1 ? "do" : "does"} not answer` : "all answer" }),
    stat("Queues", count(sum(cells, (one) => one.queues)), { note }),
    stat("Size", bytes(sum(cells, (one) => one.bytes)), { note }),
    stat("Stored per second", rate(sum(cells, (one) => one.messagesPerSecond)), { note: note || "messages" }));
};

const row = (one) => h("tr", { key: one.cell },
  h("th", { scope: "row" }, String(one.cell), one.cell === 0 && h("span.muted", " home")),
  h("td.grow", h("div", h("span.mono", one.node), one.error && h("p.muted", one.error))), h("td", h("span.mono", one.schema)), h("td", state(one)),
  h("td.number", known(one.queues, count)), h("td.number", known(one.bytes, bytes)), h("td.number", known(one.messagesPerSecond, rate)));

export default {
  title: () => "Cells",
  watch: () => ({ cells: "/api/v1/cells" }),
  view: (ctx) => ctx.part("cells", ({ cells }) => [
    totals(cells),
    card("Databases", { key: "cells", note: "Each queue is in one cell, with everything that belongs to it." },
      h("div.table-scroll.flush", { tabindex: "0", role: "region", "aria-label": "Cells" }, h("table",
        h("thead", h("tr", h("th", { scope: "col" }, "Cell"), h("th.grow", { scope: "col" }, "Node"), h("th", { scope: "col" }, "Schema"), h("th", { scope: "col" }, "State"),
          h("th.number", { scope: "col" }, "Queues"), h("th.number", { scope: "col" }, "Size"), h("th.number", { scope: "col" }, "Stored per second"))),
        h("tbody", cells.map(row))))),
  ]),
};
