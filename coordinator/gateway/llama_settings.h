/* How an answer is drawn, in llama-server's words: "generation_settings" of its answers, and the
 * defaults that GET /props tells. Any thread. */
#ifndef HP_COORDINATOR_GATEWAY_LLAMA_SETTINGS_H
#define HP_COORDINATOR_GATEWAY_LLAMA_SETTINGS_H

#include "coordinator/gateway/openai_body.h"

/* Appends a JSON object: what a body asked for. NULL: of a body that says nothing, whose seed is
 * drawn each time. */
void llama_settings_write(const struct openai_body *b, struct buffer *out);

#endif
