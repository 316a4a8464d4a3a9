/* llama-server's "samplers", "repeat_last_n" and "min_keep": which samplers are run, in which
 * order, and over which tokens penalties go. Only openai_body.c and llama_settings.c include this.
 * Any thread. */
#ifndef HP_COORDINATOR_GATEWAY_BODY_SAMPLERS_H
#define HP_COORDINATOR_GATEWAY_BODY_SAMPLERS_H

#include <jansson.h>

#include "common/bytes.h"
#include "common/sampling.h"

/* Turns off in `s`, whose numbers have been read, what the list leaves out, as llama-server does,
 * and writes down its order where that would give other answers than ours. HP_EINVAL: a name is
 * unknown, a sampler comes twice, penalties do not come first, or infill not behind a small top_k.
 */
int body_samplers_read(const json_t *root, struct sampling_params *s, const char **param,
                       struct err *e);
/* The names as a list of JSON, in the order in which they are run. */
void body_samplers_write(uint64_t steps, struct buffer *out);

#endif
