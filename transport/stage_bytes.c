#include "transport/stage_bytes.h"

#include "transport/data.h"

static uint64_t runs_of(const struct stage_shape *s)
{
    return s->max_sequences < s->max_batch_tokens ? s->max_sequences : s->max_batch_tokens;
}

uint64_t stage_output_bytes(const struct stage_shape *s)
{
    uint64_t bytes =
        runs_of(s) * FRAME_RUN_BYTES + frame_rows_bytes(s->wire, s->row, s->max_batch_tokens);
    return s->last || bytes <= DATA_CONTROL_BYTES ? 0 : bytes;
}

uint64_t stage_sampled_bytes(const struct stage_shape *s)
{
    uint64_t rows = runs_of(s), guessed = 1 + BATCH_MAX_DRAFTS;
    guessed = guessed < s->max_batch_tokens ? guessed : s->max_batch_tokens;
    rows = rows > guessed ? rows : guessed;
    return s->last ? STAGE_BATCHES * rows * s->vocabulary * sizeof(float) : 0;
}

uint64_t stage_beside_bytes(const struct stage_shape *s)
{
    return DATA_STAGE_OUTPUTS * stage_output_bytes(s) + stage_sampled_bytes(s);
}

uint64_t stage_inputs_bytes(uint64_t n_stages, uint64_t max_batch_tokens, struct frame_row row,
                            enum frame_dtype wire)
{
    uint64_t each = frame_rows_bytes(wire, row, 1) + FRAME_RUN_BYTES;
    return (2 * n_stages + 1) * max_batch_tokens * each;
}

uint64_t stage_receiving_bytes(uint64_t inputs_bytes, uint64_t pool_bytes)
{
    uint64_t need = inputs_bytes + STAGE_KV_BYTES;
    return need > pool_bytes ? (need - pool_bytes) / 4 * 5 : 0; /* a quarter beside it to send */
}
