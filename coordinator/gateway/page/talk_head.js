// Above a conversation: which model it is with, and how that is to answer.
import { h } from "./dom.js";

// {element, model(), offer(names, wanted), fill(conversation), take(conversation)}; `chosen` is told when another model is.
export function talkHead(chosen) {
  const models = h("select", { id: "model", on: { change: chosen } });
  const system = h("textarea", { id: "system", rows: "3" });
  const temperature = h("input", { id: "temperature", type: "number", min: "0", max: "2", step: "0.1", placeholder: "the model's" });
  const most = h("input", { id: "most", type: "number", min: "1", step: "1", placeholder: "to the end of the context" });
  return {
    element: h("div", { class: "talk-head" },
      h("h1", { class: "unseen" }, "Chat"),
      h("label", { for: "model" }, "Model"), models,
      h("details", { class: "settings" }, h("summary", {}, "Settings"),
        h("div", { class: "settings-body" },
          h("label", { for: "system" }, "System message"), system,
          h("label", { for: "temperature" }, "Temperature"), temperature,
          h("label", { for: "most" }, "Tokens of an answer, at most"), most))),
    model: () => models.value,
    // Whether that are others than before.
    offer: (names, wanted) => {
      if ([...models.options].map((one) => one.value).join() === names.join()) return false;
      models.replaceChildren(...names.map((name) => h("option", { value: name }, name)));
      models.value = wanted || names[0] || "";
      return true;
    },
    fill: (conversation) => {
      system.value = conversation?.system ?? "";
      temperature.value = conversation?.temperature ?? "";
      most.value = conversation?.maxTokens ?? "";
    },
    take: (conversation) => {
      conversation.system = system.value;
      conversation.temperature = temperature.value;
      conversation.maxTokens = most.value;
    },
  };
}
