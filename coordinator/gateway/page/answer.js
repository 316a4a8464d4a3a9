// One answer as it is being written: a stream that can be stopped, and what it took.
import { events } from "./api.js";

function bodyOf(conversation) {
  const said = conversation.messages.filter((message) => message.role === "user" || message.content);
  const messages = said.map(({ role, content }) => ({ role, content }));
  if (conversation.system.trim()) messages.unshift({ role: "system", content: conversation.system });
  const body = { model: conversation.model, messages, stream: true, stream_options: { include_usage: true } };
  if (conversation.temperature !== "") body.temperature = Number(conversation.temperature);
  if (conversation.maxTokens !== "") body.max_tokens = Number(conversation.maxTokens);
  return body;
}

// Appends an answer to the conversation; `told` is called with it for every piece. It ends with `stopped`, `error` or neither.
export function answerBegin(conversation, told) {
  const control = new AbortController();
  const body = JSON.stringify(bodyOf(conversation));
  const answer = { role: "assistant", content: "", reasoning: "" };
  conversation.messages.push(answer);
  const take = (chunk) => {
    const delta = chunk.choices?.[0]?.delta ?? {};
    answer.content += delta.content ?? "";
    answer.reasoning += delta.reasoning_content ?? "";
    if (chunk.choices?.[0]?.finish_reason === "length") answer.cut = true;
    if (chunk.usage) answer.took = { ...chunk.timings, prompt: chunk.usage.prompt_tokens, tokens: chunk.usage.completion_tokens,
      cached: chunk.usage.prompt_tokens_details?.cached_tokens ?? 0 };
    if (chunk.error) throw new Error(chunk.error.message);
  };
  const run = async () => {
    try {
      for await (const chunk of events("/v1/chat/completions", { method: "POST", body, signal: control.signal })) {
        take(chunk);
        told(answer);
      }
    } catch (why) {
      if (control.signal.aborted) answer.stopped = true;
      else answer.error = why.message;
    }
  };
  return { answer, over: run(), stop: () => control.abort() };
}
