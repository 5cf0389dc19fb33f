// Bulk actions: checkboxes in a table, and a bar with actions on the selected rows.
//
//   table(ctx, { ..., bulk: { of: "lane", name: (row) => row.partition, actions: (rows) => [button("Resume", …)] } })
//   each(ctx, rows, (row) => post(…), { done: "Resumed", of: "lane" })     inside an action

import { h } from "./dom.js";
import { count, plural } from "./format.js";
import { button } from "./components.js";
import { toast } from "./dialog.js";

const AT_ONCE = 4;

const keysOf = (ctx, { of }) => (ctx.state[`selected ${of}`] ??= new Set());

/** The selected rows of those that are shown. */
export const selected = (ctx, bulk, rows, key) => rows.filter((row) => keysOf(ctx, bulk).has(key(row)));

export const checkAll = (ctx, bulk, rows, key) => {
  const keys = keysOf(ctx, bulk);
  const some = rows.filter((row) => keys.has(key(row))).length;
  return h("input", {
    type: "checkbox", "aria-label": `Select all ${bulk.of}s shown`, checked: rows.length > 0 && some === rows.length, indeterminate: some > 0 && some < rows.length,
    onchange: (event) => {
      const { checked } = event.currentTarget;
      for (const row of rows) keys[checked ? "add" : "delete"](key(row));
      ctx.set({});
    },
  });
};

export const check = (ctx, bulk, row, key) => {
  const keys = keysOf(ctx, bulk);
  return h("input", {
    type: "checkbox", "aria-label": `Select ${bulk.name(row)}`, checked: keys.has(key),
    onchange: (event) => {
      keys[event.currentTarget.checked ? "add" : "delete"](key);
      ctx.set({});
    },
  });
};

/** The bar above the table while rows are selected. */
export const bulkBar = (ctx, bulk, rows) =>
  rows.length > 0 && h("div.bulk-bar", { role: "group", "aria-label": `Selected ${bulk.of}s` },
    h("b", `${plural(rows.length, bulk.of)} selected`),
    h("span.buttons", bulk.actions(rows)),
    button("Clear selection", { kind: "quiet", onclick: () => { keysOf(ctx, bulk).clear(); ctx.set({}); } }));

/** Do something with each row, a few at once. Shows how many were done, and the first refusal. Rows that were done are deselected. */
export const each = async (ctx, rows, call, { done, of, key }) => {
  const left = [...rows];
  const refused = [];
  let passed = 0;
  const work = async () => {
    for (let row = left.shift(); row !== undefined; row = left.shift()) {
      try {
        await call(row);
        passed += 1;
        keysOf(ctx, { of }).delete(key(row));
      } catch (error) {
        refused.push(error.message);
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  if (passed) toast(`${done} ${plural(passed, of)}.`);
  if (refused.length) toast(`${count(refused.length)} failed: ${refused[0]}`, "critical");
  ctx.reload();
  ctx.set({});
};
