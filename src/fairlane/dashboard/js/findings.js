// Findings: problems that the broker reports, each with the page that shows it and the action that may fix it.

import { send } from "./api.js";
import { confirm } from "./dialog.js";
import { h } from "./dom.js";
import { time } from "./format.js";
import { icon } from "./icons.js";
import { button } from "./components.js";

const KINDS = { critical: "critical", warning: "warning", notice: "muted" };

const act = async (ctx, finding) => {
  const { label, method, path, body } = finding.action;
  if (await confirm({ title: label, text: [finding.sentence, h("p.mono", `${method} ${path}`)], label })) ctx.act(() => send(method, path, body), `Done: ${label}.`);
};

export const findingList = (ctx, findings) =>
  h("ul.findings.flush", findings.map((one) =>
    h("li.finding", { key: `${one.kind} ${one.queue ?? ""} ${one.group ?? ""} ${one.partition ?? ""} ${one.sentence}`, class: `is-${KINDS[one.severity] ?? "muted"}` },
      icon(one.severity === "notice" ? "info" : "alert", { "aria-label": one.severity, role: "img", "aria-hidden": undefined }),
      h("p", one.sentence, one.since && [" ", h("span.note", time(one.since))]),
      h("span.buttons",
        one.action && button(one.action.label, { kind: one.severity === "critical" ? "primary" : "", onclick: () => act(ctx, one) }),
        one.page && h("a.button", { href: `#${one.page}` }, "Look")))));
