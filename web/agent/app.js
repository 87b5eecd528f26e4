// The sheet of an app: what it is, its charts, logs, events, history, and its changes.

import { h, show } from "../common/dom.js";
import { AnswerError, follow, send } from "../common/http.js";
import { appState, usageCharts } from "./apps.js";

const LOG_CHARACTERS = 200000;
const ROWS = 100;
const CHANGES = [["start", "PUT", "/start"], ["stop", "PUT", "/stop"], ["rebuild", "PUT", "/rebuild"], ["rollback", "PUT", "/rollback"], ["delete", "DELETE", ""]];

export class AppView {
  #path;
  #name;
  #following = new AbortController();
  #state = h("div", { class: "sheet" });
  #plan = h("div", { "aria-live": "polite" });
  #records = h("div", { class: "sheet" });
  #log = h("pre", { class: "log", tabindex: "0", role: "log", "aria-label": "Logs" });

  constructor(name, access, changed) {
    this.#name = name;
    this.#path = `/v1/apps/${encodeURIComponent(name)}`;
    const buttons = access.allow.includes("write") && h("div", { class: "buttons" }, CHANGES.map((change) => h("button", { type: "button", onclick: () => this.#ask(change, changed) }, title(change[0]))));
    this.element = h("div", { class: "sheet" }, h("p", { class: "crumbs" }, h("a", { href: "#/" }, "Apps")), h("h1", {}, name), buttons, this.#plan, this.#state, section("Logs", this.#log), this.#records);
    this.#followLogs();
  }

  async refresh(get) {
    try {
      const [app, usage, events, history] = await Promise.all([get(this.#path), get("/v1/usage"), get(`${this.#path}/events`), get(`${this.#path}/history`)]);
      show(this.#state, facts(app.body), usageCharts(usage.body, this.#name));
      show(this.#records,
        section("Events", table("Events", ["Time", "What", "By", "Outcome"], events.body.slice(-ROWS).reverse().map((one) => [one.time, one.action, one.by, [one.outcome, one.message].filter(Boolean).join(": ")]))),
        section("History", table("History", ["Revision", "When", "What", "By", "Image"], history.body.slice(0, ROWS).map((one) => [one.revision, one.created_at, [one.operation, one.changed.join(", ")].filter(Boolean).join(": "), one.by ?? "", one.image]))));
    } catch (error) {
      if (!(error instanceof AnswerError) || error.status !== 404) throw error;
      show(this.#state, h("p", { class: "notice" }, error.message));
      show(this.#records);
    }
  }

  close() {
    this.#following.abort();
  }

  async #ask([change, method, path], changed) {
    try {
      const { body } = await send(method, `${this.#path}${path}?dry_run=true`);
      const confirm = h("button", { type: "button", class: "primary", onclick: () => this.#carryOut(change, method, path, changed) }, `${title(change)} now`);
      show(this.#plan, h("section", { class: "card", "aria-label": "What it would do" },
        h("h2", {}, `${title(change)} ${this.#name}?`),
        h("ul", {}, planned(body).map((line) => h("li", {}, line))),
        h("div", { class: "buttons" }, confirm, h("button", { type: "button", onclick: () => show(this.#plan) }, "Cancel"))));
      confirm.focus();
    } catch (error) {
      this.#say(error.message, "bad");
    }
  }

  async #carryOut(change, method, path, changed) {
    this.#say(`${title(change)} is under way …`, "");
    try {
      await send(method, `${this.#path}${path}`);
      this.#say(`${title(change)} is done.`, "");
    } catch (error) {
      this.#say(error.message, "bad");
    }
    this.#followLogs();
    changed();
  }

  #say(text, kind) {
    show(this.#plan, h("p", { class: `notice ${kind}`, role: "status" }, text));
  }

  async #followLogs() {
    this.#following.abort();
    this.#following = new AbortController();
    const { signal } = this.#following;
    this.#log.textContent = "";
    const receive = (text) => {
      const atEnd = this.#log.scrollTop + this.#log.clientHeight >= this.#log.scrollHeight - 4;
      this.#log.textContent = (this.#log.textContent + text).slice(-LOG_CHARACTERS);
      if (atEnd) this.#log.scrollTop = this.#log.scrollHeight;
    };
    try {
      await follow(`${this.#path}/logs?tail=200&follow=true`, { signal, receive });
    } catch (error) {
      if (!signal.aborted) this.#log.textContent += `\n[${error.message}]`;
    }
  }
}

function title(word) {
  return word[0].toUpperCase() + word.slice(1);
}

function planned(plan) {
  const seconds = plan.seconds_without_service;
  return [
    plan.app === null ? "The app and its data would be gone." : `The app would be ${plan.app.state}.`,
    plan.replaces_container && "Its container would be replaced by another.",
    seconds === null ? "It would not run afterwards." : `It would be without service for at most ${seconds} s.`,
    plan.message,
  ].filter(Boolean);
}

function facts(app) {
  const rows = [["State", appState(app)], ["Description", app.description], ["Wanted", app.desired], ["Image", h("code", {}, app.image)], ["Ports", `http ${app.http_port}, ssh ${app.ssh_port}`], ["Limits", `${app.cpu} % of a core, ${app.memory} MiB`], ["Started", app.started_at], ["Exit code", app.exit_code], ["Restarts", app.restarts], ["Message", app.message], ["Labels", app.labels.map((label) => h("span", { class: "chip" }, label))]];
  return h("section", { class: "card" }, h("dl", {}, rows.filter(([, value]) => value !== null && value !== undefined && value.length !== 0).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])));
}

function section(name, ...children) {
  return h("section", { class: "card" }, h("h2", {}, name), children);
}

function table(caption, columns, rows) {
  if (!rows.length) return h("p", { class: "hint" }, "none");
  return h("table", {}, h("caption", { class: "hidden" }, caption),
    h("thead", {}, h("tr", {}, columns.map((text) => h("th", { scope: "col" }, text)))),
    h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell, index) => h("td", { "data-title": columns[index] }, cell))))));
}
