// The frame of the dashboard: it finds the page that the address names, gives it data that stay up to date, and draws.
//
// How a page is written. A module in pages/ exports one object, and routes.js has a line for it:
//
//   export default {
//     title: (ctx) => ctx.params.queue,                      also the document's
//     crumbs: (ctx) => [["Queues", link(["queues"])]],       optional: the way there
//     watch: (ctx) => ({ queue: api`/api/v1/…/${ctx.params.queue}` }),   optional: names and GET paths, live
//     load: (ctx) => ({ message: "/api/v1/…" }),             optional: the same, asked once and by ctx.reload();
//                                                            { path, parse } for a parser of its own
//     actions: (ctx) => [button("Pause", { onclick })],      optional: at the right of the title
//     view: (ctx) => [tree, tree],                           drawn at each change; trees are made by h() of dom.js
//   };
//
//   ctx.params, ctx.query   of the address: "/queues/:queue" and "?group=…"
//   ctx.data, ctx.problems  by name, of what is watched and loaded; undefined until it is there
//   ctx.part(name, view)    view(body) once it is there; before that, or if it failed, what stands for it
//   ctx.setQuery({ sort })  changes the address, and with it what is watched
//   ctx.state, ctx.set({})  what the page remembers while it is open; set draws again
//   ctx.act(call, done)     runs an async call, then says `done` (or done(answer)); a refusal is shown in its own words
//   ctx.reload()            asks again for what `load` names
//
// Pieces: parts.js (card, stat, badge, state, button, facts, meter, empty, tabs), table.js (table, paged, searchBox,
// chooser), dialog.js (confirm, confirmByName, ask, tell, toast), chart.js (spark, chart, legend), json.js, format.js.

import { asked, get, getText } from "./api.js";
import { toast } from "./dialog.js";
import { draw, h } from "./dom.js";
import { frame } from "./frame.js";
import { keys } from "./keys.js";
import { connection, watch } from "./live.js";
import { login } from "./login.js";
import { failed, waiting } from "./parts.js";
import { here, match, setQuery } from "./router.js";
import { routes } from "./routes.js";

const main = document.getElementById("main");
const FINDINGS = "frame findings"; // watched on every page
let now = null; // the visit of a page: { route, page, ctx, paths, awaited (names whose data is not that of the address yet), stop }
let due = false;
let turn = 0;

const redraw = () => {
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    drawFrame();
    if (now?.page) drawPage(now);
  });
};

const shared = {}; // what the frame shows: findings, and who is logged in
const drawFrame = () => frame(now?.route.section, shared);

const drawPage = ({ page, ctx, hash, awaited }) => {
  const title = page.title(ctx);
  document.title = title === "Overview" ? "Fairlane" : `${title} · Fairlane`;
  let body;
  try {
    body = page.view(ctx);
  } catch (error) {
    console.error(error);
    body = failed({ message: "This page cannot be drawn; that is a mistake in the dashboard.", code: String(error) });
  }
  draw(main,
    h("header.page-head",
      h("div.page-title", page.crumbs && h("nav.crumbs", { "aria-label": "Breadcrumbs" }, page.crumbs(ctx).map(([text, href]) => h("a", { href }, text))),
        h("h1", title, ...(page.badges?.(ctx) ?? []))),
      page.actions && h("div.actions", ...page.actions(ctx))),
    h("div.page", { key: now.route.path }, body));
  main.setAttribute("aria-busy", String(awaited.size > 0));
  if (!awaited.size) main.dataset.shown = hash; // of which address this is
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
      ctx.problems = {};
      now.stop?.();
      now.paths = now.once = undefined;
      follow(now);
      redraw();
    },
  };
  return ctx;
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
  // What is gone is not shown any more; what only cannot be read now is.
  if (problem && problem.status >= 400 && problem.status < 500) delete visit.ctx.data[name];
  if (visit === now) follow(visit); // what is watched may follow from what came
  redraw();
};

const load = async (visit) => {
  const paths = visit.page.load?.(visit.ctx) ?? {};
  const set = put(visit);
  const ask = (path) => (typeof path === "string" ? get(path) : getText(path.path).then(path.parse));
  await Promise.all(Object.entries(paths).map(([name, path]) => ask(path).then((body) => set(name, body, null), (error) => set(name, undefined, error))));
};

// Watch what the page asks for now; data of names that stay is shown until the new is there.
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
    if (!found) throw Object.assign(new Error("There is no such page."), { code: `#/${path.join("/")}` });
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
setInterval(redraw, 1000); // "3 s ago" is "4 s ago" then
keys();
// First of all, so that whoever has to log in is refused once and not for everything on the page.
get("/api/v1/whoami").then((me) => { shared.me = me; visit(); }, (error) => error.status === 401 || visit());
drawFrame();
