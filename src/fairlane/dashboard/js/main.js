// The entry point of the dashboard: finds the page of the current address, keeps its data up to date, and draws it.
//
// How a page is written. A module in pages/ exports one object, and routes.js has a line for it:
//
//   export default {
//     title: (ctx) => ctx.params.queue,                      also the title of the document
//     crumbs: (ctx) => [["Queues", link(["queues"])]],       optional: breadcrumbs
//     watch: (ctx) => ({ queue: api`/api/v1/…/${ctx.params.queue}` }),   optional: names and GET paths, live
//     load: (ctx) => ({ message: "/api/v1/…" }),             optional: fetched once, and again by ctx.reload();
//                                                            { path, parse } for a custom parser
//     actions: (ctx) => [button("Pause", { onclick })],      optional: to the right of the title
//     view: (ctx) => [tree, tree],                           drawn on each change; h() of dom.js builds trees
//   };
//
//   ctx.params, ctx.query   from the address: "/queues/:queue" and "?group=…"
//   ctx.data, ctx.problems  results of watch and load by name; undefined until they arrive
//   ctx.part(name, view)    view(body) once it has arrived; before that a placeholder, or the problem
//   ctx.setQuery({ sort })  changes the address, and with it the watched paths
//   ctx.state, ctx.set({})  state of the page while it is open; set redraws
//   ctx.act(call, done)     runs an async call, then shows `done` (or done(answer)), or the broker's refusal
//   ctx.reload()            repeats the requests of `load`
//
// Pieces: components.js (card, stat, badge, state, button, facts, meter, empty, tabs), table.js (table, paged, searchBox,
// chooser), dialog.js (confirm, confirmByName, ask, showMessage, toast), chart.js (spark, chart, legend), json.js, format.js.

import { asked, get, getText } from "./api.js";
import { toast } from "./dialog.js";
import { draw, h } from "./dom.js";
import { shell } from "./shell.js";
import { keys } from "./keys.js";
import { labelCells } from "./labels.js";
import { connection, watch } from "./live.js";
import { login } from "./login.js";
import { failed, incomplete, stale, waiting } from "./components.js";
import { here, match, setQuery } from "./router.js";
import { routes } from "./routes.js";

const LISTS = ["/queues", "/groups", "/dead-letters", "/operations"]; // sections of pages that lack the queues of a cell that is down
const main = document.getElementById("main");
const FINDINGS = "shell findings"; // watched on every page
let now = null; // the visit of a page: { route, page, ctx, paths, awaited (names whose data is not for this address yet), stop }
let due = false;
let turn = 0;

const redraw = () => {
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    drawShell();
    if (now?.page) drawPage(now);
  });
};

const shared = {}; // data of the shell: findings, and the login
const drawShell = () => shell(now?.route.section, shared);

const drawPage = ({ page, ctx, hash, awaited }) => {
  const title = page.title(ctx);
  document.title = title === "Overview" ? "Fairlane" : `${title} · Fairlane`;
  let body;
  try {
    body = page.view(ctx);
  } catch (error) {
    console.error(error);
    body = failed({ message: "This page cannot be shown because of a bug in the dashboard.", code: String(error) });
  }
  // A part that was shown before and cannot be read now. Its old rows stay, greyed.
  const old = Object.entries(ctx.problems).find(([name, problem]) => passes(problem) && ctx.data[name] !== undefined)?.[1];
  const missing = LISTS.includes(now.route.section) ? shared.findings?.filter((one) => one.kind === "cell_away") ?? [] : [];
  draw(main,
    h("header.page-head",
      h("div.page-title", page.crumbs && h("nav.crumbs", { "aria-label": "Breadcrumbs" }, page.crumbs(ctx).map(([text, href]) => h("a", { href }, text))),
        h("h1", title, ...(page.badges?.(ctx) ?? []))),
      page.actions && h("div.actions", ...page.actions(ctx))),
    h("div.page", { key: now.route.path, class: old ? "is-old" : "" }, old && stale(old, ctx.again), missing.map(incomplete), body));
  labelCells(main);
  main.setAttribute("aria-busy", String(awaited.size > 0));
  if (!awaited.size) main.dataset.shown = hash; // the address that is shown completely
};

const context = (params, query) => {
  const ctx = {
    params, query, data: {}, problems: {}, state: {}, setQuery,
    shared,
    set: (change) => {
      Object.assign(ctx.state, change);
      redraw();
    },
    part: (name, view) => {
      if (ctx.data[name] !== undefined) return view(ctx.data[name]);
      return ctx.problems[name] ? failed(ctx.problems[name], ctx.again) : waiting();
    },
    act: async (call, done) => {
      try {
        const answer = await call();
        if (done) toast(typeof done === "function" ? done(answer) : done);
        ctx.reload();
        return answer;
      } catch (error) {
        toast(error.message, "critical");
        return undefined;
      }
    },
    reload: () => now?.ctx === ctx && load(now),
    again: () => {
      if (now?.ctx !== ctx) return;
      clearTimeout(now.healing);
      now.healing = null;
      ctx.problems = {};
      reconnect(now);
      redraw();
    },
  };
  return ctx;
};

