#include "model/grammar/state_chars.h"

#include <stdlib.h>

#include "common/vector.h"

/* In place of a state: no character gets through, or they do not all come to one state. */
#define NOWHERE UINT32_MAX
#define SEVERAL (UINT32_MAX - 1)

bool state_chars_init(struct state_chars *s, const struct grammar *g)
{
    *s = (struct state_chars){.grammar = g};
    s->states = calloc(g->n_states + 1u, sizeof *s->states);
    for (int byte = 0; byte < 128; byte++) {
        int kind = char_kind_of((uint8_t)byte);
        s->begun[byte + 1] = s->begun[byte] | (kind < 0 ? 0 : UINT64_C(1) << kind);
    }
    uint64_t still = 0; /* come from this byte on */
    for (int byte = 128; byte >= 0; byte--) {
        int kind = byte < 128 ? char_kind_of((uint8_t)byte) : -1;
        still |= kind < 0 ? 0 : UINT64_C(1) << kind;
        s->over[byte] = s->begun[byte] & ~still;
    }
    return s->states;
}

void state_chars_fini(struct state_chars *s)
{
    free(s->states);
    free(s->steps);
    *s = (struct state_chars){0};
}

size_t state_chars_bytes(const struct state_chars *s)
{
    return s->grammar->n_states * sizeof *s->states + s->step_room * sizeof *s->steps;
}

/* A state's edges as they are read. */
struct edges_read {
    struct char_step list[CHAR_KINDS];
    int n;
    uint64_t touched, unclear;
    uint32_t leads[CHAR_LEADS]; /* where all characters with these first bytes lead */
};

static void step_add(struct edges_read *r, uint64_t kinds, uint32_t to)
{
    int i = 0;
    while (i < r->n && r->list[i].to != to)
        i++;
    if (i == r->n && kinds)
        r->list[r->n++] = (struct char_step){0, to};
    if (kinds)
        r->list[i].kinds |= kinds;
}

static void narrow_read(const struct state_chars *s, const struct grammar_edge *edge,
                        struct edges_read *r)
{
    unsigned end = edge->high < 0x80 ? edge->high + 1u : 0x80;
    if (edge->low >= end)
        return;
    uint64_t some = s->begun[end] & ~s->over[edge->low], all = s->over[end] & ~s->begun[edge->low];
    r->unclear |= (some & ~all) | (some & r->touched);
    step_add(r, all & ~r->touched, edge->to);
    r->touched |= some;
}

/* Where all of these rests lead from within a character. */
static uint32_t rest_end(const struct grammar *g, uint32_t state, struct char_rest rest)
{
    uint32_t to = NOWHERE;
    if (g->ends[state])
        return SEVERAL;
    for (uint32_t i = g->first[state]; i < g->first[state + 1]; i++) {
        const struct grammar_edge *edge = &g->edges[i];
        if (edge->kind != GRAMMAR_BYTES)
            return SEVERAL;
        if (edge->high < rest.low || edge->low > rest.high || g->least[edge->to] == GRAMMAR_NEVER)
            continue;
        if (to != NOWHERE || edge->low > rest.low || edge->high < rest.high)
            return SEVERAL;
        to = edge->to;
    }
    return to == NOWHERE || !rest.left
               ? to
               : rest_end(g, to, (struct char_rest){0x80, 0xBF, rest.left - 1});
}

static void wide_read(const struct grammar *g, const struct grammar_edge *edge,
                      struct edges_read *r)
{
    for (int i = 0; i < CHAR_LEADS; i++) {
        const struct char_lead *lead = &char_leads[i];
        if (edge->high < lead->low || edge->low > lead->high)
            continue;
        bool alone = r->leads[i] == NOWHERE && edge->low <= lead->low && edge->high >= lead->high;
        r->leads[i] = alone ? rest_end(g, edge->to, lead->rest) : SEVERAL;
    }
}

/* A kind may have first bytes of several rests. */
static void leads_join(struct edges_read *r)
{
    for (int i = 0, next; i < CHAR_LEADS; i = next) {
        uint64_t kind = UINT64_C(1) << char_leads[i].kind;
        bool alike = true;
        for (next = i + 1; next < CHAR_LEADS && char_leads[next].kind == char_leads[i].kind; next++)
            alike = alike && r->leads[next] == r->leads[i];
        if (!alike || r->leads[i] == SEVERAL)
            r->unclear |= kind;
        else if (r->leads[i] != NOWHERE)
            step_add(r, kind, r->leads[i]);
    }
}

static void edges_read(const struct state_chars *s, uint32_t state, struct edges_read *r)
{
    const struct grammar *g = s->grammar;
    r->n = 0;
    r->touched = r->unclear = 0;
    for (int i = 0; i < CHAR_LEADS; i++)
        r->leads[i] = NOWHERE;
    for (uint32_t i = g->first[state]; i < g->first[state + 1]; i++) {
        const struct grammar_edge *edge = &g->edges[i];
        if (edge->kind != GRAMMAR_BYTES || g->least[edge->to] == GRAMMAR_NEVER)
            continue;
        narrow_read(s, edge, r);
        if (edge->high >= char_leads[0].low)
            wide_read(g, edge, r);
    }
    leads_join(r);
}

const struct state_steps *state_chars_find(struct state_chars *s, uint32_t state)
{
    struct state_steps *made = &s->states[state];
    struct edges_read r;
    if (made->known)
        return made;
    edges_read(s, state, &r);
    if (!vector_reserve(s->steps, s->step_room, s->n_steps + (uint32_t)r.n))
        return NULL;
    *made = (struct state_steps){.unclear = r.unclear, .first = s->n_steps, .known = true};
    for (int i = 0; i < r.n; i++) {
        r.list[i].kinds &= ~r.unclear;
        if (r.list[i].kinds)
            s->steps[s->n_steps++] = r.list[i], made->n++;
    }
    return made;
}
