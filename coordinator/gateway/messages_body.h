/* Tools and turns as Anthropic's clients write them, as OpenAI's. Pure: any thread. */
#ifndef HP_COORDINATOR_GATEWAY_MESSAGES_BODY_H
#define HP_COORDINATOR_GATEWAY_MESSAGES_BODY_H

#include <jansson.h>
#include <stdbool.h>

#include "common/status.h"

/* What of a body's tools has no namesake. HP_EINVAL names the field in *param. */
int message_tools_check(const json_t *root, const char **param, struct err *e);
/* tools, tool_choice and disable_parallel_tool_use. False: no memory. */
bool message_tools_move(json_t *to, const json_t *from);
/* Adds a turn to a list of messages: blocks of thinking become its reasoning, those of tool_use its
 * calls, each of tool_result a message of its own. False: no memory. */
bool message_turn_add(json_t *all, json_t *turn);

#endif
