#include "common/sampling.h"

#include <stdlib.h>
#include <string.h>

const struct sampling_params sampling_greedy = {.top_p = 1, .repetition_penalty = 1};

#define NUMBER(member, ...)                                                                        \
    {                                                                                              \
#member, offsetof(struct sampling_params, member), __VA_ARGS__                             \
    }
const struct sampling_number sampling_numbers[] = {
    NUMBER(temperature, 0, 100, false, 0, 100, 1),
    NUMBER(top_p, 0, 1, true, 0, 1, 1),
    NUMBER(min_p, 0, 1, false, 0, 1, 0),
    NUMBER(repetition_penalty, 0, 100, true, 0.01, 10, 1),
    NUMBER(presence_penalty, -2, 2, false, -2, 2, 0),
    NUMBER(frequency_penalty, -2, 2, false, -2, 2, 0),
    {0}};

static int number_check(const struct sampling_number *n, double value, struct err *e)
{
    bool low_ok = n->above_low ? value > n->low : value >= n->low;
    if (low_ok && value <= n->high)
        return 0;
    return err_set(e, HP_EINVAL, "%s is %g; it must be %s %g and at most %g", n->name, value,
                   n->above_low ? "above" : "at least", n->low, n->high);
}

static int bias_check(const struct sampling_bias *b, uint64_t vocabulary, struct err *e)
{
    if (b->token >= vocabulary)
        return err_set(e, HP_EINVAL, "logit_bias names token %llu, beyond the vocabulary of %llu",
                       (unsigned long long)b->token, (unsigned long long)vocabulary);
    if (!(b->bias >= -100 && b->bias <= 100))
        return err_set(e, HP_EINVAL,
                       "logit_bias of token %llu is %g; it must be between -100 and 100",
                       (unsigned long long)b->token, b->bias);
    return 0;
}

static int late_check(const struct sampling_params *p, uint64_t vocabulary, struct err *e)
{
    if (p->late_ids.count > SAMPLING_MAX_LATE_IDS)
        return err_set(e, HP_EINVAL, "min_tokens holds back %zu tokens; at most %d are allowed",
                       p->late_ids.count, SAMPLING_MAX_LATE_IDS);
    for (size_t i = 0; i < p->late_ids.count; i++)
        if (p->late_ids.items[i] >= vocabulary)
            return err_set(e, HP_EINVAL,
                           "min_tokens holds back token %u, beyond the vocabulary of %llu",
                           p->late_ids.items[i], (unsigned long long)vocabulary);
    return 0;
}

bool sampling_has_step(uint64_t steps, enum sampling_step step)
{
    for (int i = 0; sampling_step_at(steps, i); i++)
        if (sampling_step_at(steps, i) == step)
            return true;
    return false;
}

/* Each is there once, and infill compares no more texts with each other than are quickly compared.
 */
static int steps_check(const struct sampling_params *p, struct err *e)
{
    unsigned before = 0;
    int i = 0;
    for (enum sampling_step step; (step = sampling_step_at(p->steps, i)); i++) {
        if (step >= SAMPLING_STEPS || before >> step & 1)
            return err_set(e, HP_EINVAL, "samplers: step %d is unknown, or there twice", i);
        before |= 1u << step;
        if (step == SAMPLING_INFILL &&
            (!(before >> SAMPLING_TOP_K & 1) || !p->top_k || p->top_k > SAMPLING_INFILL_MOST))
            return err_set(e, HP_EINVAL,
                           "samplers: \"infill\" compares the texts of all tokens that are left: "
                           "it needs \"top_k\" before it, of 1 to %d",
                           SAMPLING_INFILL_MOST);
    }
    return p->steps >> i * SAMPLING_STEP_BITS
               ? err_set(e, HP_EINVAL, "samplers: something stands behind their end")
               : 0;
}

int sampling_check(const struct sampling_params *p, uint64_t vocabulary, struct err *e)
{
    struct sampling_params copy = *p;
    const struct sampling_bias *bias = p->bias.items;
    int rc = 0;
    for (const struct sampling_number *n = sampling_numbers; rc == 0 && n->name; n++)
        rc = number_check(n, *sampling_number_of(&copy, n), e);
    if (rc == 0 && p->bias.count > SAMPLING_MAX_BIAS)
        rc = err_set(e, HP_EINVAL, "logit_bias names %zu tokens; at most %d are allowed",
                     p->bias.count, SAMPLING_MAX_BIAS);
    for (size_t i = 0; rc == 0 && i < p->bias.count; i++)
        rc = bias_check(&bias[i], vocabulary, e);
    rc = rc < 0 ? rc : steps_check(p, e);
    return rc < 0 ? rc : late_check(p, vocabulary, e);
}

void sampling_fill(struct sampling_params *p)
{
    struct sampling_params off = sampling_greedy;
    for (const struct sampling_number *n = sampling_numbers; n->name; n++)
        if (n->above_low && *sampling_number_of(p, n) <= n->low)
            *sampling_number_of(p, n) = *sampling_number_of(&off, n);
}

/* Of nothing: NULL. False: no memory. */
static bool list_copy(const void *from, size_t bytes, void **out)
{
    *out = bytes ? malloc(bytes) : NULL;
    if (*out)
        memcpy(*out, from, bytes);
    return *out || !bytes;
}

int sampling_copy(struct sampling_params *to, const struct sampling_params *from, struct err *e)
{
    void *bias, *late, *grammar;
    bool copied =
             list_copy(from->bias.items, from->bias.count * sizeof(struct sampling_bias), &bias),
         second = list_copy(from->late_ids.items, from->late_ids.count * sizeof(uint32_t), &late),
         third = list_copy(from->grammar.data, from->grammar.size, &grammar);
    *to = sampling_greedy;
    if (!copied || !second || !third) {
        free(bias);
        free(late);
        free(grammar);
        return err_set(e, HP_ENOMEM, "no memory for the bias of %zu tokens and a grammar",
                       from->bias.count);
    }
    *to = *from;
    to->bias.items = bias;
    to->late_ids.items = late;
    to->grammar.data = grammar;
    return 0;
}

void sampling_free(struct sampling_params *p)
{
    free(p->bias.items);
    free((uint32_t *)p->late_ids.items);
    free((void *)p->grammar.data);
    p->bias = (struct pack_list){0};
    p->late_ids = (struct pack_u32s){0};
    p->grammar = (struct pack_span){0};
}
