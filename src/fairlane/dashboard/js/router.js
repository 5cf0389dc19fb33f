// Hash routes: "#/queues/orders?group=billing". Names of any characters are encoded, each part by itself.

const parts = (path) => path.split("/").filter(Boolean);

const query = (values) => {
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
};

/** The address of a page, for href: link(["queues", name], { group }). */
export const link = (path, values = {}) => `#/${path.map(encodeURIComponent).join("/")}${query(values)}`;

/** A path of the API: api`/api/v1/explain/${queue}/${partition}`, with a query by `where`. */
export const api = (texts, ...values) => texts.reduce((path, text, i) => path + encodeURIComponent(values[i - 1]) + text);

/** The same with a query; what is undefined, null or empty is left out. */
export const where = (path, values) => path + query(values);

/** What the location asks for: the parts of the path, and the query as an object. */
export const here = (hash = location.hash) => {
  const [path, text = ""] = hash.replace(/^#/, "").split(/\?(.*)/s);
  try {
    return { path: parts(path).map(decodeURIComponent), query: Object.fromEntries(new URLSearchParams(text)) };
  } catch {
    return { path: [path], query: {} };
  }
};

/** The first route whose pattern fits ("/queues/:queue"), with the names in it. */
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

/** Change the query of this page; a value of undefined or "" leaves it. The history gets no entry for it. */
export const setQuery = (values) => {
  const { path, query: was } = here();
  history.replaceState(null, "", link(path, { ...was, ...values }));
  dispatchEvent(new HashChangeEvent("hashchange"));
};

export const go = (href) => {
  location.hash = href.replace(/^#?/, "#");
};
