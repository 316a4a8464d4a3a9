/* Answers that are messages on channels (gpt-oss): reasoning on `analysis`, text on `final` and
 * `commentary`, calls to `functions.NAME`. States of an answer's reader. */
#ifndef HP_COORDINATOR_GATEWAY_ANSWER_CHANNELS_H
#define HP_COORDINATOR_GATEWAY_ANSWER_CHANNELS_H

#include "coordinator/gateway/answer_parts.h"

/* Before the first message and between messages: whether there is more to do with what has come. */
bool answer_channel_begin(struct answer_reader *r, const struct answer_sink *sink);
bool answer_in_head(struct answer_reader *r, const struct answer_sink *sink);
bool answer_in_body(struct answer_reader *r, const struct answer_sink *sink);
bool answer_in_arguments(struct answer_reader *r, const struct answer_sink *sink);
/* Nothing more comes. */
void answer_channels_finish(struct answer_reader *r, const struct answer_sink *sink);

#endif
