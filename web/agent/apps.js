// The list of apps.

import { chart } from "../common/charts.js";
import { clipped, h, show } from "../common/dom.js";

const MIB = 2 ** 20;
// With which the agent begins a message that tells of nothing that is wrong.
const NOTE = "note: ";

/** Return the state of an app: a dot and words, so that the colour is not alone. */
export function appState(app) {
  const step = app.progress && [app.progress.step ?? app.progress.operation, app.progress.percent !== null && `${app.progress.percent} %`].filter(Boolean).join(" ");
  return h("span", {},
    h("span", { class: `state ${kind(app)}` }, app.crashing && !app.progress ? "crashing" : app.state),
    step && h("span", { class: "more" }, ` ${step}`));
}

/** Return what the check of an app has found; a dash if it has none, or has found nothing yet. */
export function healthWord({ healthy }) {
  if (healthy === null) return h("span", { title: "no check, or no result yet" }, "–");
  return healthy ? "healthy" : h("span", { class: "badge bad alone" }, "unhealthy");
}

/** Return what is wrong with an app in words, as far as its record tells; null if nothing is. */
export function problem(app) {
  const isUnwell = isDown(app) || app.healthy === false;
  // An app that runs has a message if it is restarted again and again, or lacks something, or a note.
  if (app.progress || !(isUnwell || (app.state === "running" && app.message && !isNote(app.message)))) return null;
  return [
    isUnwell && (isDown(app) ? `It should run, but is ${app.state}.` : "It runs, but is unhealthy."),
    isDown(app) && app.exit_code !== null && `Its last exit code is ${app.exit_code}.`,
    app.oom_killed && "It was killed for lack of memory.",
    app.message && sentence(app.message),
  ].filter(Boolean).join(" ");
}

function isNote(message) {
  return message.startsWith(NOTE);
}

function isDown(app) {
  return app.desired === "running" && app.state !== "running";
}

function kind(app) {
  if (problem(app) !== null) return "stale";
  return app.desired === "stopped" && !app.progress && app.state !== "running" ? "stopped" : "fresh";
}

function sentence(text) {
  return text[0].toUpperCase() + text.slice(1);
}

/** Return the charts of CPU and memory of an app, or nothing if it was not measured. */
export function usageCharts(usage, name) {
  const used = usage.apps.find((one) => one.name === name);
  if (!used?.memory_bytes.some((value) => value !== null)) return null;
  const { cpu_percent: cpu, memory_bytes: memory } = used;
  return h("div", { class: "charts" },
    chart({ title: "CPU", summary: last(cpu, (value) => `${value.toFixed(1)} % of a core`), step: usage.step_seconds, series: [{ values: cpu, kind: "heartbeats" }] }),
    chart({ title: "Memory", summary: last(memory, (value) => `${(value / MIB).toFixed(1)} MiB`), step: usage.step_seconds, series: [{ values: memory, kind: "fresh" }] }));
}

function last(values, words) {
  const value = values.at(-1) ?? null;
  return value === null ? "no recent value" : words(value);
}

export class AppsView {
  element = h("div", {}, h("h1", {}, "Apps"));
  #content = h("div", {});

  constructor() {
    this.element.append(this.#content);
  }

  accepts(name) {
    return name === "apps";
  }

  changed() {}

  async refresh(get) {
    const [{ body: apps }, { body: usage }] = await Promise.all([get("/v1/apps"), get("/v1/usage")]);
    if (!apps.length) {
      show(this.#content, h("p", { class: "hint" }, "There is no app on this host."));
      return;
    }
    const columns = ["App", "State", "Health", "Wanted", "Image", "Ports", "Usage"];
    show(this.#content, h("table", { class: "hosts" },
      h("caption", { class: "hidden" }, "Apps of this host"),
      h("thead", {}, h("tr", {}, columns.map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, apps.map((app) => row(app, usage, columns)))));
  }
}

function row(app, usage, columns) {
  const wrong = problem(app);
  const note = wrong === null && app.message && isNote(app.message) ? sentence(app.message) : null;
  const cells = [[appState(app), wrong && h("p", { class: "problem" }, clipped(wrong, 300)), note && h("p", { class: "hint" }, clipped(note, 300))], healthWord(app), app.desired, h("code", {}, app.image), `http ${app.http_port}, ssh ${app.ssh_port}`, usageCharts(usage, app.name) ?? h("span", { class: "more" }, "not measured yet")];
  return h("tr", {},
    h("th", { scope: "row" }, h("a", { href: `#/app/${encodeURIComponent(app.name)}`, "data-key": app.name }, app.name)),
    cells.map((cell, index) => h("td", { "data-title": columns[index + 1] }, cell)));
}
