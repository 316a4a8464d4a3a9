// One message of a conversation, as it is shown: what was said, what of it was reasoning, and what it took.
import { button, h } from "./dom.js";
import { percent, seconds, three } from "./format.js";
import { markdown } from "./markdown.js";

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

// What it says by now; `place` is that of a view.
export function messageFill(place, message, model) {
  const body = message.role === "user" ? [h("p", { class: "said" }, message.content)]
    : [message.reasoning && h("details", { class: "reasoning" }, h("summary", {}, "Reasoning"), markdown(message.reasoning)),
      markdown(message.content), answerNotes(message, model)];
  const opened = place.querySelector("details")?.open;
  place.replaceChildren(...body.flat(Infinity).filter(Boolean));
  if (opened) place.querySelector("details").open = true;
}

// {element, place}; `change`: what its button does beside Copy, Edit of a question and Again of an answer.
export function messageView(message, model, change) {
  const mine = message.role === "user", place = h("div", { class: "body" });
  messageFill(place, message, model);
  const tools = h("div", { class: "tools" },
    button("Copy", () => navigator.clipboard.writeText(message.content), { class: "quiet" }),
    button(mine ? "Edit" : "Again", change, { class: "quiet" }));
  return { place, element: h("article", { class: `message ${mine ? "mine" : "theirs"}`, "aria-label": mine ? "You" : "Answer" }, place, tools) };
}
