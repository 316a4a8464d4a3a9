// The page's one dialog: for the API key.
import { key, setKey } from "./api.js";
import { button, h } from "./dom.js";

let open = null; // of the dialog that is shown

// Asks for a key; true: one was given. One dialog, however many requests wait for it.
export function askKey(why) {
  open ??= show(why).finally(() => { open = null; });
  return open;
}

function show(why) {
  const dialog = document.getElementById("dialog");
  const input = h("input", { id: "key-text", type: "password", autocomplete: "off", spellcheck: "false", value: key() });
  const keep = h("input", { id: "key-keep", type: "checkbox" });
  return new Promise((resolve) => {
    const form = h("form", { method: "dialog", on: { submit: () => dialog.close("given") } },
      h("h2", { id: "dialog-title" }, "API key"),
      h("p", {}, why || "Requests are sent with this key. `hpctl key create NAME` makes one."),
      h("label", { for: "key-text" }, "Key"), input,
      h("label", { class: "check", for: "key-keep" }, keep, " keep it in this browser"),
      h("div", { class: "row end" },
        button("Forget", () => { input.value = ""; dialog.close("given"); }),
        button("Cancel", () => dialog.close("")),
        h("button", { type: "submit", class: "main" }, "Use it")));
    dialog.replaceChildren(form);
    dialog.returnValue = "";
    dialog.addEventListener("close", () => {
      const given = dialog.returnValue === "given";
      if (given) setKey(input.value.trim(), keep.checked);
      resolve(given && input.value.trim() !== "");
    }, { once: true });
    dialog.showModal();
    input.focus();
  });
}
