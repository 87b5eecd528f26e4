// A small chart of SVG in a line of text, with a text that says the same.

import { h, svg } from "./dom.js";

const WIDTH = 300;
const HEIGHT = 48;

/** Return a chart of one or more series over the same time, up to `limit` or the highest value.
 *
 * `series` are `{values, colour, text, now}`: null is a gap, `colour` is a class, and `now` stands beside
 * the chart.
 */
export function sparkline({ title, series, limit }) {
  const label = `${title}: ${series.map(({ text }) => text).join(", ")}`;
  return h("figure", { class: "sparkline", title: label },
    picture(label, series, limit),
    h("figcaption", {}, series.map(({ now, colour }) => h("span", { class: `legend ${colour}` }, now))));
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

function area({ values, colour }, highest) {
  const end = Math.max(1, values.length - 1);
  const point = ([index, value]) => {
    const x = (Math.min(Math.max(index, 0), end) / end) * WIDTH;
    return [x.toFixed(1), heightOf(value, highest)];
  };
  return svg("g", { class: `series ${colour}` }, runs(values).map((run) => line(run.map(point))));
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
