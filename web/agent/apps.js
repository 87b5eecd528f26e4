// The list of apps.

import { chart, rowChart } from "../common/charts.js";
import { clipped, h, show } from "../common/dom.js";
import { Sorting } from "../common/sorting.js";
import { count } from "../common/times.js";

const MIB = 2 ** 20;
const COLUMNS = ["App", "State", "Health", "Wanted", "Image", "Ports", "Usage"];
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

/** Return the charts of CPU and memory of an app, each up to its limit; null without values. */
export function usageCharts(usage, app) {
  const used = measured(usage, app);
  return used && h("div", { class: "charts" },
    used.map(({ title, values, limit, text, kind }) => chart({ title, summary: text, step: usage.step_seconds, limit, series: [{ values, kind }] })));
}

// One chart, in which the top is the limit of both.
function usageChart(usage, app) {
  const used = measured(usage, app);
  const series = used?.map(({ title, values, limit, text, kind }) => ({ kind, text: `${title} ${text}`, values: values.map((value) => (value === null ? null : value / limit)) }));
  return series ? rowChart({ title: "Last hour", series, limit: 1 }) : h("span", { class: "more" }, "not measured yet");
}

function measured(usage, { name, cpu, memory }) {
  const used = usage.apps.find((one) => one.name === name);
  if (!used?.memory_bytes.some((value) => value !== null)) return null;
  const mebibytes = used.memory_bytes.map((bytes) => (bytes === null ? null : bytes / MIB));
  return [
    { title: "CPU", values: used.cpu_percent, limit: cpu, text: last(used.cpu_percent, `${cpu} %`), kind: "cpu" },
    { title: "Memory", values: mebibytes, limit: memory, text: last(mebibytes, `${memory} MiB`), kind: "memory" },
  ];
}

function last(values, limit) {
  const value = values.at(-1) ?? null;
  return value === null ? "no recent value" : `${value.toFixed(1)} of ${limit}`;
}

// Problems first, then by the state's name.
const sorting = new Sorting({
  App: ({ app }) => app.name,
  State: ({ app }) => `${problem(app) === null ? 1 : 0}${app.state}`,
  Health: ({ app }) => (app.healthy === null ? null : Number(app.healthy)),
  Wanted: ({ app }) => app.desired,
  Image: ({ app }) => app.image,
  Ports: ({ app }) => app.http_port,
  Usage: ({ app, usage }) => measured(usage, app)?.[1].values.at(-1), // memory
}, "App");

export class AppsView {
  title = "Apps";
  #found = h("p", { class: "found" });
  #content = h("div", {});
  element = h("div", {}, h("h1", {}, "Apps"), this.#found, this.#content);

  accepts(name) {
    return name === "apps";
  }

  changed() {}

  async refresh(get) {
    const [{ body: apps }, { body: usage }] = await Promise.all([get("/v1/apps"), get("/v1/usage")]);
    this.#show(apps, usage);
  }

  #show(apps, usage) {
    show(this.#found, apps.length ? counts(apps) : "There is no app on this host.");
    const rows = sorting.sorted(apps.map((app) => ({ app, usage }))).map(row);
    show(this.#content, apps.length > 0 && h("table", { class: "hosts" },
      h("caption", { class: "hidden" }, "Apps of this host"),
      h("thead", {}, sorting.header(COLUMNS, () => this.#show(apps, usage))),
      h("tbody", {}, rows)));
  }
}

function counts(apps) {
  const wrong = apps.filter((app) => problem(app) !== null).length;
  const stopped = apps.filter((app) => kind(app) === "stopped").length;
  return [`${count(apps.length)} ${apps.length === 1 ? "app" : "apps"}`, wrong > 0 && `${count(wrong)} with a problem`, stopped > 0 && `${count(stopped)} stopped`].filter(Boolean).join(", ");
}

function row({ app, usage }) {
  const wrong = problem(app);
  const note = wrong === null && app.message && isNote(app.message) ? sentence(app.message) : null;
  const cells = [[appState(app), wrong && h("p", { class: "problem" }, clipped(wrong, 300)), note && h("p", { class: "hint" }, clipped(note, 300))], healthWord(app), app.desired, h("code", {}, app.image), `http ${app.http_port}, ssh ${app.ssh_port}`, usageChart(usage, app)];
  return h("tr", {},
    h("th", { scope: "row" }, h("a", { href: `#/app/${encodeURIComponent(app.name)}`, "data-key": app.name }, app.name)),
    cells.map((cell, index) => h("td", { "data-title": COLUMNS[index + 1] }, cell)));
}
