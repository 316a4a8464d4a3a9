// The page: its views by the address behind "#/", the side bar, and what they share.
import { onKeyNeeded } from "./api.js";
import { chat } from "./chat.js";
import { cluster as clusterView } from "./cluster.js";
import { deployment, deployments } from "./deployments.js";
import { askKey } from "./dialog.js";
import { docs } from "./docs.js";
import { h } from "./dom.js";
import { perSecond } from "./format.js";
import { live } from "./figures.js";
import * as now from "./live.js";
import { plans } from "./plans.js";
import { timeline } from "./timeline.js";

const VIEWS = [
  { path: "chat", title: "Chat", open: chat },
  { path: "live", title: "Live", open: live },
  { path: "deployments", title: "Deployments", open: (name) => (name ? deployment(name) : deployments()) },
  { path: "cluster", title: "Cluster", open: clusterView },
  { path: "timeline", title: "Time lines", open: timeline },
  { path: "plans", title: "Plans", open: plans },
  { path: "docs", title: "Docs", open: docs },
];

let close = () => {};

function addressed() {
  const [path, ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  return { view: VIEWS.find((view) => view.path === path), path, rest };
}

// Who comes back to the chat from another view finds the conversation that was open.
function chatLeft(address) {
  const left = new URL(address).hash, link = document.querySelector('#nav a[data-view="chat"]');
  const stays = addressed().path === "chat";
  if (stays || left.startsWith("#/chat/")) link.setAttribute("href", stays ? "#/chat" : left);
}

function navigate() {
  const { view, path, rest } = addressed();
  if (path === "main") return; // of the link that skips the side bar
  if (!view) {
    location.replace(location.pathname.startsWith("/docs") ? "/#/docs" : "#/chat");
    return;
  }
  close();
  const shown = view.open(...rest);
  close = shown.close ?? (() => {});
  const main = document.getElementById("main");
  main.className = `view-${view.path}`;
  main.replaceChildren(shown.element);
  document.title = `${rest[0] && view.path !== "chat" ? rest[0] + " · " : ""}${view.title} · Hodgepodge`;
  for (const link of document.querySelectorAll("#nav a")) {
    link.removeAttribute("aria-current");
    if (link.dataset.view !== view.path) continue;
    link.setAttribute("aria-current", "page");
    link.scrollIntoView({ block: "nearest", inline: "nearest" }); // of a narrow window's row, which has more than it shows
  }
  if (shown.focus) shown.focus();
}

function pulse() {
  const place = document.getElementById("pulse"), figures = now.latest();
  if (now.trouble || !figures) {
    place.className = "pulse pulse-off";
    place.textContent = now.trouble || "connecting…";
    return;
  }
  const ready = now.cluster.agents.filter((agent) => agent.state === "ready").length;
  place.className = "pulse";
  place.replaceChildren(
    h("span", { class: "pulse-name" }, now.cluster.cluster || "cluster"),
    h("span", {}, `${ready} of ${now.cluster.agents.length} agents`),
    h("span", {}, `${perSecond(figures.tokens)} tokens/s`));
}

// ---- light and dark ----

const THEMES = ["auto", "light", "dark"];

function themeSet(theme) {
  localStorage.setItem("hp.theme", theme);
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  document.getElementById("theme").textContent = `Theme: ${theme}`;
}

function begin() {
  document.getElementById("nav").replaceChildren(...VIEWS.map((view) =>
    h("a", { href: `#/${view.path}`, "data-view": view.path }, view.title)));
  const theme = localStorage.getItem("hp.theme");
  themeSet(THEMES.includes(theme) ? theme : "auto");
  document.getElementById("theme").addEventListener("click", () =>
    themeSet(THEMES[(THEMES.indexOf(localStorage.getItem("hp.theme")) + 1) % THEMES.length]));
  document.getElementById("key").addEventListener("click", () => askKey());
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    document.getElementById("main").focus();
  });
  onKeyNeeded(askKey);
  window.addEventListener("hashchange", (event) => {
    chatLeft(event.oldURL);
    navigate();
  });
  now.watch(pulse);
  pulse();
  navigate();
  now.follow();
}

begin();
