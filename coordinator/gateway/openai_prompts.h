/* What a body's answers begin with: messages and what their template is told, or prompts. Only
 * openai*.c and text_body.c include this. Pure: any thread. */
#ifndef HP_COORDINATOR_GATEWAY_OPENAI_PROMPTS_H
#define HP_COORDINATOR_GATEWAY_OPENAI_PROMPTS_H

#include "coordinator/gateway/openai_body.h"

/* Reads them out of b->root, as b->chat says. HP_EINVAL names the field in *param; HP_ENOMEM. */
int openai_prompts_read(struct openai_body *b, const char **param, struct err *e);
/* Frees them, with the body's tree; n_prompts stays. */
void openai_prompts_free(struct openai_body *b);

#endif
