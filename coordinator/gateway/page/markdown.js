// Markdown as elements. What a model writes is never read as HTML: there is no way from a text to a tag but those below.
import { button, h } from "./dom.js";

const LINK = /^(https?:|mailto:)/i;

// How this text is read: what becomes of a link's target (null: no link), and by how much headings are lowered.
const USUAL = { target: (text) => (LINK.test(text) ? text : null), lowered: 2 };
let options = USUAL;

// ---- inside a line ----

const LONGEST = 20000; // of a paragraph that is looked at for more than its text

// In the order in which they are tried where two begin at one place; [pattern, element of its match].
const SPANS = [
  [/(`+)([\s\S]+?)\1(?!`)/g, (m) => h("code", {}, m[2].replace(/^ (.+) $/, "$1"))],
  [/\\([!-/:-@[-`{-~])/g, (m) => m[1]],
  [/!?\[([^\]\n]*)\]\(\s*<?([^)\s>]+)>?(?:\s+"[^"]*")?\s*\)/g, (m) => link(m[2], spans(m[1] || m[2]))],
  [/<(https?:\/\/[^\s<>]+)>/g, (m) => link(m[1], m[1])],
  [/\*\*\*(?=\S)([\s\S]*?\S)\*\*\*/g, (m) => h("strong", {}, h("em", {}, spans(m[1])))],
  [/\*\*(?=\S)([\s\S]*?\S)\*\*/g, (m) => h("strong", {}, spans(m[1]))],
  [/__(?=\S)([\s\S]*?\S)__(?!\w)/g, (m) => h("strong", {}, spans(m[1]))],
  [/~~(?=\S)([\s\S]*?\S)~~/g, (m) => h("del", {}, spans(m[1]))],
  [/\*(?=[^\s*])([\s\S]*?[^\s*])\*(?!\*)/g, (m) => h("em", {}, spans(m[1]))],
  [/(?<![\w_])_(?=[^\s_])([\s\S]*?[^\s_])_(?!\w)/g, (m) => h("em", {}, spans(m[1]))],
  [/https?:\/\/[^\s<>()[\]]*[^\s<>()[\].,;:!?'"]/g, (m) => link(m[0], m[0])],
];

function link(target, content) {
  const to = options.target(target);
  if (to === null) return content;
  return h("a", LINK.test(to) ? { href: to, rel: "noopener noreferrer", target: "_blank" } : { href: to }, content);
}

function spans(text) {
  if (text.length > LONGEST) return [text];
  const out = [], found = [];
  for (let at = 0; ;) {
    let first = -1;
    for (let i = 0; i < SPANS.length; i++) {
      if (found[i] === undefined || found[i]?.index < at) { // each is looked for once, and again behind what was taken
        SPANS[i][0].lastIndex = at;
        found[i] = SPANS[i][0].exec(text);
      }
      if (found[i] && (first < 0 || found[i].index < found[first].index)) first = i;
    }
    if (first < 0) return at < text.length ? [...out, text.slice(at)] : out;
    const match = found[first];
    if (match.index > at) out.push(text.slice(at, match.index));
    out.push(SPANS[first][1](match));
    at = match.index + match[0].length;
  }
}

// ---- blocks ----

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/;
const RULE = /^ {0,3}([-*_])(\s*\1){2,}\s*$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const INDENTED = /^ {4}/;
const QUOTE = /^ {0,3}> ?/;
const DIVIDER = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

const begins = (line) => FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || ITEM.test(line);

function codeBox(text, language) {
  const copy = button("Copy", async () => {
    await navigator.clipboard.writeText(text);
    copy.textContent = "Copied";
  }, { class: "quiet" });
  return h("div", { class: "code-box" },
    h("div", { class: "code-head" }, h("span", {}, language || "text"), copy),
    h("pre", { tabindex: "0" }, h("code", {}, text)));
}

function fence(lines, at) {
  const [, mark, language] = FENCE.exec(lines[at]);
  let end = at + 1;
  while (end < lines.length && !lines[end].trim().startsWith(mark)) end++;
  return [codeBox(lines.slice(at + 1, end).join("\n"), language), end + 1];
}

function indented(lines, at) {
  let end = at;
  while (end < lines.length && (INDENTED.test(lines[end]) || !lines[end].trim())) end++;
  while (!lines[end - 1].trim()) end--;
  return [codeBox(lines.slice(at, end).map((line) => line.slice(4)).join("\n"), ""), end];
}

function quote(lines, at) {
  let end = at;
  while (end < lines.length && lines[end].trim() && (QUOTE.test(lines[end]) || !begins(lines[end]))) end++;
  return [h("blockquote", {}, blocks(lines.slice(at, end).map((line) => line.replace(QUOTE, "")))), end];
}

const indent = (line) => /^\s*/.exec(line)[0].length;

function list(lines, at) {
  const depth = indent(lines[at]), ordered = /\d/.test(ITEM.exec(lines[at])[2]);
  const items = [];
  let i = at;
  while (i < lines.length) {
    const item = ITEM.exec(lines[i]);
    if (!item || item[1].length > depth + 1 || item[1].length < depth || /\d/.test(item[2]) !== ordered || RULE.test(lines[i])) break;
    const width = item[0].length - item[3].length, body = [item[3]];
    for (i++; i < lines.length; i++) {
      const blank = !lines[i].trim();
      const next = lines[i + 1] ?? "";
      if (blank && !(next.trim() && indent(next) > depth + 1)) break;
      if (!blank && indent(lines[i]) <= depth + 1 && begins(lines[i])) break;
      if (!blank && indent(lines[i]) <= depth && !lines[i - 1].trim()) break;
      body.push(lines[i].slice(Math.min(indent(lines[i]), width)));
    }
    while (i < lines.length && !lines[i].trim() && ITEM.test(lines[i + 1] ?? "")) i++;
    const content = blocks(body);
    items.push(h("li", {}, content.length && content[0].tagName === "P" ? [[...content[0].childNodes], content.slice(1)] : content));
  }
  const start = ordered ? Number.parseInt(ITEM.exec(lines[at])[2], 10) : 1;
  return [h(ordered ? "ol" : "ul", { start: ordered && start !== 1 ? start : undefined }, items), i];
}

const cells = (line) => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => spans(cell.trim().replaceAll("\\|", "|")));

function tableOf(lines, at) {
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|") && lines[end].trim()) end++;
  const row = (line, tag) => h("tr", {}, cells(line).map((cell) => h(tag, {}, cell)));
  return [h("div", { class: "table-box", tabindex: "0", role: "region", "aria-label": "table" }, h("table", {},
    /[^\s|]/.test(lines[at]) && h("thead", {}, row(lines[at], "th")), h("tbody", {}, lines.slice(at + 2, end).map((line) => row(line, "td"))))), end];
}

function paragraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && !begins(lines[end])) end++;
  const text = lines.slice(at, end).map((line) => line.trim() + (/ {2}$|\\$/.test(line) ? "\u0000" : "")).join("\n");
  const parts = text.split(/\\?\u0000\n?/);
  return [h("p", {}, parts.map((part, i) => [spans(part), i + 1 < parts.length && h("br")])), end];
}

function heading(lines, at) {
  const [, marks, text] = HEADING.exec(lines[at]);
  return [h(`h${Math.min(6, marks.length + options.lowered)}`, {}, spans(text)), at + 1];
}

function blocks(lines) {
  const out = [];
  for (let at = 0; at < lines.length;) {
    const line = lines[at];
    if (!line.trim()) {
      at++;
      continue;
    }
    const read = INDENTED.test(line) ? indented
      : FENCE.test(line) ? fence
      : HEADING.test(line) ? heading
      : RULE.test(line) ? (_, i) => [h("hr"), i + 1]
      : QUOTE.test(line) ? quote
      : ITEM.test(line) ? list
      : line.includes("|") && DIVIDER.test(lines[at + 1] ?? "") ? tableOf
      : paragraph;
    const [element, end] = read(lines, at);
    out.push(element);
    at = Math.max(end, at + 1);
  }
  return out;
}

export function markdown(text, given = USUAL) {
  options = given;
  return blocks(text.replaceAll("\r\n", "\n").replaceAll("\u0000", "\uFFFD").split("\n"));
}
