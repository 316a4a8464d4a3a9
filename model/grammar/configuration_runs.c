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

/* ---- all kinds at once ---- */

/* Kinds of which no state of a configuration tells one from another. */
struct kind_parts {
    uint64_t list[CHAR_KINDS];
    int n;
    uint64_t unclear; /* kinds whose characters have to be looked at byte by byte */
};

/* Those of some kinds are parts of their own. */
static void parts_divide(struct kind_parts *p, uint64_t kinds)
{
    for (int i = 0, n = p->n; i < n; i++) {
        uint64_t others = p->list[i] & ~kinds;
        if (!others || others == p->list[i])
            continue;
        p->list[i] &= kinds;
        p->list[p->n++] = others;
    }
}

static void parts_find(struct configurations *c, uint32_t from, struct kind_parts *p)
{
    struct configuration k = c->list[from];
    *p = (struct kind_parts){.list = {CHAR_KINDS_ALL}, .n = 1};
    for (uint32_t i = 0; i < k.count; i++) {
        uint32_t state = (uint32_t)(c->places[k.first + i] >> 32);
        if (state == STATE_WHOLE)
            continue;
        const struct state_steps *s = state_chars_find(&c->chars, state);
        if (!s) {
            c->status = HP_ENOMEM;
            return;
        }
        c->effort += 2 + s->n;
        p->unclear |= s->unclear;
        for (uint32_t n = s->first; n < s->first + s->n; n++)
            parts_divide(p, c->chars.steps[n].kinds);
    }
    parts_divide(p, p->unclear);
}

/* Where all characters of a part's kinds lead. */
static uint32_t part_step(struct configurations *c, uint32_t from, uint64_t kinds)
{
    struct configuration k = c->list[from];
    c->effort += CONFIGURATION_STEP_EFFORT + k.count;
    if (c->effort > c->effort_most) {
        c->status = c->status ? c->status : HP_ELIMIT;
        return CONFIGURATION_DEAD;
    }
    configuration_begin(c);
    for (uint32_t i = 0; i < k.count; i++) {
        uint64_t place = c->places[k.first + i];
        uint32_t state = (uint32_t)(place >> 32);
        if (state == STATE_WHOLE)
            continue;
        const struct state_steps *s = &c->chars.states[state];
        for (uint32_t n = s->first; n < s->first + s->n; n++)
            if (c->chars.steps[n].kinds & kinds)
                configuration_add(c, c->chars.steps[n].to, (uint32_t)place);
    }
    return configuration_end(c);
}

/* Where kinds lead: CONFIGURATION_DEAD, another one, or `unclear`(): bytes are looked at for those
 * alone that the states do not tell. */
static void kinds_step(struct configurations *c, uint32_t from,
                       uint32_t (*unclear)(struct configurations *, uint32_t, int),
                       uint32_t to[CHAR_KINDS])
{
    struct kind_parts p;
    parts_find(c, from, &p);
    for (int i = 0; i < p.n && c->status == 0; i++) {
        bool clear = !(p.list[i] & p.unclear);
        uint32_t part = clear ? part_step(c, from, p.list[i]) : STEP_MIXED;
        for (uint64_t left = p.list[i]; left; left &= left - 1) {
            int kind = __builtin_ctzll(left);
            to[kind] = clear ? part : unclear(c, from, kind);
        }
    }
}

/* About how many tokens of a hundred have most of their characters of some kinds: letters, digits
 * and spaces, marks one by one, wide ones by their first bytes. */
static int kinds_weight(uint64_t kinds)
{
    static const uint8_t letters[CHAR_KIND_DIGIT + 1] = {15, 25, 3, 4, 2};
    int weight = __builtin_popcountll(kinds >> (CHAR_KIND_DIGIT + 1)) +
                 __builtin_popcountll(kinds >> CHAR_KIND_WIDE);
    for (int kind = 0; kind <= CHAR_KIND_DIGIT; kind++)
        weight += kinds >> kind & 1 ? letters[kind] : 0;
    return weight + (kinds >> char_kind_of(' ') & 1 ? 7 : 0);
}

enum {
    LEAST_WEIGHT = 10, /* below it tokens are looked at one by one as soon */
    MOST_PLACES = 64,  /* the steps of larger ones take longer than what they save */
};

static uint64_t kinds_that_lead(const uint32_t to[CHAR_KINDS], uint32_t target)
{
    uint64_t kinds = 0;
    for (int k = 0; k < CHAR_KINDS; k++)
        kinds |= (uint64_t)(to[k] == target) << k;
    return kinds;
}

/* Of the places that kinds lead to the one with most weight: the kinds that lead there, none where
 * that is too little. */
static uint64_t kinds_vote(const uint32_t to[CHAR_KINDS], uint32_t *best)
{
    uint64_t best_kinds = 0;
    int most = 0;
    *best = CONFIGURATION_DEAD;
    for (uint64_t left = CHAR_KINDS_ALL, kinds; left; left &= ~kinds) {
        uint32_t target = to[__builtin_ctzll(left)];
        kinds = kinds_that_lead(to, target);
        int weight = kinds_weight(kinds);
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
    if (c->list[from].run != STEP_UNKNOWN)
        return;
    for (int kind = 0; kind < CHAR_KINDS; kind++)
        to[kind] = STEP_MIXED;
    if (c->list[from].count <= MOST_PLACES)
        kinds_step(c, from, kind_step, to);
    if (c->status < 0)
        return;
    uint64_t kinds = kinds_vote(to, &best);
    c->list[from].run = best;
    c->list[from].run_kinds = kinds;
    c->list[from].dead_kinds = kinds_that_lead(to, CONFIGURATION_DEAD);
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

/* The same of all kinds, of wide ones if all lead there. */
static uint32_t kind_step_mostly(struct configurations *c, uint32_t from, int kind)
{
    return kind >= CHAR_KIND_WIDE ? wide_step(c, from, kind) : kind_step_most(c, from, kind);
}

void configuration_kinds(struct configurations *c, uint32_t from, uint32_t to[CHAR_KINDS])
{
    for (int kind = 0; kind < CHAR_KINDS; kind++)
        to[kind] = CONFIGURATION_DEAD;
    if (c->list[from].count <= MOST_PLACES)
        kinds_step(c, from, kind_step_mostly, to);
    for (int kind = 0; kind < CHAR_KINDS; kind++)
        to[kind] = to[kind] == STEP_MIXED ? CONFIGURATION_DEAD : to[kind];
}
