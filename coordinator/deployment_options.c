#include "coordinator/deployment_options.h"

#include <stdlib.h>
#include <string.h>

#include "common/experts.h"
#include "coordinator/limits.h"

/* ---- one of them ---- */

/* "A,B" */
static int agents_read(struct deployment_spec *s, const char *text, struct err *e)
{
    int rc = 0;
    while (rc == 0 && *text) {
        size_t n = strcspn(text, ",");
        rc = deployment_range_add(s, text, n, 0, 0, e);
        text += n + (text[n] == ',');
    }
    return rc;
}

/* "0-22:A,23-45:B", both ends included; "7:A" is one layer. */
static int layers_read(struct deployment_spec *s, const char *text, struct err *e)
{
    int rc = 0;
    s->with_layers = true;
    while (rc == 0 && *text) {
        char *after;
        long first = strtol(text, &after, 10), last = first;
        bool good = after != text;
        if (good && *after == '-') {
            text = after + 1;
            last = strtol(text, &after, 10);
            good = after != text;
        }
        if (!good || *after != ':' || first < 0 || last < first || last > 1000000)
            return err_set(e, HP_EINVAL, "--layers: \"%.40s\" is not FIRST-LAST:AGENT", text);
        text = after + 1;
        size_t n = strcspn(text, ",");
        rc = deployment_range_add(s, text, n, (int)first, (int)last + 1, e);
        text += n + (text[n] == ',');
    }
    return rc;
}

static int option_text(const json_t *options, const char *key, const char **out, struct err *e)
{
    const json_t *v = json_object_get(options, key);
    *out = v && !json_is_null(v) ? json_string_value(v) : "";
    return *out ? 0 : err_set(e, HP_EINVAL, "option \"%s\" is not text", key);
}

static int option_number(const json_t *options, const char *key, uint64_t *out, struct err *e)
{
    const json_t *v = json_object_get(options, key);
    if (v && !json_is_null(v) &&
        (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > UINT32_MAX))
        return err_set(e, HP_EINVAL, "option \"%s\" is not a number from 0 to %u", key, UINT32_MAX);
    *out = (uint64_t)json_integer_value(v);
    return 0;
}

static int weight_read(struct deployment_spec *s, struct err *e)
{
    const json_t *v = json_object_get(s->options, "weight");
    if (v && !json_is_null(v) && !json_is_number(v))
        return err_set(e, HP_EINVAL, "--weight is no number");
    s->weight = v && !json_is_null(v) ? json_number_value(v) : 1;
    if (s->weight >= DEPLOYMENT_LEAST_WEIGHT && s->weight <= DEPLOYMENT_MOST_WEIGHT)
        return 0;
    return err_set(e, HP_EINVAL, "--weight %g is out of range: %g to %d", s->weight,
                   DEPLOYMENT_LEAST_WEIGHT, DEPLOYMENT_MOST_WEIGHT);
}

static int copies_read(struct deployment_spec *s, struct err *e)
{
    const json_t *v = json_object_get(s->options, "copies");
    double copies = v && !json_is_null(v) ? json_number_value(v) : 1;
    s->copies = copies > 1 ? 2 : 1;
    if (copies >= 1 && copies <= 2 && copies == (double)s->copies)
        return 0;
    return err_set(e, HP_EINVAL,
                   "--copies is 1 (each layer is in the store of the agent that runs it) or 2 (and "
                   "in that of another)");
}

static int target_read(const struct deployment_spec *s, const char *key, double *target_s,
                       struct err *e)
{
    const json_t *v = json_object_get(s->options, key);
    bool given = v && !json_is_null(v);
    *target_s = given ? json_number_value(v) * 1e-3 : 0;
    if (!given || (json_is_number(v) && *target_s >= 1e-3 && *target_s <= 60))
        return 0;
    return err_set(e, HP_EINVAL, "--%s is a time from 1ms to 60s", key);
}

static int prefill_kv_read(const struct deployment_spec *s, struct err *e)
{
    enum kv_format ignored;
    if (s->prefill_kv[0] && !s->prefill[0])
        return err_set(
            e, HP_EINVAL,
            "--prefill-kv goes with --prefill, which names the agents that read prompts");
    if (kv_format_of_word(s->prefill_kv, s->f32, &ignored))
        return 0;
    return err_set(e, HP_EINVAL, "--prefill-kv is \"%.40s\"; it can be auto, f16, f32 or q8_0",
                   s->prefill_kv);
}

