// The services, their targets, and who scrapes them.

import { clipped, h, show } from "../common/dom.js";
import { Sorting } from "../common/sorting.js";
import { count } from "../common/times.js";
import { age, table } from "./parts.js";

const ROWS = 200;
const sorting = new Sorting({
  Service: ({ service }) => service,
  Hosts: ({ nodes }) => nodes,
  Targets: ({ targets }) => targets,
  "Scraped by": ({ scrapers }) => scrapers.length,
}, "Service");

export class ServicesView {
  title = "Services";
  #services = null;
  #now = 0;
  #table = h("div");
  #search;
  #last = "";

  constructor(_rest, query) {
    this.#search = h("input", { id: "service-search", type: "search", "aria-keyshortcuts": "/", autocomplete: "off", spellcheck: "false", oninput: () => this.#show() });
    this.element = h("div", {}, h("h1", {}, "Services"),
      h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() }, h("div", { class: "field" }, h("label", { for: "service-search" }, "Search"), this.#search)),
      this.#table);
    this.changed(query);
  }

  accepts(name) {
    return name === "services";
  }

  changed(query) {
    this.#search.value = query.get("search") ?? "";
    if (this.#services !== null) this.#show();
  }

  async refresh(get) {
    const [services, status] = await Promise.all([get("/services"), get("/status")]);
    this.#now = status.body.now;
    const last = services.text;
    if (last !== this.#last) {
      this.#last = last;
      this.#services = services.body;
      this.#show();
    }
    for (const element of this.#table.querySelectorAll("[data-at]")) element.textContent = age(this.#now - Number(element.dataset.at));
  }

  #show() {
    if (this.#services === null) return;
    const text = this.#search.value.trim().toLowerCase();
    const found = sorting.sorted(this.#services.filter(({ service }) => service.toLowerCase().includes(text)));
    show(this.#table,
      found.length
        ? table("Services", ["Service", "Hosts", "Targets", "Scraped by"], found.slice(0, ROWS).map((service) => this.#row(service)), (columns) => sorting.header(columns, () => this.#show()))
        : h("p", { class: "hint" }, this.#services.length ? "No service matches." : "No host has a label that names a service."),
      found.length > ROWS && h("p", { class: "hint" }, `and ${count(found.length - ROWS)} more: search for them`));
  }

  #row({ service, nodes, targets, scrapers }) {
    const hosts = nodes ? h("a", { href: `#/hosts?${new URLSearchParams({ search: `prometheus:${service}` })}`, "data-key": `hosts ${service}` }, count(nodes)) : h("span", { class: "badge bad" }, "no host");
    return [clipped(service, 120), hosts, count(targets),
      scrapers.length
        ? scrapers.slice(0, 10).map(({ by, address, at }) => h("div", { class: "scraper" }, h("strong", {}, by), ` from ${address}, `, h("span", { "data-at": at }, age(this.#now - at))))
        : h("span", { class: "hint" }, "nobody since the start")];
  }
}
