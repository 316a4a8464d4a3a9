// The coordinator's API: documents, streams of events, and the key that it may need.

const KEY = "hp.key";

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

let askForKey = async () => false; // true: there is another one now, try again

export function onKeyNeeded(ask) {
  askForKey = ask;
}

export function key() {
  return sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY) ?? "";
}

// With `keep` it stays in this browser, else until the tab is closed.
export function setKey(value, keep) {
  localStorage.removeItem(KEY);
  sessionStorage.removeItem(KEY);
  if (value) (keep ? localStorage : sessionStorage).setItem(KEY, value);
  window.dispatchEvent(new Event("hp-key"));
}

// Until somebody gives another key.
export function keyChanged() {
  return new Promise((done) => window.addEventListener("hp-key", done, { once: true }));
}

async function errorOf(reply) {
  let text = "";
  try {
    const error = (await reply.json()).error;
    text = error?.message ?? error ?? "";
  } catch { /* not ours: a proxy's, perhaps */ }
  return new ApiError(reply.status, text || `the coordinator answered ${reply.status}`);
}

export async function request(path, options = {}) {
  for (;;) {
    const used = key();
    const headers = { ...(used ? { Authorization: `Bearer ${used}` } : {}), ...(options.body ? { "Content-Type": "application/json" } : {}) };
    let reply;
    try {
      reply = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
    } catch (why) {
      if (why.name === "AbortError") throw why;
      throw new ApiError(0, "the coordinator does not answer");
    }
    if (reply.ok) return reply;
    const error = await errorOf(reply);
    if (reply.status !== 401 || !(used !== key() || await askForKey(error.message))) throw error;
  }
}

export async function getJson(path, options) {
  return (await request(path, options)).json();
}

// The data of server-sent events, each read as JSON, until the stream ends or says [DONE].
export async function* events(path, options) {
  const reader = (await request(path, options)).body.getReader();
  const decoder = new TextDecoder();
  let waiting = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      waiting += decoder.decode(value, { stream: true });
      const lines = waiting.split("\n");
      waiting = lines.pop();
      for (const line of lines) {
        if (!line.startsWith("data: ")) continue;
        if (line === "data: [DONE]") return;
        yield JSON.parse(line.slice(6));
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
