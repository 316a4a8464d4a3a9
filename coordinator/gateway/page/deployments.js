// Deployments: what is where, and how full it is.
import { getJson } from "./api.js";
import { strip } from "./charts.js";
import { bar, facts, h, state, table } from "./dom.js";
import { bytes, count, layers, percent, perSecond, seconds, three } from "./format.js";
import * as now from "./live.js";

const EVERY_MS = 2000;

export const link = (view, name, text = name) => h("a", { href: `#/${view}/${encodeURIComponent(name)}` }, text);

export function stageParts(stages) {
  return stages.map((stage) => ({ on: stage.on, first: stage.first_layer, last: stage.last_layer,
    title: `${stage.on}: layers ${layers(stage.first_layer, stage.last_layer)}, ${bytes(stage.memory_bytes)}, ${stage.state}` }));
}

// ---- all ----

function card(row) {
  const figures = now.latest()?.deployments[row.name] ?? { tokens: 0, used: 0 };
  return h("section", { class: "card", "aria-label": row.name },
    h("div", { class: "row" }, h("h2", {}, link("deployments", row.name)), state(row.state), h("span", { class: "muted" }, row.model),
      h("span", { class: "push" }, `${perSecond(figures.tokens)} tokens/s`)),
    row.text && h("p", { class: "trouble" }, row.text),
    row.stages.length > 0 && strip(stageParts(row.stages), `Layers of ${row.name}`),
    row.stages.some((stage) => stage.state !== "ready") && h("ul", { class: "progress" }, row.stages.map((stage) => h("li", {}, h("b", {}, stage.on), state(stage.state),
      stage.total_bytes > 0 && [bar(stage.done_bytes / stage.total_bytes, `${percent(stage.done_bytes / stage.total_bytes)} of its weights are there`), `${bytes(stage.done_bytes)} of ${bytes(stage.total_bytes)}`]))),
    h("div", { class: "row small" },
      h("span", {}, `${count(row.sequences_active)} run, ${count(row.sequences_waiting)} wait`),
      h("span", {}, `context ${count(row.context)}`),
      h("span", {}, bar(figures.used, `KV cache ${percent(figures.used)} in use`), ` KV ${percent(figures.used)}`),
      h("span", { class: "push" }, link("timeline", row.name, "time lines"), " · ", link("plans", row.name, "plans"))));
}

export function deployments() {
  const body = h("div", { class: "stack" });
  const draw = () => {
    const held = document.activeElement?.getAttribute("href");
    const rows = now.cluster?.deployments;
    body.replaceChildren(...(!rows ? [h("p", { class: "note" }, now.trouble || "Waiting…")]
      : rows.length ? rows.map(card)
      : [h("p", { class: "note" }, "Nothing is deployed: hpctl deploy MODEL.gguf does it.")]));
    if (held && !document.activeElement?.getAttribute("href")) [...body.querySelectorAll("a")].find((one) => one.getAttribute("href") === held)?.focus();
  };
  draw();
  return { element: h("div", { class: "page" }, h("h1", {}, "Deployments"), body), close: now.watch(draw) };
}

// ---- one ----

const stageColumns = [
  { head: "Stage", cell: ({ i }) => i },
  { head: "On", cell: ({ stage }) => stage.on },
  { head: "State", cell: ({ stage }) => state(stage.state) },
  { head: "Layers", cell: ({ stage }) => layers(stage.first_layer, stage.last_layer) },
  { head: "Memory", number: true, cell: ({ stage }) => bytes(stage.memory_bytes) },
  { head: "Weights here", number: true, cell: ({ stage }) => (stage.total_bytes ? percent(stage.done_bytes / stage.total_bytes) : "–") },
  { head: "Planned", number: true, cell: ({ stage }) => seconds(stage.planned_compute_s) },
  { head: "Pace", number: true, cell: ({ stage }) => `× ${three(stage.pace)}` },
  { head: "KV tokens", number: true, cell: ({ stage }) => count(stage.kv_used_tokens) },
  { head: "Sequences", number: true, cell: ({ stage }) => count(stage.sequences) },
  { head: "Batches", number: true, cell: ({ stage }) => count(stage.batches_done) },
  { head: "Busy", number: true, cell: ({ stage }) => seconds(stage.busy_s ?? 0) },
];

