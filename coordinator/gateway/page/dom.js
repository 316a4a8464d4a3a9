// Elements, without markup: what is given as a text stays a text.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (name === "style") for (const [property, set] of Object.entries(value)) element.style.setProperty(property, set);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// h("p", {class: "note", on: {click}}, "text", other)
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

// The same of SVG.
export function g(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

export function button(text, click, attributes = {}) {
  return h("button", { type: "button", ...attributes, on: { click } }, text);
}

// A table of rows: columns are [{head, cell(row), number}].
export function table(caption, columns, rows, attributes = {}) {
  return h("div", { class: "table-box", role: "region", tabindex: "0", "aria-label": caption },
    h("table", attributes,
      h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col", class: column.number && "number" }, column.head)))),
      h("tbody", {}, rows.map((row) => h("tr", row.attributes ?? {}, columns.map((column, i) =>
        h(i ? "td" : "th", { scope: i ? undefined : "row", class: column.number && "number" }, column.cell(row)))))))) ;
}

// A share of a whole, as a bar with a text for those who do not see it.
export function bar(share, label, kind = "") {
  const part = Math.max(0, Math.min(1, share || 0));
  return h("span", { class: `bar ${kind}`, role: "img", "aria-label": label, title: label },
    h("span", { class: "bar-full", style: { width: `${part * 100}%` } }));
}

export function state(word) {
  return h("span", { class: `state state-${word}` }, word);
}

// Names and values, in two columns.
export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter((pair) => pair && pair[1] !== undefined && pair[1] !== "")
    .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}
