// Small charts of SVG, each with a text that says the same.

import { h, svg } from "./dom.js";
import { duration } from "./times.js";

const WIDTH = 300;
const HEIGHT = 48;

/** Return a chart of one or more series over the same time, with a caption.
 *
 * `series` are `{name, values, kind}`; `kind` chooses the colour. `summary` is the text beside it.
 */
export function chart({ title, summary, series, step }) {
  const highest = Math.max(1e-9, ...series.flatMap((one) => one.values));
  const length = Math.max(0, ...series.map((one) => one.values.length));
  const picture = svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title}: ${summary}` },
    svg("line", { class: "base", x1: 0, y1: HEIGHT - 0.5, x2: WIDTH, y2: HEIGHT - 0.5 }),
    series.map((one) => area(one, highest)),
  );
  return h(
    "figure",
    { class: "chart" },
    h("figcaption", {}, h("span", { class: "chart-title" }, title), h("span", { class: "chart-now" }, summary)),
    picture,
    h("div", { class: "axis" }, h("span", {}, length ? `${duration(length * step)} ago` : ""), h("span", {}, length ? "now" : "")),
  );
}

function area({ values, kind }, highest) {
  if (values.length === 0) return null;
  const across = values.length === 1 ? [values[0], values[0]] : values;
  const points = across.map((value, index) => {
    const x = (index / (across.length - 1)) * WIDTH;
    const y = HEIGHT - 1 - (value / highest) * (HEIGHT - 3);
    return `${x.toFixed(1)},${y.toFixed(1)}`;
  });
  return svg(
    "g",
    { class: `series ${kind}` },
    svg("polygon", { points: `0,${HEIGHT} ${points.join(" ")} ${WIDTH},${HEIGHT}` }),
    svg("polyline", { points: points.join(" ") }),
  );
}
