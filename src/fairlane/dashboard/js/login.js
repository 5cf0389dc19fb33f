// Login: sends a key or token to the broker once, which sets a session cookie that scripts cannot read.

import { post } from "./api.js";
import { draw, h } from "./dom.js";
import { mark } from "./icons.js";

let shown = false;

/** Ask for a credential instead of showing the page, then reload. */
export const login = () => {
  if (shown) return;
  shown = true;
  const box = document.createElement("dialog");
  box.className = "login";
  box.addEventListener("cancel", (event) => event.preventDefault());
  document.body.append(box);
  const state = { key: "", problem: "", busy: false };
  const redraw = () => draw(box,
    h("form", { onsubmit: submit, "aria-labelledby": "login-title" },
      h("header", mark(), h("h1", { id: "login-title" }, "Fairlane")),
      h("label.field", h("span", "This broker requires a key or a token"),
        h("input", { type: "password", name: "key", autocomplete: "current-password", spellcheck: "false", autofocus: true, "aria-invalid": state.problem ? "true" : undefined, "aria-describedby": "login-problem", oninput: (event) => { state.key = event.currentTarget.value; redraw(); } }),
        h("small", "An administrator creates one: ", h("code", "fairlane key create NAME --role read-only"))),
      h("p.problem.is-critical", { id: "login-problem", role: "alert" }, state.problem),
      h("button.button.is-primary", { type: "submit", disabled: state.busy || !state.key.trim() }, "Log in")));
  const submit = async (event) => {
    event.preventDefault();
    Object.assign(state, { busy: true, problem: "" });
    redraw();
    try {
      await post("/api/v1/login", { key: state.key.trim() });
      location.reload();
    } catch (error) {
      Object.assign(state, { busy: false, problem: error.message });
      redraw();
      box.querySelector("input").select();
    }
  };
  redraw();
  box.showModal();
  box.querySelector("input").focus();
};

export const logout = async () => {
  await post("/api/v1/logout");
  location.reload();
};
