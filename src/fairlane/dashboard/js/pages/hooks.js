// Webhooks: what came, what was refused and why, and a signed sample to try one.

import { post } from "../api.js";
import { tell } from "../dialog.js";
import { h } from "../dom.js";
import { count, time } from "../format.js";
import { jsonTree } from "../json.js";
import { queueLink } from "../names.js";
import { badge, button, card, copyable, empty, facts, stat } from "../parts.js";
import { api } from "../router.js";
import { paged, pager, searchBox } from "../table.js";

const LIMIT = 20; // each is a card
/** Outcomes of a request, in words; others stand as the broker names them. */
const WORDS = {
  queued: "stored", processed: "stored and done", ran: "ran its command", ignored: "ignored, as its spec says", duplicate: "came before", challenge: "answered a challenge",
  too_large: "too large", limited: "too many requests", malformed: "not readable", misfit: "does not fit its type", full: "the queue is full", unavailable: "could not be stored",
};
const AWAY = "Its secret is not in the environment of this broker: it answers 503.";
const TAKEN = new Set(["queued", "processed", "ran", "ignored", "duplicate", "challenge"]);
const words = (outcome) => WORDS[outcome] ?? outcome.replaceAll("_", " ");
const kind = (outcome) => (TAKEN.has(outcome) ? "good" : "critical");

const test = async (ctx, hook) => {
  const answer = await ctx.act(() => post(api`/api/v1/hooks/${hook.name}/test`));
  if (answer === undefined) return;
  await tell({
    title: `A test of ${hook.name}`,
    text: [h("p", "A signed sample went the way of every request. Its sender would have been answered:"), h("p", badge(String(answer.status), answer.status < 400 ? "good" : "critical")), jsonTree(answer.body ?? null, "answer")],
  });
};

const recent = (name, rows) => h("div.table-scroll.flush", { tabindex: "0", role: "region", "aria-label": `Last requests to ${name}` }, h("table",
  h("thead", h("tr", ["When", "What became of it", "Answer", "Why"].map((title, i) => h("th", { scope: "col", class: i === 3 ? "grow" : "" }, title)))),
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
    ["Verified by", hook.scheme ?? badge("nothing: anybody may send", "warning")],
    ["Not available", hook.available === false ? AWAY : null],
    ["Delivered", h("span", count(hook.delivered), hook.lastDeliveredAt && h("span.muted", ", last ", time(hook.lastDeliveredAt)))],
    ["Refused", h("span", hook.refused ? badge(count(hook.refused), "critical") : "0", hook.lastRefusedAt && h("span.muted", " last ", time(hook.lastRefusedAt)))],
    ["Outcomes", Object.keys(hook.outcomes ?? {}).length ? h("span.buttons", Object.entries(hook.outcomes).map(([name, n]) => badge(`${words(name)} ${count(n)}`, kind(name)))) : null],
  ]),
  hook.recent?.length ? recent(hook.name, hook.recent) : h("p.muted", "Nothing came since this broker started."));

export default {
  title: () => "Hooks",
  watch: (ctx) => ({ hooks: paged("/api/v1/hooks", ctx, { limit: LIMIT }) }),
  view: (ctx) => ctx.part("hooks", ({ hooks, total, delivered, refused }) => {
    const { search } = ctx.query;
    if (!total && !search) return h("section.card", empty("There are no webhooks.", "A webhook is declared in a spec: who signs it, which queue it goes to, and what makes it one of a kind. Then others send to /hook/NAME."));
    return [
      h("div.stats", { key: "stats" }, stat("Webhooks", count(total), { note: search ? "that fit" : "" }), stat("Delivered", count(delivered), { note: "since this broker started" }), stat("Refused", count(refused), { kind: refused ? "critical" : "" })),
      (total > 5 || search) && h("div", { key: "search" }, searchBox(ctx, "Search webhooks and queues")),
      !total && h("section.card", { key: "none" }, empty("No webhook has this in its name.")),
      ...hooks.map((hook) => one(ctx, hook)),
      pager(ctx, { rows: hooks, total, limit: LIMIT }),
    ];
  }),
};
