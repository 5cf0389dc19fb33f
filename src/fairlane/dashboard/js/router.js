// Hash routes: "#/queues/orders?group=billing". Each part is encoded, so that names may have any characters.

const parts = (path) => path.split("/").filter(Boolean);

const query = (values) => {
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
};

/** The address of a page, for href: link(["queues", name], { group }). */
export const link = (path, values = {}) => `#/${path.map(encodeURIComponent).join("/")}${query(values)}`;

/** A path of the API: api`/api/v1/explain/${queue}/${partition}`. `where` adds a query. */
export const api = (texts, ...values) => texts.reduce((path, text, i) => path + encodeURIComponent(values[i - 1]) + text);

/** A path with a query. Undefined, null and empty values are left out. */
export const where = (path, values) => path + query(values);

/** The current location: the parts of the path, and the query as an object. */
export const here = (hash = location.hash) => {
  const [path, text = ""] = hash.replace(/^#/, "").split(/\?(.*)/s);
  try {
    return { path: parts(path).map(decodeURIComponent), query: Object.fromEntries(new URLSearchParams(text)) };
  } catch {
    return { path: [path], query: {} };
  }
};

/** The first route whose pattern ("/queues/:queue") matches, with its parameters. */
export const match = (routes, path) => {
  for (const route of routes) {
    const pattern = parts(route.path);
    if (pattern.length !== path.length) continue;
    if (!pattern.every((one, i) => one.startsWith(":") || one === path[i])) continue;
    const named = pattern.flatMap((one, i) => (one.startsWith(":") ? [[one.slice(1), path[i]]] : []));
    return { route, params: Object.fromEntries(named) };
  }
  return null;
};

/** Change the query of this page, without a history entry. A value of undefined or "" is removed. */
export const setQuery = (values) => {
  const { path, query: was } = here();
  history.replaceState(null, "", link(path, { ...was, ...values }));
  dispatchEvent(new HashChangeEvent("hashchange"));
};

export const go = (href) => {
  location.hash = href.replace(/^#?/, "#");
};
