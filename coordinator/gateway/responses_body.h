/* A body of OpenAI's Responses, as one of its chats. Pure: any thread. */
#ifndef HP_COORDINATOR_GATEWAY_RESPONSES_BODY_H
#define HP_COORDINATOR_GATEWAY_RESPONSES_BODY_H

#include <jansson.h>
#include <stdbool.h>

#include "common/status.h"

/* What of it this server does not do. HP_EINVAL names the field in *param. */
int responses_body_check(const json_t *root, const char **param, struct err *e);
/* instructions and input as messages: items of calls and of their outputs among them. False: no
 * memory. */
bool responses_input_move(json_t *to, const json_t *from);
/* tools and tool_choice; text.format; reasoning.effort. False: no memory. */
bool responses_tools_move(json_t *to, const json_t *from);
bool responses_format_move(json_t *to, const json_t *from);
bool responses_reasoning_move(json_t *to, const json_t *from);
/* "asked": what an answer says of its request, as a text (openai_body.h). A member of more than
 * 16 KiB of it is told as if it were not there. False: no memory. */
bool responses_asked_add(json_t *to, const json_t *from);

#endif
