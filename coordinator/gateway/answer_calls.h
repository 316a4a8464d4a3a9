/* Calls of tools in an answer, as JSON or as Python has them: states of its reader. */
#ifndef HP_COORDINATOR_GATEWAY_ANSWER_CALLS_H
#define HP_COORDINATOR_GATEWAY_ANSWER_CALLS_H

#include "coordinator/gateway/answer_parts.h"

/* A call may begin at `at`; `marked`: the mark of calls stands before it. */
void answer_call_begin(struct answer_reader *r, size_t at, bool marked);
/* Whether what stands where the reader looks may be a call without a mark: where it is the whole
 * answer. MATCH_PART: more has to come. */
enum answer_match answer_call_here(const struct answer_reader *r);
/* In and behind one: whether there is more to do with what has come. */
bool answer_in_call(struct answer_reader *r, const struct answer_sink *sink);
bool answer_after_call(struct answer_reader *r, const struct answer_sink *sink);
/* Nothing more comes behind calls that are the whole answer. */
void answer_calls_finish(struct answer_reader *r, const struct answer_sink *sink);

#endif
