/* What an answer took, in llama-server's words: "timings" of its answers, which programs show that
 * were made for it, whatever path they ask. Pure. */
#ifndef HP_COORDINATOR_GATEWAY_LLAMA_TIMINGS_H
#define HP_COORDINATOR_GATEWAY_LLAMA_TIMINGS_H

#include "common/bytes.h"
#include "coordinator/requests.h"

/* The members of an object: `"cache_n":..,`, and so on, without a comma at the end. Rates are of
 * the times between tokens, of which an answer has one less than tokens. */
void llama_timings_write(struct buffer *out, const struct request_usage *u);

#endif
