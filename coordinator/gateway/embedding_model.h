/* Which model a request for embeddings names: a deployment's, or one that pools serve. */
#ifndef HP_COORDINATOR_GATEWAY_EMBEDDING_MODEL_H
#define HP_COORDINATOR_GATEWAY_EMBEDDING_MODEL_H

#include "coordinator/gateway/openai.h"

/* Puts the model into the body, ready to tokenize, and says whether pools serve it (also on
 * failure). The body's `param` and `code` say what a failure is about. */
int embedding_model_take(const struct openai *o, const char *client, struct embedding_body *b,
                         bool *in_pools, struct err *e);

#endif
