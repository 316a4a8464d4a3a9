#include "transport/stage_bytes.h"

#include "transport/data.h"

static uint64_t runs_of(const struct stage_shape *s)
{
    return s->max_sequences < s->max_batch_tokens ? s->max_sequences : s->max_batch_tokens;
}

uint64_t stage_output_bytes(const struct stage_shape *s)
{
    uint64_t bytes =
        runs_of(s) * FRAME_RUN_BYTES + s->max_batch_tokens * s->width * frame_dtype_bytes(s->wire);
    return s->last || bytes <= DATA_CONTROL_BYTES ? 0 : bytes;
}

uint64_t stage_sampled_bytes(const struct stage_shape *s)
{
    return s->last ? STAGE_BATCHES * runs_of(s) * s->vocabulary * sizeof(float) : 0;
}

uint64_t stage_beside_bytes(const struct stage_shape *s)
{
    return DATA_STAGE_OUTPUTS * stage_output_bytes(s) + stage_sampled_bytes(s);
}
