// Requests with the key.

import { key } from "./session.js";

/** An answer that is an error, with the daemon's message. */
export class AnswerError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** No answer: the daemon or the network is away. */
export class AwayError extends Error {}

/** GET a path; return the decoded body and the headers. */
export function get(path, { signal } = {}) {
  return send("GET", path, { signal });
}

/** Send a request; return the decoded body and the headers. */
export async function send(method, path, { signal } = {}) {
  let response;
  let text;
  try {
    response = await fetch(path, { method, headers: headers(), cache: "no-store", redirect: "error", signal });
    text = await response.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new AwayError(error.message);
  }
  const body = decoded(text);
  if (!response.ok) throw new AnswerError(response.status, body?.message ?? `HTTP status ${response.status}`);
  if (body === undefined) throw new AwayError("the answer is no JSON");
  return { body, headers: response.headers, text };
}

/** GET a stream of text; `receive` is called with each part of it until the stream ends. */
export async function follow(path, { signal, begin, receive }) {
  const response = await fetch(path, { headers: headers(), cache: "no-store", redirect: "error", signal });
  if (!response.ok) throw new AnswerError(response.status, decoded(await response.text())?.message ?? `HTTP status ${response.status}`);
  begin();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) receive(part.value);
}

function headers() {
  // A header holds no characters beyond Latin-1; such a text is no key.
  const text = key() ?? "";
  return { Authorization: `Bearer ${/^[\x21-\x7e]*$/.test(text) ? text : "invalid"}` };
}

function decoded(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
