// The list of apps.

import { command } from "../common/command.js";
import { clipped, h, show } from "../common/dom.js";
import { Sorting } from "../common/sorting.js";
import { sparkline } from "../common/sparkline.js";
import { count } from "../common/times.js";
import { appState, imageName, kind, note, problem } from "./state.js";
import { measured } from "./usage.js";

const COLUMNS = ["App", "State", "Image", "Ports", "Usage"];

// Problems first, then by the state's name.
const sorting = new Sorting({
  App: ({ app }) => app.name,
  State: ({ app }) => `${problem(app) === null ? 1 : 0}${app.state}`,
  Image: ({ app }) => app.image,
  Ports: ({ app }) => app.http_port,
  Usage: ({ app, usage }) => measured(usage, app)?.[1].values.at(-1), // memory
}, "App");

export class AppsView {
  title = "Apps";
  #found = h("p", { class: "found" });
  #content = h("div", {});
  #isEmpty = false;
  element = h("div", {}, h("h1", {}, "Apps"), this.#found, this.#content);

  accepts(name) {
    return name === "apps";
  }

  changed() {}

  async refresh(get, { hostname }) {
    const [{ body: apps }, { body: usage }] = await Promise.all([get("/v1/apps"), get("/v1/usage")]);
    this.#found.hidden = apps.length === 0;
    this.#found.textContent = counts(apps);
    if (apps.length > 0) {
      this.#isEmpty = false;
      this.#show(apps, usage);
    } else if (!this.#isEmpty) {
      this.#isEmpty = true; // made once: a selection in the command stays
      show(this.#content, empty(hostname));
    }
  }

  #show(apps, usage) {
    show(this.#content, h("table", { class: "hosts apps" },
      h("caption", { class: "hidden" }, "Apps of this host"),
      h("thead", {}, sorting.header(COLUMNS, () => this.#show(apps, usage))),
      h("tbody", {}, sorting.sorted(apps.map((app) => ({ app, usage }))).map(row))));
  }
}

function empty(hostname) {
  return h("section", { class: "card" },
    h("h2", {}, "There is no app on this host."),
    h("p", { class: "hint" }, "Start one with the command line, with a name and an image of your own:"),
    command("rollcall app create", `${hostname}/NAME`, "--image IMAGE"));
}

function counts(apps) {
  const wrong = apps.filter((app) => problem(app) !== null).length;
  const stopped = apps.filter((app) => kind(app) === "stopped").length;
  return [`${count(apps.length)} ${apps.length === 1 ? "app" : "apps"}`, wrong > 0 && `${count(wrong)} with a problem`, stopped > 0 && `${count(stopped)} stopped`].filter(Boolean).join(", ");
}

function row({ app, usage }) {
  const wrong = problem(app);
  const noted = note(app);
  const cells = [
    h("div", { class: "cell" }, appState(app), wrong && oneLine("problem", wrong), noted && oneLine("hint", noted)),
    imageName(app.image),
    `http ${app.http_port}, ssh ${app.ssh_port}`,
    usageChart(usage, app),
  ];
  return h("tr", {},
    h("th", { scope: "row" }, h("a", { href: `#/app/${encodeURIComponent(app.name)}`, title: app.name, "data-key": app.name }, app.name)),
    cells.map((cell, index) => h("td", { "data-title": COLUMNS[index + 1] }, cell)));
}

// What does not fit is cut by the browser; a pointer on it, or the page of the app, shows all.
function oneLine(kind, text) {
  return h("span", { class: `line ${kind}`, title: text }, clipped(text, 300));
}

// One chart, in which the top is the limit of both.
function usageChart(usage, app) {
  const used = measured(usage, app);
  if (used === null) return h("span", { class: "more" }, "not measured yet");
  return sparkline({ title: "Last hour", limit: 1, series: used.map(({ title, values, limit, unit, text, colour }) => ({
    colour,
    text: `${title} ${text}`,
    now: (values.at(-1) ?? null) === null ? "–" : `${values.at(-1).toFixed(0)} ${unit}`,
    values: values.map((value) => (value === null ? null : value / limit)),
  })) });
}
