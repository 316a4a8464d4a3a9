// Talking to a model: conversations beside what is said in one of them.
import { answerBegin } from "./answer.js";
import { getJson } from "./api.js";
import { conversations, create, find, keep, remove, touch } from "./conversations.js";
import { button, h } from "./dom.js";
import { percent, seconds, three } from "./format.js";
import * as now from "./live.js";
import { markdown } from "./markdown.js";

const DRAW_MS = 60; // between two drawings of an answer that grows
const NEAR_PX = 80; // of the end: what is read goes along with what is written

let running = null; // the answer that is being written: {conversation, stop}; also while another view is open
let shown = null;   // the chat that is open now, which draws it: {draw(message), redraw()}

// ---- one message ----

function tookText(took) {
  const parts = [`${took.tokens} tokens`];
  if (took.decode_s > 0 && took.tokens > 1) parts.push(`${three((took.tokens - 1) / took.decode_s)} tokens/s`);
  parts.push(`first token ${seconds(took.waited_s + took.prefill_s)}`);
  if (took.planned_s) parts.push(`prompt read in ${seconds(took.prefill_s)}, planned ${seconds(took.planned_s)} (${percent(took.prefill_s / took.planned_s - 1, true)})`);
  if (took.cached) parts.push(`${took.cached} of ${took.prompt} prompt tokens were there`);
  if (took.waited_s > 0.01) parts.push(`waited ${seconds(took.waited_s)}`);
  return parts.join(" · ");
}

function answerNotes(message, model) {
  const notes = [];
  if (message.error) notes.push(h("p", { class: "trouble", role: "alert" }, message.error));
  if (message.stopped) notes.push(h("p", { class: "note" }, "Stopped."));
  if (message.cut) notes.push(h("p", { class: "note" }, "The answer ended at its longest length."));
  if (message.took) notes.push(h("p", { class: "took" }, tookText(message.took), " · ",
    h("a", { href: `#/timeline/${encodeURIComponent(model)}` }, "time line")));
  return notes;
}

function messageFill(place, message, model) {
  const body = message.role === "user" ? [h("p", { class: "said" }, message.content)]
    : [message.reasoning && h("details", { class: "reasoning" }, h("summary", {}, "Reasoning"), markdown(message.reasoning)),
      markdown(message.content), answerNotes(message, model)];
  const opened = place.querySelector("details")?.open;
  place.replaceChildren(...body.flat(Infinity).filter(Boolean));
  if (opened) place.querySelector("details").open = true;
}

// ---- the view ----

