// The audit log: who did what, and whether it is whole.

import { get } from "../api.js";
import { toast } from "../dialog.js";
import { h } from "../dom.js";
import { count, time } from "../format.js";
import { badge, button, empty } from "../parts.js";
import { where } from "../router.js";

const LIMIT = 100;
const KINDS = { done: "good", refused: "warning", failed: "critical", begun: "warning" };
const BEGUN = "It is under way, or its broker ended before it could say what came of it.";

const verify = (ctx) => ctx.act(async () => {
  const found = await get("/api/v1/audit/verify");
  ctx.set({ verified: found });
  if (!found.whole) toast(found.error, "critical");
}, () => (ctx.state.verified.whole ? `All ${count(ctx.state.verified.entries)} entries are as they were written.` : "Somebody changed it."));

const line = (one) => h("tr", { key: one.number },
  h("td.number", String(one.number)), h("td", time(one.at)), h("th", { scope: "row" }, one.caller), h("td", one.action), h("td.grow.clip", h("span.mono", { title: one.target }, one.target)),
  h("td", badge(one.outcome, KINDS[one.outcome], one.outcome === "begun" ? BEGUN : undefined)), h("td.mono", one.source));

export default {
  title: () => "Audit log",
  watch: (ctx) => ({ audit: where("/api/v1/audit", { limit: LIMIT, ...(ctx.query.before && { before: ctx.query.before }) }) }),
  actions: (ctx) => [button("Verify", { icon: "check", onclick: () => verify(ctx) })],
  view: (ctx) => ctx.part("audit", ({ entries }) => h("section.card", entries.length
    ? [h("div.table-scroll", { tabindex: "0", role: "region", "aria-label": "Audit log" }, h("table",
      h("thead", h("tr", h("th.number", { scope: "col" }, "No."), ["When", "Who", "Action"].map((title) => h("th", { scope: "col" }, title)), h("th.grow", { scope: "col" }, "What"), ["Outcome", "From"].map((title) => h("th", { scope: "col" }, title)))),
      h("tbody", entries.map(line)))),
    h("footer.pager", h("span", `${count(entries.length)} shown, newest first`), h("span.buttons",
      button("Newest", { disabled: !ctx.query.before, onclick: () => ctx.setQuery({ before: "" }) }),
      button("Older", { disabled: entries.length < LIMIT || entries.at(-1).number === 1, onclick: () => ctx.setQuery({ before: entries.at(-1).number }) })))]
    : empty("Nothing is in the log yet.", "Every change by an administrator, every failed login and every refusal is written here."))),
};
