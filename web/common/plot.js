// Charts with axes, drawn by uPlot, each with a text that says the same.

import uPlot from "../vendor/uplot-1.6.32.js";
import { h } from "./dom.js";
import { clockTime } from "./times.js";

const FONT = "11px system-ui, sans-serif";
const HEIGHT = 150;
const scheme = matchMedia("(prefers-color-scheme: dark)");

// A value between gaps is a point, or it could not be seen.
function alone(plot, series) {
  const values = plot.data[series];
  const isGap = (index) => (values[index] ?? null) === null;
  return [...values.keys()].filter((index) => !isGap(index) && isGap(index - 1) && isGap(index + 1));
}

/** A chart of values over time, with the value under the pointer.
 *
 * `unit` stands behind each value, and `kind` chooses the colour. Charts with the same `group` show
 * the values of the same time.
 */
export class Plot {
  #title;
  #unit;
  #kind;
  #group;
  #shown = { until: 0, step: 1, values: [], limit: 0, summary: "" };
  #plot = null;
  #summary = h("span", { class: "chart-now" });
  #picture = h("div", { class: "plot", role: "img" });
  #value = h("div", { class: "plot-value", hidden: true });
  #observer = new ResizeObserver(() => this.#resize());
  #redraw = () => this.#plot?.redraw(false);

  constructor({ title, unit, kind, group }) {
    this.#title = title;
    this.#unit = unit;
    this.#kind = kind;
    this.#group = group;
    this.element = h("figure", { class: `chart ${kind}` }, h("figcaption", {}, h("span", { class: "chart-title" }, title), this.#summary), this.#picture);
    this.#observer.observe(this.#picture);
    scheme.addEventListener("change", this.#redraw);
  }

  /** Show other values, of which the last was measured at `until` and null is a gap.
   *
   * The top is `limit`, or the highest value if that is more. `summary` is the text beside the title.
   */
  update(shown) {
    this.#shown = shown;
    this.#summary.textContent = shown.summary;
    this.#picture.setAttribute("aria-label", `${this.#title}: ${shown.summary}`);
    this.#plot?.setData(this.#data());
  }

  /** Let go of what outlives the element. */
  close() {
    this.#observer.disconnect();
    scheme.removeEventListener("change", this.#redraw);
    this.#plot?.destroy();
  }

  #data() {
    const { until, step, values } = this.#shown;
    return [values.map((_, index) => until - (values.length - 1 - index) * step), values];
  }

  #resize() {
    const size = { width: this.#picture.clientWidth, height: HEIGHT };
    if (size.width === 0) return;
    if (this.#plot === null) this.#draw(size);
    else this.#plot.setSize(size);
  }

  #draw(size) {
    const colour = (name) => () => getComputedStyle(this.element).getPropertyValue(name);
    const axis = { font: FONT, stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    this.#plot = new uPlot({
      ...size,
      padding: [8, 10, 0, 0],
      legend: { show: false },
      cursor: { y: false, drag: { x: false }, sync: { key: this.#group } },
      scales: { y: { range: () => [0, this.#top()] } },
      axes: [
        { ...axis, space: 60, size: 26, values: (_, times) => times.map(clockTime) },
        { ...axis, space: 32, size: 62, values: (_, values) => values.map((value) => `${value} ${this.#unit}`) },
      ],
      series: [{}, { stroke: colour("--series"), fill: colour("--series-area"), width: 1.5, points: { show: false, filter: alone } }],
      hooks: { draw: [(plot) => this.#drawLimit(plot, colour("--dim")())], setCursor: [(plot) => this.#showValue(plot.cursor)] },
    }, this.#data(), this.#picture);
    this.#plot.over.append(this.#value);
  }

  #top() {
    const { limit, values } = this.#shown;
    return Math.max(limit, ...values, 1e-9) * 1.02;
  }

  #drawLimit(plot, colour) {
    const { limit } = this.#shown;
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

  #showValue({ idx, left }) {
    const [times, values] = this.#plot?.data ?? [[], []];
    this.#value.hidden = idx === null || idx === undefined || left < 0;
    if (this.#value.hidden) return;
    const value = values[idx] ?? null;
    this.#value.textContent = `${clockTime(times[idx])}  ${value === null ? "not measured" : `${value.toFixed(1)} ${this.#unit}`}`;
    const isRight = left > this.#plot.over.clientWidth / 2;
    this.#value.style.left = isRight ? "" : `${left + 10}px`;
    this.#value.style.right = isRight ? `${this.#plot.over.clientWidth - left + 10}px` : "";
  }
}
