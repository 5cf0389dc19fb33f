// The live tail of a queue: new messages appear on top, with the beginning of their payload.

import { getText } from "./api.js";
import { h } from "./dom.js";
import { button, empty, state } from "./components.js";
import { clock, millis } from "./format.js";
import { parse } from "./json.js";
import { statusOf } from "./messages.js";
import { glimpse } from "./names.js";
import { api, link } from "./router.js";
import { table } from "./table.js";

const KEPT = 200;
const READ = 20; // payloads read for one update; a busier queue shows the others without

const key = (one) => `${one.partitionId} ${one.position}`;

const read = async (ctx, rows) => {
  for (const one of rows.slice(0, READ)) {
    const found = await getText(api`/api/v1/messages/${one.partitionId}/${one.transactionId}`).then(parse, () => null); // long numbers keep their digits
    if (found) ctx.state.payloads.set(key(one), found.payload);
  }
  ctx.set({});
};

/** Add the messages of an answer that are new. Nothing while the tail is held. */
const take = (ctx, messages) => {
  const { state: own } = ctx;
  own.payloads ??= new Map();
  own.tail ??= [];
  if (own.held) return;
  const known = new Map(own.tail.map((one) => [key(one), one]));
  const fresh = messages.filter((one) => !known.has(key(one)));
  for (const one of messages) if (known.has(key(one))) Object.assign(known.get(key(one)), one);
  if (!fresh.length) return;
  own.tail = [...fresh, ...own.tail].slice(0, KEPT);
  const kept = new Set(own.tail.map(key));
  for (const one of own.payloads.keys()) if (!kept.has(one)) own.payloads.delete(one);
  read(ctx, fresh);
};

export const tail = (ctx, { messages }) => {
  take(ctx, messages);
  const { tail: rows, held, payloads } = ctx.state;
  return table(ctx, {
    label: "Live tail", rows, key, whole: true, href: (one) => link(["messages", one.partitionId, one.transactionId]),
    tools: [
      button(held ? "Continue" : "Hold", { icon: held ? "play" : "pause", onclick: () => ctx.set({ held: !held }) }),
      h("span.note", held ? "Held. New messages appear when it continues." : `New messages appear on top; the last ${KEPT} are kept.`),
    ],
    empty: empty("There are no messages yet.", "The next push appears here."),
    columns: [
      { title: "Came", cell: (one) => h("span.mono", clock(millis(one.createdAt))) },
      { title: "Partition", cell: (one) => one.partition },
      { title: "State", cell: (one) => state(statusOf(one.status)) },
      { title: "Payload", grow: true, cell: (one) => (payloads.has(key(one)) ? glimpse(payloads.get(key(one)), 120) : h("span.mono.muted", one.transactionId)) },
    ],
  });
};
