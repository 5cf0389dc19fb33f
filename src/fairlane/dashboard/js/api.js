// Calls of the broker's API. A status other than 2xx is thrown as a Problem with the broker's message.

export class Problem extends Error {
  constructor(status, code, message) {
    super(message);
    Object.assign(this, { status, code });
  }
}

/** Called when the broker requires a credential, or no longer accepts the one of this browser. */
export const asked = { onlogin: () => {}, quiet: false };

const AWAY = "The broker does not answer. Is it running, and is it reachable?";

const call = async (method, path, body) => {
  let answer;
  try {
    answer = await fetch(path, {
      method,
      headers: body === undefined ? {} : { "content-type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.timeout(30_000),
    });
  } catch {
    throw new Problem(0, "away", AWAY);
  }
  const text = await answer.text();
  if (!answer.ok) throw problem(answer.status, text);
  return text;
};

export const problem = (status, text) => {
  let said = {};
  try {
    said = typeof text === "string" ? JSON.parse(text) : text;
  } catch {
    // Not JSON: a proxy answered instead of the broker.
  }
  if (status === 401 && !asked.quiet) asked.onlogin();
  return new Problem(status, said?.code ?? "", said?.error ?? said?.message ?? `The broker answered with ${status}.`);
};

const parsed = (text) => (text ? JSON.parse(text) : null);

export const get = async (path) => parsed(await call("GET", path));
export const getText = (path) => call("GET", path);
export const post = async (path, body = {}) => parsed(await call("POST", path, body));
export const patch = async (path, body) => parsed(await call("PATCH", path, body));
export const del = async (path) => parsed(await call("DELETE", path));

/** A request with any method, for actions that the broker names. */
export const send = async (method, path, body) => parsed(await call(method, path, method === "GET" ? undefined : body));
