// Icons as SVG paths in a 24 by 24 square.

import { h } from "./dom.js";

const PATHS = {
  overview: "M4 13h6V4H4zM14 20h6v-9h-6zM4 20h6v-3H4zM14 7h6V4h-6z",
  queues: "M4 6h16M4 12h10M4 18h5M18 12h2M13 18h7",
  groups: "M9 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7zM2.5 20c.6-3.6 3-5.5 6.5-5.5s5.9 1.9 6.5 5.5M16 4.3a3.5 3.5 0 0 1 0 6.4M18 14.9c2 .8 3.1 2.5 3.5 5.1",
  dead: "M3 6h18v13H3zM3 7l9 7 9-7M9.5 16.5l5 0",
  operations: "M12 3v4M12 17v4M3 12h4M17 12h4M5.6 5.6l2.9 2.9M15.5 15.5l2.9 2.9M5.6 18.4l2.9-2.9M15.5 8.5l2.9-2.9",
  workers: "M7 7h10v10H7zM10 3v4M14 3v4M10 17v4M14 17v4M3 10h4M3 14h4M17 10h4M17 14h4",
  hooks: "M9 8a3.5 3.5 0 1 1 4.7 3.3L17 17M12 8l-4 8M4.5 14.5A3.5 3.5 0 1 0 10 18h7M15 20a3.5 3.5 0 1 0 1.5-6.5",
  specs: "M6 3h8l4 4v14H6zM14 3v4h4M9 12h6M9 16h6",
  schedules: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 7v5l3.5 2",
  sources: "M12 9c4.4 0 8-1.3 8-3s-3.6-3-8-3-8 1.3-8 3 3.6 3 8 3zM4 6v12c0 1.7 3.6 3 8 3s8-1.3 8-3V6M4 12c0 1.7 3.6 3 8 3s8-1.3 8-3",
  system: "M3 5h18v6H3zM3 13h18v6H3zM7 8h.01M7 16h.01M11 8h6M11 16h6",
  cells: "M4 4h7v7H4zM13 4h7v7h-7zM4 13h7v7H4zM13 13h7v7h-7z",
  retention: "M3 6h18v4H3zM5 10v10h14V10M9.5 14.5l2.5 2.5 2.5-2.5M12 12.5V17",
  tenants: "M4 20V5h9v15M13 9h7v11M3 20h18M7 8.5h3M7 12h3M7 15.5h3M16 12.5h1M16 16h1",
  key: "M15 9.5a4.5 4.5 0 1 0-9 0 4.5 4.5 0 0 0 9 0zM14 12.5l7 7M17.5 16l2-2M10.5 9.5h.01",
  audit: "M8 4h8v3H8zM16 5h3v16H5V5h3M9 12h6M9 16h4",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM16 16l5 5",
  menu: "M4 7h16M4 12h16M4 17h16",
  close: "M6 6l12 12M18 6L6 18",
  pause: "M8 5v14M16 5v14",
  play: "M7 4.5v15l12-7.5z",
  trash: "M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13M10 11v5M14 11v5",
  seek: "M4 12h12M11 6l6 6-6 6M20 5v14",
  retry: "M4 12a8 8 0 1 1 2.5 5.8M4 19v-5h5",
  release: "M7 11V8a5 5 0 0 1 9.6-2M5 11h14v10H5zM12 15v2",
  skip: "M5 5l9 7-9 7zM18 5v14",
  edit: "M4 20l1-4L16 5l3 3L8 19zM14 7l3 3",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  light: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6L19 19M5 19l1.4-1.4M17.6 6.4L19 5",
  dark: "M20 14.5A8.5 8.5 0 1 1 9.5 4a7 7 0 0 0 10.5 10.5z",
  auto: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 3v18M12 8l5.5-2M12 13l8-3M12 18l7-2.5",
  check: "M5 13l4.5 4.5L19 7",
  alert: "M12 4l9.5 16h-19zM12 10v5M12 17.5h.01",
  info: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 11v5M12 8h.01",
  next: "M9 5l7 7-7 7",
  previous: "M15 5l-7 7 7 7",
  down: "M5 9l7 7 7-7",
  up: "M5 15l7-7 7 7",
  keyboard: "M3 6h18v12H3zM7 10h.01M11 10h.01M15 10h.01M7 14h10",
  docs: "M5 4h10a4 4 0 0 1 4 4v12H9a4 4 0 0 1-4-4zM9 9h6M9 13h6",
  trace: "M4 5h9M8 12h8M12 19h8M4 5v14",
};

export const icon = (name, attributes = {}) =>
  h("svg.icon", { viewBox: "0 0 24 24", "aria-hidden": "true", ...attributes }, h("path", { d: PATHS[name] ?? PATHS.info }));

/** The logo: three lanes with different progress. */
export const mark = () =>
  h("svg.mark", { viewBox: "0 0 32 32", "aria-hidden": "true" },
    h("rect", { width: 32, height: 32, rx: 8 }),
    ...[["M7 10.5h18", 0.45], ["M7 16h11", 1], ["M23 16h2", 0.45], ["M7 21.5h5", 1], ["M17 21.5h8", 0.45]].map(([d, o]) =>
      h("path", { d, "stroke-opacity": o })));
