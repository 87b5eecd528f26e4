// Small charts of SVG, each with a text that says the same.

import { h, svg } from "./dom.js";
import { duration } from "./times.js";

const WIDTH = 300;
const HEIGHT = 48;

/** Return a chart of one or more series over the same time, with a caption.
 *
 * `series` are `{values, kind}`; `kind` chooses the colour, and a value of null is a gap.
 * `summary` is the text beside it. The top is `limit`, or the highest value if that is more.
 */
export function chart({ title, summary, series, step, limit = 0 }) {
  const length = Math.max(0, ...series.map((one) => one.values.length));
  return h(
    "figure",
    { class: "chart" },
    h("figcaption", {}, h("span", { class: "chart-title" }, title), h("span", { class: "chart-now" }, summary)),
    picture(`${title}: ${summary}`, series, limit),
    h("div", { class: "axis" }, h("span", {}, length ? `${duration(length * step)} ago` : ""), h("span", {}, length ? "now" : "")),
  );
}

/** Return a chart for a row of a table. Each series has a `text`, and the value of `now` beside it. */
export function rowChart({ title, series, limit }) {
  const label = `${title}: ${series.map(({ text }) => text).join(", ")}`;
  return h("figure", { class: "row-chart", title: label },
    picture(label, series, limit),
    h("figcaption", {}, series.map(({ now, kind }) => h("span", { class: `legend ${kind}` }, now))));
}

function picture(label, series, limit) {
  const highest = Math.max(1e-9, limit, ...series.flatMap((one) => one.values));
  const top = heightOf(limit, highest);
  return svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    limit > 0 && svg("line", { class: "limit", x1: 0, y1: top, x2: WIDTH, y2: top }),
    svg("line", { class: "base", x1: 0, y1: HEIGHT - 0.5, x2: WIDTH, y2: HEIGHT - 0.5 }),
    series.map((one) => area(one, highest)),
  );
}

function area({ values, kind }, highest) {
  const end = Math.max(1, values.length - 1);
  const point = ([index, value]) => {
    const x = (Math.min(Math.max(index, 0), end) / end) * WIDTH;
    return [x.toFixed(1), heightOf(value, highest)];
  };
  return svg("g", { class: `series ${kind}` }, runs(values).map((run) => line(run.map(point))));
}

function heightOf(value, highest) {
  return (HEIGHT - 1 - (value / highest) * (HEIGHT - 3)).toFixed(1);
}

function line(points) {
  const text = points.map((point) => point.join()).join(" ");
  return [
    svg("polygon", { points: `${points[0][0]},${HEIGHT} ${text} ${points.at(-1)[0]},${HEIGHT}` }),
    svg("polyline", { points: text }),
  ];
}

// The parts between gaps, each as pairs of index and value. A value alone is half a step wide on
// either side, or it could not be seen.
function runs(values) {
  const found = [[]];
  values.forEach((value, index) => (value === null ? found.push([]) : found.at(-1).push([index, value])));
  return found
    .filter((run) => run.length > 0)
    .map((run) => (run.length > 1 ? run : [-0.5, 0.5].map((aside) => [run[0][0] + aside, run[0][1]])));
}
