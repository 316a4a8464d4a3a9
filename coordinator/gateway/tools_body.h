/* Tools in a body: the functions that a chat offers, and calls in its messages. Pure: any thread.
 */
#ifndef HP_COORDINATOR_GATEWAY_TOOLS_BODY_H
#define HP_COORDINATOR_GATEWAY_TOOLS_BODY_H

#include "coordinator/gateway/openai_body.h"

/* `tools`, `tool_choice` and `parallel_tool_calls`: fills b->tools and what belongs to it.
 * HP_EINVAL names the field; HP_ENOMEM. */
int tools_body_read(struct openai_body *b, const char **param, struct err *e);
/* The calls that messages have, as templates expect them: arguments are objects, and a list without
 * calls is left out. HP_EINVAL, HP_ENOMEM. */
int tools_body_messages(struct openai_body *b, const char **param, struct err *e);
void tools_body_free(struct openai_body *b);

#endif
