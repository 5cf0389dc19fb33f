// The audit log: callers, actions and outcomes, and its verification.

import { get } from "../api.js";
import { toast } from "../dialog.js";
import { h } from "../dom.js";
import { count, time } from "../format.js";
import { badge, button, empty } from "../components.js";
import { where } from "../router.js";
import { searchBox } from "../table.js";

const LIMIT = 100;
const KINDS = { done: "good", refused: "warning", failed: "critical", begun: "warning" };
const BEGUN = "It is still running, or its broker ended before recording the outcome.";

const verify = (ctx) => ctx.act(async () => {
  const found = await get("/api/v1/audit/verify");
  ctx.set({ verified: found });
  if (!found.whole) toast(found.error, "critical");
}, () => (ctx.state.verified.whole ? `All ${count(ctx.state.verified.entries)} entries are unchanged.` : "The log was changed."));

/** The target without the root of the API and without empty values. The title has all of it. */
const what = (target) => target.replace(/^\/api\/v1\//, "").replace(/ \w+=""(?= |$)/g, "");

const line = (one) => h("tr", { key: one.number },
  h("td.number", String(one.number)), h("td", time(one.at)), h("td", one.caller), h("th", { scope: "row" }, one.action), h("td.grow", h("span.mono", { title: one.target }, what(one.target))),
  h("td", badge(one.outcome, KINDS[one.outcome], one.outcome === "begun" ? BEGUN : undefined)), h("td.mono", one.source));

export default {
  title: () => "Audit log",
  watch: (ctx) => ({ audit: where("/api/v1/audit", { limit: LIMIT, before: ctx.query.before, search: ctx.query.search }) }),
  actions: (ctx) => [button("Verify", { icon: "check", onclick: () => verify(ctx) })],
  view: (ctx) => ctx.part("audit", ({ entries }) => h("section.card", h("div.flush", h("div.table-tools", searchBox(ctx, "Search callers, actions and targets")), entries.length
    ? [h("div.table-scroll", { tabindex: "0", role: "region", "aria-label": "Audit log" }, h("table",
      h("thead", h("tr", h("th.number", { scope: "col" }, "No."), ["When", "Who", "Action"].map((title) => h("th", { scope: "col" }, title)), h("th.grow", { scope: "col" }, "What"), ["Outcome", "From"].map((title) => h("th", { scope: "col" }, title)))),
      h("tbody", entries.map(line)))),
    h("footer.pager", h("span", `${count(entries.length)} shown, newest first`), h("span.buttons",
      button("Newest", { disabled: !ctx.query.before, onclick: () => ctx.setQuery({ before: "" }) }),
      button("Older", { disabled: entries.length < LIMIT || entries.at(-1).number === 1, onclick: () => ctx.setQuery({ before: entries.at(-1).number }) })))]
    : ctx.query.search ? empty("No entry matches.") : empty("The log is empty.", "Every change by an administrator, every failed login and every refused request is recorded here.")))),
};
