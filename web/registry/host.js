// The sheet of a host: what it says, what scrapers get of it, and what was left out.

import { command } from "../common/command.js";
import { clipped, h, show, webAddress } from "../common/dom.js";
import { dateAndTime, duration } from "../common/times.js";
import { AnswerError } from "../common/http.js";
import { DOWN, appLink, appsDown, bounded, card, isOwn, origin, runningApps, state, table } from "./parts.js";

const LONG = 200;
const ROWS = 200;

export class HostView {
  #hostname;
  #last = "";
  #content = h("div", { class: "sheet" });
  #state = h("p", { class: "sheet-state" });

  constructor(hostname) {
    this.#hostname = hostname;
    this.title = clipped(hostname, 100);
    this.element = h("div", {}, h("p", { class: "crumbs" }, h("a", { href: "#/hosts" }, "Hosts")), h("h1", { class: "hostname" }, hostname), this.#state, this.#content);
  }

  accepts(name, rest) {
    return name === "host" && rest === this.#hostname;
  }

  changed() {}

  async refresh(get) {
    const path = `/nodes/${encodeURIComponent(this.#hostname)}`;
    try {
      const [nodes, explained, status] = await Promise.all([get(path), get(`${path}/explain`), get("/status")]);
      const rejection = status.body.rejected.find(({ hostname }) => hostname === this.#hostname);
      this.#show(nodes.body[0], explained.body, rejection, status.body.stale_after_seconds);
    } catch (error) {
      if (!(error instanceof AnswerError) || ![400, 404].includes(error.status)) throw error;
      this.#last = "";
      show(this.#state, h("span", {}, error.message));
      show(this.#content);
    }
  }

  #show(node, { stale, age_seconds: seconds, services }, rejection, limit) {
    const agent = webAddress(node.kv["agent.url"]);
    show(this.#state, state(stale), h("span", {}, `last seen ${duration(seconds)} ago`), agent && agentLink(agent, node.hostname));
    const last = JSON.stringify([node.labels, node.kv, services, rejection, stale && node.last_update]);
    if (last === this.#last) return;
    this.#last = last;
    show(this.#content,
      rejection && h("p", { class: "notice bad" }, `Rejected from ${rejection.address} with status ${rejection.status}: ${rejection.message}`),
      stale && staleCard(node, limit, rejection),
      appsCard(node, agent, stale),
      card("Targets", services.length ? services.map(serviceTargets) : h("p", { class: "hint" }, "No label of this host names a service for Prometheus.")),
      card("Labels", labels(node.labels)),
      card("Keys and values", pairs(Object.entries(node.kv))));
  }
}

function staleCard({ hostname, kv, last_update: at }, limit, rejection) {
  const hasAgent = kv["agent.url"] !== undefined;
  return h("section", { class: "notice bad" },
    h("h2", {}, `Not seen since ${dateAndTime(at)}`),
    h("p", {}, `A host is stale after ${duration(limit)} without a heartbeat. `,
      rejection ? "The rejection above may be the cause." : `The host may be off, ${hasAgent ? "its agent" : "what posts its heartbeats"} stopped, or the network between them and the registry broken.`),
    h("p", {}, "What the registry knows of it:"),
    command("rollcall node", hostname),
    hasAgent && h("p", {}, "On the host, whether its agent runs:"),
    hasAgent && command("systemctl status rollcall-agent"));
}

// A host chooses this address itself, so whoever is about to type a key there must see it.
function agentLink(address, hostname) {
  return h("span", {},
    h("a", { href: address, rel: "noopener noreferrer", target: "_blank", "data-key": "agent" }, `Open its agent at ${origin(address)}`),
    !isOwn(address, hostname) && h("span", { class: "badge bad" }, `this address is not ${hostname}: open it only if you know it`));
}

function appsCard({ hostname, labels: all, kv }, agent, isStale) {
  const names = all.filter((label) => label.startsWith("app:")).map((label) => label.slice(4));
  if (!names.length && kv["apps.total"] === undefined) return null;
  return card("Apps",
    kv["docker.state"] === "unreachable" && h("p", { class: "notice bad" }, "The agent does not reach its Docker Engine."),
    h("p", { class: "hint" }, runningApps(kv, kv["apps.total"] ?? String(names.length)), isStale && ", as it said last", agent ? ". Its agent shows them." : "."),
    appsDown(kv) > 0 && h("p", { class: "hint" }, `${DOWN}.`),
    bounded(names, ROWS, (name) => appLink(agent, hostname, name)));
}

function serviceTargets({ service, targets, left_out: leftOut }) {
  return h("div", { class: "service" },
    h("h3", {}, h("a", { href: `#/services?search=${encodeURIComponent(service)}` }, service)),
    targets.length > 0 && table(`Targets of ${service}`, ["Target", "Labels"], targets.slice(0, ROWS).map(({ target, labels: own }) => [h("code", {}, target), Object.entries(own).map(([name, value]) => chip(`${name}=${value}`))])),
    targets.length > ROWS && h("p", { class: "hint" }, `and ${targets.length - ROWS} more`),
    leftOut.length > 0 && table(`What ${service} does not get as it is`, ["Left out or changed", "Why"], leftOut.slice(0, ROWS).map((one) => [h("code", {}, clipped(one.target ?? one.label ?? "", LONG)), one.why])),
    leftOut.length > ROWS && h("p", { class: "hint" }, `and ${leftOut.length - ROWS} more`));
}

function labels(all) {
  if (!all.length) return h("p", { class: "hint" }, "none");
  return bounded(all, ROWS, (label) => h("a", { class: "chip", href: `#/hosts?${new URLSearchParams({ label })}`, title: "All hosts with this label", "data-key": `label ${label}` }, clipped(label, LONG)));
}

function pairs(all) {
  if (!all.length) return h("p", { class: "hint" }, "none");
  return [
    table("Keys and values", ["Key", "Value"], all.slice(0, ROWS).map(([name, value]) => [h("span", { class: "kv-key" }, name), valueOf(name, value)])),
    all.length > ROWS && h("p", { class: "hint" }, `and ${all.length - ROWS} more`),
  ];
}

function valueOf(name, value) {
  if (value.length <= LONG) return h("span", { class: "value" }, value);
  return h("details", { "data-key": `value ${name}` }, h("summary", { "data-key": `summary ${name}` }, clipped(value, LONG)), h("p", { class: "value" }, value));
}

function chip(text) {
  return h("span", { class: "chip" }, clipped(text, LONG));
}