/* Names of those that answer are the option "agents". */
static int decode_read(struct deployment_spec *s, const char *decode, struct err *e)
{
    if (!decode[0])
        return 0;
    if (strcmp(decode, "auto") != 0)
        return err_set(e, HP_EINVAL,
                       "option \"decode\" is \"%.40s\"; it can be auto, and names "
                       "of agents are the option \"agents\"",
                       decode);
    if (!s->prefill[0])
        return err_set(e, HP_EINVAL,
                       "--decode goes with --prefill, which names the agents that read prompts");
    if (s->n_ranges)
        return err_set(e, HP_EINVAL,
                       "--decode auto leaves to the planner who answers, and --agents, --layers or "
                       "--plan say it: leave one of them out");
    s->decode_auto = !deployment_reads_auto(s); /* else all is the planner's anyway */
    return 0;
}

static int prefix_cache_read(struct deployment_spec *s, const char *word, struct err *e)
{
    static const char *const words[] = {"on", "shared", "off"};
    for (unsigned i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(word[0] ? word : "on", words[i]) == 0) {
            s->prefix_cache = i;
            return 0;
        }
    return err_set(e, HP_EINVAL, "--prefix-cache is \"%.40s\"; it can be on, shared or off", word);
}

/* Who was put somewhere by name, or is part of another deployment, stays there unless it says
 * otherwise. */
static enum rebalancing rebalancing_default(const struct deployment_spec *s)
{
    bool placed = s->n_ranges || s->planned || s->prefill[0] || s->prefill_of[0] || s->copy_of[0];
    return placed ? REBALANCING_OFF : REBALANCING_DEGRADED;
}

static const char *const rebalancing_words[] = {
    [REBALANCING_OFF] = "off", [REBALANCING_DEGRADED] = "degraded", [REBALANCING_AUTO] = "auto"};

const char *rebalancing_word(enum rebalancing r)
{
    return rebalancing_words[r];
}

static int rebalance_read(struct deployment_spec *s, const char *word, struct err *e)
{
    unsigned i = 0, n = sizeof rebalancing_words / sizeof *rebalancing_words;
    while (i < n && strcmp(word, rebalancing_words[i]) != 0)
        i++;
    if (word[0] && i == n)
        return err_set(e, HP_EINVAL, "--rebalance is \"%.40s\"; it can be auto, degraded or off",
                       word);
    s->rebalances = word[0] ? i : rebalancing_default(s);
    if (s->rebalances != REBALANCING_OFF && (s->with_layers || s->prefill[0]))
        return err_set(e, HP_EINVAL,
                       "--rebalance %s leaves the place to the planner, and --layers, --plan and "
                       "--prefill give it: leave one of them out",
                       word);
    return 0;
}

static int speculate_read(struct deployment_spec *s, const char *word, struct err *e)
{
    if (speculate_of_word(word[0] ? word : "auto", &s->speculate))
        return 0;
    return err_set(e, HP_EINVAL, "--speculate is \"%.40s\"; it can be auto, off or lookup", word);
}

/* Of --wire or, where that says nothing, of the plan that was given. */
static int wire_read(struct deployment_spec *s, const char *wire, struct err *e)
{
    const json_t *planned = json_object_get(json_object_get(s->options, "plan"), "wire");
    if (!wire[0] && json_is_string(planned))
        wire = json_string_value(planned);
    s->wire_auto = strcmp(wire, "auto") == 0;
    if (s->wire_auto || frame_dtype_of_word(wire, &s->wire))
        return 0;
    return err_set(e, HP_EINVAL, "--wire is \"%.40s\"; it can be f32, f16, bf16, q8 or auto", wire);
}

/* ---- all of them ---- */

/* Options that are read from a word. */
struct option_words {
    const char *agents, *layers, *compute, *wire, *kv, *prefix_cache, *speculate, *rebalance,
        *decode;
};

static int texts_read(struct deployment_spec *s, struct option_words *w, struct err *e)
{
    const struct {
        const char *key, **to;
    } texts[] = {{"agents", &w->agents},
                 {"layers", &w->layers},
                 {"compute", &w->compute},
                 {"wire", &w->wire},
                 {"kv", &w->kv},
                 {"prefix_cache", &w->prefix_cache},
                 {"speculate", &w->speculate},
                 {"rebalance", &w->rebalance},
                 {"source_machine", &s->source_machine},
                 {"source_path", &s->source_path},
                 {"prefill", &s->prefill},
                 {"decode", &w->decode},
                 {"prefill_kv", &s->prefill_kv},
                 {"prefill_of", &s->prefill_of},
                 {"succeeds", &s->succeeds},
                 {"replicate_to", &s->replicate_to},
                 {"copy_of", &s->copy_of}};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof texts / sizeof *texts; i++)
        rc = option_text(s->options, texts[i].key, texts[i].to, e);
    return rc;
}

