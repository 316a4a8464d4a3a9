// The boxes, what is in them, and the links between them as they were measured.
import { getJson } from "./api.js";
import { colour } from "./charts.js";
import { bar, facts, g, h, state, table } from "./dom.js";
import { bytes, layers, rate, seconds } from "./format.js";
import * as now from "./live.js";

const EVERY_MS = 5000;
const MOST_DRAWN = 8; // boxes; more are a table alone

const agentOf = (device) => device.split("/")[0];

// ---- links ----

// The first measured path between each pair of agents, by "from to".
function linksOf(topology) {
  const links = new Map();
  for (const link of topology.links) {
    const pair = `${agentOf(link.from)} ${agentOf(link.to)}`;
    if (!links.has(pair)) links.set(pair, link);
  }
  return links;
}

// What the planner takes of two NICs where nobody has measured.
function linkText(link) {
  if (!link) return "not measured";
  return `${rate(link.bandwidth_bytes_per_s)}, ${seconds(link.latency_s)}${link.assumed ? ", assumed" : ""}${link.late_s ? `, late by ${seconds(link.late_s)}` : ""}${link.loss ? `, loses ${(100 * link.loss).toPrecision(2)} %` : ""}`;
}

function matrix(names, links) {
  const fastest = Math.max(...[...links.values()].map((link) => link.bandwidth_bytes_per_s), 1);
  const cell = (from, to) => {
    const link = links.get(`${from} ${to}`);
    if (from === to) return "";
    if (!link) return h("span", { class: "muted" }, "–");
    return h("span", { class: "link-cell", title: `${from} to ${to}: ${linkText(link)}` },
      bar(Math.max(0.02, Math.log10(Math.max(link.bandwidth_bytes_per_s, 1e4) / 1e4) / Math.log10(Math.max(fastest, 1e5) / 1e4)), linkText(link)),
      h("b", {}, rate(link.bandwidth_bytes_per_s)), h("span", { class: "muted" }, `${seconds(link.latency_s)}${link.assumed ? " assumed" : ""}`));
  };
  return table("Links, from the row to the column", [{ head: "From \\ to", cell: (from) => from },
    ...names.map((to) => ({ head: to, cell: (from) => cell(from, to) }))], names, { class: "matrix" });
}

// ---- the picture ----

const BOX = { width: 168, height: 62 }, LABEL = { width: 132, height: 32 };
const FONT = { name: "600 14px", note: "11px" }; // views.css: .box-name, .lane-note
const pen = document.createElement("canvas").getContext("2d");

// Boxes on an ellipse that is wide enough for the labels between neighbours.
function places(names, width) {
  const n = names.length, room = Math.max(width, 640);
  if (n === 1) return { width: room, height: 110, at: [[room / 2, 55]] };
  const rx = Math.min((room - BOX.width) / 2 - 8, 200 + n * 34), ry = n === 2 ? 0 : 96 + n * 22;
  const start = n === 2 ? Math.PI : -Math.PI / 2, angle = (i) => start + 2 * Math.PI * i / n;
  const down = names.map((_, i) => ry * Math.sin(angle(i))), top = Math.min(...down) - BOX.height / 2 - 14;
  return { width: room, height: Math.max(...down) + BOX.height / 2 + 14 - top, at: names.map((_, i) => [room / 2 + rx * Math.cos(angle(i)), down[i] - top]) };
}

const overlaps = (a, b) => Math.abs(a[0] - b[0]) < (a[2] + b[2]) / 2 + 4 && Math.abs(a[1] - b[1]) < (a[3] + b[3]) / 2 + 4;

// Where on its line a label meets neither a box nor another label; null: nowhere.
function labelPlace(from, to, taken) {
  for (const part of [0.5, 0.4, 0.6, 0.32, 0.68, 0.45, 0.55]) {
    const place = [from[0] + (to[0] - from[0]) * part, from[1] + (to[1] - from[1]) * part, LABEL.width, LABEL.height];
    if (!taken.some((other) => overlaps(place, other))) return place;
  }
  return null;
}

