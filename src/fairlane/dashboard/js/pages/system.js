// System: health first, then verbs, tables of the store, facts, and the settings that differ from the defaults.

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

const LARGE = 1024 ** 2; // tables of fewer bytes are folded
const LEAST = 5; // tables shown in any case
const TABLE = { name: "Table", bytes: "Size", growth: "Growth", indexBytes: "Indexes", liveRows: "Live rows", deadRows: "Dead rows", deadShare: "Dead", hotUpdates: "HOT updates", vacuumedAt: "Vacuumed" };

/** The growth of each table since this page was opened. */
const grown = (ctx, tables) => {
  ctx.state.sizes ??= new Map(tables.map((one) => [one.name, one.bytes]));
  return (one) => one.bytes - (ctx.state.sizes.get(one.name) ?? one.bytes);
};

const tableRow = (growth) => (one) => h("tr", { key: one.name },
  h("th.grow", { scope: "row" }, h("span.mono", one.name)), h("td.number", bytes(one.bytes)), h("td.number", growth(one) ? bytes(growth(one)) : h("span.muted", "0")),
  h("td.number", bytes(one.indexBytes)), h("td.number", count(one.liveRows)), h("td.number", count(one.deadRows)),
  h("td.number", one.deadRows > 1000 && one.deadRows > one.liveRows ? badge(percent(one.deadRows / (one.deadRows + one.liveRows)), "warning", "Autovacuum is behind") : percent(one.deadRows / Math.max(1, one.deadRows + one.liveRows))),
  h("td.number", one.updates ? percent(one.hotUpdates / one.updates) : "–"), h("td", one.vacuumedAt ? time(one.vacuumedAt) : "never"));

const tableList = (title, list, growth) => h("div.table-scroll.flush", { tabindex: "0", role: "region", "aria-label": title }, h("table",
  h("thead", h("tr", Object.entries(TABLE).map(([name, text]) => h("th", { key: name, scope: "col", class: name === "name" ? "grow" : name === "vacuumedAt" ? "" : "number" }, text)))),
  h("tbody", list.map(tableRow(growth)))));

const tables = (ctx, { tables: all }) => {
  if (!all?.length) return null;
  const growth = grown(ctx, all);
  const shownOnes = all.filter((one, i) => i < LEAST || one.bytes > LARGE);
  const rest = all.slice(shownOnes.length);
  return card("Tables", { key: "tables", note: `${count(all.length)}, the largest first; growth since this page was opened` },
    tableList("Largest tables", shownOnes, growth),
    rest.length > 0 && h("details.folded.flush", h("summary", `${count(rest.length)} smaller tables`), tableList("Smaller tables", rest, growth)));
};

const settingRows = (title, items) => rows(title, items.map(({ name, value, help }) => ({ name, value: shown(name, value), help })));

/** Settings that were changed, because they differ from other brokers. The others are folded. */
const settings = (items) => {
  const [changed, usual] = [items.filter((one) => !one.default), items.filter((one) => one.default)];
  return card("Settings", { key: "settings", note: changed.length ? `${count(changed.length)} differ from the defaults` : "all by default" },
    changed.length > 0 && settingRows("Changed settings", changed),
    usual.length > 0 && h("details.folded.flush", { key: "usual" }, h("summary", `${count(usual.length)} settings by default`), settingRows("Settings by default", usual)));
};

const health = ({ store, journal }, engine) => {
  const ops = engine?.operations ?? {};
  const p99 = (verb) => (ops[verb]?.count ? latency(ops[verb].p99_ms / 1000) : "–");
  const free = store.diskFreeBytes;
  return h("div.stats", { key: "health" },
    stat("Store", store.answers ? "answers" : "unavailable", { kind: store.answers ? "good" : "critical", note: [store.kind, store.version].filter(Boolean).join(" ") }),
    stat("Store size", bytes(store.bytes), { note: free !== undefined && free !== null ? `${bytes(free)} free on the disk` : "" }),
    stat("Journal", journal ? (journal.entries ? count(journal.messages) : "empty") : "off", { kind: journal?.failed ? "critical" : journal?.entries ? "warning" : "", note: journal?.entries ? "messages wait for the store" : "" }),
    stat("Push, p99", p99("push")), stat("Pop, p99", p99("pop")), stat("Ack, p99", p99("ack")),
    engine && stat("Connections", `${count(engine.connections.busy)} of ${count(engine.connections.total)}`, { note: "to the store, busy" }),
    engine && stat("Requests open", count(engine.queue.pending), { note: `${count(engine.queue.parked)} waiting polls` }));
};

/** Every object becomes a list, and every array of objects a table, so that new fields of the broker appear, too. */
const section = ([key, value]) => {
  const title = TITLES[key] ?? label(key);
  if (value === null || value === undefined || (Array.isArray(value) && !value.length)) return null;
  if (Array.isArray(value)) return card(title, { key }, isPlain(value[0]) ? rows(title, value) : h("p", value.join(", ")));
  const inside = Object.entries(value).filter(([name, one]) => name !== "tables" && (isPlain(one) || (Array.isArray(one) && one.length)));
  return card(title, { key }, list(value), ...inside.map(([name, one]) => h("div.inside", { key: name }, h("h3", label(name)), Array.isArray(one) ? (isPlain(one[0]) ? rows(label(name), one) : h("p", one.join(", "))) : list(one))));
};

const verbs = ({ operations }) =>
  card("Verbs", { key: "verbs", note: "since this broker started" }, h("div.table-scroll.flush", { tabindex: "0", role: "region", "aria-label": "Verbs" }, h("table",
    h("thead", h("tr", h("th.grow", { scope: "col" }, "Verb"), ["Calls", "Items", "Errors", "p50", "p99"].map((title) => h("th.number", { scope: "col" }, title)))),
    h("tbody", Object.entries(operations).map(([verb, one]) => h("tr", { key: verb }, h("th.grow", { scope: "row" }, verb), h("td.number", count(one.count)), h("td.number", count(one.items)),
      h("td.number", one.errors ? badge(count(one.errors), "warning") : "0"), h("td.number", one.count ? latency(one.p50_ms / 1000) : "–"), h("td.number", one.count ? latency(one.p99_ms / 1000) : "–")))))));

export default {
  title: () => "System",
  watch: () => ({ system: "/api/v1/system", engine: "/api/v1/status/engine" }),
  view: (ctx) => ctx.part("system", (system) => {
    const { settings: set, ...parts } = system;
    const others = Object.entries(parts);
    return [
      health(system, ctx.data.engine),
      ctx.part("engine", verbs),
      tables(ctx, system.store),
      grid(others.filter(([, value]) => isPlain(value)).map(section)),
      ...others.filter(([, value]) => Array.isArray(value)).map(section),
      settings(set),
    ];
  }),
};
