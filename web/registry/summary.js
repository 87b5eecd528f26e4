// The numbers above the list of hosts.

import { chart } from "../common/charts.js";
import { h } from "../common/dom.js";
import { count, duration } from "../common/times.js";

const LATER = "the first value comes a minute after the start";

// The registry remembers no more.
const MOST_REFUSED = 100;

/** Return the tiles and charts of a status. */
export function summary({ nodes, refused, history, stale_after_seconds: limit }) {
  return [
    h("div", { class: "tiles" },
      tile("fresh", nodes.fresh, "fresh", "#/hosts?stale=false", `Heard in the last ${duration(limit)}`),
      tile("stale", nodes.stale, "stale", "#/hosts?stale=true", `Not heard for more than ${duration(limit)}`),
      nodes.held > 0 && tile("held", nodes.held, "held", "#/hosts?stale=true", "Stale hosts that are due to be forgotten, and stay since so many fell silent together"),
      tile("down", nodes.apps_down, "with apps down", "#/hosts?apps_down=true", "Hosts with apps that do not run or are unhealthy"),
      tile("refused", refused.length, "refused", "#/registry", "Hosts whose heartbeats were refused", refused.length >= MOST_REFUSED)),
    ...charts(history),
  ];
}

/** Return the charts of the last hours. */
export function charts({ step_seconds: step, heartbeats, fresh, stale }) {
  const rate = heartbeats.at(-1) ?? 0;
  return [
    chart({ title: "Heartbeats", summary: heartbeats.length ? `${rate < 10 ? rate.toFixed(1) : count(Math.round(rate))} a second` : LATER, step, series: [{ values: heartbeats, kind: "heartbeats" }] }),
    chart({ title: "Hosts", summary: fresh.length ? `${count(fresh.at(-1))} fresh, ${count(stale.at(-1))} stale` : LATER, step, series: [{ values: fresh, kind: "fresh" }, { values: stale, kind: "stale" }] }),
  ];
}

function tile(kind, number, text, href, title, isMore = false) {
  return h("a", { class: `tile ${kind}${number ? "" : " none"}`, href, title, "data-key": `tile ${kind}` }, h("strong", {}, count(number), isMore && "+"), h("span", {}, `${number === 1 ? "host" : "hosts"} ${text}`));
}
