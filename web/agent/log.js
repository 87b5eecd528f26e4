// The log of an app, which is followed while the app runs.

import { h } from "../common/dom.js";
import { follow } from "../common/http.js";

const CHARACTERS = 200000;

export class Log {
  element = h("pre", { class: "log", tabindex: "0", role: "log", "aria-label": "Logs" });
  #path;
  #text = "";
  #following = null;
  #startedAt;
  #closed = false;

  constructor(path) {
    this.#path = path;
  }

  /** Follow the log unless that is under way. A log that has ended is followed anew while the app
   * runs, or when it was started in between. */
  keepUp({ state, started_at: startedAt }) {
    const ended = this.#startedAt === startedAt && state !== "running";
    if (this.#closed || this.#following !== null || ended) return;
    this.#startedAt = startedAt;
    this.#follow();
  }

  /** End the stream. */
  close() {
    this.#closed = true;
    this.#following?.abort();
  }

  async #follow() {
    this.#following = new AbortController();
    const { signal } = this.#following;
    // What is shown stays until the agent has answered.
    const begin = () => {
      this.#text = "";
      this.#show();
    };
    const receive = (text) => {
      this.#text = (this.#text + text).slice(-CHARACTERS);
      this.#show();
    };
    try {
      await follow(`${this.#path}/logs?tail=200&follow=true`, { signal, begin, receive });
    } catch (error) {
      if (!signal.aborted) this.#show(`\n[The log is interrupted. ${error.message}]`);
    }
    this.#following = null;
  }

  #show(note = "") {
    const atEnd = this.element.scrollTop + this.element.clientHeight >= this.element.scrollHeight - 4;
    this.element.textContent = this.#text + note;
    if (atEnd) this.element.scrollTop = this.element.scrollHeight;
  }
}
