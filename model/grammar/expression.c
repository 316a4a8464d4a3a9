#include "model/grammar/expression.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/vector.h"

void expressions_free(struct expressions *x)
{
    arena_free(&x->arena);
    free(x->rules);
    *x = (struct expressions){0};
}

const struct expression *expression_fail(struct expressions *x, int code, const char *fmt, ...)
{
    char text[sizeof x->error.text];
    va_list args;
    if (x->status < 0)
        return NULL;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    x->status = err_set(&x->error, code, "%s", text);
    return NULL;
}

static void *arena_take(struct expressions *x, size_t count, size_t size)
{
    x->arena.limit_bytes = EXPRESSION_MAX_BYTES;
    void *p = x->status < 0 ? NULL : arena_alloc(&x->arena, count ? count : 1, size);
    if (!p && x->arena.out_of_memory)
        expression_fail(x, HP_ENOMEM, "no memory for a grammar");
    else if (!p)
        expression_fail(x, HP_ELIMIT, "the grammar explodes: it needs more than %d MiB",
                        EXPRESSION_MAX_BYTES >> 20);
    return p;
}

static struct expression *expression_make(struct expressions *x, enum expression_kind kind)
{
    struct expression *e = arena_take(x, 1, sizeof *e);
    if (e) {
        e->kind = kind;
        e->depth = 1;
    }
    return e;
}

const struct expression *expression_text(struct expressions *x, const char *bytes, size_t n)
{
    struct expression *e = expression_make(x, EXPRESSION_TEXT);
    char *copy = e ? arena_take(x, n, 1) : NULL;
    if (!copy)
        return NULL;
    memcpy(copy, bytes, n);
    e->text = copy;
    e->count = n;
    return e;
}

const struct expression *expression_word(struct expressions *x, const char *text)
{
    return expression_text(x, text, strlen(text));
}

const struct expression *expression_chars(struct expressions *x, const struct char_range *ranges,
                                          size_t n, bool quoted)
{
    struct expression *e = expression_make(x, EXPRESSION_CHARS);
    struct char_range *copy = e ? arena_take(x, n, sizeof *ranges) : NULL;
    if (!copy)
        return NULL;
    if (n)
        memcpy(copy, ranges, n * sizeof *ranges);
    e->ranges = copy;
    e->count = n;
    e->quoted = quoted;
    return e;
}

const struct expression *expression_set(struct expressions *x, struct char_set *set, bool quoted)
{
    const struct expression *e =
        set->failed ? expression_fail(x, HP_ELIMIT,
                                      "a class of characters has more than %d ranges, or there is "
                                      "no memory for it",
                                      CHAR_SET_MAX_RANGES)
                    : expression_chars(x, set->ranges, set->count, quoted);
    char_set_free(set);
    return e;
}

/* False: it is too deep with this part. */
static bool depth_add(struct expressions *x, struct expression *e, const struct expression *part)
{
    if (part->depth >= EXPRESSION_MAX_DEPTH)
        return expression_fail(x, HP_ELIMIT, "the grammar is nested too deeply") != NULL;
    if (e->depth <= part->depth)
        e->depth = (uint16_t)(part->depth + 1);
    return true;
}

static const struct expression *parts_make(struct expressions *x, enum expression_kind kind,
                                           const struct expression *const *parts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!parts[i])
            return NULL;
    if (n == 1)
        return parts[0];
    struct expression *e = expression_make(x, kind);
    const struct expression **copy = e ? arena_take(x, n, sizeof *parts) : NULL;
    if (!copy)
        return NULL;
    if (n)
        memcpy(copy, parts, n * sizeof *parts);
    for (size_t i = 0; i < n; i++)
        if (!depth_add(x, e, parts[i]))
            return NULL;
    e->parts = copy;
    e->count = n;
    return e;
}

const struct expression *expression_sequence(struct expressions *x,
                                             const struct expression *const *parts, size_t n)
{
    return parts_make(x, EXPRESSION_SEQUENCE, parts, n);
}

const struct expression *expression_choice(struct expressions *x,
                                           const struct expression *const *parts, size_t n)
{
    return parts_make(x, EXPRESSION_CHOICE, parts, n);
}

