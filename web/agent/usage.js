// What apps used of their CPU and memory over the last hour.

import { h, show } from "../common/dom.js";
import { Plot } from "../common/plot.js";

const MIB = 2 ** 20;
const HEIGHT = 150;

/** Return CPU and memory of an app with their limits, in the units of these; null without values. */
export function measured(usage, { name, cpu, memory }) {
  const used = usage.apps.find((one) => one.name === name);
  if (!used?.memory_bytes.some((value) => value !== null)) return null;
  const mebibytes = used.memory_bytes.map((bytes) => (bytes === null ? null : bytes / MIB));
  return [
    { title: "CPU", values: used.cpu_percent, limit: cpu, unit: "%", colour: "accent" },
    { title: "Memory", values: mebibytes, limit: memory, unit: "MiB", colour: "good" },
  ].map((one) => ({ ...one, text: last(one) }));
}

function last({ values, limit, unit }) {
  const value = values.at(-1) ?? null;
  return value === null ? "no recent value" : `${value.toFixed(1)} of ${limit} ${unit}`;
}

/** The charts of CPU and memory of an app, each up to its limit. */
export class UsageCharts {
  #plots = [];
  element = h("div", { class: "charts" });

  update(usage, app) {
    const used = measured(usage, app);
    if (used === null) {
      this.close();
      show(this.element, h("p", { class: "card hint" }, "CPU and memory are not measured yet. The first values come within a minute or two after the start of the app."));
      return;
    }
    if (this.#plots.length === 0) {
      this.#plots = used.map(({ title, unit, colour }) => new Plot({ title, series: [{ colour, unit, digits: 1 }], unit, height: HEIGHT, group: "usage" }));
      show(this.element, this.#plots.map(({ element }) => element));
    }
    used.forEach(({ values, limit, text }, index) => this.#plots[index].update({ until: usage.until, step: usage.step_seconds, values: [values], limit, summary: text }));
  }

  close() {
    for (const plot of this.#plots) plot.close();
    this.#plots = [];
  }
}
