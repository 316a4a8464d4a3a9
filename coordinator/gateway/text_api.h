/* Texts, tokens and templates of the models that are served, for clients that count and cut
 * themselves: POST /tokenize, /detokenize and /apply-template, Anthropic's
 * /v1/messages/count_tokens (TEXT_COUNT), Ollama's /api/show (TEXT_SHOW) and /api/pull (TEXT_PULL:
 * a model that is deployed is there, and nothing is fetched), GET /props and vLLM's
 * /tokenizer_info. On the loop's thread; what takes long is done on others. */
#ifndef HP_COORDINATOR_GATEWAY_TEXT_API_H
#define HP_COORDINATOR_GATEWAY_TEXT_API_H

#include "coordinator/gateway/openai.h"

enum text_task { TEXT_TOKENIZE, TEXT_DETOKENIZE, TEXT_TEMPLATE, TEXT_COUNT, TEXT_SHOW, TEXT_PULL };

/* Takes the exchange's body. */
void text_api_post(struct openai *o, struct http_exchange *x, enum text_task task,
                   const char *client);
/* What one model, and its tokenizer, is; `name` may be NULL while there is but one. */
void text_api_props(const struct openai *o, struct http_exchange *x, const char *client,
                    const char *name);
void text_api_tokenizer_info(const struct openai *o, struct http_exchange *x, const char *client,
                             const char *name);

#endif
