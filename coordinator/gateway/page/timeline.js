// What prompts took: the plan's time line above the measured one, and both as figures.
import { getJson } from "./api.js";
import { link } from "./deployments.js";
import { button, h, table } from "./dom.js";
import { count, percent, seconds } from "./format.js";
import { gantt, ganttLegend, hopsOf, sliceNames, stepNames } from "./gantt.js";
import * as now from "./live.js";

const EVERY_MS = 3000, MOST_ROWS = 400;

export function stagesOf(record) {
  return record.stages.map((stage) => ({ on: stage.on, first: stage.layers[0], last: stage.layers[1] - 1, planned: stage.planned, measured: stage.measured }));
}

// ---- figures ----

function figureRows(record, pieces) {
  return record.stages.flatMap((stage, j) => pieces.map((tokens, k) => {
    const next = record.stages[j + 1], hop = (kind) => {
      if (!next || !stage[kind] || !next[kind]) return NaN;
      const times = hopsOf(stage[kind], next[kind]);
      return times.end_s[k] - times.start_s[k];
    };
    const took = (kind) => (stage[kind] ? stage[kind].end_s[k] - stage[kind].start_s[k] : NaN);
    return { on: stage.on, k, tokens, start: stage.measured.start_s[k], planned: took("planned"), measured: took("measured"), hopPlanned: hop("planned"), hopMeasured: hop("measured") };
  }));
}

const off = (measured, planned) => (planned > 0 ? percent(measured / planned - 1, true) : "–");

const figureColumns = (piece) => [
  { head: "Stage", cell: (row) => row.on },
  { head: piece, number: true, cell: (row) => row.k + 1 },
  { head: "Tokens", number: true, cell: (row) => count(row.tokens) },
  { head: "Began", number: true, cell: (row) => seconds(row.start) },
  { head: "Planned", number: true, cell: (row) => seconds(row.planned) },
  { head: "Measured", number: true, cell: (row) => seconds(row.measured) },
  { head: "Off", number: true, cell: (row) => off(row.measured, row.planned) },
  { head: "Hop planned", number: true, cell: (row) => seconds(row.hopPlanned) },
  { head: "Hop measured", number: true, cell: (row) => seconds(row.hopMeasured) },
];

function figures(record, pieces, piece) {
  const rows = figureRows(record, pieces);
  return h("details", {}, h("summary", {}, `The same as figures, ${piece} by ${piece} and hop by hop`),
    table(`${piece === "slice" ? "Slices" : "Steps"} and hops`, figureColumns(piece === "slice" ? "Slice" : "Step"), rows.slice(0, MOST_ROWS)),
    rows.length > MOST_ROWS && h("p", { class: "note" }, `The first ${MOST_ROWS} of ${count(rows.length)}.`));
}

// ---- one prompt, and the answer to it ----

function answerSummary(decode) {
  const each = (all_s) => `${seconds(all_s / decode.steps.length)} a step`;
  if (decode.shared) return `Measured ${each(decode.measured_s)}. Others ran beside it, so there is no plan to hold it against.`;
  if (!decode.planned_s) return `Measured ${each(decode.measured_s)}.`;
  return `Planned ${each(decode.planned_s)}, measured ${each(decode.measured_s)} (${percent(decode.error, true)}).`;
}

function answer(decode, room) {
  if (!decode) return [];
  const n = decode.steps.length, title = n > 1 ? `The first ${n} steps of the answer` : "The first step of the answer";
  return [h("h2", {}, title), h("p", { id: "answer-summary" }, answerSummary(decode)),
    gantt(title, stagesOf(decode), stepNames(decode.steps), room), ganttLegend("one colour a step, its number in the bar"), figures(decode, decode.steps, "step")];
}

function summary(record) {
  if (record.shared) return `Measured ${seconds(record.measured_s)}. Other prompts ran beside it, so there is no plan to hold it against.`;
  if (!record.planned_s) return `Measured ${seconds(record.measured_s)}.`;
  return `Planned ${seconds(record.planned_s)}, measured ${seconds(record.measured_s)} (${percent(record.error, true)}).`;
}