const HEALS = [2, 4, 8, 15, 30]; // seconds between attempts to load what could not be read

/** A problem that may pass by itself: no answer, an overload, or an error of the broker. */
const passes = ({ status }) => status === 0 || status === 429 || status >= 500;

const heal = (visit) => {
  const hurt = Object.values(visit.ctx.problems).some(passes);
  if (!hurt) {
    clearTimeout(visit.healing);
    Object.assign(visit, { healing: null, attempts: 0 });
  } else if (!visit.healing && visit === now) {
    visit.attempts = (visit.attempts ?? 0) + 1;
    visit.healing = setTimeout(() => {
      visit.healing = null;
      if (visit === now) reconnect(visit);
    }, HEALS[Math.min(visit.attempts, HEALS.length) - 1] * 1000);
  }
};

// Data and problems stay on the page until there is an answer.
const reconnect = (visit) => {
  visit.stop?.();
  visit.paths = visit.once = undefined;
  follow(visit);
};

const put = (visit) => (name, body, problem) => {
  if (name === FINDINGS) {
    shared.findings = body?.findings;
    return redraw();
  }
  visit.awaited.delete(name);
  if (problem) visit.ctx.problems[name] = problem;
  else {
    delete visit.ctx.problems[name];
    visit.ctx.data[name] = body;
  }
  // Data of a deleted resource is removed. Data that only cannot be read now stays.
  if (problem && problem.status >= 400 && problem.status < 500) delete visit.ctx.data[name];
  heal(visit);
  if (visit === now) follow(visit); // the watched paths may depend on the data
  redraw();
};

const load = async (visit) => {
  const paths = visit.page.load?.(visit.ctx) ?? {};
  const set = put(visit);
  const ask = (path) => (typeof path === "string" ? get(path) : getText(path.path).then(path.parse));
  await Promise.all(Object.entries(paths).map(([name, path]) => ask(path).then((body) => set(name, body, null), (error) => set(name, undefined, error))));
};

// Watch the current paths of the page. Data of unchanged names stays until new data arrives.
const follow = (visit) => {
  const paths = { ...visit.page.watch?.(visit.ctx), [FINDINGS]: "/api/v1/findings" };
  const text = JSON.stringify(paths);
  if (text !== visit.paths) {
    visit.stop?.();
    const before = JSON.parse(visit.paths ?? "{}");
    for (const name of visit.awaited) if (!(name in paths)) visit.awaited.delete(name);
    for (const name in paths) if (name !== FINDINGS && paths[name] !== before[name]) visit.awaited.add(name);
    visit.paths = text;
    visit.stop = watch(paths, put(visit));
  }
  const once = JSON.stringify(visit.page.load?.(visit.ctx) ?? {});
  if (once !== visit.once) {
    visit.once = once;
    load(visit);
  }
};

const visit = async () => {
  const { path, query } = here();
  const found = match(routes, path);
  const same = now && found && now.route === found.route && JSON.stringify(now.ctx.params) === JSON.stringify(found.params);
  if (same) {
    Object.assign(now, { hash: location.hash });
    now.ctx.query = query;
    if (now.page) follow(now);
    return redraw();
  }
  now?.stop?.();
  const mine = ++turn;
  const first = now === null;
  now = { route: found?.route ?? { path: "", section: "" }, ctx: context(found?.params ?? {}, query), hash: location.hash, awaited: new Set() };
  const visited = now;
  try {
    if (!found) throw Object.assign(new Error("This page does not exist."), { code: `#/${path.join("/")}` });
    const { default: page } = await import(`./pages/${found.route.module}.js`);
    if (mine !== turn) return;
    visited.page = page;
    follow(visited);
  } catch (error) {
    if (mine !== turn) return;
    visited.page = { title: () => "Not found", view: () => failed({ message: error.message, code: error.code ?? "" }) };
    follow(visited);
  }
  scrollTo(0, 0);
  if (!first) main.focus({ preventScroll: true });
  redraw();
};

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
connection.onchange = redraw;
asked.onlogin = login;
addEventListener("hashchange", visit);
setInterval(redraw, 1000); // updates texts like "3 s ago"
keys();
// This request comes first, so that a browser without a login is refused once and not for every part of the page.
get("/api/v1/whoami").then((me) => { shared.me = me; visit(); }, (error) => error.status === 401 || visit());
drawShell();
