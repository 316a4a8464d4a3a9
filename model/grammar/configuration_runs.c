/* Owns runs: which kinds of characters may come next whatever each of them is, and where most of a
 * kind lead. */
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
    uint32_t to = STEP_UNKNOWN, last = STEP_UNKNOWN;
    for (int byte = rest.low; byte <= rest.high; byte = class_behind(c, byte)) {
        uint32_t next = configuration_step(c, from, (uint8_t)byte);
        if (next == last) /* most of them do not differ, and have as many behind them */
            continue;
        last = next;
        if (next != CONFIGURATION_DEAD && rest.left > 0)
            next = rest_step(c, next, (struct char_rest){0x80, 0xBF, rest.left - 1});
        if (next == STEP_MIXED || (to != STEP_UNKNOWN && next != to))
            return STEP_MIXED;
        to = next;
    }
    return to;
}

/* Where every wide character of a kind leads. */
static uint32_t wide_step(struct configurations *c, uint32_t from, int kind)
{
    uint32_t to = STEP_UNKNOWN;
    for (int i = 0; i < CHAR_LEADS; i++) {
        uint32_t last = STEP_UNKNOWN;
        if (char_leads[i].kind != kind)
            continue;
        for (int byte = char_leads[i].low; byte <= char_leads[i].high;
             byte = class_behind(c, byte)) {
            uint32_t next = configuration_step(c, from, (uint8_t)byte);
            if (next == last)
                continue;
            last = next;
            if (next != CONFIGURATION_DEAD)
                next = rest_step(c, next, char_leads[i].rest);
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
    if (kind >= CHAR_KIND_WIDE)
        return wide_step(c, from, kind);
    for (int i = c->kind_first[kind]; i < c->kind_first[kind + 1]; i++) {
        uint32_t next = configuration_step(c, from, c->kind_bytes[i]);
        if (i > c->kind_first[kind] && next != to)
            return STEP_MIXED;
        to = next;
    }
    return to;
}

/* About how many tokens of a hundred have most of their characters of a kind: letters, digits and
 * spaces, marks one by one, wide ones by their first bytes. */
static int kind_weight(int kind)
{
    static const uint8_t letters[] = {15, 25, 3, 4, 2, 8};
    return kind < (int)sizeof letters ? letters[kind] : kind < CHAR_KIND_WIDE ? 1 : 2;
}

enum {
    LEAST_WEIGHT = 10, /* below it tokens are looked at one by one as soon */
    MOST_PLACES = 64,  /* the steps of larger ones take longer than what they save */
};

/* Of the places that kinds lead to the one with most weight: the kinds that lead there, none where
 * that is too little. */
static uint64_t kinds_vote(const uint32_t to[CHAR_KINDS], uint32_t *best)
{
    uint64_t best_kinds = 0;
    int most = 0;
    *best = CONFIGURATION_DEAD;
    for (uint64_t left = CHAR_KINDS_ALL; left;) {
        uint32_t target = to[__builtin_ctzll(left)];
        uint64_t kinds = 0;
        int weight = 0;
        for (int k = 0; k < CHAR_KINDS; k++)
            if (to[k] == target) {
                weight += kind_weight(k);
                kinds |= UINT64_C(1) << k;
            }
        left &= ~kinds;
        if (weight > most && target != CONFIGURATION_DEAD && target != STEP_MIXED) {
            most = weight;
            *best = target;
            best_kinds = kinds;
        }
    }
    return most < LEAST_WEIGHT ? 0 : best_kinds;
}

void configuration_run(struct configurations *c, uint32_t from)
{
    uint32_t to[CHAR_KINDS], best;
    uint64_t dead = 0;
    if (c->list[from].run != STEP_UNKNOWN)
        return;
    bool worth = c->list[from].count <= MOST_PLACES;
    for (int kind = 0; kind < CHAR_KINDS; kind++) {
        to[kind] = worth ? kind_step(c, from, kind) : STEP_MIXED;
        dead |= (uint64_t)(to[kind] == CONFIGURATION_DEAD) << kind;
    }
    uint64_t kinds = kinds_vote(to, &best);
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
    return 2 * there > n ? most : CONFIGURATION_DEAD;
}

void configuration_kinds(struct configurations *c, uint32_t from, uint32_t to[CHAR_KINDS])
{
    bool worth = c->list[from].count <= MOST_PLACES;
    for (int kind = 0; kind < CHAR_KINDS; kind++) {
        to[kind] = !worth                   ? CONFIGURATION_DEAD
                   : kind >= CHAR_KIND_WIDE ? wide_step(c, from, kind)
                                            : kind_step_most(c, from, kind);
        to[kind] = to[kind] == STEP_MIXED ? CONFIGURATION_DEAD : to[kind];
    }
}
