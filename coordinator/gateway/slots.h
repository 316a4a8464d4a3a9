/* GET /slots, as llama-server tells of what it works on: one for each sequence that a deployment
 * may have at once. On the loop's thread. */
#ifndef HP_COORDINATOR_GATEWAY_SLOTS_H
#define HP_COORDINATOR_GATEWAY_SLOTS_H

#include "coordinator/gateway/openai.h"

/* Of the model of that name; `name` may be NULL while there is but one. 503 where none is free and
 * `fails_when_full`. */
void slots_reply(const struct openai *o, struct http_exchange *x, const char *client,
                 const char *name, bool fails_when_full);

#endif
