// The numbers above the list of hosts.

import { chart } from "../common/charts.js";
import { h } from "../common/dom.js";
import { count } from "../common/times.js";

const LATER = "the first value comes a minute after the start";

/** Return the tiles and charts of a status; `down` is how many hosts tell of apps that are down, null if not known yet. */
export function summary({ nodes, refused, history }, down) {
  return [
    h("div", { class: "tiles" },
      tile("fresh", nodes.fresh, "fresh", "#/hosts?stale=false"),
      tile("stale", nodes.stale, "stale", "#/hosts?stale=true"),
      tile("down", down?.number ?? 0, "apps down", "#/hosts?apps_down=true", down ? `${count(down.number)}${down.isMore ? "+" : ""}` : "?"),
      tile("refused", refused.length, "refused", "#/registry")),
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

function tile(kind, number, text, href, shown = count(number)) {
  return h("a", { class: `tile ${kind}${number ? "" : " none"}`, href, "data-key": `tile ${kind}` }, h("strong", {}, shown), h("span", {}, text));
}