export function chat(id) {
  let conversation = find(id);
  const list = h("nav", { class: "talks", "aria-label": "Conversations" });
  const thread = h("div", { class: "thread", role: "log", "aria-label": "Conversation", tabindex: "0" });
  const said = h("p", { class: "unseen", "aria-live": "polite" });
  const models = h("select", { id: "model", on: { change: () => { if (conversation) { conversation.model = models.value; keep(); } welcome(); } } });
  const input = h("textarea", { id: "say", rows: "1", placeholder: "Say something…", "aria-label": "Message" });
  const send = h("button", { type: "submit", class: "main" }, "Send");
  const stop = button("Stop", () => running?.stop(), { class: "main", hidden: true });
  const system = h("textarea", { id: "system", rows: "3" });
  const temperature = h("input", { id: "temperature", type: "number", min: "0", max: "2", step: "0.1", placeholder: "the model's" });
  const most = h("input", { id: "most", type: "number", min: "1", step: "1", placeholder: "to the end of the context" });
  const form = h("form", { class: "composer", on: { submit: (event) => { event.preventDefault(); say(); } } },
    h("label", { for: "say", class: "unseen" }, "Message"), input, send, stop);
  const element = h("div", { class: "chat" },
    h("aside", { class: "talks-box" },
      h("div", { class: "row" }, h("h2", {}, "Conversations"), button("New", () => { location.hash = "#/chat"; input.focus(); }, { class: "quiet" })), list),
    h("section", { class: "talk" },
      h("div", { class: "talk-head" },
        h("h1", { class: "unseen" }, "Chat"),
        h("label", { for: "model" }, "Model"), models,
        h("details", { class: "settings" }, h("summary", {}, "Settings"),
          h("div", { class: "settings-body" },
            h("label", { for: "system" }, "System message"), system,
            h("label", { for: "temperature" }, "Temperature"), temperature,
            h("label", { for: "most" }, "Tokens of an answer, at most"), most))),
      thread, form, said));

  const places = new Map(); // of messages
  let allowed = [];         // models, for who may not look at the cluster

  function listDraw() {
    list.replaceChildren(conversations.length ? h("ul", {}, conversations.map((one) => h("li", {},
      h("a", { href: `#/chat/${one.id}`, "aria-current": one === conversation ? "page" : undefined, title: one.title },
        one.title || "New conversation", running?.conversation === one && h("span", { class: "writes" }, " …")),
      button("×", () => forget(one), { class: "quiet", "aria-label": `Delete “${one.title}”` }))))
      : h("p", { class: "note" }, "What you say is kept in this browser."));
  }

  function forget(one) {
    if (running?.conversation === one) running.stop();
    remove(one);
    if (one === conversation) location.hash = "#/chat";
    else listDraw();
  }

  const nearEnd = () => thread.scrollHeight - thread.scrollTop - thread.clientHeight < NEAR_PX;
  const toEnd = () => { thread.scrollTop = thread.scrollHeight; };

  function messageDraw(message, i) {
    const place = h("div", { class: "body" });
    places.set(message, place);
    messageFill(place, message, conversation.model);
    const mine = message.role === "user";
    const tools = h("div", { class: "tools" },
      button("Copy", () => navigator.clipboard.writeText(message.content), { class: "quiet" }),
      mine ? button("Edit", () => edit(i), { class: "quiet" }) : button("Again", () => again(i), { class: "quiet" }));
    return h("article", { class: `message ${mine ? "mine" : "theirs"}`, "aria-label": mine ? "You" : "Answer" }, place, tools);
  }

  function welcome() {
    if (conversation?.messages.length) return;
    const model = models.value;
    thread.replaceChildren(h("div", { class: "welcome" },
      h("h2", {}, model ? `Talk to ${model}` : "Nothing is deployed yet"),
      h("p", {}, model ? "Enter sends, Shift and Enter begin a new line, Escape stops an answer."
        : "hpctl deploy MODEL.gguf puts a model on this cluster's boxes; it appears here as soon as it serves.")));
  }

  function threadDraw() {
    places.clear();
    thread.replaceChildren(...(conversation?.messages ?? []).map(messageDraw));
    welcome();
    toEnd();
  }

  function buttonsDraw() {
    const writes = running !== null;
    send.hidden = writes;
    stop.hidden = !writes;
    thread.setAttribute("aria-busy", writes);
  }

  function modelsDraw() {
    const names = now.cluster ? now.cluster.deployments.filter((one) => !one.prefill_of).map((one) => one.name) : [...allowed];
    const wanted = conversation?.model || models.value;
    if (wanted && !names.includes(wanted)) names.push(wanted);
    if ([...models.options].map((one) => one.value).join() === names.join()) return;
    models.replaceChildren(...names.map((name) => h("option", { value: name }, name)));
    models.value = wanted || names[0] || "";
    welcome();
  }

  function settingsTake() {
    conversation.system = system.value;
    conversation.temperature = temperature.value;
    conversation.maxTokens = most.value;
  }

  // ---- what one does ----

  async function answer() {
    let timer = null;
    const mine = conversation;
    const draw = (message) => {
      timer = null;
      shown?.draw(message);
    };
    const written = answerBegin(mine, (message) => { timer ??= setTimeout(() => draw(message), DRAW_MS); });
    running = { conversation: mine, stop: written.stop };
    touch(mine);
    thread.append(messageDraw(written.answer, mine.messages.length - 1));
    toEnd();
    shown.redraw("");
    await written.over;
    clearTimeout(timer);
    running = null;
    keep();
    draw(written.answer);
    shown?.redraw(written.answer.error ? "The answer failed." : "The answer is there.");
  }

  function say() {
    const text = input.value.trim();
    if (!text || running || !models.value) return;
    const first = !conversation;
    conversation ??= create(models.value);
    settingsTake();
    if (conversation.messages.length === 0) thread.replaceChildren();
    const message = { role: "user", content: text };
    conversation.messages.push(message);
    thread.append(messageDraw(message, conversation.messages.length - 1));
    input.value = "";
    grow();
    if (first) history.replaceState(null, "", `#/chat/${conversation.id}`);
    answer();
  }

  function again(i) {
    if (running) return;
    conversation.messages.length = i;
    settingsTake();
    threadDraw();
    answer();
  }

  function edit(i) {
    if (running) return;
    input.value = conversation.messages[i].content;
    conversation.messages.length = i;
    threadDraw();
    grow();
    input.focus();
  }

  function grow() {
    input.style.height = "auto";
    input.style.height = `${Math.min(input.scrollHeight + 2, 240)}px`;
  }

  input.addEventListener("input", grow);
  element.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && running) running.stop();
    if (event.target === input && event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      say();
    }
  });
  system.value = conversation?.system ?? "";
  temperature.value = conversation?.temperature ?? "";
  most.value = conversation?.maxTokens ?? "";
  listDraw();
  buttonsDraw();
  modelsDraw();
  threadDraw();
  const unwatch = now.watch(() => {
    modelsDraw();
    if (!now.cluster && now.trouble && !allowed.length)
      getJson("/v1/models").then((list) => {
        allowed = list.data.filter((one) => one.task !== "embed").map((one) => one.id);
        modelsDraw();
      }).catch(() => {});
  });
  shown = {
    draw(message) {
      const place = places.get(message), follows = nearEnd();
      if (place) messageFill(place, message, conversation.model);
      if (place && follows) toEnd();
    },
    redraw(text) {
      listDraw();
      buttonsDraw();
      said.textContent = text;
    },
  };
  const close = () => { unwatch(); shown = null; };
  return { element, close, focus: () => { toEnd(); if (matchMedia("(min-width: 760px)").matches) input.focus(); } };
}
