// The apps of all hosts with their states, as each host reported them last.

import { clipped, h, show, webAddress } from "../common/dom.js";
import { Sorting } from "../common/sorting.js";
import { count } from "../common/times.js";
import { appLink, hostLink, nextPage, plainHeader } from "./parts.js";

const HOSTS = 50; // on a page
const ROWS = 500; // a host may report thousands of labels
const COLUMNS = ["State", "App", "Host"];
const LOOKS = { failed: "stale", down: "stale", crashing: "stale", unhealthy: "stale", stopped: "stopped", running: "fresh" };
// The worst first; a host with too many apps reports no states.
const ORDER = [...Object.keys(LOOKS), null];
const STATES = { All: ORDER, Running: ["running"], "Not well": ORDER.slice(0, 4), Stopped: ["stopped"] };
const sorting = new Sorting({
  State: ({ state }) => ORDER.indexOf(state),
  App: ({ name }) => name,
  Host: ({ node }) => node.hostname,
}, "App");

export class AppsView {
  title = "Apps";
  #query;
  #refresh;
  #search = h("input", { id: "app-search", type: "search", placeholder: "part of an app's or a host's name", autocomplete: "off", spellcheck: "false", maxlength: 300, "aria-keyshortcuts": "/", oninput: () => this.#set("search", this.#search.value.trim()) });
  #states = h("div", { class: "states", role: "group", "aria-label": "State" });
  #found = h("p", { class: "found", role: "status" });
  #head = h("thead");
  #rows = h("tbody");
  #pages = h("nav", { class: "pages", "aria-label": "Pages" });

  constructor(_rest, query, refresh) {
    this.#refresh = refresh;
    this.element = h("div", { class: "list" },
      h("h1", { class: "hidden" }, "Apps"),
      h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
        h("div", { class: "field field-search" }, h("label", { for: "app-search" }, "Search"), this.#search),
        this.#states),
      this.#found,
      h("table", { class: "hosts" }, h("caption", { class: "hidden" }, "Apps"), this.#head, this.#rows),
      this.#pages);
    this.changed(query);
  }

  accepts(name) {
    return name === "apps";
  }

  changed(query) {
    this.#query = query;
    if (this.#search !== document.activeElement) this.#search.value = query.get("search") ?? "";
    show(this.#states, Object.keys(STATES).map((text) => h("button", { type: "button", "aria-pressed": String(text === this.#state()), "data-key": `state-${text}`, onclick: () => this.#set("state", text === "All" ? "" : text) }, text)));
  }

  async refresh(get) {
    const wanted = new URLSearchParams({ prefix: "app:", limit: HOSTS });
    for (const name of ["search", "after"]) if (this.#query.get(name)) wanted.set(name, this.#query.get(name));
    if (this.#state() === "Not well") wanted.set("apps_down", "true");
    const page = await get(`/nodes?${wanted}`);
    wanted.set("stale", "true");
    const stale = page.body.length ? (await get(`/nodes?${wanted}`)).body : [];
    this.#show(page, new Set(stale.map(({ hostname }) => hostname)));
  }

  #show(page, stale) {
    const text = (this.#query.get("search") ?? "").toLowerCase();
    const chosen = STATES[this.#state()];
    const apps = page.body.flatMap((node) => appsOf(node, stale.has(node.hostname)));
    const found = apps.filter(({ name, state, node }) => chosen.includes(state) && (name.toLowerCase().includes(text) || node.hostname.includes(text)));
    const next = nextPage(page);
    const isWhole = !next && !this.#query.get("after");
    const hosts = new Set(found.map(({ node }) => node.hostname)).size;
    const where = isWhole ? "" : " on this page";
    this.#found.textContent = found.length
      ? `${count(found.length)} ${found.length === 1 ? "app" : "apps"} of ${count(hosts)} ${hosts === 1 ? "host" : "hosts"}${where}${found.length > ROWS ? `, the first ${ROWS} are shown: search for the others` : ""}`
      : text || chosen !== STATES.All ? `No app matches${where}.` : `No host reports an app${where}.`;
    // The registry sorts by hostname, so the rows of one page of several cannot be sorted otherwise.
    show(this.#head, isWhole ? sorting.header(COLUMNS, () => this.#show(page, stale)) : plainHeader(COLUMNS));
    show(this.#rows, (isWhole ? sorting.sorted(found) : found).slice(0, ROWS).map(row));
    show(this.#pages,
      this.#query.get("after") && h("a", { href: this.#address("after", ""), "data-key": "first" }, "First page"),
      next && h("a", { href: this.#address("after", decodeURIComponent(next[1])), "data-key": "next" }, "Next page"));
  }

  #state() {
    return Object.hasOwn(STATES, this.#query.get("state") ?? "") ? this.#query.get("state") : "All";
  }

  #set(name, value) {
    history.replaceState(null, "", this.#address(name, value));
    this.changed(new URLSearchParams(location.hash.split("?")[1] ?? ""));
    this.#refresh();
  }

  #address(name, value) {
    const query = new URLSearchParams(this.#query);
    for (const other of ["after", name]) query.delete(other);
    if (value) query.set(name, value);
    return `#/apps${query.size ? `?${query}` : ""}`;
  }
}

// The labels name all apps; the states may be left out.
function appsOf(node, isStale) {
  const states = new Map((node.kv["apps.states"] ?? "").split(",").map((entry) => entry.split("=")));
  return node.labels.filter((label) => label.startsWith("app:")).map((label) => {
    const name = label.slice(4);
    const state = states.get(name);
    return { name, node, isStale, state: Object.hasOwn(LOOKS, state ?? "") ? state : null };
  });
}

function row({ name, state, node, isStale }) {
  return h("tr", { class: isStale ? "is-stale" : null },
    h("td", { "data-title": "State" },
      state === null ? "–" : h("span", { class: `state ${LOOKS[state]}` }, state),
      isStale && h("span", { class: "more" }, " last known")),
    h("th", { scope: "row" }, appLink(webAddress(node.kv["agent.url"] ?? ""), node.hostname, name)),
    h("td", { "data-title": "Host" }, hostLink(node.hostname, `host ${node.hostname} ${name}`)));
}
