// One version of a spec: its text, and the difference to the previous version.

import { h } from "../dom.js";
import { plural, time } from "../format.js";
import { difference } from "../diff.js";
import { badge, card, copyable, empty, facts, tabs } from "../components.js";
import { api, link, where } from "../router.js";

/** The text that it was compiled from, or the document if there is none. */
const textOf = (one) => one.source || JSON.stringify(one.spec, null, 2);

const compared = (ctx) => {
  const { version, before } = ctx.data;
  const lines = difference(before ? textOf(before) : "", textOf(version));
  const changed = lines.filter((one) => one.sign === "+" || one.sign === "-").length;
  return card(before ? `Since version ${before.version}` : "First version of the app", { note: changed ? plural(changed, "line") : "the same text" },
    changed === 0 ? empty("No differences.") : h("pre.code.flush", { tabindex: "0" }, lines.map((one, i) => h("div", { key: i, class: { "+": "added", "-": "removed", "…": "gap" }[one.sign] ?? "" }, h("span.sign", one.sign), one.text))));
};

const page = {
  title: (ctx) => `Version ${ctx.params.version}`,
  crumbs: (ctx) => [["Specs", link(["specs"])], ...(ctx.data.version ? [[ctx.data.version.app, link(["specs"], { app: ctx.data.version.app })]] : [])],
  load: (ctx) => {
    const { version, earlier } = ctx.data;
    return {
      version: api`/api/v1/spec/versions/${ctx.params.version}`,
      specs: "/api/v1/spec",
      // The previous version is known once this one has arrived.
      ...(version && { earlier: where("/api/v1/spec/versions", { app: version.app, before: version.version, limit: 1 }) }),
      ...(earlier?.versions.length && { before: api`/api/v1/spec/versions/${earlier.versions[0].version}` }),
    };
  },
  badges: (ctx) => (ctx.data.specs?.specs.some((one) => String(one.version) === ctx.params.version) ? [badge("in force", "good")] : []),
  actions: (ctx) => (ctx.data.version ? [h("a.button", { href: where("/api/v1/spec/export", { app: ctx.data.version.app }), download: `${ctx.data.version.app}.json` }, "Export the app as it is now")] : []),
  view: (ctx) => ctx.part("version", (version) => {
    const shown = ctx.query.show ?? "text";
    // The next request depends on this answer.
    const asked = Object.keys(page.load(ctx)).length;
    if (asked > (ctx.state.asked ?? 2)) {
      ctx.state.asked = asked;
      ctx.reload();
    }
    const ready = ctx.data.earlier && (ctx.data.before || !ctx.data.earlier.versions.length);
    return [
      card(null, { key: "facts" }, facts([["App", version.app], ["Applied", h("span", time(version.appliedAt), version.appliedBy && ` by ${version.appliedBy}`)], ["Hash", copyable(version.hash)]])),
      tabs(["text", "changes", "document"], shown, (show) => link(["specs", ctx.params.version], { show: show === "text" ? "" : show }), { text: "Text", changes: "Changes", document: "Document" }),
      shown === "changes" ? (ready ? compared(ctx) : h("p.muted", "Loading …")) : card(null, { key: shown }, h("pre.code.flush", { tabindex: "0" }, shown === "text" ? textOf(version) : JSON.stringify(version.spec, null, 2))),
    ];
  }),
};

export default page;
