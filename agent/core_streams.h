/* What outlives a coordinator: the answers of sequences with a stream, also for a while after their
 * end. */
#ifndef HP_AGENT_CORE_STREAMS_H
#define HP_AGENT_CORE_STREAMS_H

#include "agent/core_state.h"

/* Of a sequence that has been opened: what it has of its answer already. */
void core_stream_begin(const struct core_stage *s, struct core_sequence *own);
/* The last stage has said n more of its tokens, with these scores of each (NULL: none). */
void core_stream_said(struct agent_core *c, struct core_sequence *own, const uint32_t *ids,
                      const struct score *scores, size_t n);
/* The sequence has ended on this stage, for whatever reason: its answer is kept for a while. */
void core_stream_left(struct agent_core *c, const struct core_stage *s, struct core_sequence *own);
/* Tells a coordinator that has started again what is open, and what is left of others. */
void core_streams_tell(struct agent_core *c);
/* How many of these there are, at most. */
uint64_t core_streams_count(const struct agent_core *c);
/* With the core: all that is left of sequences that have ended. */
void core_remains_free(struct agent_core *c);

#endif
