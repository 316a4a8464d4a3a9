/* The record of what a prompt took on a stage, and the first steps of its answer, for `prefill` and
 * `decode`. */
#ifndef HP_AGENT_CORE_PREFILL_H
#define HP_AGENT_CORE_PREFILL_H

#include "agent/core_state.h"

enum {
    CORE_PREFILL_SLICES = 1024, /* of prompts with more nothing is said */
    CORE_DECODE_STEPS = 32,     /* of an answer, which are told */
};
/* A run of a sequence has come in; its input was there at `ready_ns`. */
void core_prefill_arrived(struct core_sequence *own, const struct batch_run *run, uint64_t ready_ns,
                          uint64_t now_ns);
/* A batch has run: what each of its runs took is noted, and told where it was the last. */
void core_prefill_ran(struct agent_core *c, struct core_stage *s, const struct batch *b,
                      uint64_t start_ns, uint64_t end_ns);
/* An answer ends: the steps that were noted are told. */
void core_decode_ended(struct agent_core *c, const struct core_stage *s, struct core_sequence *own);
/* When the input of a batch was there; 0: not known. */
uint64_t core_prefill_ready_ns(const struct core_stage *s, const struct batch *b);

#endif
