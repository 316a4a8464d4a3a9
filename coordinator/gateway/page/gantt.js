// A pipeline's time line: for every stage and hop what was planned above what was measured, slice by slice.
import { colour, roundUp } from "./charts.js";
import { g, h } from "./dom.js";
import { layers, seconds } from "./format.js";

const LEFT = 148, RIGHT = 16, TOP = 26, BAR = 15, GAP = 3, BETWEEN = 9, HOP = 7, LEAST = 560, TEXT = 7;

// From one stage to the next: when a slice was done here, and when it was there.
export function hopsOf(here, next) {
  return { start_s: here.end_s, end_s: next.arrive_s };
}

// What the pieces of a prompt and the steps of an answer are called: in their bars, and in full.
export const sliceNames = (slices) => slices.map((tokens, k) => ({ text: `${tokens}`, title: `slice ${k + 1} (${tokens} tokens)` }));
export const stepNames = (steps) => steps.map((tokens, k) => ({ text: `${k + 1}`, title: `step ${k + 1}${tokens > 1 ? ` (${tokens} tokens, all but one guessed)` : ""}` }));

// Lanes from the top; each has its rows of intervals.
function lanesOf(stages) {
  return stages.flatMap((stage, j) => {
    const next = stages[j + 1];
    const rows = (pick) => ["planned", "measured"].filter((kind) => stage[kind]).map((kind) => ({ kind, times: pick(kind) }));
    const lane = { name: stage.on, note: `layers ${layers(stage.first, stage.last)}`, height: BAR, rows: rows((kind) => stage[kind]) };
    return next ? [lane, { name: "", note: `to ${next.on}`, height: HOP, hop: true, rows: rows((kind) => next[kind] && hopsOf(stage[kind], next[kind])).filter((row) => row.times) }] : [lane];
  });
}

const laneHeight = (lane) => lane.rows.length * (lane.height + GAP) - GAP;

function ticks(end, scale, bottom, width) {
  const step = roundUp(end / Math.max(3, Math.min(8, width / 140))), marks = [];
  for (let i = 0; i * step <= end * 1.0001; i++) {
    const x = LEFT + i * step * scale;
    marks.push(g("line", { class: "grid", x1: x, x2: x, y1: TOP - 6, y2: bottom }),
      g("text", { class: "axis", x: Math.min(x, width - 4), y: TOP - 11, "text-anchor": i === 0 ? "start" : x > width - 30 ? "end" : "middle" }, i === 0 ? "0" : seconds(i * step)));
  }
  return marks;
}

function intervals(lane, row, y, scale, names) {
  return row.times.start_s.map((start, k) => {
    const from = LEFT + start * scale, width = Math.max(1, (row.times.end_s[k] - start) * scale);
    const { text, title } = names[k], what = lane.hop ? `hop ${lane.note}` : lane.name;
    return g("g", {},
      g("title", {}, `${row.kind}: ${title}, ${what}: ${seconds(start)} to ${seconds(row.times.end_s[k])}, ${seconds(row.times.end_s[k] - start)}`),
      g("rect", { class: `span ${colour(k)} ${row.kind} ${lane.hop ? "hop" : ""}`, x: from.toFixed(2), y, width: width.toFixed(2), height: lane.height, rx: lane.hop ? 1 : 2 }),
      !lane.hop && width > text.length * TEXT + 6 && g("text", { class: `span-text ${row.kind}`, x: (from + 4).toFixed(2), y: y + BAR - 4 }, text));
  });
}

// `stages`: [{on, first, last, planned, measured}], either of the two may be missing; `names` of what runs on them.
export function gantt(label, stages, names, room) {
  const width = Math.max(LEAST, room), lanes = lanesOf(stages);
  const end = Math.max(...stages.flatMap((stage) => [stage.planned, stage.measured].filter(Boolean).flatMap((times) => times.end_s)), 1e-9);
  const scale = (width - LEFT - RIGHT) / end, both = stages.some((stage) => stage.planned && stage.measured);
  let y = TOP;
  const drawn = lanes.map((lane) => {
    const top = y;
    y += laneHeight(lane) + BETWEEN;
    const middle = top + laneHeight(lane) / 2;
    return [
      lane.hop ? g("text", { class: "lane-note", x: LEFT - 10, y: middle + 4, "text-anchor": "end" }, lane.note)
        : [g("text", { class: "lane", x: LEFT - 10, y: middle - (both ? 2 : 0) + (both ? 0 : 4), "text-anchor": "end" }, both ? lane.name : `${lane.name} · ${lane.note.replace("layers ", "")}`),
          both && g("text", { class: "lane-note", x: LEFT - 10, y: middle + 12, "text-anchor": "end" }, lane.note)],
      lane.rows.map((row, i) => intervals(lane, row, top + i * (lane.height + GAP), scale, names)),
    ];
  });
  const height = y + 4;
  return h("div", { class: "gantt-box", tabindex: "0", role: "region", "aria-label": label },
    g("svg", { class: "gantt", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
      ticks(end, scale, height - 8, width), drawn));
}

export function ganttLegend(pieces) {
  return h("p", { class: "legend-line" },
    h("span", { class: "swatch planned series-0" }), "planned", h("span", { class: "swatch measured series-0" }), "measured",
    h("span", { class: "muted" }, `${pieces}; thin bars are hops, from the end on one stage to the arrival at the next`));
}
