/* llama-server's "samplers": which of its samplers are run, and in which order. Ours is one:
 * penalties, temperature, top_k, top_p, min_p. Only llama_body.c includes this. Any thread. */
#ifndef HP_COORDINATOR_GATEWAY_LLAMA_SAMPLERS_H
#define HP_COORDINATOR_GATEWAY_LLAMA_SAMPLERS_H

#include <jansson.h>

#include "common/status.h"

/* Turns off in the body what the list leaves out, as llama-server does, and penalties over no
 * tokens
 * ("repeat_last_n" 0). HP_EINVAL: the order that it names would give other answers than ours does,
 * a sampler that is not built would do something, or penalties would go over some of the tokens;
 * HP_ENOMEM. */
int llama_samplers_read(json_t *root, const char **param, struct err *e);

#endif
