#include "coordinator/gateway/llama_timings.h"

#include <inttypes.h>

static double rate_of(double n, double seconds)
{
    return seconds > 0 ? n / seconds : 0;
}

void llama_timings_write(struct buffer *out, const struct request_usage *u)
{
    double read = (double)(u->prompt_tokens - u->cached_tokens), made = (double)u->output_tokens,
           steps = made > 1 ? made - 1 : 0;
    buffer_printf(out,
                  "\"cache_n\":%" PRIu64
                  ",\"prompt_n\":%.0f,\"prompt_ms\":%.3f,\"prompt_per_token_ms\":%.3f,"
                  "\"prompt_per_second\":%.3f,\"predicted_n\":%.0f,\"predicted_ms\":%.3f,"
                  "\"predicted_per_token_ms\":%.3f,\"predicted_per_second\":%.3f",
                  u->cached_tokens, read, u->prefill_s * 1e3, rate_of(u->prefill_s * 1e3, read),
                  rate_of(read, u->prefill_s), made, u->decode_s * 1e3,
                  rate_of(u->decode_s * 1e3, steps), rate_of(steps, u->decode_s));
}
