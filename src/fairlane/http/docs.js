"use strict";

const make = (tag, text, className) => {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
};

// A schema as an example of what it describes; references are followed once on each way down.
const example = (schema, components, seen = []) => {
  if (!schema) return null;
  if (schema.$ref) {
    const name = schema.$ref.split("/").pop();
    return seen.includes(name) ? {} : example(components[name], components, [...seen, name]);
  }
  if (schema.default !== undefined) return schema.default;
  if (schema.anyOf) return example(schema.anyOf.find((one) => one.type !== "null"), components, seen);
  if (schema.enum) return schema.enum[0];
  if (schema.type === "array") return [example(schema.items, components, seen)];
  if (schema.type === "object") {
    const entries = Object.entries(schema.properties || {});
    return Object.fromEntries(entries.map(([name, one]) => [name, example(one, components, seen)]));
  }
  return { string: "…", integer: 0, number: 0, boolean: false }[schema.type] ?? {};
};

const parameters = (list) => {
  const table = make("table");
  const head = table.appendChild(make("tr"));
  ["parameter", "in", "type", "default"].forEach((title) => head.append(make("th", title)));
  for (const one of list) {
    const row = table.appendChild(make("tr"));
    const type = one.schema.type || (one.schema.anyOf || []).map((kind) => kind.type).join(" or ");
    [one.name, one.in, type, one.schema.default ?? ""].forEach((text) => row.append(make("td", String(text))));
  }
  return table;
};

const operation = (path, method, about, components) => {
  const box = make("details");
  box.dataset.text = `${method} ${path} ${about.summary}`.toLowerCase();
  const line = box.appendChild(make("summary"));
  line.append(make("span", method.toUpperCase(), "method"), make("span", path, "path"), make("span", about.summary, "about"));
  const body = box.appendChild(make("div", undefined, "body"));
  if (about.parameters.length) body.append(parameters(about.parameters));
  const sent = about.requestBody?.content["application/json"].schema;
  if (sent) body.append(make("p", "Body"), make("pre", JSON.stringify(example(sent, components), null, 2)));
  const statuses = Object.entries(about.responses).filter(([status]) => status < 400);
  for (const [status, answer] of statuses) {
    const schema = answer.content?.["application/json"]?.schema;
    body.append(make("p", `${status} ${answer.description}`));
    if (schema && Object.keys(schema).length) body.append(make("pre", JSON.stringify(example(schema, components), null, 2)));
  }
  return box;
};

const show = (api) => {
  document.getElementById("version").textContent = api.info.version;
  const main = document.getElementById("operations");
  main.textContent = "";
  const tags = new Map();
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const [method, about] of Object.entries(methods)) {
      const tag = about.tags[0];
      if (!tags.has(tag)) tags.set(tag, []);
      tags.get(tag).push(operation(path, method, about, api.components.schemas));
    }
  }
  for (const [tag, boxes] of [...tags].sort()) main.append(make("h2", tag), ...boxes);
  document.getElementById("filter").addEventListener("input", (event) => {
    const wanted = event.target.value.toLowerCase();
    for (const box of main.querySelectorAll("details")) box.hidden = !box.dataset.text.includes(wanted);
  });
};

fetch("/openapi.json")
  .then((answer) => answer.json())
  .then(show)
  .catch((error) => { document.getElementById("operations").textContent = `The description cannot be loaded: ${error}`; });
