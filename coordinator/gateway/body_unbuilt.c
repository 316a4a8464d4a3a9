#include "coordinator/gateway/body_unbuilt.h"

#include <string.h>

#include "coordinator/gateway/body_fields.h"

struct unbuilt_field {
    const char *name, *why;
    double usual;                                /* the number that asks for nothing */
    enum { NO_OTHER, NO_LESS, NO_MORE } neither; /* does one below it, or above */
    bool on;                                     /* true asks for nothing, and not false */
    const char *words[2];                        /* these ask for nothing, either, */
    bool empty;                                  /* and so does {} */
};

static bool number_is_default(const struct unbuilt_field *f, double v)
{
    return (v >= f->usual && v <= f->usual) || (f->neither == NO_LESS && v < f->usual) ||
           (f->neither == NO_MORE && v > f->usual);
}

static bool word_is_default(const struct unbuilt_field *f, const char *word)
{
    bool usual = !*word;
    for (size_t i = 0; i < sizeof f->words / sizeof *f->words; i++)
        usual = usual || (f->words[i] && strcmp(word, f->words[i]) == 0);
    return usual;
}

/* A list of one usual word is one, too. */
static bool is_default(const struct unbuilt_field *f, const json_t *v)
{
    const json_t *one = json_array_size(v) == 1 ? json_array_get(v, 0) : NULL;
    if (json_is_null(v) || (json_is_boolean(v) && json_is_true(v) == f->on))
        return true;
    if (json_is_number(v))
        return number_is_default(f, json_number_value(v));
    if (json_is_string(v) || json_is_string(one))
        return word_is_default(f, json_string_value(one ? one : v));
    return json_is_object(v) ? f->empty && json_object_size(v) == 0
                             : json_is_array(v) && json_array_size(v) == 0;
}

int body_unbuilt_check(const json_t *root, const char **param, struct err *e)
{
    static const char leave_out[] = "this server does not support it yet; leave it out";
    static const struct unbuilt_field fields[] = {
        {.name = "functions",
         .why = "are what \"tools\" have replaced: {\"type\": \"function\", \"function\": {..}}"},
        /* without functions nobody can choose one */
        {.name = "function_call",
         .why = "is what \"tool_choice\" has replaced, which chooses among \"tools\"",
         .words = {"none", "auto"}},
        {.name = "suffix", .why = leave_out},
        {.name = "audio", .why = leave_out},
        {.name = "modalities", .why = "this server writes text alone", .words = {"text"}},
        {.name = "prediction", .why = leave_out},
        {.name = "verbosity",
         .why = "no model here is told of it: say so in a message, and leave it out",
         .words = {"medium"}},
        {.name = "web_search_options", .why = "this server has no tools of its own; leave it out"},
        /* vLLM's */
        {.name = "use_beam_search", .why = leave_out},
        {.name = "bad_words", .why = leave_out},
        {.name = "allowed_token_ids", .why = leave_out},
        {.name = "truncate_prompt_tokens", .why = leave_out, .usual = -1},
        {.name = "include_stop_str_in_output", .why = leave_out},
        {.name = "skip_special_tokens", .why = leave_out, .on = true},
        {.name = "return_token_ids", .why = leave_out},
        {.name = "return_tokens_as_token_ids", .why = leave_out},
        {.name = "prompt_embeds", .why = leave_out},
        {.name = "documents", .why = leave_out},
        {.name = "logits_processors", .why = "none of a client's are run here; leave it out"},
        {.name = "guided_whitespace_pattern",
         .why = "white space is as the schema's grammar has it; leave it out"},
        {.name = "include_reasoning", .why = "it is part of the answer; leave it out", .on = true},
        {.name = "thinking_token_budget", .why = leave_out, .usual = -1},
        {.name = "cache_salt",
         .why = "what is kept of prompts is each API key's own; leave it out"},
        {.name = "mm_processor_kwargs", .why = "this server reads text alone", .empty = true},
        {.name = "kv_transfer_params",
         .why = "agents move keys and values by themselves; leave it out",
         .empty = true},
        {.name = "vllm_xargs", .why = leave_out, .empty = true},
        /* llama-server's */
        {.name = "mirostat", .why = leave_out},
        {.name = "typical_p", .why = leave_out, .usual = 1, .neither = NO_MORE},
        {.name = "typ_p", .why = leave_out, .usual = 1, .neither = NO_MORE},
        {.name = "tfs_z", .why = leave_out, .usual = 1, .neither = NO_MORE},
        {.name = "dynatemp_range", .why = leave_out, .neither = NO_LESS},
        {.name = "xtc_probability", .why = leave_out, .neither = NO_LESS},
        {.name = "dry_multiplier", .why = leave_out},
        {.name = "top_n_sigma", .why = leave_out, .neither = NO_LESS},
        {.name = "adaptive_target",
         .why = leave_out,
         .usual = -1e-300,
         .neither = NO_LESS}, /* below 0 it is off */
        {.name = "grammar_lazy", .why = "a grammar holds the whole answer here; leave it out"},
        {.name = "thinking_budget_tokens", .why = leave_out, .usual = -1},
        {.name = "n_probs",
         .why = "\"logprobs\" and \"top_logprobs\" are what tells of probabilities here"},
        {.name = "image_data", .why = "this server reads text alone"},
        {.name = "multimodal_data", .why = "this server reads text alone"},
        {.name = "lora", .why = leave_out}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const json_t *v = json_object_get(root, fields[i].name);
        if (v && !is_default(&fields[i], v))
            return body_field_refuse(param, fields[i].name, e, fields[i].why);
    }
    return 0;
}
