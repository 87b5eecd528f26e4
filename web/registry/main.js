// The registry's page: which view is shown, its key, and whether the registry answers.

import { h, show } from "../common/dom.js";
import { AnswerError, AwayError, get } from "../common/http.js";
import { key, login, logout } from "../common/session.js";
import { timeOfDay } from "../common/times.js";
import { HostView } from "./host.js";
import { HostsView } from "./hosts.js";
import { RegistryView } from "./health.js";
import { ServicesView } from "./services.js";

const REFRESH_MS = 3000;
const VIEWS = { hosts: HostsView, host: HostView, services: ServicesView, registry: RegistryView };
const TABS = [["hosts", "Hosts"], ["services", "Services"], ["registry", "Registry"]];
const main = document.getElementById("main");
const connection = document.getElementById("connection");
const tabs = document.getElementById("tabs");
const logoutButton = document.getElementById("logout");

/** What is shown now: a view, and the timer of its next refresh. */
class Shown {
  #view = null;
  #timer = 0;
  #awaySince = null;
  #running = null;

  /** Show the view of the address. The same view goes on if it can, so that fields keep the focus. */
  open() {
    const { name, rest, query } = address();
    show(tabs, TABS.map(([tab, text]) => h("a", { href: `#/${tab}`, "data-key": tab, "aria-current": tab === name || (tab === "hosts" && name === "host") ? "page" : null }, text)));
    if (this.#view?.accepts(name, rest)) {
      this.#view.changed(query);
    } else {
      this.#view = new VIEWS[name](rest, query, () => this.refresh());
      show(main, this.#view.element);
    }
    this.refresh();
  }

  /** Ask now, and again every few seconds. A request under way is given up. */
  async refresh() {
    clearTimeout(this.#timer);
    this.#running?.abort();
    const running = new AbortController();
    this.#running = running;
    try {
      await this.#view.refresh(ask(running.signal));
      if (running.signal.aborted) return;
      this.#state("live", "Live");
      this.#awaySince = null;
    } catch (error) {
      if (running.signal.aborted) return;
      this.#failed(error);
    }
    if (this.#view !== null) this.#timer = setTimeout(() => (document.hidden ? this.#later() : this.refresh()), REFRESH_MS);
  }

  /** Forget the view, and ask nothing more. */
  close() {
    clearTimeout(this.#timer);
    this.#running?.abort();
    this.#view = null;
    this.#awaySince = null;
  }

  #later() {
    document.addEventListener("visibilitychange", () => this.#view && this.refresh(), { once: true });
  }

  #failed(error) {
    if (error instanceof AnswerError && error.status === 401) {
      logout();
      askForKey("The registry does not know this key.");
    } else if (error instanceof AwayError) {
      this.#awaySince ??= Date.now();
      this.#state("away", `The registry does not answer since ${timeOfDay(this.#awaySince)}. What is shown may be out of date.`);
    } else if (error instanceof AnswerError) {
      this.#state("away", error.message);
    } else {
      throw error;
    }
  }

  #state(kind, text) {
    if (connection.textContent === text) return;
    connection.className = kind;
    connection.textContent = text;
  }
}

const shown = new Shown();

function ask(signal) {
  return (path) => get(path, { signal });
}

function address() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  const known = Object.hasOwn(VIEWS, name);
  return { name: known ? name : "hosts", rest: known ? unescaped(rest.join("/")) : "", query: new URLSearchParams(query) };
}

function unescaped(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function askForKey(problem) {
  shown.close();
  show(tabs);
  logoutButton.hidden = true;
  connection.className = "";
  connection.textContent = "";
  const field = h("input", { id: "key", type: "password", autocomplete: "off", spellcheck: "false", required: true, "aria-describedby": "key-help key-problem" });
  const form = h(
    "form",
    { class: "login card", onsubmit: (event) => {
      event.preventDefault();
      login(field.value.trim());
      start();
    } },
    h("h1", {}, "Log in"),
    h("label", { for: "key" }, "Key"),
    field,
    h("p", { id: "key-help", class: "hint" }, "A key of the registry's settings that may read. It stays in this tab and is gone when you close it."),
    h("p", { id: "key-problem", class: "problem", role: "alert" }, problem),
    h("button", { type: "submit" }, "Log in"),
  );
  show(main, form);
  field.focus();
}

function start() {
  if (key() === null) {
    askForKey("");
    return;
  }
  logoutButton.hidden = false;
  shown.open();
}

logoutButton.addEventListener("click", () => {
  logout();
  askForKey("");
});
window.addEventListener("hashchange", () => {
  if (key() !== null) shown.open();
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the part of the address after # is the view
  main.focus();
});
start();
