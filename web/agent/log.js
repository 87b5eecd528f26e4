// The log of an app, which is followed while the app runs: search, wrap, follow and download.

import { h, show, visible } from "../common/dom.js";
import { download, follow } from "../common/http.js";
import { count } from "../common/times.js";

const CHARACTERS = 200000;

export class Log {
  #app;
  #path;
  #text = null; // not answered yet
  #note = "";
  #search = "";
  #following = null;
  #startedAt;
  #closed = false;
  #lines = h("pre", { class: "log wrapped", tabindex: "0", role: "log", "aria-label": "Logs", onscroll: () => this.#follows(this.#isAtEnd()) });
  #found = h("span", { class: "more", role: "status" });
  #wrap = h("button", { type: "button", "aria-pressed": "true", onclick: () => this.#toggleWrap() }, "Wrap");
  #follow = h("button", { type: "button", "aria-pressed": "true", title: "Show new lines as they come", onclick: () => this.#toggleFollow() }, "Follow");

  constructor(path, app) {
    this.#path = `${path}/logs`;
    this.#app = app;
    const search = h("input", { type: "search", "aria-label": "Search the logs", "aria-keyshortcuts": "/", placeholder: "Search", autocomplete: "off", spellcheck: "false", oninput: () => this.#searchFor(search.value) });
    this.element = h("section", { class: "card logs" },
      h("div", { class: "tools" }, h("h2", {}, "Logs"), search, this.#found, this.#wrap, this.#follow,
        h("button", { type: "button", title: "Download all that the engine keeps of the log", onclick: () => this.#download() }, "Download")),
      this.#lines);
    this.#show();
  }

  /** Follow the log unless that is under way. A log that has ended is followed anew while the app
   * runs, or when it was started in between. */
  keepUp({ state, started_at: startedAt }) {
    const ended = this.#startedAt === startedAt && state !== "running";
    if (this.#closed || this.#following !== null || ended) return;
    this.#startedAt = startedAt;
    this.#receive();
  }

  /** End the stream. */
  close() {
    this.#closed = true;
    this.#following?.abort();
  }

  async #receive() {
    this.#following = new AbortController();
    const { signal } = this.#following;
    // What is shown stays until the agent has answered.
    const begin = () => {
      this.#text = "";
      this.#note = "";
      this.#show();
    };
    const receive = (text) => {
      this.#text = `${this.#text}${text}`.slice(-CHARACTERS);
      this.#show();
    };
    try {
      await follow(`${this.#path}?tail=200&follow=true`, { signal, begin, receive });
    } catch (error) {
      this.#note = signal.aborted ? "" : `\n[The log is interrupted. ${error.message}]`;
      this.#show();
    }
    this.#following = null;
  }

  #show() {
    const place = this.#lines.scrollTop;
    show(this.#lines, ...this.#content(), this.#note);
    this.#lines.scrollTop = this.#isFollowing() ? this.#lines.scrollHeight : place;
  }

  #content() {
    if (this.#text === null) return [];
    if (this.#text === "") return [h("span", { class: "hint" }, "Nothing is logged yet. What the app writes to its standard output and error appears here.")];
    if (this.#search === "") return [this.#text];
    const lines = this.#text.split("\n").filter((line) => line.toLowerCase().includes(this.#search));
    this.#found.textContent = `${count(lines.length)} ${lines.length === 1 ? "line" : "lines"}`;
    return lines.flatMap((line) => [...marked(line, this.#search), "\n"]);
  }

  #searchFor(text) {
    this.#search = text.toLowerCase();
    this.#found.textContent = "";
    this.#show();
  }

  #toggleWrap() {
    const isWrapped = this.#lines.classList.toggle("wrapped");
    this.#wrap.setAttribute("aria-pressed", String(isWrapped));
    if (this.#isFollowing()) this.#lines.scrollTop = this.#lines.scrollHeight;
  }

  #toggleFollow() {
    this.#follows(!this.#isFollowing());
    if (this.#isFollowing()) this.#lines.scrollTop = this.#lines.scrollHeight;
  }

  // Whoever scrolls up reads: new lines do not move what is read.
  #follows(isFollowing) {
    this.#follow.setAttribute("aria-pressed", String(isFollowing));
  }

  #isFollowing() {
    return this.#follow.getAttribute("aria-pressed") === "true";
  }

  #isAtEnd() {
    return this.#lines.scrollTop + this.#lines.clientHeight >= this.#lines.scrollHeight - 4;
  }

  async #download() {
    this.#found.textContent = "";
    try {
      await download(`${this.#path}?tail=all`, `${this.#app}.log`);
    } catch (error) {
      this.#found.textContent = visible(error.message);
    }
  }
}

// A line, in which each place of the text is marked.
function marked(line, text) {
  const parts = [];
  const lower = line.toLowerCase();
  // Some characters are longer in lower case, and the places are others.
  if (lower.length !== line.length) return [line];
  let end = 0;
  for (let at = lower.indexOf(text); at >= 0; at = lower.indexOf(text, end)) {
    parts.push(line.slice(end, at), h("mark", {}, line.slice(at, at + text.length)));
    end = at + text.length;
  }
  return [...parts, line.slice(end)];
}
