// Where one writes: a text that grows with what stands in it, Send, and Stop while an answer is being written.
import { button, h } from "./dom.js";

const HIGHEST_PX = 240;

// {element, text(), write(text), writes(whether an answer is being written), focus()}
export function composer({ say, stop }) {
  const input = h("textarea", { id: "say", rows: "1", placeholder: "Say something…", "aria-label": "Message" });
  const send = h("button", { type: "submit", class: "main" }, "Send");
  const halt = button("Stop", stop, { class: "main", hidden: true });
  const grow = () => {
    input.style.height = "auto";
    input.style.height = `${Math.min(input.scrollHeight + 2, HIGHEST_PX)}px`;
  };
  input.addEventListener("input", grow);
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    say();
  });
  return {
    element: h("form", { class: "composer", on: { submit: (event) => { event.preventDefault(); say(); } } },
      h("label", { for: "say", class: "unseen" }, "Message"), input, send, halt),
    text: () => input.value.trim(),
    write: (text) => {
      input.value = text;
      grow();
    },
    writes: (whether) => {
      send.hidden = whether;
      halt.hidden = !whether;
    },
    focus: () => input.focus(),
  };
}
