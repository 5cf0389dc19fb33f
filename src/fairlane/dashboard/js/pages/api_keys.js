// API keys: their scopes and last use; create, rotate and revoke.

import { asked, del, get, post } from "../api.js";
import { ask, confirmByName, showMessage } from "../dialog.js";
import { h } from "../dom.js";
import { time } from "../format.js";
import { badge, button, copyable, empty } from "../components.js";
import { api } from "../router.js";

const KINDS = { active: "good", expired: "warning", revoked: "muted" };
const ROLES = [["read-write", "read-write: push, pop, configure, replay, purge"], ["read-only", "read-only: read everything"], ["admin", "admin: everything, including keys"], ["", "only the scopes below"]];

const shown = (made) => made && showMessage({
  title: `The key ${made.name}`,
  text: ["Copy it now. It is not stored and never shown again.", copyable(made.key), h("p.muted", "Programs read it from FAIRLANE_KEY, or from the file named in FAIRLANE_KEY_FILE.")],
});

/** The first key makes the broker require credentials. This page continues with the new key. */
const first = async (ctx, body) => {
  asked.quiet = true;
  try {
    const made = await post("/api/v1/keys", body);
    await post("/api/v1/login", { key: made.key });
    ctx.shared.me = await get("/api/v1/whoami");
    return made;
  } finally {
    asked.quiet = false;
  }
};

const create = async (ctx) => {
  const isFirst = ctx.shared.me?.open;
  const values = await ask({
    title: isFirst ? "Create the first key" : "Create a key", label: "Create the key",
    text: isFirst ? "The first key makes the broker require a key from all clients, also on this machine: producers, workers, and Prometheus at /metrics. Only /livez and /readyz answer without one. This page continues with the new key." : [],
    fields: [
      { name: "name", label: "Name", required: true, placeholder: "deploy", hint: "It appears in the audit log and in messages." },
      { name: "role", label: "Role", type: "select", value: isFirst ? "admin" : "read-write", options: isFirst ? ROLES.filter(([role]) => role === "admin") : ROLES },
      { name: "scopes", label: "Scopes", placeholder: "push:orders.* status", hint: "Separated by spaces. Each is for all queues, for one queue, or for a name prefix with *.", when: (all) => all.role === "" },
      { name: "expires", label: "Valid until", type: "datetime-local", hint: "Leave empty for no expiry." },
    ],
  });
  if (!values) return;
  const body = { name: values.name.trim(), role: values.role || null, scopes: values.role ? [] : values.scopes.split(/[\s,]+/).filter(Boolean) };
  if (values.expires) body.expiresAt = new Date(values.expires).toISOString();
  shown(await ctx.act(() => (isFirst ? first(ctx, body) : post("/api/v1/keys", body))));
};

const rotate = async (ctx, { id, name }) => {
  const values = await ask({
    title: `Rotate the secret of ${name}`, label: "Rotate", text: "The previous secret stays valid for the time that you choose.",
    fields: [{ name: "hours", label: "The previous secret stays valid for (hours)", type: "number", value: 24, min: 0, max: 2160 }],
  });
  if (values) shown(await ctx.act(() => post(api`/api/v1/keys/${id}/rotate`, { graceSeconds: Math.round(Number(values.hours) * 3600) })));
};

const revoke = async (ctx, { id, name }) => {
  const sure = await confirmByName({ title: `Revoke ${name}`, text: "Every broker of this store refuses it from now on. Its waiting requests end.", name, label: "Revoke" });
  if (sure) ctx.act(() => del(api`/api/v1/keys/${id}`), `${name} is revoked.`);
};

const line = (ctx, one) => h("tr", { key: one.id },
  h("th", { scope: "row" }, one.name), h("td", badge(one.status, KINDS[one.status])),
  h("td.grow", [one.role, ...one.scopes].filter(Boolean).map((scope) => h("span.badge.is-neutral.mono", { key: scope }, scope))),
  h("td", one.usedAt ? time(one.usedAt) : h("span.muted", "never")), h("td", one.expiresAt ? time(one.expiresAt) : h("span.muted", "–")),
  h("td", time(one.createdAt), h("span.muted", ` by ${one.createdBy}`)),
  h("td", one.status === "active" && h("span.buttons", button("Rotate", { icon: "retry", onclick: () => rotate(ctx, one) }), button("Revoke", { icon: "trash", kind: "danger", onclick: () => revoke(ctx, one) }))));

export default {
  title: () => "API keys",
  watch: () => ({ keys: "/api/v1/keys" }),
  actions: (ctx) => [button("Create a key", { icon: "key", kind: "primary", onclick: () => create(ctx) })],
  view: (ctx) => ctx.part("keys", ({ keys }) => h("section.card", keys.length
    ? h("div.table-scroll", { tabindex: "0", role: "region", "aria-label": "API keys" }, h("table",
      h("thead", h("tr", ["Name", "State"].map((title) => h("th", { scope: "col" }, title)), h("th.grow", { scope: "col" }, "May"), ["Last used", "Valid until", "Created"].map((title) => h("th", { scope: "col" }, title)), h("td"))),
      h("tbody", [...keys].sort((a, b) => (a.status === "revoked") - (b.status === "revoked")).map((one) => line(ctx, one)))))
    : empty("There is no key, so the broker requires none.", "The first key makes the broker require keys, also on this machine.", undefined, "info"))),
};
