#include "coordinator/gateway/llama_settings.h"

#include <inttypes.h>
#include <string.h>

#include "coordinator/gateway/body_samplers.h"
#include "coordinator/gateway/json_write.h"

static void number_write(const struct sampling_number *n, double value, struct buffer *out)
{
    bool renamed = strcmp(n->name, "repetition_penalty") == 0;
    buffer_printf(out, "\"%s\":%.9g,", renamed ? "repeat_penalty" : n->name, value);
}

static void stops_write(const struct openai_body *b, struct buffer *out)
{
    buffer_printf(out, "\"stop\":[");
    for (int i = 0; b && i < b->n_stops; i++) {
        buffer_printf(out, "%s", i ? "," : "");
        json_write_text(out, b->stops[i]);
    }
    buffer_printf(out, "],");
}

static void bias_write(const struct openai_body *b, struct buffer *out)
{
    const struct sampling_bias *list = b ? b->sampling.bias.items : NULL;
    buffer_printf(out, "\"logit_bias\":[");
    for (size_t i = 0; list && i < b->sampling.bias.count; i++)
        buffer_printf(out, "%s{\"token\":%" PRIu64 ",\"bias\":%.9g}", i ? "," : "", list[i].token,
                      list[i].bias);
    buffer_printf(out, "],");
}

static long long most_tokens(const struct openai_body *b)
{
    return !b || (!b->max_tokens && !b->no_answer) ? -1
           : b->no_answer                          ? 0
                                                   : (long long)b->max_tokens;
}

static const char *flag_word(bool on)
{
    return on ? "true" : "false";
}

/* Samplers that are not built have the numbers with which they do nothing. */
void llama_settings_write(const struct openai_body *b, struct buffer *out)
{
    struct sampling_params s = b ? b->sampling : sampling_greedy;
    long long window =
        s.penalty_window && s.penalty_window < INT32_MAX ? (long long)s.penalty_window : -1;
    buffer_printf(out, "{\"seed\":");
    if (b)
        buffer_printf(out, "%" PRId64 ",", (int64_t)s.seed); /* as it can be given */
    else
        buffer_printf(out, "-1,");
    for (const struct sampling_number *n = sampling_numbers; n->name; n++)
        number_write(n, b ? *sampling_number_of(&s, n) : n->usual, out);
    buffer_printf(out, "\"top_k\":%" PRIu64 ",", s.top_k);
    stops_write(b, out);
    bias_write(b, out);
    buffer_printf(out,
                  "\"max_tokens\":%lld,\"n_predict\":%lld,\"n_indent\":%u,\"t_max_predict_ms\":%u,"
                  "\"ignore_eos\":%s,\"stream\":%s,\"n_keep\":0,\"n_discard\":0,\"n_probs\":%u,"
                  "\"post_sampling_probs\":%s,\"timings_per_token\":%s,\"repeat_last_n\":%lld,"
                  "\"min_keep\":0,\"dynatemp_range\":0.0,\"typical_p\":1.0,\"top_n_sigma\":-1.0,"
                  "\"xtc_probability\":0.0,\"dry_multiplier\":0.0,\"mirostat\":0,\"lora\":[],"
                  "\"samplers\":",
                  most_tokens(b), most_tokens(b), b ? b->least_indent : 0, b ? b->most_ms : 0,
                  flag_word(b && b->ignore_end), flag_word(b && b->stream),
                  b && b->logprobs ? b->top : 0, flag_word(b && b->probabilities),
                  flag_word(b && b->tells_timings), window);
    body_samplers_write(s.steps, out);
    buffer_printf(out, "}");
}
