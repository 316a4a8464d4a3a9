/* Bodies as Ollama's clients write them, as OpenAI's. Pure: any thread. */
#ifndef HP_COORDINATOR_GATEWAY_OLLAMA_BODY_H
#define HP_COORDINATOR_GATEWAY_OLLAMA_BODY_H

#include <jansson.h>
#include <stdbool.h>

#include "common/status.h"

/* dialect.translate of /api/chat and of /api/generate. */
int ollama_chat_translate(json_t **root, bool *chat, const char **param, struct err *e);
int ollama_generate_translate(json_t **root, bool *chat, const char **param, struct err *e);
/* "model" of a body as it is called here: "NAME:latest" and the older field "name" are understood.
 * HP_ENOMEM. */
int ollama_name_read(json_t *root);

#endif
