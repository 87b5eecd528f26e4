// What both pages share: which view is shown, the key, and whether the daemon answers.

import { h, show, visible } from "./dom.js";
import { AnswerError, AwayError, get } from "./http.js";
import { key, login, logout } from "./session.js";
import { clockTime, timeOfDay } from "./times.js";

const REFRESH_MS = 3000;
// After so long without an answer, the page says so.
const SILENT_MS = 5000;
// Longer than a daemon takes for an answer: an agent waits for its engine for 30 s by default.
const GIVE_UP_MS = 40000;
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
  #silence = null;
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
    document.addEventListener("keydown", focusSearch);
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
    if (this.#view?.accepts(name, rest)) {
      this.#view.changed(query);
    } else {
      this.#view?.close?.();
      this.#view = new this.#views[name](rest, query, () => this.#refresh());
      show(main, this.#view.element);
      // The link that led here is gone, and with it the focus.
      if (document.activeElement === document.body) main.focus({ preventScroll: true });
    }
    this.#showHeader(name);
    this.#refresh();
  }

  // Ask now, and again every few seconds. A request under way is given up.
  async #refresh() {
    clearTimeout(this.#timer);
    this.#running?.abort();
    if (this.#view === null) return;
    const running = new AbortController();
    this.#running = running;
    let gaps = null;
    const ask = async (path) => {
      const answer = await get(path, { signal: running.signal });
      if (!running.signal.aborted) this.#expectAnswer();
      gaps ??= gapsOf(answer.headers);
      return answer;
    };
    if (this.#silence === null) this.#expectAnswer();
    this.#refreshIn(GIVE_UP_MS);
    try {
      await this.#learnAccess(ask);
      await this.#view?.refresh(ask, this.#access);
      if (running.signal.aborted) return;
      this.#state(...(gaps ?? ["live", "Live"]));
      this.#awaySince = null;
    } catch (error) {
      if (running.signal.aborted) return;
      this.#access = null;
      this.#failed(error);
    }
    this.#expectNothing();
    this.#refreshIn(REFRESH_MS);
  }

  #refreshIn(milliseconds) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => document.hidden || this.#refresh(), milliseconds);
  }

  // A daemon that is frozen keeps its connections open, and no request fails. A refresh that takes
  // the place of another, as at each key press, does not begin the wait again.
  #expectAnswer() {
    clearTimeout(this.#silence);
    this.#silence = setTimeout(() => this.#away(Date.now() - SILENT_MS), SILENT_MS);
  }

  #expectNothing() {
    clearTimeout(this.#silence);
    this.#silence = null;
  }

  #away(since) {
    this.#awaySince ??= since;
    this.#state("away", `The ${this.#daemon} does not answer since ${timeOfDay(this.#awaySince)}. What is shown may be out of date.`);
  }

  async #learnAccess(ask) {
    if (this.#access !== null) return;
    this.#access = (await ask("/access")).body;
    this.#showHeader(address(this.#views).name);
  }

  // Tabs and bookmarks differ by their titles.
  #showHeader(name) {
    this.#header(name, this.#access);
    const shown = [this.#access?.hostname, this.#view?.title].filter(Boolean).join(": ");
    document.title = visible([shown, this.#access?.hostname ? "Rollcall" : `Rollcall ${this.#daemon}`].filter(Boolean).join(" - "));
  }

  #failed(error) {
    if (error instanceof AnswerError && error.status === 401) {
      this.#askForKey(`The ${this.#daemon} does not know this key.`);
    } else if (error instanceof AwayError) {
      this.#away(Date.now());
    } else if (error instanceof AnswerError) {
      this.#state("away", error.message);
    } else {
      // Thrown further, it would end the refreshes while the page says "Live".
      console.info(error);
      this.#state("away", `This page cannot show the answer of the ${this.#daemon} (${error.message}). Load the page again.`);
    }
  }

  #state(kind, said) {
    const text = visible(said);
    if (connection.textContent === text) return;
    connection.className = kind;
    connection.textContent = text;
  }

  #close() {
    clearTimeout(this.#timer);
    this.#expectNothing();
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
    this.#showHeader(null);
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

// What the answers of a registry lack; null for nothing.
function gapsOf(headers) {
  const age = Number(headers.get("Rollcall-Store-Age"));
  if (age) return ["away", `The registry has not reached its store since ${clockTime(Date.now() / 1000 - age)}. What happened since is not shown, and no host becomes stale.`];
  return headers.has("Rollcall-Warming") ? ["live", "Live, but the registry warms up: hosts that have not reported to it yet are missing."] : null;
}

function focusSearch(event) {
  const isTyped = event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea");
  const search = event.key === "/" && !isTyped && main.querySelector("input[type=search]");
  if (!search) return;
  event.preventDefault();
  search.focus();
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
