/* What the client may use: GET /v1/models, /v1/models/NAME, and Ollama's /api/tags and /api/ps. */
#ifndef HP_COORDINATOR_GATEWAY_MODEL_LIST_H
#define HP_COORDINATOR_GATEWAY_MODEL_LIST_H

#include "coordinator/gateway/openai.h"

/* All that serve; with a `name` (else NULL) that one, whatever its state. */
void model_list_reply(const struct openai *o, struct http_exchange *x, const char *client,
                      const char *name);
/* `running`: as /api/ps has them. */
void model_list_reply_ollama(const struct openai *o, struct http_exchange *x, const char *client,
                             bool running);

#endif
