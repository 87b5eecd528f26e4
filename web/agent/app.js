// The sheet of an app: what it is, its charts, logs, events, history, and its changes.

import { command } from "../common/command.js";
import { h, show } from "../common/dom.js";
import { AnswerError, send } from "../common/http.js";
import { moment } from "../common/times.js";
import { appState, healthWord, problem, usageCharts } from "./apps.js";
import { Log } from "./log.js";

const ROWS = 100;
const CHANGES = [["start", "PUT", "/start"], ["stop", "PUT", "/stop"], ["restart", "PUT", "/restart"], ["rebuild", "PUT", "/rebuild"], ["rollback", "PUT", "/rollback"], ["delete", "DELETE", ""]];

export class AppView {
  #path;
  #name;
  #refresh;
  #mayWrite = false;
  #closed = false;
  #questions = 0;
  #buttons = h("div", { class: "buttons" });
  #state = h("div", { class: "sheet" });
  #plan = h("div", { "aria-live": "polite" });
  #commands = h("div");
  #image = null;
  #records = h("div", { class: "sheet" });
  #log;

  constructor(name, _query, refresh) {
    this.#name = name;
    this.#refresh = refresh;
    this.#path = `/v1/apps/${encodeURIComponent(name)}`;
    this.#log = new Log(this.#path);
    this.element = h("div", { class: "sheet" }, h("p", { class: "crumbs" }, h("a", { href: "#/apps" }, "Apps")), h("h1", {}, name), this.#buttons, this.#plan, this.#state, this.#commands, section("Logs", this.#log.element), this.#records);
  }

  accepts(name, rest) {
    return name === "app" && rest === this.#name;
  }

  changed() {}

  async refresh(get, access) {
    this.#showButtons(access.allow.includes("write"));
    try {
      const [app, usage, events, history] = await Promise.all([get(this.#path), get("/v1/usage"), get(`${this.#path}/events`), get(`${this.#path}/history`)]);
      this.#log.keepUp(app.body);
      const wrong = problem(app.body);
      show(this.#state, wrong && h("p", { class: "notice bad" }, wrong), facts(app.body, wrong), usageCharts(usage.body, this.#name));
      this.#showCommands(access.hostname, app.body);
      show(this.#records,
        section("Events", table("Events", ["Time", "What", "By", "Outcome"], events.body.slice(-ROWS).reverse().map((one) => [moment(one.time), one.action, one.by, outcome(one)]))),
        section("History", table("History", ["Revision", "When", "What", "By", "Image"], history.body.slice(0, ROWS).map((one) => [one.revision, moment(one.created_at), [one.operation, one.changed.join(", ")].filter(Boolean).join(": "), one.by ?? "", one.image]))));
    } catch (error) {
      if (!(error instanceof AnswerError) || error.status !== 404) throw error;
      show(this.#state, h("p", { class: "notice" }, error.message));
      show(this.#commands);
      this.#image = null;
      show(this.#records);
    }
  }

  close() {
    this.#closed = true;
    this.#log.close();
  }

  // Made anew only for another image: a selection in it stays. The agent knows the app, so its name
  // is one, whatever the address of the page says.
  #showCommands(hostname, { name, image }) {
    if (image === this.#image) return;
    this.#image = image;
    show(this.#commands, section("Change the image",
      h("p", { class: "hint" }, "The image and all other fields are changed with the command line. Write the new image in place of the present one:"),
      command("rollcall app update", `${hostname}/${name}`, `--image ${image}`),
      h("p", { class: "hint" }, "On all hosts that have the app, one after the other; it asks first:"),
      command("rollcall update", name, `--image ${image}`)));
  }

  #showButtons(mayWrite) {
    if (mayWrite === this.#mayWrite) return;
    this.#mayWrite = mayWrite;
    show(this.#plan);
    show(this.#buttons, mayWrite && CHANGES.map((change) => h("button", { type: "button", onkeydown: ignoreHeldKey, onclick: (event) => this.#ask(change, event.currentTarget) }, title(change[0]))));
  }

  // `button` has the focus again when the question is answered, and its own buttons are gone.
  async #ask([change, method, path], button) {
    const question = ++this.#questions;
    try {
      const { body } = await send(method, `${this.#path}${path}?dry_run=true`);
      if (question !== this.#questions) return; // another button was pressed since
      const answer = (act) => () => { button.focus(); act(); };
      const cancel = h("button", { type: "button", onkeydown: ignoreHeldKey, onclick: answer(() => show(this.#plan)) }, "Cancel");
      const confirm = h("button", { type: "button", class: change === "delete" ? "danger" : "primary", onkeydown: ignoreHeldKey, onclick: answer(() => this.#carryOut(change, method, path)) }, `${title(change)} now`);
      show(this.#plan, h("section", { class: "card", "aria-label": "What it would do" },
        h("h2", {}, `${title(change)} ${this.#name}?`),
        h("ul", {}, planned(body).map((line) => h("li", {}, line))),
        h("div", { class: "buttons", onkeydown: (event) => event.key === "Escape" && cancel.click() }, confirm, cancel)));
      (change === "delete" ? cancel : confirm).focus();
    } catch (error) {
      this.#say(error.message, "bad");
    }
  }

  async #carryOut(change, method, path) {
    this.#say(`${title(change)} is under way …`, "");
    try {
      await send(method, `${this.#path}${path}`);
      this.#say(`${title(change)} is done.`, "");
    } catch (error) {
      this.#say(error.message, "bad");
    }
    if (!this.#closed) this.#refresh();
  }

  #say(text, kind) {
    show(this.#plan, h("p", { class: `notice ${kind}`, role: "status" }, text));
  }
}

// The focus moves from button to button: Enter that is still held from the one before presses none.
function ignoreHeldKey(event) {
  if (event.repeat) event.preventDefault();
}

function title(word) {
  return word[0].toUpperCase() + word.slice(1);
}

function planned(plan) {
  const seconds = plan.seconds_without_service;
  return [
    plan.app === null ? "The app and its data would be deleted. This cannot be undone." : wouldBe(plan.app),
    plan.changed?.length > 0 && `It would change ${plan.changed.join(", ")}.`,
    plan.replaces_container && "Its container would be replaced by another.",
    seconds === null ? "It would not run afterwards." : seconds > 0 && `It would be without service for at most ${seconds} s.`,
    plan.message,
  ].filter(Boolean);
}

const STATES = { running: "run", exited: "be stopped" };

function wouldBe(app) {
  return `The app would ${STATES[app.state] ?? `be ${app.state}`}, with the image ${app.image}.`;
}

function outcome({ outcome: word, message, exit_code: code }) {
  return [[word, message].filter(Boolean).join(": "), code !== null && `exit code ${code}`].filter(Boolean).join(", ");
}

function facts(app, wrong) {
  const rows = [["State", appState(app)], ["Health", healthWord(app)], ["Description", app.description], ["Wanted", app.desired], ["Image", h("code", {}, app.image)], ["Ports", `http ${app.http_port}, ssh ${app.ssh_port}`], ["Limits", `${app.cpu} % of a core, ${app.memory} MiB`], ["Started", moment(app.started_at)], ["Exit code", app.exit_code], ["Restarts", app.restarts], ["Message", wrong === null ? app.message : null], ["Labels", app.labels.map((label) => h("span", { class: "chip" }, label))]];
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
