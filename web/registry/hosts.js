// The list of hosts: search, filters and pages, all of which the registry does.

import { clipped, h, show, visible } from "../common/dom.js";
import { Sorting } from "../common/sorting.js";
import { count } from "../common/times.js";
import { HistoryCharts, tiles } from "./summary.js";
import { age, appsWrong, hostLink, nextPage, plainHeader, runningApps, state } from "./parts.js";

const PAGE = 50;
// To count what a search finds takes longer than to list one page of it.
const COUNT_MS = 30_000;
const LABELS = 4;
const CALL_COLUMNS = ["State", "Host", "Last seen", "Rejected"];
const COLUMNS = ["State", "Host", "Last seen", "Labels", "Apps", "Agent"];
const sorting = new Sorting({
  State: ({ isStale }) => Number(!isStale),
  Host: ({ node }) => node.hostname,
  "Last seen": ({ node }) => -node.last_update,
  Apps: ({ node }) => (node.kv["apps.total"] === undefined ? null : -appsWrong(node.kv)),
  Agent: ({ node }) => node.kv["agent.version"],
}, "Host");
// Each with the parameter of its filter.
const STATES = [["All"], ["Fresh", "stale", "false"], ["Stale", "stale", "true"], ["Apps down", "apps_down", "true"], ["Roll call", "roll_call", "true"]];
const FILTERS = ["search", "label", "kv", "stale", "apps_down"];
// The lists of a roll call, of the hosts that are not as expected.
const CALLED_LOOKS = { stale: "stale", absent: "stale", away: "stopped", unexpected: "busy" };
const CALLED = Object.keys(CALLED_LOOKS);
const FIELDS = [
  ["search", "Search", "part of a hostname, label or key:value"],
  ["label", "Label", "service:web"],
  ["kv", "Key and value", "rack:r12"],
];

export class HostsView {
  title = "Hosts";
  #query;
  #refresh;
  #tiles = h("div", { class: "tiles" });
  #charts = new HistoryCharts();
  #clear = h("button", { type: "button", onclick: () => this.#clearAll() }, "Clear filters");
  #found = h("p", { class: "found", role: "status" });
  #head = h("thead");
  #rows = h("tbody");
  #pages = h("nav", { class: "pages", "aria-label": "Pages" });
  #states = h("div", { class: "states", role: "group", "aria-label": "State" });
  #inputs = new Map();
  #last = "";
  #status = null;
  #stale = new Set();
  #counted = { filters: null, at: -Infinity, total: 0 };

