// Tenants: what each pushes, its quotas and its usage; create, limit and delete.

import { del, post, send } from "../api.js";
import { ask, confirmByName, showMessage } from "../dialog.js";
import { h } from "../dom.js";
import { bytes, count, percent, rate, time } from "../format.js";
import { badge, button, card, copyable, empty, meter, stat } from "../components.js";
import { api, link } from "../router.js";

const bytesRate = (value) => `${bytes(value)}/s`;

/** Quotas, with their label, the format of their value, and their name in the usage of a tenant. */
const QUOTAS = [
  ["messagesPerSecond", "Messages per second", rate], ["bytesPerSecond", "Bytes per second", bytesRate], ["requestsPerSecond", "Requests per second", rate],
  ["depth", "Unfinished messages", count], ["bytes", "Stored bytes", bytes], ["queues", "Queues", count], ["partitions", "Partitions", count],
  ["groups", "Groups", count], ["schedules", "Schedules", count], ["connections", "Connections", count], ["polls", "Waiting pops", count],
  ["expressionWorkPerSecond", "Work of expressions per second", bytesRate],
];
const PER_PROCESS = ["messagesPerSecond", "bytesPerSecond", "requestsPerSecond", "connections", "polls", "expressionWorkPerSecond"];

const fields = (quotas) => QUOTAS.map(([name, label]) => ({ name, label, type: "number", min: 0, value: quotas[name] ?? "", placeholder: "no limit", hint: PER_PROCESS.includes(name) ? "For each process of a broker" : undefined }));
const chosen = (values) => Object.fromEntries(QUOTAS.filter(([name]) => values[name] !== "").map(([name]) => [name, values[name]]));

const create = async (ctx) => {
  const values = await ask({ title: "New tenant", text: "It has its own queues and keys, and sees nothing of other tenants.", label: "Create the tenant", fields: [{ name: "name", label: "Name", required: true, placeholder: "acme" }, ...fields({})] });
  if (values) ctx.act(() => post("/api/v1/tenants", { name: values.name.trim(), quotas: chosen(values) }), `${values.name.trim()} was created.`);
};

const limit = async (ctx, one) => {
  const values = await ask({ title: `Quotas of ${one.name}`, text: "An empty field is no limit. Quotas hold from now on, at every broker.", label: "Set the quotas", fields: fields(one.quotas) });
  if (values) ctx.act(() => send("PUT", api`/api/v1/tenants/${one.name}`, chosen(values)), `The quotas of ${one.name} are set.`);
};

const makeKey = async (ctx, { name }) => {
  const values = await ask({ title: `A key of ${name}`, text: "Whoever has this key administers the tenant, and can make other keys of it.", label: "Create the key", fields: [{ name: "name", label: "Name", required: true, value: "admin" }] });
  const made = values && (await ctx.act(() => post(api`/api/v1/tenants/${name}/keys`, { name: values.name.trim(), role: "admin" })));
  if (made) showMessage({ title: `The key ${made.name} of ${name}`, text: ["Copy it now. It is not stored and never shown again.", copyable(made.key)] });
};

const remove = async (ctx, { name }) => {
  const text = "The tenant is deleted with its specs, schedules, sources and keys. It must have no queues. This cannot be undone.";
  if (await confirmByName({ title: "Delete the tenant", text, name, label: "Delete the tenant" })) ctx.act(() => del(api`/api/v1/tenants/${name}`), `${name} is deleted.`);
};

const totals = (tenants) => {
  const sum = (name) => tenants.reduce((total, one) => total + one.pushed[name], 0);
  const [most] = tenants;
  return h("div.stats", { key: "totals" },
    stat("Tenants", count(tenants.length)),
    stat("Pushed", rate(sum("messagesPerSecond")), { note: "messages, in the last minute" }),
    stat("Payload", bytesRate(sum("bytesPerSecond"))),
    most?.pushed.share > 0 && stat("Sends most", most.name, { note: `${percent(most.pushed.share)} of all messages` }));
};

const chips = (one) => {
  const set = QUOTAS.filter(([name]) => one.quotas[name] !== undefined);
  return set.length ? h("span.buttons", set.map(([name, label, shown]) => badge(`${label} ${shown(one.quotas[name])}`, "neutral"))) : h("span.muted", "none");
};

const row = (one, flooding) => h("tr.is-link", { key: one.name, onclick: (event) => { if (!event.target.closest("a, button") && !String(getSelection())) location.hash = link(["tenants"], { tenant: one.name }); } },
  h("th", { scope: "row" }, h("a.row-link", { href: link(["tenants"], { tenant: one.name }) }, one.name), one.name === flooding && [" ", badge("floods", "warning", "Others wait for their turn")]),
  h("td.number", rate(one.pushed.messagesPerSecond)), h("td.number", bytesRate(one.pushed.bytesPerSecond)),
  h("td.number", percent(one.pushed.share)), h("td.grow", chips(one)), h("td", one.createdAt ? time(one.createdAt) : h("span.muted", "always there")));

const gauge = (one, [name, label, shown]) => {
  const [most, used] = [one.quotas[name], one.used[name]];
  if (most === undefined && used === undefined) return null;
  const said = used === undefined ? `at most ${shown(most)}` : most === undefined ? h("span", h("b", shown(used)), ", no limit") : h("span", h("b", shown(used)), ` of ${shown(most)}`);
  return h("div.gauge", { key: name }, h("div", h("span", label), h("span", said)), used !== undefined && most !== undefined && meter(most ? used / most : 1, label));
};

const detail = (ctx) => ctx.query.tenant && card(ctx.query.tenant, {
  key: "one",
  more: ctx.data.one && h("span.buttons",
    button("Quotas …", { icon: "edit", onclick: () => limit(ctx, ctx.data.one) }),
    button("Create a key …", { icon: "key", onclick: () => makeKey(ctx, ctx.data.one) }),
    ctx.data.one.createdAt && button("Delete", { icon: "trash", kind: "danger", onclick: () => remove(ctx, ctx.data.one) })),
}, ctx.part("one", (one) => h("div.gauges.is-wide", QUOTAS.map((quota) => gauge(one, quota)))));

export default {
  title: () => "Tenants",
  watch: (ctx) => ({ tenants: "/api/v1/tenants", ...(ctx.query.tenant && { one: api`/api/v1/tenants/${ctx.query.tenant}` }) }),
  actions: (ctx) => [button("New tenant", { onclick: () => create(ctx) })],
  view: (ctx) => ctx.part("tenants", ({ tenants }) => {
    const flooding = ctx.shared.findings?.find((one) => one.kind === "tenant_floods")?.tenant;
    const ordered = [...tenants].sort((a, b) => b.pushed.share - a.pushed.share || a.name.localeCompare(b.name));
    return [
      totals(ordered),
      detail(ctx),
      card(null, { key: "all" }, tenants.length
        ? h("div.table-scroll.flush", { tabindex: "0", role: "region", "aria-label": "Tenants" }, h("table",
          h("thead", h("tr", h("th", { scope: "col" }, "Tenant"), ["Messages", "Payload", "Share"].map((title) => h("th.number", { scope: "col" }, title)), h("th.grow", { scope: "col" }, "Quotas"), h("th", { scope: "col" }, "Created"))),
          h("tbody", ordered.map((one) => row(one, flooding)))))
        : empty("There are no tenants.")),
    ];
  }),
};
