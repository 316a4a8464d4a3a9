// Conversations, kept in this browser alone.

const KEY = "hp.conversations";
const MOST = 200;

function read() {
  try {
    const list = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(list) ? list.filter((one) => one && typeof one.id === "string" && Array.isArray(one.messages)) : [];
  } catch {
    return [];
  }
}

export const conversations = read(); // the latest first

// Where the browser's room is full the oldest go.
export function keep() {
  conversations.length = Math.min(conversations.length, MOST);
  for (let n = conversations.length; n > 0; n--) {
    try {
      localStorage.setItem(KEY, JSON.stringify(conversations.slice(0, n)));
      return;
    } catch { /* once more, with one less */ }
  }
}

export function find(id) {
  return conversations.find((one) => one.id === id);
}

export function create(model) {
  const one = { id: crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`.replace(".", ""), title: "", model, system: "", temperature: "", maxTokens: "", messages: [] };
  conversations.unshift(one);
  return one;
}

export function remove(one) {
  conversations.splice(conversations.indexOf(one), 1);
  keep();
}

// It was spoken in last.
export function touch(one) {
  conversations.splice(conversations.indexOf(one), 1);
  conversations.unshift(one);
  if (!one.title) one.title = (one.messages[0]?.content ?? "").trim().split("\n")[0].slice(0, 80);
  keep();
}
