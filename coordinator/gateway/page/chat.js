// Talking to a model: conversations beside what is said in one of them.
import { answerBegin } from "./answer.js";
import { getJson } from "./api.js";
import { composer } from "./composer.js";
import { conversations, create, find, keep, remove, touch } from "./conversations.js";
import { button, h } from "./dom.js";
import * as now from "./live.js";
import { messageFill, messageView } from "./message.js";
import { talkHead } from "./talk_head.js";

const DRAW_MS = 60; // between two drawings of an answer that grows
const NEAR_PX = 80; // of the end: what is read goes along with what is written

let running = null; // the answer that is being written: {conversation, stop}; also while another view is open
let shown = null;   // the chat that is open now, which draws it

// Until it is over; whichever chat is open meanwhile draws it.
async function answerWrite(conversation, appended) {
  let timer = null;
  const draw = (message) => {
    timer = null;
    shown?.draw(message);
  };
  const written = answerBegin(conversation, (message) => { timer ??= setTimeout(() => draw(message), DRAW_MS); });
  running = { conversation, stop: written.stop };
  touch(conversation);
  appended(written.answer);
  await written.over;
  clearTimeout(timer);
  running = null;
  keep();
  draw(written.answer);
  shown?.redraw(written.answer.error ? "The answer failed." : "The answer is there.");
}

class Chat {
  constructor(id) {
    this.conversation = find(id);
    this.places = new Map(); // of messages
    this.allowed = [];       // models, for who may not look at the cluster
    this.list = h("nav", { class: "talks", "aria-label": "Conversations" });
    this.thread = h("div", { class: "thread", role: "log", "aria-label": "Conversation", tabindex: "0" });
    this.told = h("p", { class: "unseen", "aria-live": "polite" });
    this.head = talkHead(() => this.modelChosen());
    this.composer = composer({ say: () => this.say(), stop: () => running?.stop() });
    this.element = h("div", { class: "chat", on: { keydown: (event) => { if (event.key === "Escape") running?.stop(); } } },
      h("aside", { class: "talks-box" },
        h("div", { class: "row" }, h("h2", {}, "Conversations"), button("New", () => { location.hash = "#/chat"; this.composer.focus(); }, { class: "quiet" })), this.list),
      h("section", { class: "talk" }, this.head.element, this.thread, this.composer.element, this.told));
    this.head.fill(this.conversation);
    this.redraw("");
    this.modelsDraw();
    this.threadDraw();
    this.unwatch = now.watch(() => this.clusterSeen());
  }

  // ---- what is shown ----

  listDraw() {
    this.list.replaceChildren(conversations.length ? h("ul", {}, conversations.map((one) => h("li", {},
      h("a", { href: `#/chat/${one.id}`, "aria-current": one === this.conversation ? "page" : undefined, title: one.title },
        one.title || "New conversation", running?.conversation === one && h("span", { class: "writes" }, " …")),
      button("×", () => this.forget(one), { class: "quiet", "aria-label": `Delete “${one.title}”` }))))
      : h("p", { class: "note" }, "What you say is kept in this browser."));
  }

  redraw(text) {
    this.listDraw();
    this.composer.writes(running !== null);
    this.thread.setAttribute("aria-busy", running !== null);
    this.told.textContent = text;
  }

  toEnd() {
    this.thread.scrollTop = this.thread.scrollHeight;
  }

  // A message that is shown has changed.
  draw(message) {
    const place = this.places.get(message), { scrollHeight, scrollTop, clientHeight } = this.thread;
    if (!place) return;
    messageFill(place, message, this.conversation.model);
    if (scrollHeight - scrollTop - clientHeight < NEAR_PX) this.toEnd();
  }

  messageDraw(message, i) {
    const { place, element } = messageView(message, this.conversation.model, () => (message.role === "user" ? this.edit(i) : this.again(i)));
    this.places.set(message, place);
    return element;
  }

  append(message) {
    this.thread.append(this.messageDraw(message, this.conversation.messages.length - 1));
  }

  welcome() {
    if (this.conversation?.messages.length) return;
    const model = this.head.model();
    this.thread.replaceChildren(h("div", { class: "welcome" },
      h("h2", {}, model ? `Talk to ${model}` : "Nothing is deployed yet"),
      h("p", {}, model ? "Enter sends, Shift and Enter begin a new line, Escape stops an answer."
        : "hpctl deploy MODEL.gguf puts a model on this cluster's boxes; it appears here as soon as it serves.")));
  }

  threadDraw() {
    this.places.clear();
    this.thread.replaceChildren(...(this.conversation?.messages ?? []).map((message, i) => this.messageDraw(message, i)));
    this.welcome();
    this.toEnd();
  }

  modelsDraw() {
    const names = now.cluster ? now.cluster.deployments.filter((one) => !one.name.includes("/") && one.task !== "embed").map((one) => one.name) : [...this.allowed];
    const wanted = this.conversation?.model || this.head.model();
    if (wanted && !names.includes(wanted)) names.push(wanted);
    if (this.head.offer(names, wanted)) this.welcome();
  }

  async clusterSeen() {
    this.modelsDraw();
    if (now.cluster || !now.trouble || this.allowed.length) return;
    try {
      this.allowed = (await getJson("/v1/models")).data.filter((one) => one.task === "generate").map((one) => one.id);
      this.modelsDraw();
    } catch { /* the trouble is shown already */ }
  }

  // ---- what one does ----

  modelChosen() {
    if (this.conversation) {
      this.conversation.model = this.head.model();
      keep();
    }
    this.welcome();
  }

  answer() {
    answerWrite(this.conversation, (message) => {
      this.append(message);
      this.toEnd();
      this.redraw("");
    });
  }

  say() {
    const text = this.composer.text();
    if (!text || running || !this.head.model()) return;
    const first = !this.conversation;
    this.conversation ??= create(this.head.model());
    this.head.take(this.conversation);
    if (this.conversation.messages.length === 0) this.thread.replaceChildren();
    const message = { role: "user", content: text };
    this.conversation.messages.push(message);
    this.append(message);
    this.composer.write("");
    if (first) history.replaceState(null, "", `#/chat/${this.conversation.id}`);
    this.answer();
  }

  again(i) {
    if (running) return;
    this.conversation.messages.length = i;
    this.head.take(this.conversation);
    this.threadDraw();
    this.answer();
  }

  edit(i) {
    if (running) return;
    this.composer.write(this.conversation.messages[i].content);
    this.conversation.messages.length = i;
    this.threadDraw();
    this.composer.focus();
  }

  forget(one) {
    if (running?.conversation === one) running.stop();
    remove(one);
    if (one === this.conversation) location.hash = "#/chat";
    else this.listDraw();
  }
}

export function chat(id) {
  const open = new Chat(id);
  shown = open;
  return {
    element: open.element,
    close: () => { open.unwatch(); shown = null; },
    focus: () => {
      open.toEnd();
      if (matchMedia("(min-width: 760px)").matches) open.composer.focus();
    },
  };
}
