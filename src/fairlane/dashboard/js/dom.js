// A virtual DOM: trees of plain objects, and a function that updates the document to match them.
//
//   h("td.number", { title: "exact" }, "12 k")      an element; classes may follow the tag
//   draw(root, [tree, tree])                         creates elements at first, and later changes only what differs
//
// Text becomes text nodes, never markup. Special attributes:
//   key      identity among siblings between drawings, for lists whose order changes
//   on...    listeners, like onclick
//   style    an object of properties, including custom ones
//   mount    called once with the new element
//   static   later drawings do not touch what `mount` put inside

const SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = new Set(["value", "checked", "indeterminate"]);

// Characters that change the direction of text or are invisible. They are shown, so that names cannot deceive.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;
export const visible = (text) => String(text).replace(HIDDEN, (one) => `⟨U+${one.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);

const isTree = (one) => one !== null && typeof one === "object" && "tag" in one;

const flat = (children, into = []) => {
  for (const one of children) {
    if (Array.isArray(one)) flat(one, into);
    else if (isTree(one)) into.push(one);
    // Nothing becomes an empty text, so that the siblings after it keep their places.
    else into.push({ tag: null, text: one === null || one === undefined || one === false || one === true ? "" : visible(one) });
  }
  return into;
};

export const h = (name, props, ...children) => {
  if (props === null || typeof props !== "object" || Array.isArray(props) || isTree(props)) {
    children.unshift(props);
    props = {};
  }
  const [tag, ...classes] = name.split(".");
  const named = [...classes, props.class].filter(Boolean).join(" ");
  return { tag, props: named ? { ...props, class: named } : props, key: props.key, children: flat(children) };
};

const listen = (event) => event.currentTarget.listeners[event.type](event);

const setStyle = (el, was = {}, now = {}) => {
  for (const name of Object.keys(was)) if (!(name in now)) el.style.removeProperty(name);
  for (const [name, value] of Object.entries(now)) if (was[name] !== value) el.style.setProperty(name, value);
};

const setProp = (el, name, was, now) => {
  if (name === "key" || name === "mount" || name === "static") return;
  if (name === "style") return setStyle(el, was, now);
  if (name.startsWith("on")) {
    const type = name.slice(2);
    el.listeners ??= {};
    if (!now) {
      delete el.listeners[type];
      return el.removeEventListener(type, listen);
    }
    if (!el.listeners[type]) el.addEventListener(type, listen);
    el.listeners[type] = now;
    return;
  }
  if (was === now) return;
  // A field that has the focus keeps its text, which is newer than the drawn value.
  if (name === "value" && el === document.activeElement) return;
  if (PROPERTIES.has(name)) el[name] = now ?? "";
  else if (now === false || now === null || now === undefined) el.removeAttribute(name);
  else el.setAttribute(name, now === true ? "" : now);
};

const make = (tree, space) => {
  if (tree.tag === null) return (tree.el = document.createTextNode(tree.text));
  const inside = tree.tag === "svg" ? SVG : space;
  const el = inside ? document.createElementNS(inside, tree.tag) : document.createElement(tree.tag);
  tree.el = el;
  for (const one of tree.children) el.append(make(one, inside));
  for (const [name, value] of Object.entries(tree.props)) setProp(el, name, undefined, value);
  tree.props.mount?.(el);
  return el;
};

const change = (was, now, space) => {
  const el = (now.el = was.el);
  if (now.tag === null) {
    if (was.text !== now.text) el.data = now.text;
    return;
  }
  if (!now.props.static) arrange(el, was.children, now.children, now.tag === "svg" ? SVG : space);
  else now.children = was.children;
  for (const name of Object.keys(was.props)) if (!(name in now.props)) setProp(el, name, was.props[name], undefined);
  for (const [name, value] of Object.entries(now.props)) setProp(el, name, was.props[name], value);
};

const arrange = (parent, was, now, space) => {
  const keyed = new Map(was.filter((one) => one.key !== undefined).map((one) => [one.key, one]));
  const rest = was.filter((one) => one.key === undefined);
  const gone = new Set(was);
  let next = 0;
  let at = parent.firstChild;
  for (const tree of now) {
    const before = tree.key === undefined ? rest[next++] : keyed.get(tree.key);
    if (before && before.tag === tree.tag && gone.has(before)) {
      gone.delete(before);
      change(before, tree, space);
    } else make(tree, space);
    if (tree.el === at) at = at.nextSibling;
    else parent.insertBefore(tree.el, at);
  }
  for (const one of gone) one.el.remove();
};

const drawn = new WeakMap();

/** Update the children of an element to match these trees. */
export const draw = (root, ...trees) => {
  const now = flat(trees);
  const was = drawn.get(root);
  if (!was) root.replaceChildren();
  arrange(root, was ?? [], now, null);
  drawn.set(root, now);
};
