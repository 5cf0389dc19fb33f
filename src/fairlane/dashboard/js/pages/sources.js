// Sources: APIs that pollers read, with their progress.

import { del } from "../api.js";
import { confirmByName } from "../dialog.js";
import { h } from "../dom.js";
import { count, millis, now, time } from "../format.js";
import { badge, button, empty } from "../components.js";
import { api } from "../router.js";
import { paged, table } from "../table.js";


const forget = async (ctx, one) => {
  const sure = await confirmByName({ title: `Delete the source ${one.name}?`, text: "Its cursor and its known records are deleted. The next poll starts from the beginning and pushes every record as new.", name: one.name, label: "Forget" });
  if (sure) await ctx.act(() => del(api`/api/v1/sources/${one.name}`), "Forgotten.");
};

const cut = (text) => (text === null ? h("span.muted", "at the beginning") : h("span.mono.clamp", { title: text }, text));

export default {
  title: () => "Sources",
  watch: (ctx) => ({ sources: paged("/api/v1/sources", ctx) }),
  view: (ctx) => ctx.part("sources", ({ sources, total }) => {
    const { search } = ctx.query;
    return h("section.card", table(ctx, {
      label: "Sources", rows: sources, total, search: "Search sources", sorted: { sort: "name" }, key: (one) => one.name,
      columns: [
        { title: "Source", sort: "name", cell: (one) => h("b", one.name) },
        { title: "Poller", cell: (one) => (one.leasedUntil && millis(one.leasedUntil) > now() ? badge("reading now", "info") : badge("idle", "muted")) },
        { title: "Records", sort: "records", order: "desc", number: true, cell: (one) => count(one.records) },
        { title: "New records from", grow: true, cell: (one) => cut(one.cursor) },
        { title: "Last page", sort: "committed", order: "desc", cell: (one) => time(one.committedAt) },
        { title: "Sweep", cell: (one) => (one.sweeping ? badge("running", "info", one.sweepCursor ?? "at the beginning") : one.sweptAt ? h("span", "ended ", time(one.sweptAt)) : h("span.muted", "none yet")) },
        { title: "Sweeps", number: true, cell: (one) => count(one.sweep) },
        { title: "Since", cell: (one) => time(one.createdAt) },
        { title: h("span.hidden", "Actions"), cell: (one) => button("Forget", { kind: "danger", "aria-label": `Forget ${one.name}`, onclick: () => forget(ctx, one) }) },
      ],
      empty: empty(search ? "No source matches." : "There are no sources.", search ? undefined : "A poller reads an HTTP API and pushes new, changed and deleted records. Declare one in a spec, or run fairlane poll URL."),
    }));
  }),
};