function about(d) {
  return facts([
    ["Model", d.model], ["Compute", d.compute], ["Rows cross as", d.wire], ["Keys and values", d.kv],
    ["Context", count(d.context)], ["KV tokens", count(d.kv_tokens)], ["Sequences at most", count(d.max_sequences)],
    ["Generation", count(d.generation)], ["Prompt tokens", count(d.prompt_tokens)], ["Answer tokens", count(d.output_tokens)],
    ["Bytes moved", bytes(d.moved_bytes)],
    d.ttft_ms > 0 && ["First token within", seconds(d.ttft_ms / 1e3)], d.tpot_ms > 0 && ["Time per token", seconds(d.tpot_ms / 1e3)],
  ]);
}

function kept(d) {
  const p = d.prefix_cache, s = d.speculation, g = d.growth;
  return facts([
    ["Prompts that began alike", `${count(p.hits)} of ${count(p.requests)}, ${count(p.tokens)} tokens`],
    ["Pages", `${count(p.pages_own + p.pages_shared)} in use, ${count(p.pages_cached)} kept, of ${count(p.pages)}`],
    ["Speculation", `${s.mode}: ${three(s.tokens_per_step)} tokens a step`],
    ["Gave way", count(g.preempted)],
    ["Spilled", `${count(d.spills.pages)} pages`],
    ["Streams lost and gone on", `${count(d.losses?.recovered ?? 0)} of ${count(d.losses?.sequences ?? 0)}`],
    d.handoffs.done > 0 && ["Prompts read elsewhere", count(d.handoffs.done)],
    ["Rebalance", d.rebalance ? `${d.rebalances}: ${d.rebalance.why}` : d.rebalances],
  ]);
}

function planned(d) {
  const t = d.prefill;
  return facts([
    ["Prompts compared", count(t.count)],
    t.count > 0 && ["Planned", seconds(t.planned_s)], t.count > 0 && ["Measured", `${seconds(t.measured_s)} (${percent(t.error, true)})`],
    ["Profile corrected", `${count(t.corrections)} times`],
  ]);
}

function describe(d) {
  return [
    h("div", { class: "row" }, state(d.state), d.text && h("span", { class: "trouble" }, d.text),
      h("span", { class: "push" }, link("timeline", d.name, "time lines"), " · ", link("plans", d.name, "plans"))),
    d.stages.length > 0 && strip(stageParts(d.stages), `Layers of ${d.name}`),
    d.stages.length > 0 && table("Stages", stageColumns, d.stages.map((stage, i) => ({ stage, i }))),
    d.stages.length > 0 && h("p", { class: "note" }, "Layers: the embedding, of each block attention and feed-forward, the head. Memory: their weights, and keys and values of all sequences."),
    h("div", { class: "columns" },
      h("section", {}, h("h2", {}, "What it is"), about(d)),
      h("section", {}, h("h2", {}, "What it keeps"), kept(d)),
      h("section", {}, h("h2", {}, "Plan and measurement"), planned(d))),
  ].filter(Boolean);
}

export function deployment(name) {
  const body = h("div", { class: "stack" }, h("p", { class: "note" }, "Waiting…"));
  let timer = null, open = true;
  const draw = async () => {
    try {
      const document = await getJson(`/api/hp/deployments/${encodeURIComponent(name)}`);
      if (open) body.replaceChildren(...describe(document));
    } catch (why) {
      body.replaceChildren(h("p", { class: "trouble", role: "alert" }, why.message));
    }
    if (open) timer = setTimeout(draw, EVERY_MS);
  };
  draw();
  return {
    element: h("div", { class: "page" }, h("h1", {}, link("deployments", "", "Deployments"), ` / ${name}`), body),
    close: () => { open = false; clearTimeout(timer); },
  };
}