function picture(agents, links, bad, width) {
  const names = agents.map((agent) => agent.name), where = places(names, width);
  const taken = where.at.map(([x, y]) => [x, y, BOX.width, BOX.height]);
  const lines = [], labels = [];
  for (let i = 0; i < names.length; i++) for (let k = i + 1; k < names.length; k++) {
    const there = links.get(`${names[i]} ${names[k]}`), back = links.get(`${names[k]} ${names[i]}`), link = there ?? back;
    const broken = bad.some((one) => (one.from === names[i] && one.to === names[k]) || (one.from === names[k] && one.to === names[i]));
    const [a, b] = [where.at[i], where.at[k]];
    const thick = link ? 1 + Math.max(0, Math.log10(link.bandwidth_bytes_per_s / 1e6)) * 0.9 : 1;
    lines.push(g("line", { class: `wire ${broken ? "broken" : link && !link.assumed ? "" : "assumed"}`, x1: a[0], y1: a[1], x2: b[0], y2: b[1], "stroke-width": thick.toFixed(1) },
      g("title", {}, `${names[i]} to ${names[k]}: ${linkText(there)}; back: ${linkText(back)}`)));
    const place = labelPlace(a, b, taken);
    if (!place || !link) continue;
    taken.push(place);
    labels.push(g("g", { class: "wire-label" },
      g("rect", { x: place[0] - LABEL.width / 2, y: place[1] - LABEL.height / 2, width: LABEL.width, height: LABEL.height, rx: 6 }),
      g("text", { x: place[0], y: place[1] - 3, "text-anchor": "middle" }, there && back && rate(there.bandwidth_bytes_per_s) !== rate(back.bandwidth_bytes_per_s) ? `${rate(Math.min(there.bandwidth_bytes_per_s, back.bandwidth_bytes_per_s))} or more` : rate(link.bandwidth_bytes_per_s)),
      g("text", { class: "lane-note", x: place[0], y: place[1] + 11, "text-anchor": "middle" }, seconds(link.latency_s))));
  }
  const boxes = agents.map((agent, i) => {
    const [x, y] = [where.at[i][0] - BOX.width / 2, where.at[i][1] - BOX.height / 2];
    const said = agent.stages.map((one) => `${one.deployment} ${layers(one.first_layer, one.last_layer)}`).join(", ");
    return g("g", { class: `box box-${agent.state}` },
      g("title", {}, `${agent.name}: ${agent.state}, ${agent.kind}${said ? `; layers: ${said}` : ""}`),
      g("rect", { x, y, width: BOX.width, height: BOX.height, rx: 8 }),
      g("text", { class: "box-name", x: x + 12, y: y + 20 }, cut(agent.name, FONT.name, BOX.width - 76)),
      g("text", { class: "lane-note", x: x + BOX.width - 12, y: y + 20, "text-anchor": "end" }, agent.state),
      g("text", { class: "lane-note", x: x + 12, y: y + 37 }, `${bytes(agent.memory_free_bytes)} free`),
      g("text", { class: "lane-note", x: x + 12, y: y + 52 }, cut(said || "no layers", FONT.note, BOX.width - 24)));
  });
  return h("div", { class: "gantt-box", tabindex: "0", role: "region", "aria-label": "Boxes and links" },
    g("svg", { class: "topology", width: where.width, height: where.height, viewBox: `0 0 ${where.width} ${where.height}`, role: "img", "aria-label": `${names.length} boxes and their links; the table below has the same as figures` }, lines, boxes, labels));
}

// As much of a text as so many pixels hold; letters differ, so it is measured and not counted.
function cut(text, font, width) {
  pen.font = `${font} ${getComputedStyle(document.body).fontFamily}`;
  const letters = [...text];
  let kept = text;
  while (letters.length && pen.measureText(kept).width > width) {
    letters.pop();
    kept = `${letters.join("").trimEnd()}…`;
  }
  return kept;
}

// ---- cards ----

function card(agent, deployments) {
  const memory = (device) => bar(1 - device.memory_free_bytes / device.memory_bytes, `${bytes(device.memory_free_bytes)} free of ${bytes(device.memory_bytes)}`, "memory");
  return h("section", { class: "card", "aria-label": agent.name },
    h("div", { class: "row" }, h("h3", {}, agent.name), state(agent.state), h("span", { class: "muted push" }, agent.hostname)),
    agent.devices.map((device) => h("div", { class: "device" },
      h("div", { class: "row" }, h("b", {}, device.name), h("span", { class: "muted" }, device.kind), h("span", { class: "push small" }, `${bytes(device.memory_bytes - device.memory_free_bytes)} of ${bytes(device.memory_bytes)}`)),
      memory(device),
      device.lost && h("p", { class: "trouble" }, device.lost))),
    agent.stages.length > 0 && h("p", { class: "chips" }, agent.stages.map((one) =>
      h("span", { class: `chip ${colour(Math.max(0, deployments.findIndex((d) => d.name === one.deployment)))}` }, `${one.deployment} ${layers(one.first_layer, one.last_layer)}`))),
    facts([["Program", agent.program], agent.kv_spill && ["Spilled", `${bytes(agent.kv_spill.memory_bytes)} in memory, ${bytes(agent.kv_spill.disk_bytes)} on disk`],
      agent.key_also_on && ["Key also on", agent.key_also_on]]));
}

function troubles(topology) {
  return [...(topology.unreachable ?? []).map((one) => `${one.from} does not reach ${one.to} (${one.address}): ${one.why}`),
    ...(topology.doubted ?? []).map((one) => `${one.from} to ${one.to}: measured ${rate(one.measured_bytes_per_s)}, not believed before it comes again; counted as ${rate(one.bandwidth_bytes_per_s)}`)];
}

export function cluster() {
  const body = h("div", { class: "stack" }, h("p", { class: "note" }, "Waiting…"));
  let topology = null, timer = null, open = true;
  const draw = () => {
    if (!topology || !now.cluster) return;
    const { agents, deployments } = now.cluster, links = linksOf(topology), names = agents.map((agent) => agent.name), bad = troubles(topology);
    const held = body.contains(document.activeElement) ? [...body.querySelectorAll("[tabindex]")].indexOf(document.activeElement) : -1;
    body.replaceChildren(...[
      ...bad.map((text) => h("p", { class: "trouble" }, text)),
      names.length > 0 && names.length <= MOST_DRAWN && picture(agents, links, topology.unreachable ?? [], body.clientWidth),
      names.length > 1 && h("section", {}, h("h2", {}, "Links"), matrix(names, links)),
      h("h2", {}, "Boxes"),
      h("div", { class: "cards" }, agents.map((agent) => card(agent, deployments))),
      names.length === 0 && h("p", { class: "note" }, "No agent is here: hpctl node token create says how one joins."),
    ].filter(Boolean));
    if (held >= 0) body.querySelectorAll("[tabindex]")[held]?.focus();
  };
  const look = async () => {
    try {
      topology = await getJson("/api/hp/topology");
      draw();
    } catch (why) {
      if (!topology) body.replaceChildren(h("p", { class: "trouble", role: "alert" }, why.message));
    }
    if (open) timer = setTimeout(look, EVERY_MS);
  };
  look();
  window.addEventListener("resize", draw);
  return { element: h("div", { class: "page" }, h("h1", {}, "Cluster"), body), close: () => { open = false; clearTimeout(timer); window.removeEventListener("resize", draw); } };
}
