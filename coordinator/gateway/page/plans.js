// Plans of a deployment over boxes that one chooses, beside what runs.
import { getJson } from "./api.js";
import { strip } from "./charts.js";
import { button, h, table } from "./dom.js";
import { bytes, count, percent, seconds, three } from "./format.js";
import { gantt, sliceNames } from "./gantt.js";
import * as now from "./live.js";
import { chooser } from "./timeline.js";

const NOT_DONE = "These are plans alone, and nothing is moved: hpctl rebalance and hpctl deploy --agents carry one out.";

// An agent's name stands for its only device.
function deviceText(id) {
  const [name] = id.split("/");
  return now.cluster?.agents.find((agent) => agent.name === name)?.devices.length === 1 ? name : id;
}

function stagesOf(answer) {
  return answer.plan.stages.map((stage, j) => ({ on: (stage.devices ?? [stage.device]).map(deviceText).join(" + "), first: stage.layers[0], last: stage.layers[1] - 1, memory: stage.memory_bytes, planned: answer.timeline[j] }));
}

const parts = (answer) => stagesOf(answer).map((stage) => ({ ...stage, title: `${stage.on}: layers ${stage.first} to ${stage.last}, ${bytes(stage.memory)}` }));
const request = (answer, forecast) => forecast.ttft_s + answer.answer_tokens * forecast.tpot_s;

// Above 1: so many times as fast as what runs.
function gain(answer) {
  return answer.before ? request(answer, answer.before) / request(answer, answer.after) : NaN;
}

function gainText(times) {
  if (Math.abs(times - 1) < 0.005) return "as fast as now";
  return times > 1 ? `${three(times)} times as fast` : `takes ${three(1 / times)} times as long`;
}

// ---- the table of what was planned ----

const columns = (chosen, choose) => [
  { head: "Boxes", cell: (row) => button(row.name, () => choose(row), { class: "quiet", "aria-pressed": row === chosen ? "true" : "false" }) },
  { head: "First token", number: true, cell: (row) => (row.forecast ? seconds(row.forecast.ttft_s) : "–") },
  { head: "Each further token", number: true, cell: (row) => (row.forecast ? seconds(row.forecast.tpot_s) : "–") },
  { head: "Tokens/s", number: true, cell: (row) => (row.forecast ? three(row.forecast.tokens_per_s) : "–") },
  { head: "Requests/s", number: true, cell: (row) => (row.forecast ? three(row.forecast.requests_per_s) : "–") },
  { head: "Whole request", number: true, cell: (row) => (row.why ? "does not fit" : row.runs ? "runs now" : Number.isFinite(gain(row.answer)) ? gainText(gain(row.answer)) : "–") },
  { head: "Layers", cell: (row) => (row.answer && !row.runs ? strip(parts(row.answer), row.name) : row.why ? "–" : row.strip) },
];

function whyTable(plan) {
  if (!plan.why?.length) return null;
  return h("section", {}, h("h2", {}, "What the planner weighed"), table("Alternatives", [
    { head: "Candidate", cell: (row) => row.candidate },
    { head: "Predicted", number: true, cell: (row) => (Number.isFinite(row.value ?? row.predicted) ? seconds(row.value ?? row.predicted) : "–") },
    { head: "Why not", cell: (row) => row.reason },
  ], plan.why));
}

function detail(row, room) {
  if (row.why) return [h("h2", {}, row.name), h("p", { class: "trouble" }, row.why)];
  if (row.runs) return [];
  const { answer } = row, { plan } = answer, slices = plan.slices ?? [answer.prompt_tokens];
  return [
    h("h2", {}, `A prompt of ${count(answer.prompt_tokens)} tokens, ${row.name}`),
    gantt(`Planned time line, ${row.name}`, stagesOf(answer), sliceNames(slices), room),
    h("p", { class: "note" }, `Planned by ${plan.solver?.method ?? "the planner"}. Between stages activations are sent as ${answer.wire}: ${answer.wire_why}. The context is ${count(answer.context)} tokens, and there is room for ${count(answer.sequences)} sequences of that length.`),
    whyTable(plan),
  ].filter(Boolean);
}

// ---- the view of one deployment ----

function scenarios(name) {
  const boxes = h("fieldset", { class: "boxes" }, h("legend", {}, "Boxes to plan with")), status = h("p", { class: "note", role: "status" });
  const list = h("div", {}), body = h("div", { class: "stack" });
  const rows = [];
  let chosen = null, open = true;

  const draw = () => {
    list.replaceChildren(rows.length ? table("Plans", columns(chosen, choose), rows) : h("span", {}));
    body.replaceChildren(...(chosen ? detail(chosen, body.clientWidth) : []));
  };
  const choose = (row) => {
    chosen = row;
    draw();
    list.querySelector("[aria-pressed=true]")?.focus();
  };

  // What runs, above all else, by the same yardstick.
  function runsAdd(answer) {
    if (!answer.before || rows.some((row) => row.runs)) return;
    const mine = now.cluster?.deployments.find((one) => one.name === name);
    rows.unshift({ name: "as it runs", runs: true, forecast: answer.before, answer,
      strip: mine && strip(mine.stages.map((stage) => ({ on: stage.on, first: stage.first_layer, last: stage.last_layer })), "as it runs") });
  }

  async function plan(without) {
    const title = without.length ? `without ${without.join(", ")}` : "all boxes";
    const there = rows.find((row) => row.name === title);
    if (there) rows.splice(rows.indexOf(there), 1);
    status.textContent = `Planning ${title}…`;
    try {
      const answer = await getJson(`/api/hp/plans/${encodeURIComponent(name)}?without=${encodeURIComponent(without.join(","))}`);
      if (!open) return;
      const row = answer.infeasible ? { name: title, why: answer.infeasible } : { name: title, answer, forecast: answer.after };
      if (!answer.infeasible) runsAdd(answer);
      rows.push(row);
      chosen = row;
      status.textContent = answer.infeasible ? NOT_DONE : `A whole request is a prompt of ${count(answer.prompt_tokens)} tokens and an answer of ${count(answer.answer_tokens)}. All times are the planner's, those of what runs as well. ${NOT_DONE}`;
      draw();
    } catch (why) {
      status.textContent = why.message;
    }
  }

  function boxesDraw() {
    const names = (now.cluster?.agents ?? []).filter((agent) => agent.devices.length).map((agent) => agent.name);
    if (boxes.dataset.names === names.join() || !names.length) return;
    boxes.dataset.names = names.join();
    const checks = names.map((agent, i) => {
      const check = h("input", { type: "checkbox", id: `box-${i}`, value: agent });
      check.checked = true;
      return check;
    });
    boxes.replaceChildren(boxes.firstChild, ...checks.map((check) => h("label", { class: "check", for: check.id }, check, ` ${check.value}`)),
      button("Plan", () => plan(checks.filter((check) => !check.checked).map((check) => check.value)), { class: "main" }));
  }

  boxesDraw();
  plan([]);
  const unwatch = now.watch(boxesDraw);
  window.addEventListener("resize", draw);
  return { element: h("div", { class: "stack" }, boxes, status, list, body), close: () => { open = false; unwatch(); window.removeEventListener("resize", draw); } };
}

export function plans(name) {
  const tabs = chooser("plans", name), inner = name ? scenarios(name) : null;
  return {
    element: h("div", { class: "page" }, h("h1", {}, "Plans"), tabs.element, inner ? inner.element : h("p", { class: "note" }, "Nothing is deployed yet.")),
    close: () => { tabs.close(); inner?.close(); },
  };
}
