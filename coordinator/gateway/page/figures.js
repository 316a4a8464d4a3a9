// What the cluster does at this moment.
import { colour, lines } from "./charts.js";
import { bar, h, state, table } from "./dom.js";
import { bytes, count, layers, percent, perSecond, rate } from "./format.js";
import * as now from "./live.js";

const ROOM = 121;

function tile(name, value, note) {
  return h("div", { class: "tile" }, h("span", { class: "tile-name" }, name), h("b", {}, value), h("span", { class: "muted" }, note));
}

function tiles(figures, cluster) {
  const ready = cluster.agents.filter((agent) => agent.state === "ready").length;
  const serving = cluster.deployments.filter((one) => one.state === "serving").length;
  return h("div", { class: "tiles" },
    tile("Tokens a second", perSecond(figures.tokens), "of answers"),
    tile("Prompt tokens a second", perSecond(figures.prompt), "read"),
    tile("Requests", count(figures.active), `run, ${count(figures.waiting)} wait`),
    tile("Deployments", count(serving), `serve, of ${cluster.deployments.length}`),
    tile("Agents", count(ready), `ready, of ${cluster.agents.length}`));
}

const deploymentColumns = [
  { head: "Deployment", cell: ({ row }) => h("a", { href: `#/deployments/${encodeURIComponent(row.name)}` }, row.name) },
  { head: "State", cell: ({ row }) => state(row.state) },
  { head: "Tokens/s", number: true, cell: ({ figures }) => perSecond(figures.tokens) },
  { head: "Prompt/s", number: true, cell: ({ figures }) => perSecond(figures.prompt) },
  { head: "Run", number: true, cell: ({ row }) => count(row.sequences_active) },
  { head: "Wait", number: true, cell: ({ row }) => count(row.sequences_waiting) },
  { head: "KV cache", cell: ({ figures }) => [bar(figures.used, `${percent(figures.used)} in use`), ` ${percent(figures.used)}`] },
  { head: "Kept", number: true, cell: ({ figures }) => percent(figures.cached) },
];

const agentColumns = [
  { head: "Agent", cell: ({ row }) => row.name },
  { head: "State", cell: ({ row }) => state(row.state) },
  { head: "Computes", cell: ({ figures }) => [bar(figures.busy, `${percent(figures.busy)} busy`), ` ${percent(figures.busy)}`] },
  { head: "Memory", cell: ({ row }) => [bar(1 - row.memory_free_bytes / row.memory_bytes, `${bytes(row.memory_free_bytes)} free of ${bytes(row.memory_bytes)}`, "memory"), ` ${bytes(row.memory_bytes - row.memory_free_bytes)} of ${bytes(row.memory_bytes)}`] },
  { head: "Sends", number: true, cell: ({ figures }) => rate(figures.sent) },
  { head: "Receives", number: true, cell: ({ figures }) => rate(figures.received) },
  { head: "Layers", cell: ({ row }) => row.stages.map((one) => `${one.deployment} ${layers(one.first_layer, one.last_layer)}`).join(", ") || "–" },
];

const series = (names, value) => names.map((name, i) => ({ name, colour: colour(i), values: now.history.map((look) => value(look, name) ?? 0) }));

function draw() {
  const figures = now.latest(), cluster = now.cluster;
  if (!figures) return h("p", { class: now.trouble ? "trouble" : "note" }, now.trouble || "Waiting for the first figures…");
  const deployments = cluster.deployments.map((row) => row.name), agents = cluster.agents.map((row) => row.name);
  const rows = (list, all) => list.map((row) => ({ row, figures: all[row.name] }));
  return [
    now.trouble && h("p", { class: "trouble", role: "alert" }, `${now.trouble}: these are the last figures that came.`),
    tiles(figures, cluster),
    h("div", { class: "charts" },
      deployments.length > 0 && lines("Tokens a second, the last two minutes", series(deployments, (look, name) => look.deployments[name]?.tokens), ROOM, perSecond, 10),
      lines("Agents compute", series(agents, (look, name) => look.agents[name]?.busy), ROOM, (share) => percent(share), 1),
      lines("Agents send", series(agents, (look, name) => look.agents[name]?.sent), ROOM, rate, 1e4)),
    h("h2", {}, "Deployments"),
    deployments.length ? table("Deployments", deploymentColumns, rows(cluster.deployments, figures.deployments)) : h("p", { class: "note" }, "Nothing is deployed: hpctl deploy MODEL.gguf does it."),
    h("h2", {}, "Agents"),
    table("Agents", agentColumns, rows(cluster.agents, figures.agents)),
  ].filter(Boolean);
}

export function live() {
  const body = h("div", { class: "stack" });
  const redraw = () => {
    const held = body.contains(document.activeElement) ? [...body.querySelectorAll("a, [tabindex]")].indexOf(document.activeElement) : -1;
    body.replaceChildren(...[draw()].flat());
    if (held >= 0) body.querySelectorAll("a, [tabindex]")[held]?.focus();
  };
  redraw();
  return { element: h("div", { class: "page" }, h("h1", {}, "Live"), body), close: now.watch(redraw) };
}
