// Requests with the key.

import { key } from "./session.js";

// A browser may read a file only after it has asked where to put it.
const KEEP_FILE_MS = 60000;

/** An answer that is an error, with the daemon's message. */
export class AnswerError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** No answer: the daemon or the network is away. */
export class AwayError extends Error {
  constructor(message = `${location.host} does not answer: it, or the network to it, is down.`) {
    super(message);
  }
}

/** GET a path; return the decoded body and the headers. */
export function get(path, { signal } = {}) {
  return send("GET", path, { signal });
}

/** Send a request; return the decoded body and the headers. */
export async function send(method, path, { body: sent, signal } = {}) {
  let response;
  let text;
  try {
    response = await fetch(relative(path), { method, headers: headers(), body: sent && JSON.stringify(sent), cache: "no-store", redirect: "error", signal });
    text = await response.text();
  } catch (error) {
    throw error.name === "AbortError" ? error : new AwayError();
  }
  const body = decoded(text);
  if (!response.ok) throw answerError(response, body);
  if (body === undefined) throw new AwayError(`The answer of ${location.host} is not JSON: a proxy may have sent it.`);
  return { body, headers: response.headers, text };
}

/** GET a stream of text; `receive` is called with each part of it until the stream ends. */
export async function follow(path, { signal, begin, receive }) {
  try {
    const response = await fetch(relative(path), { headers: headers(), cache: "no-store", redirect: "error", signal });
    if (!response.ok) throw answerError(response, decoded(await response.text()));
    begin();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) receive(part.value);
  } catch (error) {
    throw error.name === "AbortError" || error instanceof AnswerError ? error : new AwayError();
  }
}

/** GET a path into a file that the browser keeps. */
export async function download(path, name) {
  let content;
  try {
    const response = await fetch(relative(path), { headers: headers(), cache: "no-store", redirect: "error" });
    if (!response.ok) throw answerError(response, decoded(await response.text()));
    content = await response.blob();
  } catch (error) {
    throw error instanceof AnswerError ? error : new AwayError();
  }
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), KEEP_FILE_MS);
}

function answerError({ status }, body) {
  return new AnswerError(status, body?.message ?? `HTTP status ${status} without a message: a proxy may have sent it.`);
}

// The page may be at a path of a proxy: what it asks for is beside it.
function relative(path) {
  return `.${path}`;
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
