#include "coordinator/gateway/body_samplers.h"

#include <stdio.h>
#include <string.h>

#include "coordinator/gateway/body_fields.h"

static const char field[] = "samplers";

/* In our order. */
enum sampler_named { UNKNOWN, OFF, PENALTIES, TEMPERATURE, TOP_K, TOP_P, MIN_P, INFILL };

/* Those that are not built are OFF: where their own fields ask for something these are refused. */
static const struct {
    const char *name;
    char letter; /* where the list is a text */
    enum sampler_named kind;
    enum sampling_step step;
} samplers[] = {{"penalties", 'e', PENALTIES, SAMPLING_NO_STEP},
                {"temperature", 't', TEMPERATURE, SAMPLING_TEMPERATURE},
                {"top_k", 'k', TOP_K, SAMPLING_TOP_K},
                {"top_p", 'p', TOP_P, SAMPLING_TOP_P},
                {"min_p", 'm', MIN_P, SAMPLING_MIN_P},
                {"infill", 'i', INFILL, SAMPLING_INFILL},
                {"dry", 'd', OFF, SAMPLING_NO_STEP},
                {"typ_p", 'y', OFF, SAMPLING_NO_STEP},
                {"typical_p", '\0', OFF, SAMPLING_NO_STEP},
                {"tfs_z", '\0', OFF, SAMPLING_NO_STEP},
                {"top_n_sigma", 's', OFF, SAMPLING_NO_STEP},
                {"adaptive_p", 'a', OFF, SAMPLING_NO_STEP},
                {"xtc", 'x', OFF, SAMPLING_NO_STEP}};
enum {
    SAMPLERS = sizeof samplers / sizeof *samplers,
    MAX_SAMPLERS = 64,
    INFILL_TOP_K = 40 /* where a body names both samplers and says no number; llama-server's own */
};

static const struct {
    const char *name;
    enum sampler_named kind;
} numbers[] = {{"temperature", TEMPERATURE},
               {"top_p", TOP_P},
               {"min_p", MIN_P},
               {"repetition_penalty", PENALTIES},
               {"presence_penalty", PENALTIES},
               {"frequency_penalty", PENALTIES}};

static enum sampler_named kind_of_number(const struct sampling_number *n)
{
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(numbers[i].name, n->name) == 0)
            return numbers[i].kind;
    return UNKNOWN;
}

/* Of a list of names, or a text of letters: which row of `samplers`; SAMPLERS: none. */
static size_t sampler_at(const json_t *list, size_t i)
{
    const char *letters = json_string_value(list),
               *name = letters ? NULL : json_string_value(json_array_get(list, i));
    size_t k = 0;
    while (k < SAMPLERS && !(letters ? samplers[k].letter == letters[i]
                                     : name && strcmp(samplers[k].name, name) == 0))
        k++;
    return k;
}

/* Whether it changes an answer. */
static bool sampler_acts(const struct sampling_params *s, enum sampler_named kind)
{
    struct sampling_params copy = *s;
    bool acts = kind == INFILL || (kind == TOP_K && s->top_k > 0);
    for (const struct sampling_number *n = sampling_numbers; n->name; n++) {
        double v = *sampling_number_of(&copy, n);
        acts = acts || (kind_of_number(n) == kind && (v < n->usual || v > n->usual));
    }
    return acts;
}

/* All but those that are named. */
static void others_turn_off(struct sampling_params *s, unsigned named)
{
    for (const struct sampling_number *n = sampling_numbers; n->name; n++)
        if (!(named >> kind_of_number(n) & 1))
            *sampling_number_of(s, n) = n->usual;
    if (!(named >> TOP_K & 1))
        s->top_k = 0;
}

/* Those that act, in the order of a list. */
struct samplers_order {
    size_t n;
    size_t rows[MAX_SAMPLERS]; /* of `samplers` */
};

static int order_check(const struct samplers_order *o, const char **param, struct err *e)
{
    char text[160];
    unsigned before = 0;
    for (size_t i = 0; i < o->n; i++) {
        enum sampler_named kind = samplers[o->rows[i]].kind;
        if (before >> kind & 1)
            snprintf(text, sizeof text, "name \"%s\" twice; each is run once here",
                     samplers[o->rows[i]].name);
        else if (kind == PENALTIES && before)
            snprintf(text, sizeof text,
                     "name \"penalties\" behind \"%s\"; here they come first: name them so",
                     samplers[o->rows[i - 1]].name);
        else
            text[0] = '\0';
        if (text[0])
            return body_field_refuse(param, field, e, text);
        before |= 1u << kind;
    }
    return 0;
}

