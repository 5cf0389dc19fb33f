// All pages: path, module in pages/, and entry in the navigation.

export const routes = [
  { path: "/", module: "overview", section: "/" },
  { path: "/queues", module: "queues", section: "/queues" },
  { path: "/queues/:queue", module: "queue", section: "/queues" },
  { path: "/queues/:queue/partitions/:partition", module: "partition", section: "/queues" },
  { path: "/messages/:partitionId/:transactionId", module: "message", section: "/queues" },
  { path: "/groups", module: "groups", section: "/groups" },
  { path: "/groups/:queue/:group", module: "group", section: "/groups" },
  { path: "/dead-letters", module: "dead_letters", section: "/dead-letters" },
  { path: "/dead-letters/:queue/:id", module: "dead_letter", section: "/dead-letters" },
  { path: "/operations", module: "operations", section: "/operations" },
  { path: "/workers", module: "workers", section: "/workers" },
  { path: "/schedules", module: "schedules", section: "/schedules" },
  { path: "/hooks", module: "hooks", section: "/hooks" },
  { path: "/sources", module: "sources", section: "/sources" },
  { path: "/specs", module: "specs", section: "/specs" },
  { path: "/specs/:version", module: "spec", section: "/specs" },
  { path: "/retention", module: "retention", section: "/retention" },
  { path: "/system", module: "system", section: "/system" },
  { path: "/cells", module: "cells", section: "/cells" },
  { path: "/tenants", module: "tenants", section: "/tenants" },
  { path: "/keys", module: "api_keys", section: "/keys" },
  { path: "/audit", module: "audit", section: "/audit" },
];

/** The navigation, in groups. `key` follows g on the keyboard. `shown` tells from the caller if the page is of use. */
export const nav = [
  { items: [{ path: "/", label: "Overview", icon: "overview", key: "o" }] },
  { label: "Messages", items: [
    { path: "/queues", label: "Queues", icon: "queues", key: "q" },
    { path: "/groups", label: "Groups", icon: "groups", key: "g" },
    { path: "/dead-letters", label: "Dead letters", icon: "dead", key: "d" },
    { path: "/operations", label: "Operations", icon: "operations", key: "p" },
  ] },
  { label: "Work", items: [
    { path: "/workers", label: "Workers", icon: "workers", key: "w" },
    { path: "/schedules", label: "Schedules", icon: "schedules", key: "s" },
    { path: "/hooks", label: "Hooks", icon: "hooks", key: "h" },
    { path: "/sources", label: "Sources", icon: "sources", key: "r" },
    { path: "/specs", label: "Specs", icon: "specs", key: "c" },
  ] },
  { label: "Broker", items: [
    { path: "/retention", label: "Retention", icon: "retention", key: "n" },
    { path: "/system", label: "System", icon: "system", key: "y" },
    { path: "/cells", label: "Cells", icon: "cells", key: "e", shown: (me) => me?.cells > 1 },
    { path: "/tenants", label: "Tenants", icon: "tenants", key: "t", shown: (me) => me === undefined || me.tenant === "default" },
    { path: "/keys", label: "API keys", icon: "key", key: "k" },
    { path: "/audit", label: "Audit log", icon: "audit", key: "a" },
  ] },
];
