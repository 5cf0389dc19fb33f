// Every page: its path, the module in pages/ that has it, and the entry of the navigation that it belongs to.

export const routes = [
  { path: "/", module: "overview", section: "/" },
];

/** The navigation, in groups; `key` follows g on the keyboard. */
export const nav = [
  { items: [{ path: "/", label: "Overview", icon: "overview", key: "o" }] },
];