const struct expression *expression_repeat(struct expressions *x, const struct expression *body,
                                           int32_t least, int32_t most)
{
    if (!body)
        return NULL;
    if (least > EXPRESSION_MAX_REPEAT || most > EXPRESSION_MAX_REPEAT)
        return expression_fail(x, HP_ELIMIT, "something repeats more than %d times",
                               EXPRESSION_MAX_REPEAT);
    if (least == 1 && most == 1)
        return body;
    struct expression *e = expression_make(x, EXPRESSION_REPEAT);
    const struct expression **part = e ? arena_take(x, 1, sizeof *part) : NULL;
    if (!part || !depth_add(x, e, body))
        return NULL;
    *part = body;
    e->parts = part;
    e->count = 1;
    e->least = least;
    e->most = most;
    return e;
}

uint32_t expression_rule_add(struct expressions *x, const char *name)
{
    struct expression_rule r = {0};
    if (x->n_rules >= EXPRESSION_MAX_RULES) {
        expression_fail(x, HP_ELIMIT, "the grammar has more than %d rules", EXPRESSION_MAX_RULES);
        return 0;
    }
    size_t n = strlen(name);
    char *copy = arena_take(x, n + 1, 1);
    if (!copy)
        return 0;
    memcpy(copy, name, n + 1);
    r.name = copy;
    if (!vector_push(x->rules, x->n_rules, x->rule_room, r)) {
        expression_fail(x, HP_ENOMEM, "no memory for a grammar's rules");
        return 0;
    }
    return (uint32_t)(x->n_rules - 1);
}

void expression_rule_set(struct expressions *x, uint32_t rule, const struct expression *body)
{
    if (rule < x->n_rules && body)
        x->rules[rule].body = body;
}

const struct expression *expression_rule(struct expressions *x, uint32_t rule)
{
    struct expression *e = expression_make(x, EXPRESSION_RULE);
    if (e)
        e->rule = rule;
    return e;
}

void expression_list_add(struct expressions *x, struct expression_list *l,
                         const struct expression *e)
{
    if (l->count == l->room) {
        size_t room = l->room ? 2 * l->room : 8;
        const struct expression **items = arena_take(x, room, sizeof *items);
        if (!items)
            return;
        if (l->count)
            memcpy(items, l->items, l->count * sizeof *items);
        l->items = items;
        l->room = room;
    }
    l->items[l->count++] = e;
}

/* ---- lengths ---- */

static const int64_t LONG = INT64_C(1) << 40; /* beyond this no sum is followed */

static int64_t length_sum(int64_t a, int64_t b)
{
    return a < 0 || b < 0 ? EXPRESSION_FOREVER : a + b > LONG ? LONG : a + b;
}

static int64_t length_times(int64_t a, int64_t n)
{
    if (a == 0 || n == 0)
        return 0;
    return a < 0 || n < 0 ? EXPRESSION_FOREVER : a > LONG / n ? LONG : a * n;
}

static int64_t text_length(const struct expression *e)
{
    int64_t n = 0;
    for (size_t i = 0; i < e->count; i++)
        n += ((unsigned char)e->text[i] & 0xC0) != 0x80;
    return n;
}

/* False: too much has been looked at. */
static bool step_take(struct expressions *x)
{
    if (x->n_steps++ >= EXPRESSION_MAX_STEPS)
        expression_fail(x, HP_ELIMIT, "texts of a length are too hard to find in it");
    return x->status == 0;
}

/* Characters that a text of it has: at least, at most (EXPRESSION_FOREVER: no bound). Where a rule
 * is part of it nothing is known: 0, and no bound. Nothing is said once something has failed. */
static void expression_lengths(struct expressions *x, const struct expression *e, int64_t *least,
                               int64_t *most)
{
    int64_t low, high;
    *least = *most = 0;
    if (!step_take(x))
        return;
    switch (e->kind) {
    case EXPRESSION_TEXT: *least = *most = text_length(e); return;
    case EXPRESSION_CHARS: *least = *most = 1; return;
    case EXPRESSION_RULE: *most = EXPRESSION_FOREVER; return;
    case EXPRESSION_REPEAT:
        expression_lengths(x, e->parts[0], &low, &high);
        *least = length_times(low, e->least);
        *most = length_times(high, e->most);
        return;
    case EXPRESSION_SEQUENCE:
    case EXPRESSION_CHOICE:
        for (size_t i = 0; i < e->count; i++) {
            expression_lengths(x, e->parts[i], &low, &high);
            if (e->kind == EXPRESSION_SEQUENCE) {
                *least = length_sum(*least, low);
                *most = length_sum(*most, high);
                continue;
            }
            *least = i == 0 || low < *least ? low : *least;
            *most = *most < 0 || high < 0 ? EXPRESSION_FOREVER : high > *most ? high : *most;
        }
    }
}

