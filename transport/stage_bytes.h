/* What a stage holds beside its layers' weights, KV cache and activations, because it is part of a
 * pipeline: the one calculation of the agents that allocate and of the coordinator that plans. */
#ifndef HP_TRANSPORT_STAGE_BYTES_H
#define HP_TRANSPORT_STAGE_BYTES_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/frame.h"

enum {
    STAGE_BATCHES = 2,        /* under way on a device at once */
    STAGE_KV_BYTES = 8 << 20, /* of keys and values on their way from one sender */
};

struct stage_shape {
    bool last;
    uint64_t max_batch_tokens, max_sequences;
    struct frame_row row; /* of a token, that crosses to the next stage */
    uint64_t vocabulary;
    enum frame_dtype wire; /* as what rows cross */
};

/* One output: the run table and the rows of a full batch. 0: none is set aside, on the last stage
 * and where outputs are so small that they never wait (DATA_CONTROL_BYTES). */
uint64_t stage_output_bytes(const struct stage_shape *s);
/* The last stage's rows to sample from: one for each sequence of a batch, and at least those of one
 * with all the guesses that it may have, of STAGE_BATCHES. */
uint64_t stage_sampled_bytes(const struct stage_shape *s);
/* DATA_STAGE_OUTPUTS outputs and these rows together. */
uint64_t stage_beside_bytes(const struct stage_shape *s);

/* Frames that may be on their way to a stage at once, or wait for their turn there: as many batches
 * as the first stage has in flight (agent/engine/queue.h). The first stage has none. */
uint64_t stage_inputs_bytes(uint64_t n_stages, uint64_t max_batch_tokens, struct frame_row row,
                            enum frame_dtype wire);
/* What an agent's pool of received frames takes of the memory for stages when such frames come to
 * its stages (`inputs_bytes` of all) and it may have `pool_bytes` anyway. Keys and values have room
 * beside them: a batch that waits for them never waits for itself. */
uint64_t stage_receiving_bytes(uint64_t inputs_bytes, uint64_t pool_bytes);

#endif
