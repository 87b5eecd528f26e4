// What happened to an app: its events, and the revisions that they made.

import { h } from "../common/dom.js";
import { count, moment } from "../common/times.js";
import { imageName } from "./state.js";

const ROWS = 100;
const FEW = 10;
// A crash is up to so many events: the end of a container, and how it is started again.
const STEPS_OF_A_CRASH = 3;

/** Return the newest events, in which repeated crashes are one line; `isLong` shows more of them. */
export function timeline(events, isLong, toggle) {
  const all = folded(events);
  const shown = all.slice(isLong ? -ROWS : -FEW).reverse();
  if (!shown.length) return h("p", { class: "hint" }, "Nothing has happened yet. Changes of the app and ends of its container appear here.");
  return [
    h("ol", { class: "timeline", "aria-label": "Events" }, shown.map(eventLine)),
    all.length > FEW && h("p", { class: "hint" }, `The last ${shown.length} of ${count(all.length)}. `,
      h("button", { type: "button", "data-key": "events", "aria-expanded": String(isLong), onclick: toggle }, isLong ? "Show fewer" : `Show ${Math.min(all.length, ROWS)}`)),
  ];
}

/** Return the revisions of an app, the newest first. */
export function revisions(all) {
  if (!all.length) return h("p", { class: "hint" }, "The app has no revision yet.");
  return h("ol", { class: "revisions", "aria-label": "History" }, all.slice(0, ROWS).map((one) => h("li", {},
    when(one.created_at),
    h("strong", {}, `${one.revision} `),
    [one.operation, one.changed.join(", ")].filter(Boolean).join(": "),
    one.by && h("span", { class: "more" }, ` by ${one.by}`),
    imageName(one.image))));
}

// Each line with its steps, the oldest first, how often they came one after the other, and since when.
function folded(events) {
  const keys = events.map((event) => JSON.stringify([event.action, event.actor, event.by, event.outcome, event.message, event.exit_code]));
  const lines = [];
  for (let at = 0; at < events.length;) {
    const { length, times } = repetition(events, keys, at);
    const end = at + length * times;
    lines.push({ steps: events.slice(end - length, end), times, since: events[at].time });
    at = end;
  }
  return lines;
}

// The steps from here on that repeat for the most events, if they are those of a crash.
function repetition(events, keys, at) {
  let best = { length: 1, times: 1 };
  for (let length = 1; length <= STEPS_OF_A_CRASH; length += 1) {
    if (!events.slice(at, at + length).some(({ action }) => action === "die")) continue;
    let times = 1;
    while (isSame(keys, at, at + length * times, length)) times += 1;
    if (times > 1 && length * times > best.length * best.times) best = { length, times };
  }
  return best;
}

function isSame(keys, one, other, length) {
  return other + length <= keys.length && keys.slice(one, one + length).join() === keys.slice(other, other + length).join();
}

function eventLine({ steps, times, since }) {
  const last = steps.at(-1);
  const outcomes = [...new Set(steps.map(outcome))].filter(Boolean);
  return h("li", { class: steps.some(isBad) ? "bad" : null },
    when(last.time),
    h("strong", {}, steps.map(({ action }) => action).join(", ")),
    times > 1 && h("span", { class: "badge bad" }, `${count(times)} times`),
    h("span", { class: "outcome" }, ` ${[...outcomes, times > 1 && `since ${moment(since)}`].filter(Boolean).join(", ")}`),
    h("span", { class: "more" }, ` by ${[...new Set(steps.map(({ by }) => by))].join(", ")}`));
}

function isBad({ action, outcome: word, message, exit_code: code }) {
  return word === "failed" || message === "unhealthy" || action === "oom" || (action === "die" && code !== 0);
}

function outcome({ outcome: word, message, exit_code: code }) {
  return [[word, message].filter(Boolean).join(": "), code !== null && `exit code ${code}`].filter(Boolean).join(", ");
}

function when(text) {
  return h("time", { datetime: text }, moment(text));
}
