// Webhooks: requests, refusals and their reasons, and a signed sample request.

import { post } from "../api.js";
import { showMessage } from "../dialog.js";
import { h } from "../dom.js";
import { count, time } from "../format.js";
import { jsonTree } from "../json.js";
import { queueLink } from "../names.js";
import { badge, button, card, copyable, empty, facts, stat } from "../components.js";
import { api } from "../router.js";
import { paged, pager, searchBox } from "../table.js";

const LIMIT = 20; // webhooks per page; each is a card
/** Labels of outcomes. Others appear under the broker's own name. */
const WORDS = {
  queued: "stored", processed: "stored and handled", ran: "ran its command", ignored: "ignored by its spec", duplicate: "duplicate", challenge: "answered a challenge",
  too_large: "too large", limited: "too many requests", malformed: "malformed signature", unreadable: "unreadable body", misfit: "does not fit its type", full: "the queue is full", unavailable: "could not be stored",
};
const AWAY = "Its secret is missing in the environment of this broker, so it answers 503.";
const TAKEN = new Set(["queued", "processed", "ran", "ignored", "duplicate", "challenge", "replayed", "dead_letter", "cancelled"]);
const words = (outcome) => WORDS[outcome] ?? outcome.replaceAll("_", " ");
const kind = (outcome) => (TAKEN.has(outcome) ? "good" : "critical");

const test = async (ctx, hook) => {
  const answer = await ctx.act(() => post(api`/api/v1/hooks/${hook.name}/test`));
  if (answer === undefined) return;
  await showMessage({
    title: `A test of ${hook.name}`,
    text: [h("p", "A signed sample was processed like any request. The answer was:"), h("p", badge(String(answer.status), answer.status < 400 ? "good" : "critical")), jsonTree(answer.body ?? null, "answer")],
  });
};

const recent = (name, rows) => h("div.table-scroll.flush", { tabindex: "0", role: "region", "aria-label": `Last requests to ${name}` }, h("table",
  h("thead", h("tr", ["When", "Result", "Answer", "Why"].map((title, i) => h("th", { scope: "col", class: i === 3 ? "grow" : "" }, title)))),
  h("tbody", rows.map((row, i) => h("tr", { key: `${row.at} ${i}` }, h("td", time(row.at)), h("td", badge(words(row.outcome), kind(row.outcome))), h("td", String(row.status ?? "–")), h("td.grow", row.why ?? "–"))))));

const one = (ctx, hook) =>
  card(hook.name, {
    key: hook.name,
    note: hook.available === false ? badge("not available", "critical", AWAY) : undefined,
    more: button("Send a test", { icon: "play", "aria-label": `Send a test to ${hook.name}`, onclick: () => test(ctx, hook) }),
  },
  facts([
    ["Address", copyable(`/hook/${encodeURIComponent(hook.name)}`)],
    ["Becomes", hook.queue ? h("span", "a message of ", queueLink(hook.queue)) : hook.command ? `the command ${hook.command}` : null],
    ["Verified by", hook.scheme ?? badge("nothing: anyone can send", "warning")],
    ["Not available", hook.available === false ? AWAY : null],
    ["Delivered", h("span", count(hook.delivered), hook.lastDeliveredAt && h("span.muted", ", last ", time(hook.lastDeliveredAt)))],
    ["Refused", h("span", hook.refused ? badge(count(hook.refused), "critical") : "0", hook.lastRefusedAt && h("span.muted", " last ", time(hook.lastRefusedAt)))],
    ["Outcomes", Object.keys(hook.outcomes ?? {}).length ? h("span.buttons", Object.entries(hook.outcomes).map(([name, n]) => badge(`${words(name)} ${count(n)}`, kind(name)))) : null],
  ]),
  hook.recent?.length ? recent(hook.name, hook.recent) : h("p.muted", "No requests since this broker started."));

export default {
  title: () => "Hooks",
  watch: (ctx) => ({ hooks: paged("/api/v1/hooks", ctx, { limit: LIMIT }) }),
  view: (ctx) => ctx.part("hooks", ({ hooks, total, delivered, refused }) => {
    const { search } = ctx.query;
    if (!total && !search) return h("section.card", empty("There are no webhooks.", "A spec declares a webhook: its signature, its queue and its idempotency key. Senders then call /hook/NAME."));
    return [
      h("div.stats", { key: "stats" }, stat("Webhooks", count(total), { note: search ? "matching" : "" }), stat("Delivered", count(delivered), { note: "since this broker started" }), stat("Refused", count(refused), { kind: refused ? "critical" : "" })),
      (total > 5 || search) && h("div", { key: "search" }, searchBox(ctx, "Search webhooks and queues")),
      !total && h("section.card", { key: "none" }, empty("No webhook matches.")),
      ...hooks.map((hook) => one(ctx, hook)),
      pager(ctx, { rows: hooks, total, limit: LIMIT }),
    ];
  }),
};
