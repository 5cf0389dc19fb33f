// System: the broker, its store, the settings in force, and problems of PostgreSQL.

import { h } from "../dom.js";
import { bytes, count, duration, latency, percent, rate, stamp, time } from "../format.js";
import { badge, card, facts, grid, stat } from "../components.js";

const TITLES = { broker: "This broker", brokers: "Brokers", store: "Store", settings: "Settings in force", postgres: "PostgreSQL", journal: "Journal", problems: "Check these" };

// Labels for fields whose names are hard to read.
const LABELS = {
  pid: "Process", hostname: "Host", storeUp: "Store is up", whyNot: "Reason", awaySeconds: "Store unavailable for", answers: "Answers",
  bytes: "Size", freeBytes: "Free inside", diskBytes: "Disk", diskFreeBytes: "Disk free", logBytes: "Write-ahead log", bytesMax: "Size at most",
  oldestSeconds: "Oldest waits", help: "For", name: "Setting",
};

/** The label of a field: pool_waiting and poolWaiting become "Pool waiting". */
const label = (key) => {
  if (LABELS[key]) return LABELS[key];
  const text = key.replace(/(Seconds|Bytes|Ms)$/, "").replaceAll("_", " ").replace(/([a-z])([A-Z])/g, (_, a, b) => `${a} ${b.toLowerCase()}`);
  return text.charAt(0).toUpperCase() + text.slice(1);
};

/** A value, formatted by the meaning of its key. */
const shown = (key, value) => {
  if (value === null || value === undefined || value === "") return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") {
    if (/seconds(_max)?$/i.test(key)) return duration(value);
    if (/bytes(_?max)?$/i.test(key)) return bytes(value);
    if (/ms$/.test(key)) return latency(value / 1000);
    if (/rate$/i.test(key)) return rate(value);
    if (/(ratio|utili[sz]ation|share)$/i.test(key)) return percent(value);
    return /(pid|port|version|year)$/i.test(key) ? String(value) : count(value);
  }
  if (typeof value === "string" && /At$/.test(key)) return time(value);
  if (typeof value === "object" && "tag" in value) return value; // already a tree
  if (typeof value === "object") return h("span.mono", JSON.stringify(value));
  return h("span", { title: /^\d{4}-/.test(value) ? stamp(value) : undefined }, String(value));
};

const isPlain = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const list = (object) => facts(Object.entries(object).filter(([, value]) => value !== null && !isPlain(value) && !Array.isArray(value)).map(([key, value]) => [label(key), shown(key, value)]));

const rows = (title, items) => {
  const columns = [...new Set(items.flatMap(Object.keys))];
  return h("div.table-scroll.flush", { tabindex: "0", role: "region", "aria-label": title }, h("table",
    h("thead", h("tr", columns.map((key, i) => h("th", { scope: "col", class: i === columns.length - 1 ? "grow" : "" }, label(key))))),
    h("tbody", items.map((item, n) => h("tr", { key: n }, columns.map((key, i) => h(i === 0 ? "th" : "td", { scope: i === 0 ? "row" : undefined, class: i === columns.length - 1 ? "grow" : "" }, shown(key, item[key]))))))));
};

/** Settings that were changed come first, because they differ from other brokers. */
const settings = (items) => [...items].sort((a, b) => a.default - b.default).map(({ default: isDefault, ...rest }) => ({ name: rest.name, value: shown(rest.name, rest.value), set: isDefault ? "by default" : "here", help: rest.help }));

/** Every object becomes a list, and every array of objects a table, so that new fields of the broker appear, too. */
const section = ([key, value]) => {
  const title = TITLES[key] ?? label(key);
  if (value === null || value === undefined || (Array.isArray(value) && !value.length)) return null;
  if (Array.isArray(value)) return card(title, { key }, isPlain(value[0]) ? rows(title, key === "settings" ? settings(value) : value) : h("p", value.join(", ")));
  const inside = Object.entries(value).filter(([, one]) => isPlain(one) || (Array.isArray(one) && one.length));
  return card(title, { key }, list(value), ...inside.map(([name, one]) => h("div.inside", { key: name }, h("h3", label(name)), Array.isArray(one) ? (isPlain(one[0]) ? rows(label(name), one) : h("p", one.join(", "))) : list(one))));
};

const verbs = ({ operations, queue, connections }) => [
  h("div.stats", { key: "stats" },
    stat("Requests open", count(queue.pending), { note: "in progress" }), stat("Waiting polls", count(queue.parked)),
    stat("Connections", `${count(connections.busy)} of ${count(connections.total)}`, { note: "to the store, busy" })),
  card("Verbs", { key: "verbs", note: "since this broker started" }, h("div.table-scroll.flush", { tabindex: "0", role: "region", "aria-label": "Verbs" }, h("table",
    h("thead", h("tr", h("th.grow", { scope: "col" }, "Verb"), ["Calls", "Items", "Errors", "p50", "p99"].map((title) => h("th.number", { scope: "col" }, title)))),
    h("tbody", Object.entries(operations).map(([verb, one]) => h("tr", { key: verb }, h("th.grow", { scope: "row" }, verb), h("td.number", count(one.count)), h("td.number", count(one.items)),
      h("td.number", one.errors ? badge(count(one.errors), "warning") : "0"), h("td.number", one.count ? latency(one.p50_ms / 1000) : "–"), h("td.number", one.count ? latency(one.p99_ms / 1000) : "–"))))))),
];

export default {
  title: () => "System",
  watch: () => ({ system: "/api/v1/system", engine: "/api/v1/status/engine" }),
  view: (ctx) => [
    ctx.part("system", (system) => {
      const parts = Object.entries(system);
      const wide = (value) => Array.isArray(value);
      return [grid(parts.filter(([, value]) => isPlain(value)).map(section)), ...parts.filter(([, value]) => wide(value)).map(section)];
    }),
    ctx.part("engine", verbs),
  ],
};
