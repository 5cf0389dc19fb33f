// API keys: what each may do, when it was last used; make, rotate and revoke.

import { asked, del, get, post } from "../api.js";
import { ask, confirmByName, tell } from "../dialog.js";
import { h } from "../dom.js";
import { time } from "../format.js";
import { badge, button, copyable, empty } from "../parts.js";
import { api } from "../router.js";

const KINDS = { active: "good", expired: "warning", revoked: "muted" };
const ROLES = [["read-write", "read-write: push, pop, configure, replay, purge"], ["read-only", "read-only: look at everything"], ["admin", "admin: everything, keys too"], ["", "only the scopes below"]];

const shown = (made) => made && tell({
  title: `The key ${made.name}`,
  text: ["Copy it now: it is stored nowhere and never shown again.", copyable(made.key), h("p.muted", "Programs take it from FAIRLANE_KEY, or from a file named in FAIRLANE_KEY_FILE.")],
});

/** From the first key on everybody is asked for one: this page goes on with it. */
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
    title: isFirst ? "Make the first key" : "Make a key", label: "Make the key",
    text: isFirst ? "From then on everybody is asked for a key, on this machine too: producers, workers, and Prometheus at /metrics. Only /livez and /readyz answer without. This page goes on with the new one." : [],
    fields: [
      { name: "name", label: "Name", required: true, placeholder: "deploy", hint: "The audit log and messages show it." },
      { name: "role", label: "Role", type: "select", value: isFirst ? "admin" : "read-write", options: isFirst ? ROLES.filter(([role]) => role === "admin") : ROLES },
      { name: "scopes", label: "Scopes", placeholder: "push:orders.* status", hint: "Separated by blanks; each for all queues, for one, or for names that begin so.", when: (all) => all.role === "" },
      { name: "expires", label: "Good until", type: "datetime-local", hint: "Empty: for ever." },
    ],
  });
  if (!values) return;
  const body = { name: values.name.trim(), role: values.role || null, scopes: values.role ? [] : values.scopes.split(/[\s,]+/).filter(Boolean) };
  if (values.expires) body.expiresAt = new Date(values.expires).toISOString();
  shown(await ctx.act(() => (isFirst ? first(ctx, body) : post("/api/v1/keys", body))));
};

const rotate = async (ctx, { id, name }) => {
  const values = await ask({
    title: `Give ${name} another secret`, label: "Rotate", text: "Programs that have the secret of before go on for as long as you say.",
    fields: [{ name: "hours", label: "The secret before is good for (hours)", type: "number", value: 24, min: 0, max: 2160 }],
  });
  if (values) shown(await ctx.act(() => post(api`/api/v1/keys/${id}/rotate`, { graceSeconds: Math.round(Number(values.hours) * 3600) })));
};

const revoke = async (ctx, { id, name }) => {
  const sure = await confirmByName({ title: `Revoke ${name}`, text: "It is refused from now on by every broker of this store, also where a request of it waits.", name, label: "Revoke" });
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
  actions: (ctx) => [button("Make a key", { icon: "key", kind: "primary", onclick: () => create(ctx) })],
  view: (ctx) => ctx.part("keys", ({ keys }) => h("section.card", keys.length
    ? h("div.table-scroll", { tabindex: "0", role: "region", "aria-label": "API keys" }, h("table",
      h("thead", h("tr", ["Name", "State"].map((title) => h("th", { scope: "col" }, title)), h("th.grow", { scope: "col" }, "May"), ["Last used", "Good until", "Made"].map((title) => h("th", { scope: "col" }, title)), h("td"))),
      h("tbody", [...keys].sort((a, b) => (a.status === "revoked") - (b.status === "revoked")).map((one) => line(ctx, one)))))
    : empty("There is no key: nobody is asked for one.", "With the first key everybody is asked, on this machine too."))),
};
