/* The record of what a prompt took on a stage, and the first steps of its answer, for `prefill` and
 * `decode`; of a prompt that a stage computes for long also what it took so far. */
#ifndef HP_AGENT_CORE_PREFILL_H
#define HP_AGENT_CORE_PREFILL_H

#include "agent/core_state.h"

enum {
    CORE_PREFILL_SLICES = 1024, /* of prompts with more only what is told in part says anything */
    CORE_DECODE_STEPS = 32,     /* of an answer, which are told */
};
/* A prompt that has computed for so long is told in part, and again each time it has for twice as
 * long: so much says a prompt that what is wrong with a stage need not wait for its end. */
static const uint64_t CORE_PREFILL_LONG_NS = 5000000000;
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
