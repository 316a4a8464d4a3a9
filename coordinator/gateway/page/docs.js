// The documents of this version, as they lie in the repository's docs/.
import { getJson, request } from "./api.js";
import { h } from "./dom.js";
import { markdown } from "./markdown.js";

const FIRST = "README";

// As the repository's readers know headings: "Keys, limits" is "keys-limits".
function anchor(text) {
  return text.toLowerCase().replace(/[^\p{L}\p{N}\s_-]/gu, "").trim().replace(/\s+/g, "-");
}

// Where a document's link leads in this page; null where the page does not have that file.
function targetOf(name, names) {
  return (text) => {
    if (/^(https?:|mailto:)/i.test(text)) return text;
    const [path, heading] = text.split("#");
    const file = path.split("/").pop().replace(/\.md$/, "");
    if (path && !(path.endsWith(".md") && names.includes(file) && !path.includes("decisions/"))) return null;
    return `#/docs/${path ? file : name}${heading ? `/${heading}` : ""}`;
  };
}

export function docs(name, heading) {
  const list = h("nav", { class: "doc-list", "aria-label": "Documents" }), body = h("article", { class: "prose" }, h("h1", {}, "Documents"), h("p", { class: "note" }, "Waiting…"));
  const shown = name || FIRST;
  let open = true;
  const read = async () => {
    try {
      const all = await getJson("/page/docs.json");
      const text = await (await request(`/page/docs-${encodeURIComponent(shown)}.md`)).text();
      if (!open) return;
      list.replaceChildren(...all.map((one) => h("a", { href: `#/docs/${one.name}`, "aria-current": one.name === shown ? "page" : undefined }, one.title.replaceAll("`", ""))));
      body.replaceChildren(...markdown(text, { target: targetOf(shown, all.map((one) => one.name)), lowered: 0 }));
      for (const one of body.querySelectorAll("h1, h2, h3")) one.id = `doc-${anchor(one.textContent)}`;
      if (heading) document.getElementById(`doc-${heading}`)?.scrollIntoView();
      else window.scrollTo(0, 0);
    } catch (why) {
      body.replaceChildren(h("h1", {}, "Documents"), h("p", { class: "trouble", role: "alert" }, why.message));
    }
  };
  read();
  return { element: h("div", { class: "docs" }, list, body), close: () => { open = false; } };
}