static int numbers_read(struct deployment_spec *s, struct err *e)
{
    const struct {
        const char *key;
        uint64_t *to;
    } numbers[] = {{"max_context", &s->max_context},
                   {"slice", &s->slice},
                   {"expert_groups", &s->expert_groups},
                   {"replicate_kv", &s->replicate_kv},
                   {"max_sequences", &s->max_sequences}};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof numbers / sizeof *numbers; i++)
        rc = option_number(s->options, numbers[i].key, numbers[i].to, e);
    if (rc == 0 && s->expert_groups > EXPERT_GROUPS_MAX)
        rc = err_set(e, HP_EINVAL, "--expert-groups %llu is more than %d",
                     (unsigned long long)s->expert_groups, EXPERT_GROUPS_MAX);
    if (rc == 0 && s->max_sequences > DEPLOYMENT_MAX_SEQUENCES)
        rc = err_set(e, HP_EINVAL, "--max-sequences %llu is more than %d",
                     (unsigned long long)s->max_sequences, DEPLOYMENT_MAX_SEQUENCES);
    return rc;
}

/* Who has which layers: agents, layers or a plan say it, or nobody does. */
static int place_read(struct deployment_spec *s, const struct option_words *w, struct err *e)
{
    if (w->agents[0] && w->layers[0])
        return err_set(e, HP_EINVAL,
                       "--agents and --layers say the same thing twice: give one of them");
    int rc = w->layers[0] ? layers_read(s, w->layers, e) : agents_read(s, w->agents, e);
    if (rc < 0 || !json_is_object(json_object_get(s->options, "plan")))
        return rc;
    if (s->n_ranges)
        return err_set(e, HP_EINVAL,
                       "a plan says where the stages are: leave --agents and --layers out");
    return deployment_options_plan_read(s, e);
}

/* Number formats: what is computed in, what crosses between stages, what is kept of a token. */
static int formats_read(struct deployment_spec *s, const struct option_words *w, struct err *e)
{
    s->f32 = strcmp(w->compute, "f32") == 0;
    if (w->compute[0] && strcmp(w->compute, "auto") != 0 && !s->f32)
        return err_set(e, HP_EINVAL, "--compute is \"%.40s\"; it can be auto or f32", w->compute);
    int rc = wire_read(s, w->wire, e);
    if (rc == 0 && !kv_format_of_word(w->kv, s->f32, &s->kv))
        rc = err_set(e, HP_EINVAL, "--kv is \"%.40s\"; it can be auto, f16, f32 or q8_0", w->kv);
    return rc;
}

int deployment_options_read(json_t *options, struct deployment_spec *out, struct err *e)
{
    struct deployment_spec s = {.options =
                                    json_is_object(options) ? json_incref(options) : json_object()};
    struct option_words w = {0};
    int rc = texts_read(&s, &w, e);
    rc = rc < 0 ? rc : numbers_read(&s, e);
    rc = rc < 0 ? rc : place_read(&s, &w, e);
    rc = rc < 0 ? rc : formats_read(&s, &w, e);
    rc = rc < 0 ? rc : decode_read(&s, w.decode, e);
    rc = rc < 0 ? rc : prefill_kv_read(&s, e);
    rc = rc < 0 ? rc : prefix_cache_read(&s, w.prefix_cache, e);
    rc = rc < 0 ? rc : speculate_read(&s, w.speculate, e);
    rc = rc < 0 ? rc : rebalance_read(&s, w.rebalance, e);
    rc = rc < 0 ? rc : weight_read(&s, e);
    rc = rc < 0 ? rc : copies_read(&s, e);
    if (rc == 0 && s.replicate_to[0] && !s.replicate_kv)
        rc = err_set(e, HP_EINVAL,
                     "--replicate-to says where copies go: --replicate-kv TOKENS says of what");
    rc = rc < 0 ? rc : target_read(&s, "ttft", &s.ttft_s, e);
    rc = rc < 0 ? rc : target_read(&s, "tpot", &s.tpot_s, e);
    if (rc < 0) {
        deployment_spec_free(&s);
        return rc;
    }
    s.upload_only = json_is_true(json_object_get(s.options, "upload_only"));
    *out = s;
    return 0;
}
