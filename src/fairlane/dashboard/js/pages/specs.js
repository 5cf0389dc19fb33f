// Specs in force, their history, and their texts.

import { h } from "../dom.js";
import { plural, short, time } from "../format.js";
import { badge, card, empty, facts, grid } from "../components.js";
import { link, where } from "../router.js";
import { chooser, pager, searchBox, table } from "../table.js";

const LIMIT = 50;
const APPS = 12; // apps per page; each is a card
const KINDS = [["queues", "queue"], ["commands", "command"], ["webhooks", "webhook"], ["schedules", "schedule"], ["pollers", "poller"], ["types", "type"]];

const size = (some) => (Array.isArray(some) ? some.length : Object.keys(some ?? {}).length);
const holds = (spec) => KINDS.flatMap(([name, one]) => (size(spec[name]) ? [plural(size(spec[name]), one)] : [])).join(", ") || "nothing";

const inForce = (one) =>
  card(one.app, {
    key: one.app, note: badge(`version ${one.version}`, "good"),
    more: [h("a.button", { href: where("/api/v1/spec/export", { app: one.app }), download: `${one.app}.json`, title: "The current state of its queues, with changes by other means" }, "Export"), h("a.button", { href: link(["specs", one.version]) }, "Show")],
  }, facts([["Declares", holds(one.spec)], ["Applied", h("span", time(one.appliedAt), one.appliedBy && ` by ${one.appliedBy}`)], ["Hash", h("span.mono", short(one.hash, 12, 4))]]));

export default {
  title: () => "Specs",
  watch: ({ query }) => ({ specs: where("/api/v1/spec", { limit: APPS, search: query.search, offset: query.offset }), versions: where("/api/v1/spec/versions", { app: query.app, before: query.after, limit: LIMIT }) }),
  view: (ctx) => [
    ctx.part("specs", ({ specs, total }) => (total || ctx.query.search
      ? [
          (total > 5 || ctx.query.search) && h("div", { key: "search" }, searchBox(ctx, "Search apps")),
          specs.length ? grid(specs.map(inForce)) : h("section.card", { key: "none" }, empty("No app matches.")),
          pager({ ...ctx, query: { ...ctx.query, after: "" } }, { rows: specs, total, limit: APPS }),
        ]
      : h("section.card", { key: "none" }, empty("No spec has been applied yet.", "A spec declares queues, types, webhooks, schedules and pollers of an app in one file: fairlane spec apply shop.fairlane.")))),
    ctx.part("versions", ({ versions }) => versions.length > 0 && card("Versions", {}, table({ ...ctx, query: { ...ctx.query, offset: "" } }, {
      label: "Versions", rows: versions, limit: LIMIT, next: versions.length === LIMIT ? String(versions[versions.length - 1].version) : undefined,
      key: (one) => one.version, href: (one) => link(["specs", one.version]),
      tools: chooser(ctx, "app", [["", "all apps"], ...(ctx.data.specs?.specs ?? []).map((one) => [one.app, one.app])], "App"),
      columns: [
        { title: "Version", cell: (one) => String(one.version) },
        { title: "App", grow: true, cell: (one) => one.app },
        { title: "Applied", cell: (one) => time(one.appliedAt) },
        { title: "By", cell: (one) => one.appliedBy || "–" },
        { title: "Hash", cell: (one) => h("span.mono", short(one.hash, 12, 4)) },
        { title: "State", cell: (one) => ctx.data.specs?.specs.some((each) => each.version === one.version) && badge("in force", "good") },
      ],
      empty: empty("No versions."),
    }))),
  ],
};
