#include "coordinator/gateway/llama_samplers.h"

#include <stdio.h>
#include <string.h>

#include "coordinator/gateway/body_fields.h"

static const char field[] = "samplers";

enum sampler { PENALTIES, TEMPERATURE, TOP_K, TOP_P, MIN_P, BUILT, OFF = BUILT, INFILL, UNKNOWN };

/* Those that are not built are OFF: where their own fields ask for something these are refused. */
static const struct {
    const char *name;
    char letter; /* where the list is a text */
    enum sampler kind;
} samplers[] = {{"penalties", 'e', PENALTIES}, {"temperature", 't', TEMPERATURE},
                {"top_k", 'k', TOP_K},         {"top_p", 'p', TOP_P},
                {"min_p", 'm', MIN_P},         {"dry", 'd', OFF},
                {"typ_p", 'y', OFF},           {"typical_p", '\0', OFF},
                {"top_n_sigma", 's', OFF},     {"xtc", 'x', OFF},
                {"infill", 'i', INFILL}};

/* Their fields, and the numbers with which they do nothing, which are those of a body without. */
static const struct {
    enum sampler kind;
    const char *field;
    int off;
} numbers[] = {{PENALTIES, "repeat_penalty", 1},
               {PENALTIES, "repetition_penalty", 1},
               {PENALTIES, "presence_penalty", 0},
               {PENALTIES, "frequency_penalty", 0},
               {TEMPERATURE, "temperature", 1},
               {TOP_K, "top_k", 0},
               {TOP_P, "top_p", 1},
               {MIN_P, "min_p", 0}};
enum { NUMBERS = sizeof numbers / sizeof *numbers, MAX_SAMPLERS = 64 };

static enum sampler sampler_of_name(const char *name)
{
    for (size_t i = 0; name && i < sizeof samplers / sizeof *samplers; i++)
        if (strcmp(samplers[i].name, name) == 0)
            return samplers[i].kind;
    return UNKNOWN;
}

static enum sampler sampler_of_letter(char letter)
{
    for (size_t i = 0; i < sizeof samplers / sizeof *samplers; i++)
        if (samplers[i].letter == letter)
            return samplers[i].kind;
    return UNKNOWN;
}

static double number_of(const json_t *root, const char *name, double usual)
{
    const json_t *v = json_object_get(root, name);
    return json_is_number(v) ? json_number_value(v) : usual;
}

/* Whether it changes an answer. */
static bool sampler_acts(const json_t *root, enum sampler kind)
{
    bool acts = false, greedy = number_of(root, "temperature", 1) <= 0;
    for (size_t i = 0; i < NUMBERS; i++) {
        double off = numbers[i].off, v = number_of(root, numbers[i].field, off);
        bool does_nothing = kind == TOP_K ? v <= off : v >= off && v <= off;
        acts = acts || (numbers[i].kind == kind && !does_nothing);
    }
    return acts && (kind <= TEMPERATURE || !greedy); /* which leaves nothing to cut */
}

/* Whether `later` before `earlier` would be another thing than our order: what cuts first changes
 * what the others find. But top_k keeps the same at any temperature, and beside min_p. */
static bool order_matters(enum sampler earlier, enum sampler later)
{
    bool top_k = earlier == TOP_K || later == TOP_K;
    return earlier == PENALTIES || !top_k || later == TOP_P;
}

static int order_check(enum sampler kind, unsigned before, const char **param, struct err *e)
{
    char text[240];
    if (before >> kind & 1) {
        snprintf(text, sizeof text, "name \"%s\" twice; each is run once here",
                 samplers[kind].name);
        return body_field_refuse(param, field, e, text);
    }
    for (int later = (int)kind + 1; later < BUILT; later++)
        if (before >> later & 1 && order_matters(kind, (enum sampler)later)) {
            snprintf(text, sizeof text,
                     "name \"%s\" before \"%s\"; the order here is penalties, temperature, top_k, "
                     "top_p, min_p: name them so, or leave \"samplers\" out",
                     samplers[later].name, samplers[kind].name);
            return body_field_refuse(param, field, e, text);
        }
    return 0;
}

static int kind_check(enum sampler kind, const char **param, struct err *e)
{
    if (kind == INFILL)
        return body_field_refuse(param, field, e,
                                 "hold \"infill\", which this server does not have; leave it out");
    if (kind == UNKNOWN)
        return body_field_refuse(param, field, e,
                                 "may hold penalties, temperature, top_k, top_p, min_p, and dry, "
                                 "typ_p, top_n_sigma and xtc, which are off");
    return 0;
}

/* All but those that are named. */
static bool others_turn_off(json_t *root, unsigned named)
{
    bool good = true;
    for (size_t i = 0; i < NUMBERS; i++)
        if (!(named >> numbers[i].kind & 1) && json_object_get(root, numbers[i].field))
            good &= json_object_set_new(root, numbers[i].field, json_integer(numbers[i].off)) == 0;
    return good;
}

static enum sampler sampler_at(const json_t *list, size_t i)
{
    const char *letters = json_string_value(list);
    return letters ? sampler_of_letter(letters[i])
                   : sampler_of_name(json_string_value(json_array_get(list, i)));
}

static int list_read(json_t *root, const char **param, struct err *e)
{
    json_t *list = json_object_get(root, field);
    size_t n = json_is_string(list) ? json_string_length(list) : json_array_size(list);
    unsigned named = 0, before = 0;
    int rc = 0;
    if (!list || json_is_null(list))
        return 0;
    if ((!json_is_string(list) && !json_is_array(list)) || n > MAX_SAMPLERS)
        return body_field_refuse(param, field, e, "must be a list of at most 64 names");
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = kind_check(sampler_at(list, i), param, e);
        named |= 1u << sampler_at(list, i);
    }
    if (rc == 0 && !others_turn_off(root, named))
        rc = err_no_memory(e, "a request");
    for (size_t i = 0; i < n && rc == 0; i++) {
        enum sampler kind = sampler_at(list, i);
        if (kind >= BUILT || !sampler_acts(root, kind))
            continue;
        rc = order_check(kind, before, param, e);
        before |= 1u << kind;
    }
    return rc;
}

/* Over how many of the last tokens penalties go: none, or all. */
static int window_read(json_t *root, const char **param, struct err *e)
{
    int64_t last;
    int rc = body_field_whole(root, "repeat_last_n", -1, INT32_MAX, -1, &last, param, e);
    if (rc < 0 || last < 0 || !sampler_acts(root, PENALTIES))
        return rc;
    if (last > 0)
        return body_field_refuse(param, "repeat_last_n", e,
                                 "penalties go over all tokens here: give -1, or leave it out");
    return others_turn_off(root, ~(1u << PENALTIES)) ? 0 : err_no_memory(e, "a request");
}

int llama_samplers_read(json_t *root, const char **param, struct err *e)
{
    int rc = list_read(root, param, e);
    return rc < 0 ? rc : window_read(root, param, e);
}
