// Small charts: lines over time, and layers as a strip of the stages that have them.
import { g, h } from "./dom.js";
import { layers } from "./format.js";

const COLOURS = 8;
export const colour = (i) => `series-${i % COLOURS}`;

// A round number that is at least this: where an axis may end.
export function roundUp(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].find((step) => step * power >= value * 0.9999) * power;
}

const WIDTH = 600, HEIGHT = 130;

// Lines of the last `room` values each; rows are [{name, values, colour}].
// The axis ends at `least` or above.
export function lines(title, rows, room, text, least) {
  const most = roundUp(Math.max(...rows.flatMap((row) => row.values), least));
  const at = (values, i) => `${(WIDTH * (room - values.length + i) / (room - 1)).toFixed(1)},${(HEIGHT - 4 - (HEIGHT - 16) * values[i] / most).toFixed(1)}`;
  const latest = rows.map((row) => `${row.name}: ${text(row.values.at(-1) ?? 0)}`).join(", ");
  return h("figure", { class: "chart" },
    h("figcaption", {}, h("span", {}, title), h("span", { class: "muted" }, `to ${text(most)}`)),
    g("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title}. ${latest}` },
      [0, 0.5, 1].map((part) => g("line", { class: "grid", x1: 0, x2: WIDTH, y1: HEIGHT - 4 - (HEIGHT - 16) * part, y2: HEIGHT - 4 - (HEIGHT - 16) * part })),
      rows.map((row) => row.values.length > 1 && g("polyline", { class: `line ${row.colour}`, points: row.values.map((_, i) => at(row.values, i)).join(" ") }))),
    h("ul", { class: "legend" }, rows.map((row) => h("li", {}, h("span", { class: `dot ${row.colour}` }), row.name, " ", h("b", {}, text(row.values.at(-1) ?? 0))))));
}

// Which layers are where: stages are [{on, first, last, title}].
export function strip(stages, label) {
  return h("div", { class: "strip", role: "img", "aria-label": `${label}: ${stages.map((one) => `layers ${layers(one.first, one.last)} on ${one.on}`).join(", ")}` },
    stages.map((one, i) => h("span", { class: `part ${colour(i)}`, style: { "flex-grow": one.last - one.first + 1 }, title: one.title ?? `${one.on}: layers ${layers(one.first, one.last)}` },
      h("b", {}, one.on), h("span", {}, layers(one.first, one.last)))));
}
