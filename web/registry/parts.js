// What several views show.

import { clipped, h } from "../common/dom.js";
import { duration } from "../common/times.js";

/** What a registry knows of apps that do not run. */
export const DOWN = "Stopped by somebody, or ended by itself: the agent's page shows which";

/** Return a dot and a word, so that the colour is not alone. */
export function state(isStale) {
  return h("span", { class: `state ${isStale ? "stale" : "fresh"}` }, isStale ? "stale" : "fresh");
}

/** Return a link to the sheet of a host; `key` names it among the links of a view. */
export function hostLink(hostname, key = `host ${hostname}`) {
  return h("a", { href: `#/host/${encodeURIComponent(hostname)}`, "data-key": key }, hostname);
}

/** Return whether the address of an agent is at the host's own name. */
export function isOwn(address, hostname) {
  return new URL(address).hostname === hostname.toLowerCase();
}

/** Return an address with its port. */
export function origin(address) {
  const url = new URL(address);
  return `${url.protocol}//${url.hostname}:${url.port || { "http:": "80", "https:": "443" }[url.protocol]}`;
}

/** Return an app, with a link to its sheet at an agent at the host's own name.
 *
 * A chip has no room to show another address, where a rogue host could collect keys. */
export function appLink(agent, hostname, name) {
  const text = clipped(name, 200);
  if (!agent || !isOwn(agent, hostname)) return h("span", { class: "chip" }, text);
  const url = new URL(agent);
  url.hash = `#/app/${encodeURIComponent(name)}`;
  return h("a", { class: "chip", href: url.href, rel: "noopener noreferrer", target: "_blank", title: `Open it at ${origin(agent)}`, "data-key": `app ${hostname} ${name}` }, text);
}

/** Return the match of the last hostname of a page that has a next one, else null. */
export function nextPage(page) {
  return /[?&]after=([^>&]+)/.exec(page.headers.get("Link") ?? "");
}

/** Return how long ago something was. */
export function age(seconds) {
  return seconds < 2 ? "just now" : `${duration(seconds)} ago`;
}

/** Return how many apps of a host run, and how many were stopped, are down or are unhealthy. */
export function runningApps(kv, total) {
  const down = appsDown(kv);
  const stopped = appsStopped(kv);
  const unhealthy = Number(kv["apps.unhealthy"] ?? 0);
  return [
    `${clipped(kv["apps.running"] ?? "?", 8)} of ${clipped(total, 8)} run`,
    stopped > 0 && `, ${stopped} stopped`,
    down > 0 && h("span", { class: "badge", title: DOWN }, `${down} down`),
    unhealthy > 0 && h("span", { class: "badge bad" }, `${clipped(kv["apps.unhealthy"], 8)} unhealthy`),
  ];
}

/** Return how many apps of a host are down or unhealthy. */
export function appsWrong(kv) {
  return appsDown(kv) + (Number(kv["apps.unhealthy"]) || 0);
}

/** Return how many apps of a host do not run though nobody stopped them, as far as its keys and values tell. */
export function appsDown(kv) {
  const down = Number(kv["apps.total"]) - Number(kv["apps.running"]) - appsStopped(kv);
  return Number.isSafeInteger(down) ? Math.max(0, down) : 0;
}

/** Return how many apps of a host were stopped on purpose; an older agent does not tell. */
function appsStopped(kv) {
  const stopped = Number(kv["apps.stopped"] ?? 0);
  return Number.isSafeInteger(stopped) ? Math.max(0, stopped) : 0;
}

/** Return a table; `rows` are arrays of cells, the first of which names its row.
 *
 * `header` returns the row of the columns' names. */
export function table(caption, columns, rows, header = plainHeader) {
  return h(
    "table",
    {},
    h("caption", { class: "hidden" }, caption),
    h("thead", {}, header(columns)),
    h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell, index) => (index === 0 ? h("th", { scope: "row" }, cell) : h("td", { "data-title": columns[index] }, cell)))))),
  );
}

/** Return the row of the columns' names. */
export function plainHeader(columns) {
  return h("tr", {}, columns.map((text) => h("th", { scope: "col" }, text)));
}

/** Return a card with a heading. */
export function card(title, ...children) {
  return h("section", { class: "card" }, h("h2", {}, title), ...children);
}

/** Return the children up to a bound, and how many are left out. */
export function bounded(all, bound, show) {
  const rest = all.length - bound;
  return [all.slice(0, bound).map(show), rest > 0 && h("p", { class: "hint" }, `and ${rest} more`)];
}
