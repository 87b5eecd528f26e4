// Charts with axes, drawn by uPlot, each with a text that says the same.

import uPlot from "../vendor/uplot-1.6.32.js";
import { h } from "./dom.js";
import { clockTime, count } from "./times.js";

const FONT = "11px system-ui, sans-serif";
// How much of its colour the area below a line has, as the end of a colour in hexadecimal.
const AREA = "24";
const scheme = matchMedia("(prefers-color-scheme: dark)");

/** A chart of values over time, with the values under the pointer.
 *
 * `series` are `{colour, unit, digits}`: `colour` is a variable of the styles, `unit` stands behind a value, and
 * `digits` follow its point. `unit` stands behind the values of the axis. Charts with the same
 * `group` show the values of the same time.
 */
export class Plot {
  #title;
  #series;
  #unit;
  #height;
  #group;
  #shown = { until: 0, step: 1, values: [], limit: 0, summary: "" };
  #last = "";
  #plot = null;
  #summary = h("span", { class: "chart-now" });
  #picture = h("div", { class: "plot", role: "img" });
  #value = h("div", { class: "plot-value", hidden: true });
  #observer = new ResizeObserver(() => this.#resize());
  #redraw = () => this.#plot?.redraw(false);

  constructor({ title, series, unit = "", height, group }) {
    this.#title = title;
    this.#series = series;
    this.#unit = unit && ` ${unit}`;
    this.#height = height;
    this.#group = group;
    this.#shown.values = series.map(() => []);
    this.element = h("figure", { class: "chart" }, h("figcaption", {}, h("span", { class: "chart-title" }, title), this.#summary), this.#picture);
    this.#picture.style.height = `${height}px`;
    this.#observer.observe(this.#picture);
    scheme.addEventListener("change", this.#redraw);
  }

  /** Show other values: `values` has a list for each series, of which the last was measured at
   * `until`, and null is a gap.
   *
   * The top is `limit`, or the highest value if that is more. `summary` is the text beside the title.
   */
  update(shown) {
    const last = JSON.stringify(shown);
    if (last === this.#last) return;
    this.#last = last;
    this.#shown = shown;
    this.#summary.textContent = shown.summary;
    this.#picture.setAttribute("aria-label", `${this.#title}: ${shown.summary}`);
    if (this.#plot === null) this.#resize();
    else this.#plot.setData(this.#data());
  }

  /** Let go of what outlives the element. */
  close() {
    this.#observer.disconnect();
    scheme.removeEventListener("change", this.#redraw);
    this.#plot?.destroy();
  }

  #data() {
    const { until, step, values } = this.#shown;
    const { length } = values[0];
    return [values[0].map((_, index) => until - (length - 1 - index) * step), ...values];
  }

  #resize() {
    const size = { width: this.#picture.clientWidth, height: this.#height };
    if (size.width === 0 || this.#shown.values[0].length === 0) return; // hidden, or without axes yet
    if (this.#plot === null) this.#draw(size);
    else this.#plot.setSize(size);
  }

  #draw(size) {
    const read = (name) => () => getComputedStyle(this.element).getPropertyValue(`--${name}`);
    const axis = { font: FONT, stroke: read("dim"), grid: { stroke: read("line"), width: 1 }, ticks: { show: false } };
    const line = ({ colour }) => ({ stroke: read(colour), fill: () => `${read(colour)()}${AREA}`, width: 1.5, points: { show: false, filter: alone } });
    this.#plot = new uPlot({
      ...size,
      padding: [8, 10, 0, 0],
      legend: { show: false },
      cursor: { y: false, drag: { x: false }, sync: { key: this.#group } },
      scales: { y: { range: () => [0, this.#top()] } },
      axes: [
        { ...axis, space: 60, size: 26, values: (_, times) => times.map(clockTime) },
        { ...axis, space: 28, size: this.#unit ? 62 : 40, values: (_, values) => values.map((value) => `${count(value)}${this.#unit}`) },
      ],
      series: [{}, ...this.#series.map(line)],
      hooks: { draw: [(plot) => this.#drawLimit(plot, read("dim")())], setCursor: [(plot) => this.#showValues(plot)] },
    }, this.#data(), this.#picture);
    this.#plot.over.append(this.#value);
  }

  #top() {
    const { limit = 0, values } = this.#shown;
    return Math.max(limit, ...values.flat()) * 1.02 || 1;
  }

  #drawLimit(plot, colour) {
    const { limit = 0 } = this.#shown;
    if (limit === 0) return;
    const { ctx, bbox } = plot;
    const y = plot.valToPos(limit, "y", true);
    ctx.save();
    ctx.strokeStyle = colour;
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([4 * devicePixelRatio, 4 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
    ctx.restore();
  }

  #showValues({ cursor: { idx, left }, data: [times, ...values], over }) {
    this.#value.hidden = idx === null || idx === undefined || left < 0;
    if (this.#value.hidden) return;
    const texts = this.#series.map(({ unit, digits }, index) => {
      const value = values[index][idx] ?? null;
      return value === null ? "not measured" : `${value.toFixed(digits)} ${unit}`;
    });
    this.#value.textContent = `${clockTime(times[idx])}  ${texts.join(", ")}`;
    const isRight = left > over.clientWidth / 2;
    this.#value.style.left = isRight ? "" : `${left + 10}px`;
    this.#value.style.right = isRight ? `${over.clientWidth - left + 10}px` : "";
  }
}

// A value between gaps is a point, or it could not be seen.
function alone(plot, series) {
  const values = plot.data[series];
  const isGap = (index) => (values[index] ?? null) === null;
  return [...values.keys()].filter((index) => !isGap(index) && isGap(index - 1) && isGap(index + 1));
}
