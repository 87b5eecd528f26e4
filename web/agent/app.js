// The page of an app: what it is, its charts, logs, events, history, and its changes.

import { command } from "../common/command.js";
import { h, show } from "../common/dom.js";
import { AnswerError, AwayError, send } from "../common/http.js";
import { moment } from "../common/times.js";
import { Log } from "./log.js";
import { appState, healthWord, problem } from "./state.js";
import { revisions, timeline } from "./timeline.js";
import { UsageCharts } from "./usage.js";
import { verdict } from "./verdict.js";

const UP = ["running", "restarting", "paused"];
// Each with the app, and how many revisions it has, for which it is offered.
const CHANGES = [
  { name: "start", method: "PUT", path: "/start", can: (app) => !app.progress && !["running", "restarting"].includes(app.state) },
  // It also ends a change that is pulling an image.
  { name: "stop", method: "PUT", path: "/stop", can: (app) => app.progress || UP.includes(app.state) || app.desired === "running" },
  { name: "restart", method: "PUT", path: "/restart", can: (app) => !app.progress && UP.includes(app.state) },
  { name: "rebuild", method: "PUT", path: "/rebuild", can: (app) => !app.progress },
  { name: "rollback", method: "PUT", path: "/rollback", can: (app, revisions) => !app.progress && revisions > 1 },
  { name: "delete", method: "DELETE", path: "", can: () => true },
];

export class AppView {
  #path;
  #name;
  #refresh;
  #offered = "";
  #movedFrom = null;
  #closed = false;
  #questions = 0;
  #state = h("span");
  #buttons = h("div", { class: "buttons" });
  #plan = h("div", { "aria-live": "polite" });
  #wrong = h("div");
  #facts = h("div");
  #commands = h("div");
  #image = null;
  #events = h("div");
  #showsAllEvents = false;
  #last = "";
  #previous;
  #history = h("div");
  #charts = new UsageCharts();
  #log;
  #parts;

