// The state of an app in words.

import { h } from "../common/dom.js";

// With which the agent begins a message that reports no fault.
const NOTE = "note: ";

/** Return the state of an app as a badge, with the progress of a change or a good health beside it. */
export function appState(app) {
  return h("span", { class: "states-of-app" },
    h("span", { class: `state ${kind(app)}` }, word(app)),
    app.progress && h("span", { class: "more" }, step(app.progress)),
    app.healthy && !app.progress && app.state === "running" && h("span", { class: "more" }, "healthy"));
}

function word({ progress, crashing, state, healthy }) {
  if (progress || !(crashing || (state === "running" && healthy === false))) return state;
  return crashing ? "crashing" : "unhealthy";
}

function step({ operation, step: name, percent }) {
  return [name ?? operation, percent !== null && `${percent} %`].filter(Boolean).join(" ");
}

/** Return what the check of an app has found; a dash if it has none, or has found nothing yet. */
export function healthWord({ healthy }) {
  if (healthy === null) return h("span", { title: "no check, or no result yet" }, "–");
  return healthy ? "healthy" : "unhealthy";
}

/** Return the name of an image in one line, of which the end, with the tag, is cut last. */
export function imageName(image) {
  const end = image.lastIndexOf("/") + 1;
  return h("code", { class: "image", title: image }, h("span", {}, image.slice(0, end)), h("span", {}, image.slice(end)));
}

/** Return what is wrong with an app in words, as far as its record shows; null if nothing is. */
export function problem(app) {
  const isUnwell = isDown(app) || app.healthy === false;
  // An app that runs has a message if it is restarted again and again, or lacks something, or a note.
  if (app.progress || !(isUnwell || (app.state === "running" && app.message && !isNote(app.message)))) return null;
  return [
    isUnwell && (isDown(app) ? `It should run, but is ${app.state}.` : "It runs, but is unhealthy."),
    isDown(app) && app.exit_code !== null && `Its last exit code is ${app.exit_code}.`,
    app.oom_killed && "It was killed for lack of memory.",
    app.message && sentence(app.message),
  ].filter(Boolean).join(" ");
}

/** Return the note on an app that is well; null for none. */
export function note(app) {
  return problem(app) === null && app.message && isNote(app.message) ? sentence(app.message) : null;
}

/** Return the colour of an app's state: stale is a problem, fresh is well. */
export function kind(app) {
  if (problem(app) !== null) return "stale";
  if (app.progress) return "busy";
  return app.desired === "stopped" && app.state !== "running" ? "stopped" : "fresh";
}

function isNote(message) {
  return message.startsWith(NOTE);
}

function isDown(app) {
  return app.desired === "running" && app.state !== "running";
}

function sentence(text) {
  return text[0].toUpperCase() + text.slice(1);
}