static bool length_within(int64_t least, int64_t most, int64_t low, int64_t high)
{
    return least >= low && (high < 0 || (most >= 0 && most <= high));
}

static const struct expression *choice_fit(struct expressions *x, const struct expression *e,
                                           int64_t least, int64_t most)
{
    struct expression_list l = {0};
    for (size_t i = 0; i < e->count; i++) {
        const struct expression *part = expression_fit(x, e->parts[i], least, most);
        if (part)
            expression_list_add(x, &l, part);
    }
    return l.count ? expression_choice(x, l.items, l.count) : NULL;
}

/* So many repeats that every number of them fits. */
static const struct expression *repeat_fit(struct expressions *x, const struct expression *e,
                                           int64_t least, int64_t most)
{
    int64_t low, high, from, to;
    expression_lengths(x, e->parts[0], &low, &high);
    const struct expression *body = e->parts[0];
    if (low == 0) { /* what may be nothing is one thing at least, or not there */
        body = expression_fit(x, body, 1, most);
        if (!body)
            return least == 0 && e->least == 0 ? expression_sequence(x, NULL, 0) : NULL;
        expression_lengths(x, body, &low, &high);
    }
    if (low != high) { /* the shortest of them */
        body = expression_fit(x, body, low, low);
        if (!body)
            return NULL;
        high = low;
    }
    if (x->status < 0)
        return NULL;
    from = (least + low - 1) / low;
    to = most < 0 ? e->most : most / low;
    from = from < e->least ? e->least : from;
    to = e->most >= 0 && to > e->most ? e->most : to;
    if (to >= 0 && from > to)
        return NULL;
    return expression_repeat(
        x, body, (int32_t)(from > EXPRESSION_MAX_REPEAT + 1 ? EXPRESSION_MAX_REPEAT + 1 : from),
        (int32_t)(to > EXPRESSION_MAX_REPEAT ? EXPRESSION_MAX_REPEAT : to));
}

/* The parts share what is asked: first each has its least, then the last ones are made longer until
 * all are long enough, then what is left goes to all that can be longer. */
static const struct expression *sequence_fit(struct expressions *x, const struct expression *e,
                                             int64_t least, int64_t most)
{
    struct expression_list l = {0};
    int64_t *low = arena_take(x, 2 * e->count, sizeof *low), sum = 0, flexible = 0;
    if (!low)
        return NULL;
    int64_t *high = low + e->count;
    for (size_t i = 0; i < e->count; i++) {
        expression_lengths(x, e->parts[i], &low[i], &high[i]);
        sum = length_sum(sum, low[i]);
        flexible += high[i] != low[i];
    }
    for (size_t i = e->count; i-- > 0 && sum < least;) {
        int64_t more =
            high[i] < 0 || high[i] - low[i] > least - sum ? least - sum : high[i] - low[i];
        low[i] += more;
        sum += more;
    }
    if (sum < least || (most >= 0 && sum > most))
        return NULL;
    int64_t left = most < 0 ? 0 : most - sum;
    for (size_t i = 0; i < e->count; i++) {
        if (high[i] != low[i] && most >= 0) {
            int64_t share = flexible > 1 ? left / flexible : left;
            share = high[i] >= 0 && high[i] - low[i] < share ? high[i] - low[i] : share;
            high[i] = low[i] + share;
            left -= share;
            flexible -= flexible > 1;
        }
        const struct expression *part = expression_fit(x, e->parts[i], low[i], high[i]);
        if (!part)
            return NULL;
        expression_list_add(x, &l, part);
    }
    return expression_sequence(x, l.items, l.count);
}

const struct expression *expression_fit(struct expressions *x, const struct expression *e,
                                        int64_t least, int64_t most)
{
    int64_t low, high;
    if (!e)
        return NULL;
    expression_lengths(x, e, &low, &high);
    if (x->status < 0)
        return NULL;
    if (length_within(low, high, least, most))
        return e;
    if ((most >= 0 && low > most) || (high >= 0 && high < least))
        return NULL;
    return e->kind == EXPRESSION_CHOICE     ? choice_fit(x, e, least, most)
           : e->kind == EXPRESSION_REPEAT   ? repeat_fit(x, e, least, most)
           : e->kind == EXPRESSION_SEQUENCE ? sequence_fit(x, e, least, most)
                                            : NULL;
}
