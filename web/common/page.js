// What both pages share: which view is shown, the key, and whether the daemon answers.

import { h, show } from "./dom.js";
import { AnswerError, AwayError, get } from "./http.js";
import { key, login, logout } from "./session.js";
import { timeOfDay } from "./times.js";

const REFRESH_MS = 3000;
const main = document.getElementById("main");
const connection = document.getElementById("connection");
const logoutButton = document.getElementById("logout");

/** A page of a daemon: the view of the address, and the timer of its next refresh.
 *
 * `views` are classes by their names in the address; the first is shown if the address names none.
 * `header` is called with the name of the view and what the key allows, each null if there is none.
 */
export class Page {
  #daemon;
  #views;
  #header;
  #view = null;
  #access = null;
  #timer = 0;
  #awaySince = null;
  #running = null;

  constructor({ daemon, views, header }) {
    this.#daemon = daemon;
    this.#views = views;
    this.#header = header;
    document.addEventListener("visibilitychange", () => !document.hidden && this.#refresh());
    window.addEventListener("hashchange", () => key() !== null && this.#open());
    logoutButton.addEventListener("click", () => this.#askForKey(""));
    document.querySelector(".skip").addEventListener("click", (event) => {
      event.preventDefault(); // the part of the address after # is the view
      main.focus();
    });
  }

  /** Show the view of the address, or ask for the key. */
  start() {
    if (key() === null) {
      this.#askForKey("");
      return;
    }
    logoutButton.hidden = false;
    this.#open();
  }

  // The same view goes on if it can, so that fields keep the focus.
  #open() {
    const { name, rest, query } = address(this.#views);
    this.#header(name, this.#access);
    if (this.#view?.accepts(name, rest)) {
      this.#view.changed(query);
    } else {
      this.#view?.close?.();
      this.#view = new this.#views[name](rest, query, () => this.#refresh());
      show(main, this.#view.element);
      // The link that led here is gone, and with it the focus.
      if (document.activeElement === document.body) main.focus({ preventScroll: true });
    }
    this.#refresh();
  }

  // Ask now, and again every few seconds. A request under way is given up.
  async #refresh() {
    clearTimeout(this.#timer);
    this.#running?.abort();
    if (this.#view === null) return;
    const running = new AbortController();
    this.#running = running;
    const ask = (path) => get(path, { signal: running.signal });
    try {
      await this.#learnAccess(ask);
      await this.#view?.refresh(ask, this.#access);
      if (running.signal.aborted) return;
      this.#state("live", "Live");
      this.#awaySince = null;
    } catch (error) {
      if (running.signal.aborted) return;
      this.#access = null;
      this.#failed(error);
    }
    this.#timer = setTimeout(() => document.hidden || this.#refresh(), REFRESH_MS);
  }

  async #learnAccess(ask) {
    if (this.#access !== null) return;
    this.#access = (await ask("/access")).body;
    this.#header(address(this.#views).name, this.#access);
  }

  #failed(error) {
    if (error instanceof AnswerError && error.status === 401) {
      this.#askForKey(`The ${this.#daemon} does not know this key.`);
    } else if (error instanceof AwayError) {
      this.#awaySince ??= Date.now();
      this.#state("away", `The ${this.#daemon} does not answer since ${timeOfDay(this.#awaySince)}. What is shown may be out of date.`);
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

  #close() {
    clearTimeout(this.#timer);
    this.#running?.abort();
    this.#view?.close?.();
    this.#view = null;
    this.#access = null;
    this.#awaySince = null;
  }

  // Forget the key, and ask for one.
  #askForKey(problem) {
    logout();
    this.#close();
    this.#header(null, null);
    this.#state("", "");
    logoutButton.hidden = true;
    const field = h("input", { id: "key", type: "password", autocomplete: "off", spellcheck: "false", required: true, "aria-describedby": "key-help key-problem" });
    const submit = (event) => {
      event.preventDefault();
      login(field.value.trim());
      this.start();
    };
    show(main, h("form", { class: "login card", onsubmit: submit },
      h("h1", {}, "Log in"),
      h("label", { for: "key" }, "Key"),
      field,
      h("p", { id: "key-help", class: "hint" }, `A key of the ${this.#daemon}'s settings that may read. It stays in this tab and is gone when you close it.`),
      h("p", { id: "key-problem", class: "problem", role: "alert" }, problem),
      h("button", { type: "submit" }, "Log in")));
    field.focus();
  }
}

function address(views) {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  const known = Object.hasOwn(views, name);
  return { name: known ? name : Object.keys(views)[0], rest: known ? unescaped(rest.join("/")) : "", query: new URLSearchParams(query) };
}

function unescaped(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
