// The shell around every page: navigation, connection state and theme.

import { draw, h } from "./dom.js";
import { awake } from "./findings.js";
import { count } from "./format.js";
import { icon, mark } from "./icons.js";
import { help } from "./keys.js";
import { connection } from "./live.js";
import { logout } from "./login.js";
import { nav } from "./routes.js";
import { searchEverything } from "./search.js";

const side = document.getElementById("side");
const THEMES = ["auto", "light", "dark"];
const LIVE = {
  connecting: ["muted", "Connecting"],
  live: ["good", "Live"],
  polling: ["info", "Every 2 seconds"],
  away: ["critical", "Broker does not answer"],
};

const theme = () => document.documentElement.dataset.theme ?? "auto";

const setTheme = (name) => {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  try {
    if (name === "auto") localStorage.removeItem("theme");
    else localStorage.setItem("theme", name);
  } catch {
    // The choice holds until the page is closed.
  }
};

const open = (is) => document.body.classList.toggle("nav-open", is);
addEventListener("hashchange", () => open(false));

export const shell = (section, shared) => {
  const { me } = shared;
  const findings = awake(shared.findings ?? []);
  const urgent = findings.filter((one) => one.severity !== "notice").length;
  const worst = findings.some((one) => one.severity === "critical") ? "critical" : "warning";
  const [kind, text] = LIVE[connection.state];
  const next = THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length];
  draw(side,
    h("div.side-head",
      h("a.brand", { href: "#/" }, mark(), h("span", "Fairlane")),
      h("button.icon-button.nav-button.nav-search", { type: "button", "aria-label": "Search everything", onclick: searchEverything }, icon("search")),
      h("button.icon-button.nav-button", { type: "button", "aria-label": "Menu", "aria-expanded": String(document.body.classList.contains("nav-open")), onclick: () => open() }, icon("menu"))),
    h("button.find", { type: "button", onclick: searchEverything }, icon("search"), h("span", "Search"), h("kbd", "Ctrl K")),
    h("nav.nav", { "aria-label": "Pages" },
      nav.map((group, i) => h("div.nav-group", { key: i }, group.label && h("span.nav-label", group.label),
        group.items.filter((one) => !one.shown || one.shown(me)).map((one) => h("a", { key: one.path, href: `#${one.path}`, "aria-current": section === one.path ? "page" : undefined, title: `g ${one.key}` },
          icon(one.icon), h("span", one.label), one.path === "/" && urgent > 0 && h("b.badge", { class: `is-${worst}`, title: "Needs attention" }, count(urgent))))))),
    h("div.side-foot",
      h("span.live", { class: `is-${kind}`, title: "Source of the data on this page" }, text),
      me && (me.open ? h("span.who", { title: "No key exists yet: anyone who can reach this address may do everything. Create one with fairlane key create." }, "Open, no key required") : h("span.who", { title: me.scopes.join(", ") }, h("span.name", me.name), h("button.link", { type: "button", onclick: logout }, "Log out"))),
      h("span.tools",
        h("button.icon-button", { type: "button", "aria-label": `Theme: ${theme()}; change to ${next}`, title: `Theme: ${theme()}`, onclick: () => { setTheme(next); shell(section, shared); } }, icon(theme())),
        h("button.icon-button", { type: "button", "aria-label": "Keyboard shortcuts", title: "Keyboard (?)", onclick: help }, icon("keyboard")),
        h("a.icon-button", { href: "/docs", "aria-label": "The API", title: "The API" }, icon("docs")))));
};