  constructor(_rest, query, refresh) {
    this.#query = query;
    this.#refresh = refresh;
    this.element = h(
      "div",
      { class: "list" },
      h("h1", { class: "hidden" }, "Hosts"),
      h("div", { class: "summary" }, this.#tiles, this.#charts.elements),
      h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() }, FIELDS.map((field) => this.#field(field)), this.#states, this.#clear),
      this.#found,
      h("table", { class: "hosts" },
        h("caption", { class: "hidden" }, "Hosts"),
        this.#head,
        this.#rows),
      this.#pages,
    );
    this.#showStates();
  }

  accepts(name) {
    return name === "hosts";
  }

  changed(query) {
    this.#query = query;
    for (const [name, input] of this.#inputs) {
      if (input !== document.activeElement) input.value = query.get(name) ?? "";
    }
    this.#showStates();
  }

  async refresh(get) {
    if (this.#status === null) await this.#refreshStatus(get);
    if (this.#query.get("roll_call")) {
      await this.#refreshStatus(get);
      this.#showCall(await this.#rollCall(get));
      return;
    }
    const page = await this.#page(get);
    this.#showPage(page);
    await this.#refreshStatus(get);
    this.#stale = await this.#staleNames(get, page.body);
    this.#showPage(page);
    await this.#count(get, page.headers.get("Link") && !total(this.#query, this.#status));
    this.#showPage(page);
  }

  close() {
    this.#charts.close();
  }

  // A status that cannot be shown is not kept.
  async #refreshStatus(get) {
    const { body } = await get("/status");
    show(this.#tiles, tiles(body));
    this.#charts.update(body.history);
    this.#status = body;
    this.#showStates();
  }

  // Who is missing, away or unexpected. Until that is known, the registry answers 503 and says why.
  #rollCall(get) {
    const query = new URLSearchParams({ limit: PAGE });
    if (this.#query.get("after")) query.set("after", this.#query.get("after"));
    return get(`/roll-call?${query}`);
  }

  #showCall(page) {
    const last = `${page.text}${location.hash}`;
    if (last !== this.#last) {
      this.#last = last;
      const call = page.body;
      const rows = CALLED.flatMap((name) => call[name].map((host) => (typeof host === "string" ? { name, hostname: host } : { name, ...host })));
      rows.sort((one, other) => (one.hostname < other.hostname ? -1 : 1));
      this.#found.textContent = `${count(call.present)} of ${count(call.expected)} expected hosts report`;
      show(this.#head, plainHeader(CALL_COLUMNS));
      show(this.#rows, rows.map(calledRow));
      this.#showPages(page, rows.length);
    }
    this.#showAges();
  }

  // Not while somebody types: filters that are new are counted with the next refresh.
  async #count(get, isWanted) {
    const of = filters(this.#query);
    if (this.#counted.filters !== of) {
      this.#counted = { filters: of, at: -Infinity, total: 0 };
    } else if (isWanted && performance.now() - this.#counted.at > COUNT_MS) {
      const { headers } = await get(`/nodes?limit=1&total=true&${of}`);
      this.#counted = { filters: of, at: performance.now(), total: Number(headers.get("Rollcall-Total") ?? 0) };
    }
  }

  // How many hosts there are on all pages; 0 if that is not known.
  #total() {
    return total(this.#query, this.#status) || (this.#counted.filters === filters(this.#query) ? this.#counted.total : 0);
  }

  // Which nodes are stale is asked after the list is shown, and only if one of them was not seen
  // for long: the answer may take long where few are stale. In a store that registries can share,
  // `last_update` may be of another registry, whose clock is ahead of `now`.
  async #staleNames(get, nodes) {
    const { now, nodes: counts, stale_after_seconds: limit, store } = this.#status;
    const isYoung = ({ last_update: at }) => !store.shared && at <= now && now - at < limit - 1; // whole seconds
    if (this.#query.get("stale") || counts.stale === 0 || nodes.every(isYoung)) return new Set();
    const { body } = await this.#page(get, { stale: "true" });
    return new Set(body.map((node) => node.hostname));
  }

  #page(get, more = {}) {
    const query = new URLSearchParams(`limit=${PAGE}&${filters(this.#query)}`);
    if (this.#query.get("after")) query.set("after", this.#query.get("after"));
    for (const [name, value] of Object.entries(more)) query.set(name, value);
    return get(`/nodes?${query}`);
  }

  #showPage(page) {
    const last = `${page.text}${Array.from(this.#stale).join()}${location.hash}${JSON.stringify(this.#status.nodes)}${this.#total()}`;
    if (last !== this.#last) {
      this.#last = last;
      this.#replaceRows(page);
    }
    this.#showAges();
  }

  #showAges() {
    const { now } = this.#status;
    for (const cell of this.#rows.querySelectorAll("[data-heard]")) cell.textContent = age(now - Number(cell.dataset.heard));
  }

  #replaceRows(page) {
    const nodes = page.body;
    const next = nextPage(page);
    const before = this.#before();
    this.#found.textContent = nodes.length ? foundText(nodes.length, before, next && this.#total(), this.#query) : visible(emptyText(this.#query, this.#status));
    const rows = nodes.map((node) => ({ node, isStale: this.#query.get("stale") === "true" || this.#stale.has(node.hostname) }));
    // The registry sorts by hostname, so the rows of one page of several cannot be sorted otherwise.
    const isWhole = !next && !this.#query.get("after");
    show(this.#head, isWhole ? sorting.header(COLUMNS, () => this.#replaceRows(page)) : plainHeader(COLUMNS));
    show(this.#rows, (isWhole ? sorting.sorted(rows) : rows).map(row));
    this.#showPages(page, nodes.length);
    this.#showAges();
  }

  #showPages(page, shown) {
    const next = nextPage(page);
    show(this.#pages,
      this.#query.get("after") && h("a", { href: this.#address("after", ""), "data-key": "first" }, "First page"),
      next && h("a", { href: `${this.#address("after", decodeURIComponent(next[1]))}&before=${this.#before() + shown}`, "data-key": "next" }, "Next page"));
  }

  // How many hosts are on the pages before this one.
  #before() {
    const text = this.#query.get("before") ?? "";
    return this.#query.get("after") && /^[0-9]{1,9}$/.test(text) ? Number(text) : 0;
  }

  #field([name, label, hint]) {
    const input = h("input", { id: `filter-${name}`, type: "search", placeholder: hint, autocomplete: "off", spellcheck: "false", maxlength: 300, "aria-keyshortcuts": name === "search" && "/", oninput: () => this.#set(name, input.value) });
    input.value = this.#query.get(name) ?? "";
    this.#inputs.set(name, input);
    return h("div", { class: `field field-${name}` }, h("label", { for: input.id }, label), input);
  }

  #showStates() {
    const [chosen] = chosenState(this.#query);
    this.#clear.hidden = !isFiltered(this.#query);
    // Without a list there is nothing to compare the hosts with.
    const states = STATES.filter(([text, name]) => name !== "roll_call" || text === chosen || this.#status?.expected.roll_call);
    show(this.#states, states.map(([text, name, value]) => h("button", { type: "button", "aria-pressed": String(text === chosen), "data-key": `state-${text}`, onclick: () => this.#choose(name, value) }, text)));
  }

  #choose(name, value) {
    for (const other of ["stale", "apps_down", "roll_call"]) this.#query.delete(other);
    this.#set(name ?? "stale", value ?? "");
  }

  // The button is gone afterwards, and the focus is where the next filter begins.
  #clearAll() {
    this.#inputs.get("search").focus();
    for (const input of this.#inputs.values()) input.value = "";
    this.#goTo("#/hosts");
  }

  #set(name, value) {
    this.#goTo(this.#address(name, value.trim()));
  }

  #goTo(address) {
    history.replaceState(null, "", address);
    this.changed(new URLSearchParams(location.hash.split("?")[1] ?? ""));
    this.#refresh();
  }

  #address(name, value) {
    const query = new URLSearchParams(this.#query);
    for (const other of ["after", "before", name]) query.delete(other);
    if (value) query.set(name, value);
    return `#/hosts${query.size ? `?${query}` : ""}`;
  }
}

function foundText(shown, before, total, query) {
  if (total === null && !before) return `${count(shown)} ${shown === 1 ? "host" : "hosts"}${isFiltered(query) ? " found" : ""}`;
  const last = before + shown;
  return `Hosts ${count(before + 1)} to ${count(last)} of ${total === null ? count(last) : total > last ? count(total) : `more than ${count(last)}`}`;
}

// The filters that are set, as the parameters of a request.
function filters(query) {
  const set = FILTERS.filter((name) => query.get(name));
  return new URLSearchParams(set.map((name) => [name, query.get(name)])).toString();
}

// How many hosts there are on all pages, as the status has it; 0 if it has not.
function total(query, { nodes }) {
  const set = FILTERS.filter((name) => query.get(name)).map((name) => `${name}=${query.get(name)}`);
  const counted = { "": nodes.total, "stale=true": nodes.stale, "stale=false": nodes.fresh, "apps_down=true": nodes.apps_down };
  return counted[set.join("&")] ?? 0;
}

function isFiltered(query) {
  return query.get("roll_call") || FILTERS.some((name) => query.get(name));
}

function chosenState(query) {
  return STATES.find(([, name, value]) => name && query.get(name) === value) ?? STATES[0];
}

function emptyText(query, status) {
  const texts = FIELDS.filter(([name]) => query.get(name)).map(([name, label]) => `${label} “${clipped(query.get(name), 100)}”`);
  const [state, name] = chosenState(query);
  const set = name ? [...texts, `State “${state}”`] : texts;
  if (set.length) return `No host matches ${set.length > 1 ? "all of " : ""}${set.join(", ")}.`;
  return status.nodes.total ? "No host on this page." : "No host has reported yet. Start an agent with this registry in its settings.";
}

function row({ node, isStale }) {
  const { kv, labels, hostname } = node;
  const shown = labels.filter((label) => !label.startsWith("prometheus:")).concat(labels.filter((label) => label.startsWith("prometheus:")));
  return h(
    "tr",
    { class: isStale ? "is-stale" : null },
    h("td", { "data-title": "State" }, state(isStale)),
    h("th", { scope: "row" }, hostLink(hostname)),
    h("td", { "data-title": "Last seen", class: "number", "data-heard": node.last_update }),
    h("td", { "data-title": "Labels" },
      shown.slice(0, LABELS).map((label) => labelLink(hostname, label)),
      labels.length > LABELS && h("span", { class: "more" }, `+${labels.length - LABELS}`)),
    h("td", { "data-title": "Apps" }, apps(kv, isStale)),
    h("td", { "data-title": "Agent" }, clipped(kv["agent.version"] ?? "none", 20)),
  );
}

function calledRow({ name, hostname, last_seen: seen = null, rejected = null }) {
  return h(
    "tr",
    {},
    h("td", { "data-title": "State" }, h("span", { class: `state ${CALLED_LOOKS[name]}` }, name)),
    h("th", { scope: "row" }, hostLink(hostname)),
    h("td", { "data-title": "Last seen", class: "number", "data-heard": seen }, "–"),
    h("td", { "data-title": "Rejected" }, rejected === null ? "–" : clipped(rejected, 200)),
  );
}

function labelLink(hostname, label) {
  const query = new URLSearchParams({ label });
  return h("a", { class: "chip", href: `#/hosts?${query}`, title: `All hosts with ${clipped(label, 300)}`, "data-key": `label ${hostname} ${label}` }, clipped(label, 40));
}

function apps(kv, isStale) {
  if (kv["apps.total"] === undefined) return "–";
  return [runningApps(kv, kv["apps.total"]), isStale && h("span", { class: "more" }, " last known"), kv["docker.state"] === "unreachable" && h("span", { class: "badge bad" }, "engine away")];
}
