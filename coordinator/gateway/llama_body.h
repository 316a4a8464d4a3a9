/* Bodies of llama-server's own paths, made those of OpenAI's completions: most of their fields are
 * called the same there. Only dialect_llama.c includes this. Any thread. */
#ifndef HP_COORDINATOR_GATEWAY_LLAMA_BODY_H
#define HP_COORDINATOR_GATEWAY_LLAMA_BODY_H

#include <jansson.h>
#include <stdbool.h>

#include "common/status.h"

/* POST /completion. HP_EINVAL names the field in *param; HP_ENOMEM. */
int llama_completion_translate(json_t **root, bool *chat, const char **param, struct err *e);
/* POST /infill: "input_prefix" is what stands before the gap, with "prompt" behind it, which
 * becomes a stand-in; "input_suffix" stays. */
int llama_infill_translate(json_t **root, bool *chat, const char **param, struct err *e);

#endif
