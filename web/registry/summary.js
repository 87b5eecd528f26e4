// The numbers above the list of hosts.

import { h } from "../common/dom.js";
import { Plot } from "../common/plot.js";
import { count, duration } from "../common/times.js";

const LATER = "the first value comes a minute after the start";

// As high as two rows of numbers.
const HEIGHT = 110;
// The registry remembers no more.
const MOST_REJECTED = 100;

/** Return the numbers of a status, each a link to what it counts. */
export function tiles({ nodes, rejected, expected: { roll_call: call }, stale_after_seconds: limit }) {
  return [
    tile("fresh", nodes.fresh, "fresh", "#/hosts?stale=false", `Heard in the last ${duration(limit)}`),
    tile("stale", nodes.stale, "stale", "#/hosts?stale=true", `Not seen for more than ${duration(limit)}`),
    nodes.held > 0 && tile("held", nodes.held, "held", "#/hosts?stale=true", "Stale hosts that are due to be forgotten, and stay since so many fell silent together"),
    call !== null && tile("absent", call.absent, "absent", "#/hosts?roll_call=true", "Expected hosts that were silent for long, never reported, or were deleted"),
    tile("down", nodes.apps_down, "with apps down", "#/hosts?apps_down=true", "Hosts with apps that do not run or are unhealthy"),
    tile("rejected", rejected.length, "rejected", "#/registry", "Hosts whose heartbeats were rejected", rejected.length >= MOST_REJECTED),
  ];
}

/** The charts of the last hours. */
export class HistoryCharts {
  #heartbeats = new Plot({ title: "Heartbeats", series: [{ colour: "accent", unit: "a second", digits: 1 }], height: HEIGHT, group: "history" });
  #hosts = new Plot({ title: "Hosts", series: [{ colour: "good", unit: "fresh", digits: 0 }, { colour: "bad", unit: "stale", digits: 0 }], height: HEIGHT, group: "history" });
  elements = [this.#heartbeats.element, this.#hosts.element];

  update({ step_seconds: step, until, heartbeats, fresh, stale }) {
    const rate = heartbeats.at(-1) ?? 0;
    this.#heartbeats.update({ until, step, values: [heartbeats], summary: heartbeats.length ? `${rate < 10 ? rate.toFixed(1) : count(Math.round(rate))} a second` : LATER });
    this.#hosts.update({ until, step, values: [fresh, stale], summary: fresh.length ? `${count(fresh.at(-1))} fresh, ${count(stale.at(-1))} stale` : LATER });
  }

  close() {
    this.#heartbeats.close();
    this.#hosts.close();
  }
}

function tile(kind, number, text, href, title, isMore = false) {
  return h("a", { class: `tile ${kind}${number ? "" : " none"}`, href, title, "data-key": `tile ${kind}` }, h("strong", {}, count(number), isMore && "+"), h("span", {}, `${number === 1 ? "host" : "hosts"} ${text}`));
}
