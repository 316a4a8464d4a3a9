/* Owns runs: which kinds of characters may come next whatever each of them is. */
#include "model/grammar/automaton_int.h"

/* Characters of a kind lead to several places, or some of them to none. */
#define STEP_MIXED STEP_UNKNOWN

/* The first byte of the class behind that of a byte; 256: that is the last one. */
static int class_behind(const struct configurations *c, int byte)
{
    uint32_t class = c->class_of[byte] + 1u;
    return class < c->n_classes ? c->class_byte[class] : 256;
}

/* Where all bytes of a wide character's rest lead. */
static uint32_t rest_step(struct configurations *c, uint32_t from, struct char_rest rest)
{
    uint32_t to = STEP_UNKNOWN;
    for (int byte = rest.low; byte <= rest.high; byte = class_behind(c, byte)) {
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
        for (int byte = char_leads[i].low; byte <= char_leads[i].high;
             byte = class_behind(c, byte)) {
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
    LEAST_WEIGHT = 10, /* below it tokens are looked at one by one as soon */
    MOST_PLACES = 64,  /* the steps of larger ones take longer than what they save */
};

/* Of the places that kinds lead to the one with most weight: the kinds that lead there, none where
 * that is too little. */
static uint16_t kinds_vote(const uint32_t to[CHAR_KINDS], uint32_t *best)
{
    uint16_t best_kinds = 0;
    int most = 0;
    *best = CONFIGURATION_DEAD;
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
            *best = to[kind];
            best_kinds = kinds;
        }
    }
    return most < LEAST_WEIGHT ? 0 : best_kinds;
}

void configuration_run(struct configurations *c, uint32_t from)
{
    uint32_t to[CHAR_KINDS], best;
    uint16_t dead = 0;
    if (c->list[from].run != STEP_UNKNOWN)
        return;
    bool worth = c->list[from].count <= MOST_PLACES;
    for (int kind = 0; kind < CHAR_KINDS; kind++) {
        to[kind] = worth ? kind_step(c, from, kind) : STEP_MIXED;
        dead |= (uint16_t)((to[kind] == CONFIGURATION_DEAD) << kind);
    }
    uint16_t kinds = kinds_vote(to, &best);
    if (c->status < 0)
        return;
    c->list[from].run = best;
    c->list[from].run_kinds = kinds;
    c->list[from].dead_kinds = dead;
}

/* Where most characters of a kind of one byte lead, if more than half of them lead there. */
static uint32_t kind_step_most(struct configurations *c, uint32_t from, int kind)
{
    uint32_t most = STEP_MIXED;
    int lead = 0, n = 0, there = 0;
    for (int i = c->kind_first[kind]; i < c->kind_first[kind + 1]; i++) {
        uint32_t to = configuration_step(c, from, c->kind_bytes[i]);
        int count = c->kind_counts[i]; /* Boyer and Moore's vote */
        if (to != most && lead < count)
            most = to, lead = count - lead;
        else
            lead += to == most ? count : -count;
    }
    for (int i = c->kind_first[kind]; i < c->kind_first[kind + 1]; i++) {
        n += c->kind_counts[i];
        if (configuration_step(c, from, c->kind_bytes[i]) == most)
            there += c->kind_counts[i];
    }
    return 2 * there > n ? most : STEP_MIXED;
}

void configuration_run_near(struct configurations *c, uint32_t from, struct near_run *out)
{
    uint32_t to[CHAR_KINDS];
    *out = (struct near_run){0};
    if (c->list[from].count > MOST_PLACES)
        return;
    for (int kind = 0; kind < CHAR_KINDS; kind++)
        to[kind] = kind == CHAR_KIND_WIDE ? wide_step(c, from) : kind_step_most(c, from, kind);
    uint16_t kinds = kinds_vote(to, &out->to);
    if (!kinds || c->status < 0)
        return;
    configuration_run(c, out->to);
    if (c->status < 0 || c->list[out->to].run != out->to)
        return;
    out->kinds = kinds & c->list[out->to].run_kinds;
    for (int b = 0; b < 0x80; b++) {
        int kind = char_kind_of((uint8_t)b);
        out->apart[b] = kind >= 0 && out->kinds >> kind & 1 &&
                        configuration_step(c, from, (uint8_t)b) != out->to;
    }
}
