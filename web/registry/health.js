// The registry's own health: its store, the warm-up, the cluster, and whom it rejects.

import { h, show } from "../common/dom.js";
import { count, dateAndTime, duration } from "../common/times.js";
import { age, card, hostLink, table } from "./parts.js";
import { HistoryCharts } from "./summary.js";

export class RegistryView {
  title = "Registry";
  #notices = h("div", { class: "sheet" });
  #charts = new HistoryCharts();
  #facts = h("div", { class: "sheet" });

  constructor() {
    this.element = h("div", {}, h("h1", {}, "Registry"), h("div", { class: "sheet" }, this.#notices, h("div", { class: "summary" }, this.#charts.elements), this.#facts));
  }

  accepts(name) {
    return name === "registry";
  }

  changed() {}

  async refresh(get) {
    const { body } = await get("/status");
    show(this.#notices, notices(body), rejected(body));
    this.#charts.update(body.history);
    show(this.#facts, facts(body), members(body));
  }

  close() {
    this.#charts.close();
  }
}

function notices({ store, warming_seconds: warming, denied, expected }) {
  return [
    expected.problem && h("p", { class: "notice bad" }, `The list of expected hosts cannot be used: ${expected.problem}.`),
    expected.differs_from.length > 0 && h("p", { class: "notice bad" }, `Other registries that share the store expect other hosts, so no host expires: ${expected.differs_from.join(", ")}.`),
    denied.differs_from.length > 0 && h("p", { class: "notice bad" }, `Other registries that share the store deny other hosts: ${denied.differs_from.join(", ")}.`),
    store.state !== "ok" && h("p", { class: "notice bad" }, `The store is ${store.state}. ${store.message}`),
    warming > 0 && h("p", { class: "notice" }, `The registry warms up: targets are withheld for ${duration(warming)}, until the hosts have reported.`),
  ];
}

function facts({ version, started_at: started, now, store, stale_after_seconds: stale, denied }) {
  const rows = [
    ["Version", version],
    ["Running", `for ${duration(now - started)}, since ${dateAndTime(started)}`],
    ["Store", [h("span", { class: `state ${store.state === "ok" ? "fresh" : "stale"}` }, store.state), ` ${store.kind} `, h("code", {}, store.url)]],
    ["Stale after", `${duration(stale)} without a heartbeat`],
    denied.patterns > 0 && ["Denied", `${count(denied.patterns)} ${denied.patterns === 1 ? "name or pattern" : "names and patterns"}; ${denied.rejected ? count(denied.rejected) : "none"} of these hosts reported in the last hour`],
  ].filter(Boolean);
  return card("Health", h("dl", {}, rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])));
}

function members({ members: all }) {
  if (!all.length) return null;
  return card("Registries that share the store", table("Members", ["Registry", "Last seen"], all.map(({ name, own, seen_seconds: seen }) => [`${name}${own ? " (this one)" : ""}`, age(seen)])));
}

function rejected({ rejected: all, now }) {
  if (!all.length) return card("Rejected", h("p", { class: "hint" }, "No heartbeat was rejected."));
  return card("Rejected", table("Rejected", ["Host", "When", "From", "Why"], all.map(({ hostname, at, status, message, address }) => [hostLink(hostname), age(now - at), h("code", {}, address ?? ""), `${status}: ${message}`])));
}