function prompt(record, room) {
  const title = `${count(record.tokens)} tokens in ${record.slices.length} slice${record.slices.length > 1 ? "s" : ""}${record.cached ? `, after ${count(record.cached)} that were there` : ""}`;
  return [h("h2", {}, title), h("p", { id: "summary" }, summary(record)),
    gantt(`Time line of a prompt of ${title}`, stagesOf(record), sliceNames(record.slices), room),
    ganttLegend("one colour a slice, its tokens in the bar"), figures(record, record.slices, "slice"), ...answer(record.decode, room)];
}

// ---- all of a deployment ----

function records(name) {
  const list = h("div", {}), body = h("div", { class: "stack" });
  let chosen = null, known = [], timer = null, open = true, drawn = "";
  const listColumns = [
    { head: "Prompt", cell: (row) => button(`${count(row.tokens)} tokens`, () => choose(row.sequence), { class: "quiet", "aria-pressed": row.sequence === chosen ? "true" : "false" }) },
    { head: "Slices", number: true, cell: (row) => row.slices.length },
    { head: "Were there", number: true, cell: (row) => count(row.cached) },
    { head: "Planned", number: true, cell: (row) => (row.planned_s ? seconds(row.planned_s) : "–") },
    { head: "Measured", number: true, cell: (row) => seconds(row.measured_s) },
    { head: "Off", number: true, cell: (row) => (row.shared ? "ran beside others" : off(row.measured_s, row.planned_s)) },
  ];
  const draw = () => {
    const record = known.find((row) => row.sequence === chosen) ?? known[0];
    const state = `${known.map((row) => [row.sequence, row.decode?.steps.length])} ${chosen} ${body.clientWidth}`;
    if (state === drawn) return;
    drawn = state;
    const held = list.contains(document.activeElement), opened = [...body.querySelectorAll("details")].map((details) => details.open);
    list.replaceChildren(table("Prompts, the latest first", listColumns, known));
    body.replaceChildren(...prompt(record, body.clientWidth));
    if (held) list.querySelector("[aria-pressed=true]")?.focus();
    for (const [i, details] of body.querySelectorAll("details").entries()) details.open = opened[i] ?? false;
  };
  const choose = (sequence) => {
    chosen = sequence;
    draw();
  };
  const look = async () => {
    try {
      known = (await getJson(`/api/hp/deployments/${encodeURIComponent(name)}`)).prefill.records;
      if (!known.length) body.replaceChildren(h("p", { class: "note" }, "No prompt has been read yet. Each appears here once all of its stages have told what it took."));
      else {
        if (!known.some((row) => row.sequence === chosen)) chosen = known[0].sequence;
        draw();
      }
    } catch (why) {
      body.replaceChildren(h("p", { class: "trouble", role: "alert" }, why.message));
    }
    if (open) timer = setTimeout(look, EVERY_MS);
  };
  look();
  window.addEventListener("resize", draw);
  return { element: h("div", { class: "stack" }, body, h("h2", {}, "Prompts, the latest first"), list), close: () => { open = false; clearTimeout(timer); window.removeEventListener("resize", draw); } };
}

// Which deployment: the one named, else the first.
export function chooser(view, name) {
  const nav = h("nav", { class: "tabs", "aria-label": "Deployments" });
  const draw = () => {
    const names = (now.cluster?.deployments ?? []).map((one) => one.name);
    if (nav.dataset.names === names.join()) return;
    nav.dataset.names = names.join();
    nav.replaceChildren(...names.map((one) => {
      const to = link(view, one);
      if (one === name) to.setAttribute("aria-current", "page");
      return to;
    }));
    if (!name && names.length) location.replace(`#/${view}/${encodeURIComponent(names[0])}`);
  };
  draw();
  return { element: nav, close: now.watch(draw) };
}

export function timeline(name) {
  const tabs = chooser("timeline", name), inner = name ? records(name) : null;
  return {
    element: h("div", { class: "page" }, h("h1", {}, "Time lines"), tabs.element, inner ? inner.element : h("p", { class: "note" }, "Nothing is deployed yet.")),
    close: () => { tabs.close(); inner?.close(); },
  };
}