  constructor(name, _query, refresh) {
    this.#name = name;
    this.title = name;
    this.#refresh = refresh;
    this.#path = `/v1/apps/${encodeURIComponent(name)}`;
    this.#log = new Log(this.#path, name);
    this.#parts = h("div", { class: "columns", hidden: true },
      h("div", { class: "column" }, section("Details", this.#facts), section("History", this.#history), section("Change the image", this.#commands)),
      h("div", { class: "column" }, this.#charts.element, this.#log.element, section("Events", this.#events)));
    this.element = h("div", { class: "sheet" },
      h("header", { class: "head" }, h("p", { class: "crumbs" }, h("a", { href: "#/apps" }, "Apps")), h("div", { class: "title" }, h("h1", {}, name), this.#state), this.#buttons),
      this.#plan, this.#wrong, this.#parts);
  }

  accepts(name, rest) {
    return name === "app" && rest === this.#name;
  }

  changed() {}

  async refresh(get, access) {
    try {
      const [app, usage, events, history] = await Promise.all([get(this.#path), get("/v1/usage"), get(`${this.#path}/events`), get(`${this.#path}/history`)]);
      this.#log.keepUp(app.body);
      this.#previous = history.body[1]?.revision;
      this.#offer(access.allow.includes("write") ? CHANGES.filter(({ can }) => can(app.body, history.body.length)) : []);
      this.#show(app.body, events.body, history.body);
      this.#charts.update(usage.body, app.body);
      this.#showCommands(access.hostname, app.body);
    } catch (error) {
      if (!(error instanceof AnswerError) || error.status !== 404) throw error;
      this.#offer([]);
      this.#parts.hidden = true;
      this.#image = null;
      this.#last = "";
      show(this.#state);
      show(this.#commands);
      show(this.#wrong, h("p", { class: "notice" }, error.message));
    }
  }

  close() {
    this.#closed = true;
    this.#log.close();
    this.#charts.close();
  }

  // A selection stays until something changes.
  #show(app, events, history) {
    const last = JSON.stringify([app, events, history, this.#showsAllEvents]);
    if (last === this.#last) return;
    this.#last = last;
    const wrong = problem(app);
    this.#parts.hidden = false;
    show(this.#state, appState(app), h("span", { class: "more" }, verdict(app, events)));
    show(this.#wrong, wrong && h("p", { class: "notice bad" }, wrong));
    show(this.#facts, facts(app, wrong));
    show(this.#history, revisions(history));
    show(this.#events, timeline(events, this.#showsAllEvents, () => {
      this.#showsAllEvents = !this.#showsAllEvents;
      this.#refresh();
    }));
  }

  // Made anew only for another image: a selection in it stays. The agent knows the app, so its name
  // is one, whatever the address of the page says.
  #showCommands(hostname, { name, image }) {
    if (image === this.#image) return;
    this.#image = image;
    show(this.#commands,
      h("p", { class: "hint" }, "The image and all other fields are changed with the command line. Write the new image in place of the present one:"),
      command("rollcall app update", `${hostname}/${name}`, `--image ${image}`),
      h("p", { class: "hint" }, "On all hosts that have the app, one after the other; it asks first:"),
      command("rollcall update", name, `--image ${image}`));
  }

  // Made anew only for other changes: a button that is about to be pressed stays.
  #offer(changes) {
    const names = changes.map(({ name }) => name);
    if (names.join() === this.#offered) return;
    this.#offered = names.join();
    const focused = Array.from(this.#buttons.children).indexOf(document.activeElement);
    const name = (focused === 0 && this.#movedFrom) || document.activeElement.dataset.key;
    show(this.#buttons, changes.map((change) => h("button", { type: "button", class: change.name === "delete" ? "destructive" : null, "data-key": change.name, onkeydown: ignoreHeldKey, onclick: () => this.#ask(change) }, title(change.name))));
    if (focused >= 0) this.#focus(name);
    if (!names.length && this.#plan.querySelector("button")) show(this.#plan);
  }

  // The button of a change, or the first one while it is not offered.
  #focus(name) {
    const buttons = Array.from(this.#buttons.children);
    const button = buttons.find(({ dataset }) => dataset.key === name);
    this.#movedFrom = button ? null : name;
    (button ?? buttons[0])?.focus();
  }

  // The button has the focus again when the question is answered, and its own buttons are gone.
  async #ask({ name: change, method, path }) {
    const question = ++this.#questions;
    // Somebody else may roll back before this is confirmed: then the one before is another one.
    const body = change === "rollback" ? { revision: this.#previous } : undefined;
    this.#say(`Checking what ${title(change)} would do …`, "");
    try {
      const plan = await send(method, `${this.#path}${path}?dry_run=true`, { body });
      if (question !== this.#questions) return; // another button was pressed since
      const answer = (act) => () => { this.#focus(change); act(); };
      const cancel = h("button", { type: "button", onkeydown: ignoreHeldKey, onclick: answer(() => show(this.#plan)) }, "Cancel");
      const confirm = h("button", { type: "button", class: change === "delete" ? "danger" : "primary", onkeydown: ignoreHeldKey, onclick: answer(() => this.#carryOut(change, method, path, body)) }, `${title(change)} now`);
      show(this.#plan, h("section", { class: "card", "aria-label": "What it would do" },
        h("h2", {}, `${title(change)} ${this.#name}?`),
        h("ul", {}, planned(plan.body).map((line) => h("li", {}, line))),
        h("div", { class: "buttons", onkeydown: (event) => event.key === "Escape" && cancel.click() }, confirm, cancel)));
      (change === "delete" ? cancel : confirm).focus();
    } catch (error) {
      if (question === this.#questions) this.#say(error.message, "bad");
    }
  }

  async #carryOut(change, method, path, body) {
    this.#say(`${title(change)} is under way …`, "");
    try {
      await send(method, `${this.#path}${path}`, { body });
      this.#say(`${title(change)} is done.`, "");
    } catch (error) {
      this.#say(error instanceof AwayError ? `${error.message} What was begun is finished or undone; the page shows which when the agent answers.` : error.message, "bad");
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

function facts(app, wrong) {
  const rows = [
    ["Description", app.description],
    ["Image", h("code", {}, app.image)],
    ["Health", healthWord(app)],
    ["Wanted", app.desired],
    ["Ports", `http ${app.http_port}, ssh ${app.ssh_port}`],
    ["Limits", `${app.cpu} % of a core, ${app.memory} MiB`],
    ["Started", moment(app.started_at)],
    ["Exit code", app.exit_code],
    ["Restarts", app.restarts],
    ["Message", wrong === null ? app.message : null],
    ["Labels", app.labels.map((label) => h("span", { class: "chip" }, label))],
  ].filter(([, value]) => value !== null && value !== undefined && value.length !== 0);
  return h("dl", {}, rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

function section(name, content) {
  return h("section", { class: "card" }, h("h2", {}, name), content);
}
