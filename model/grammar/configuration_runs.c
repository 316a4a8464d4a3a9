/* Owns runs: which kinds of characters may come next whatever each of them is. */
#include "model/grammar/automaton_int.h"

/* Characters of a kind lead to several places, or some of them to none. */
#define STEP_MIXED STEP_UNKNOWN

/* Where all bytes of a wide character's rest lead. */
static uint32_t rest_step(struct configurations *c, uint32_t from, struct char_rest rest)
{
    uint32_t to = STEP_UNKNOWN;
    int last = -1;
    for (int byte = rest.low; byte <= rest.high; byte++) {
        if (c->class_of[byte] == last)
            continue;
        last = c->class_of[byte];
        uint32_t next = configuration_step(c, from, (uint8_t)byte);
        if (next != CONFIGURATION_DEAD && rest.left > 0)
            next = rest_step(c, next, (struct char_rest){0x80, 0xBF, rest.left - 1});
        if (next == STEP_MIXED || (to != STEP_UNKNOWN && next != to))
            return STEP_MIXED;
        to = next;
    }
    return to;
}

/* Where every wide character leads. */
static uint32_t wide_step(struct configurations *c, uint32_t from)
{
    uint32_t to = STEP_UNKNOWN;
    for (int i = 0; i < CHAR_LEADS; i++) {
        struct char_rest whole = char_leads[i].rest;
        for (int byte = char_leads[i].low, last = -1; byte <= char_leads[i].high; byte++) {
            if (c->class_of[byte] == last)
                continue;
            last = c->class_of[byte];
            uint32_t next = configuration_step(c, from, (uint8_t)byte);
            if (next != CONFIGURATION_DEAD)
                next = rest_step(c, next, whole);
            if (next == STEP_MIXED || (to != STEP_UNKNOWN && next != to))
                return STEP_MIXED;
            to = next;
        }
    }
    return to;
}

/* Where all characters of a kind lead: CONFIGURATION_DEAD, another one, or STEP_MIXED. */
static uint32_t kind_step(struct configurations *c, uint32_t from, int kind)
{
    uint32_t to = CONFIGURATION_DEAD;
    if (kind == CHAR_KIND_WIDE)
        return wide_step(c, from);
    for (int i = c->kind_first[kind]; i < c->kind_first[kind + 1]; i++) {
        uint32_t next = configuration_step(c, from, c->kind_bytes[i]);
        if (i > c->kind_first[kind] && next != to)
            return STEP_MIXED;
        to = next;
    }
    return to;
}

/* About how many tokens of a hundred have most of their characters of a kind. */
static const int weights[CHAR_KINDS] = {15, 25, 3, 4, 2, 8, 1, 1, 1, 4, 30};
enum {
    LEAST_WEIGHT = 25, /* below it tokens are looked at one by one as soon */
    MOST_PLACES = 64,  /* the steps of larger ones take longer than what they save */
};

void configuration_run(struct configurations *c, uint32_t from)
{
    uint32_t to[CHAR_KINDS], best = CONFIGURATION_DEAD;
    uint16_t best_kinds = 0, dead = 0;
    int most = 0;
    if (c->list[from].run != STEP_UNKNOWN)
        return;
    bool worth = c->list[from].count <= MOST_PLACES;
    for (int kind = 0; kind < CHAR_KINDS; kind++) {
        to[kind] = worth ? kind_step(c, from, kind) : STEP_MIXED;
        dead |= (uint16_t)((to[kind] == CONFIGURATION_DEAD) << kind);
    }
    for (int kind = 0; kind < CHAR_KINDS; kind++) {
        int weight = 0;
        uint16_t kinds = 0;
        for (int k = 0; k < CHAR_KINDS; k++)
            if (to[k] == to[kind] && to[k] != CONFIGURATION_DEAD && to[k] != STEP_MIXED) {
                weight += weights[k];
                kinds |= (uint16_t)(1 << k);
            }
        if (weight > most) {
            most = weight;
            best = to[kind];
            best_kinds = kinds;
        }
    }
    if (c->status < 0)
        return;
    if (most < LEAST_WEIGHT)
        best_kinds = 0;
    c->list[from].run = best;
    c->list[from].run_kinds = best_kinds;
    c->list[from].dead_kinds = dead;
}