/* Whether one before another that comes before it here gives other answers: what cuts first changes
 * what the others find. But top_k keeps the same at any temperature, and beside min_p. */
static bool pair_matters(enum sampler_named first, enum sampler_named second)
{
    bool top_k = first == TOP_K || second == TOP_K;
    return first > second && (!top_k || first == TOP_P || first == INFILL);
}

static bool order_matters(const struct samplers_order *o, bool greedy)
{
    bool matters = false, infills = false;
    for (size_t i = 0; i < o->n; i++) {
        infills = infills || samplers[o->rows[i]].kind == INFILL;
        for (size_t k = i + 1; k < o->n; k++)
            matters = matters || pair_matters(samplers[o->rows[i]].kind, samplers[o->rows[k]].kind);
    }
    return infills || (matters && !greedy); /* greedy leaves nothing to cut */
}

static uint64_t order_steps(const struct samplers_order *o)
{
    uint64_t steps = 0;
    int at = 0;
    for (size_t i = 0; i < o->n; i++) {
        enum sampling_step step = samplers[o->rows[i]].step;
        if (step)
            steps |= (uint64_t)step << at++ * SAMPLING_STEP_BITS;
    }
    return steps;
}

static int list_check(const json_t *list, size_t n, const char **param, struct err *e)
{
    if ((!json_is_string(list) && !json_is_array(list)) || n > MAX_SAMPLERS)
        return body_field_refuse(param, field, e, "must be a list of at most 64 names");
    for (size_t i = 0; i < n; i++)
        if (sampler_at(list, i) == SAMPLERS)
            return body_field_refuse(param, field, e,
                                     "may hold penalties, temperature, top_k, top_p, min_p and "
                                     "infill, and dry, typ_p, tfs_z, top_n_sigma, adaptive_p and "
                                     "xtc, which are off");
    return 0;
}

static int list_read(const json_t *root, struct sampling_params *s, const char **param,
                     struct err *e)
{
    const json_t *list = json_object_get(root, field);
    size_t n = json_is_string(list) ? json_string_length(list) : json_array_size(list);
    struct samplers_order order = {0};
    unsigned named = 0;
    if (!list || json_is_null(list))
        return 0;
    int rc = list_check(list, n, param, e);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < n; i++)
        named |= 1u << samplers[sampler_at(list, i)].kind;
    others_turn_off(s, named);
    const json_t *top_k = json_object_get(root, "top_k");
    if (named >> INFILL & 1 && named >> TOP_K & 1 && (!top_k || json_is_null(top_k)))
        s->top_k = INFILL_TOP_K;
    for (size_t i = 0; i < n; i++)
        if (sampler_acts(s, samplers[sampler_at(list, i)].kind))
            order.rows[order.n++] = sampler_at(list, i);
    rc = order_check(&order, param, e);
    s->steps = rc == 0 && order_matters(&order, s->temperature <= 0) ? order_steps(&order) : 0;
    if (rc == 0 && s->steps && (rc = sampling_check(s, UINT64_MAX, e)) < 0)
        *param = field;
    return rc;
}

/* Over how many of the last tokens penalties go: none, some, or all. */
static int window_read(const json_t *root, struct sampling_params *s, const char **param,
                       struct err *e)
{
    int64_t last;
    int rc = body_field_whole(root, "repeat_last_n", -1, INT32_MAX, -2, &last, param, e);
    if (rc < 0 || last == -2 || !sampler_acts(s, PENALTIES))
        return rc;
    if (last == 0)
        others_turn_off(s, ~(1u << PENALTIES));
    else
        s->penalty_window = last < 0 ? INT32_MAX : (uint64_t)last;
    return 0;
}

int body_samplers_read(const json_t *root, struct sampling_params *s, const char **param,
                       struct err *e)
{
    int64_t kept;
    int rc = list_read(root, s, param, e);
    rc = rc < 0 ? rc : body_field_whole(root, "min_keep", 0, 1, 0, &kept, param, e);
    return rc < 0 ? rc : window_read(root, s, param, e);
}

void body_samplers_write(uint64_t steps, struct buffer *out)
{
    static const char ours[] = ",\"temperature\",\"top_k\",\"top_p\",\"min_p\"";
    enum sampling_step step;
    buffer_printf(out, "[\"penalties\"%s", steps ? "" : ours);
    for (int i = 0; (step = sampling_step_at(steps, i)); i++)
        for (size_t k = 0; k < SAMPLERS; k++)
            if (samplers[k].step == step)
                buffer_printf(out, ",\"%s\"", samplers[k].name);
    buffer_printf(out, "]");
}
