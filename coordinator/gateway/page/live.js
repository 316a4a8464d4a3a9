// What the cluster does now: one stream of documents for the whole page, and rates between two of them.
import { events, keyChanged } from "./api.js";

const KEPT = 121; // looks, a second apart
const RETRY_MS = [500, 1000, 2000, 4000];

const listeners = new Set();
export const history = []; // the latest last: figures as below
export let cluster = null; // the latest document
export let trouble = "";   // why there is none now

// `listener` is called with every look; returns how to end that.
export function watch(listener) {
  listeners.add(listener);
  if (cluster || trouble) listener();
  return () => listeners.delete(listener);
}

function tell() {
  for (const listener of [...listeners]) listener();
}

const named = (rows, name) => rows?.find((row) => row.name === name);

function grown(before, now, field, seconds) {
  const more = before ? (now[field] ?? 0) - (before[field] ?? 0) : 0;
  return more > 0 && seconds > 0 ? more / seconds : 0;
}

function busySeconds(before, now, agent) {
  let sum = 0;
  for (const deployment of now.deployments) {
    const then = named(before.deployments, deployment.name);
    if (!then || then.id !== deployment.id || then.generation !== deployment.generation) continue;
    deployment.stages.forEach((stage, i) => {
      const more = (stage.busy_s ?? 0) - (then.stages[i]?.busy_s ?? 0);
      if (stage.agent === agent && more > 0) sum += more;
    });
  }
  return sum;
}

// Rates of deployments and agents by name.
function figuresOf(before, now) {
  const seconds = before && before.boot === now.boot ? now.clock_s - before.clock_s : 0;
  const deployments = {}, agents = {};
  for (const row of now.deployments) {
    const then = seconds ? named(before.deployments, row.name) : undefined;
    const pages = row.prefix_cache;
    deployments[row.name] = {
      tokens: grown(then, row, "output_tokens", seconds),
      prompt: grown(then, row, "prompt_tokens", seconds),
      used: pages.pages ? (pages.pages_own + pages.pages_shared) / pages.pages : 0,
      cached: pages.pages ? pages.pages_cached / pages.pages : 0,
    };
  }
  for (const row of now.agents) {
    const then = seconds ? named(before.agents, row.name) : undefined;
    agents[row.name] = {
      sent: grown(then, row, "data_sent_bytes", seconds),
      received: grown(then, row, "data_received_bytes", seconds),
      busy: seconds ? Math.min(1, busySeconds(before, now, row.name) / seconds / Math.max(1, row.devices.length)) : 0,
    };
  }
  const sum = (field) => Object.values(deployments).reduce((all, row) => all + row[field], 0);
  return {
    deployments, agents, tokens: sum("tokens"), prompt: sum("prompt"),
    active: now.deployments.reduce((all, row) => all + row.sequences_active, 0),
    waiting: now.deployments.reduce((all, row) => all + row.sequences_waiting, 0),
  };
}

function take(document) {
  history.push(figuresOf(cluster, document));
  if (history.length > KEPT) history.shift();
  cluster = document;
  trouble = "";
  tell();
}

// For ever: what breaks is begun anew.
export async function follow() {
  for (let tries = 0; ; tries++) {
    try {
      for await (const document of events("/api/hp/live")) {
        if (!document.agents) continue;
        tries = 0;
        take(document);
      }
      trouble = "the stream of figures has ended";
    } catch (why) {
      trouble = why.message;
      if (why.status === 401 || why.status === 403) {
        tell();
        await keyChanged();
        continue;
      }
    }
    tell();
    await new Promise((done) => setTimeout(done, RETRY_MS[Math.min(tries, RETRY_MS.length - 1)]));
  }
}

export const latest = () => history.at(-1);
