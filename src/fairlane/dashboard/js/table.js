// Tables that the broker pages, sorts and searches. The choice is in the address, so that it can be shared.
//
//   watch: (ctx) => ({ queues: paged("/api/v1/resources/queues", ctx, { sort: "name" }) })
//   view:  (ctx) => table(ctx, { name: "queues", columns, rows, total, empty, search: "Search queues" })

import { bulkBar, check, checkAll, selected } from "./bulk.js";
import { h } from "./dom.js";
import { count } from "./format.js";
import { icon } from "./icons.js";
import { where } from "./router.js";

const LIMIT = 50;

/** The path of a page of a list, from the address: search, sort, order, and offset or after. */
export const paged = (path, { query }, { limit = LIMIT, ...others } = {}) => {
  const { search, sort, order, offset, after } = query;
  return where(path, { limit, ...others, ...(search && { search }), ...(sort && { sort }), ...(order && { order }), ...(offset && { offset }), ...(after && { after }) });
};

/**
 * columns: [{ title, cell: (row) => tree, sort?: "name", order?: "desc" first, number?: true, grow?: true (takes the remaining width), clip?: true (truncates), hide?: "narrow" }]
 * rows, key: (row) => text, href: (row) => address; total, next (a cursor), more (another page follows), whole (these are all), or part (there are more, but no further page)
 * bulk: { of: "lane", name: (row) => text, actions: (selected rows) => buttons } for checkboxes, see bulk.js
 * search: placeholder; tools: controls to its right; empty: tree; sorted: default { sort, order }
 */
export const table = (ctx, { columns, rows, key, href, total, next, more, whole, part, limit = LIMIT, search, tools, empty, sorted = {}, label, bulk }) =>
  h("div.table-box",
    (search || tools) && h("div.table-tools", search && searchBox(ctx, search), tools),
    bulk && bulkBar(ctx, bulk, selected(ctx, bulk, rows, key)),
    rows.length === 0 && (whole || !ctx.query.offset) ? empty : h("div.table-scroll", { tabindex: "0", role: "region", "aria-label": label ?? "Table" },
      h("table",
        h("thead", h("tr", bulk && h("td.check", checkAll(ctx, bulk, rows, key)), columns.map((one) => head(ctx, one, sorted)))),
        h("tbody", rows.map((row) => line(columns, row, key?.(row), href?.(row), bulk && h("td.check", check(ctx, bulk, row, key(row)))))))),
    !whole && pager(ctx, { rows, total, next, more, part, limit }));

const line = (columns, row, key, href, box) =>
  h("tr", { key, class: href ? "is-link" : "", onclick: href && ((event) => follow(event, href)) },
    box,
    columns.map((one, i) =>
      h(i === 0 && href ? "th" : "td", { scope: i === 0 && href ? "row" : undefined, class: cellClass(one) },
        i === 0 && href ? h("a.row-link", { href }, one.cell(row)) : one.cell(row))));

const cellClass = ({ number, grow, clip, hide }) => [number && "number", grow && "grow", clip && "clip", hide && `hide-${hide}`].filter(Boolean).join(" ");

// The whole row is a link, unless a control in it was clicked or text was selected.
const follow = (event, href) => {
  if (event.target.closest("a, button, input, label") || String(getSelection())) return;
  if (event.metaKey || event.ctrlKey) open(href);
  else location.hash = href;
};

const head = (ctx, column, sorted) => {
  const { title, sort, order: first = "asc" } = column;
  if (!title) return h("td");
  if (!sort) return h("th", { scope: "col", class: cellClass(column) }, title);
  const by = ctx.query.sort ?? sorted.sort;
  const order = by === sort ? (ctx.query.order ?? sorted.order ?? first) : null;
  const other = order === null ? first : order === "asc" ? "desc" : "asc";
  return h("th", { scope: "col", class: cellClass(column), "aria-sort": order === null ? undefined : order === "asc" ? "ascending" : "descending" },
    h("button.sort", { type: "button", onclick: () => ctx.setQuery({ sort, order: other, offset: "", after: "" }) },
      title, order && icon(order === "asc" ? "up" : "down")));
};

let typing;

/** A search field. Its text becomes `search` (or another name) in the address, shortly after the last key. */
export const searchBox = (ctx, placeholder, name = "search") =>
  h("label.search", icon("search"),
    h("input", {
      type: "search", placeholder, "aria-label": placeholder, value: ctx.query[name] ?? "", "data-search": true, autocomplete: "off", spellcheck: "false",
      oninput: (event) => {
        const text = event.currentTarget.value;
        clearTimeout(typing);
        typing = setTimeout(() => ctx.setQuery({ [name]: text, offset: "", after: "" }), 180);
      },
    }), h("kbd", "/"));

/** A select whose value goes into the address. options: [[value, label], ...] */
export const chooser = (ctx, name, options, label) =>
  h("label.chooser", h("span", label),
    h("select", { onchange: (event) => ctx.setQuery({ [name]: event.currentTarget.value, offset: "", after: "" }) },
      options.map(([value, text]) => h("option", { key: value, value, selected: (ctx.query[name] ?? "") === value }, text))));

/** The range that is shown, the total, and links to other pages. Also for lists that are not tables. */
export const pager = (ctx, { rows, total, next, more, part, limit = LIMIT }) => {
  const offset = Number(ctx.query.offset ?? 0);
  const last = offset + rows.length;
  const follows = total === undefined ? Boolean(next) || Boolean(more) : last < total;
  const precedes = offset > 0 || Boolean(ctx.query.after);
  if (!follows && !precedes && (total === undefined || total <= limit)) return rows.length > 8 ? h("footer.pager", h("span", `${count(rows.length)} shown${part ? "" : ", no more"}`)) : null;
  const range = ctx.query.after ? `${count(rows.length)} shown` : rows.length ? `${count(offset + 1)} to ${count(last)}` : "none";
  const turn = (label, name, to, on) => h("button.button", { type: "button", disabled: !on, onclick: () => ctx.setQuery(to) }, name === "previous" && icon(name), h("span", label), name === "next" && icon(name));
  return h("footer.pager",
    h("span", total === undefined ? range : `${range} of ${count(total)}`),
    h("span.buttons",
      turn(next !== undefined && ctx.query.after ? "First page" : "Previous", "previous", { offset: offset > limit ? offset - limit : "", after: "" }, precedes),
      turn("Next", "next", next ? { after: next } : { offset: last }, follows)));
};
