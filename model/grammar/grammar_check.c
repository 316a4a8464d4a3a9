/* Owns what a grammar promises: which of its states end, after how many bytes, and that no rule
 * calls itself before it reads. All in time that grows with its size alone. */
#include <stdlib.h>

#include "common/vector.h"
#include "model/grammar/grammar_int.h"

enum { SATURATED = 1 << 30 };

/* ---- bytes to the end of a rule: Knuth's generalisation of Dijkstra's algorithm ---- */

struct turn {
    uint32_t least, state;
};

struct shortest {
    struct grammar *g;
    uint32_t *into, *first_into;        /* edges that lead into a state, and [n_states + 1] */
    uint32_t *callers, *first_caller;   /* edges that call a rule, and [n_rules + 1] */
    uint32_t *from;                     /* [n_edges]: where an edge begins */
    uint32_t *rules_at, *first_rule_at; /* rules that start at a state */
    uint8_t *final;                     /* [n_states] */
    struct turn *heap;
    size_t n_heap, heap_room;
    bool failed;
};

static void heap_push(struct shortest *s, uint32_t least, uint32_t state)
{
    struct turn t = {least, state};
    if (!vector_push(s->heap, s->n_heap, s->heap_room, t)) {
        s->failed = true;
        return;
    }
    size_t i = s->n_heap - 1;
    for (; i && s->heap[(i - 1) / 2].least > least; i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = t;
}

static struct turn heap_pop(struct shortest *s)
{
    struct turn top = s->heap[0], last = s->heap[--s->n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < s->n_heap; i = child) {
        child += child + 1 < s->n_heap && s->heap[child + 1].least < s->heap[child].least;
        if (s->heap[child].least >= last.least)
            break;
        s->heap[i] = s->heap[child];
    }
    s->heap[i] = last;
    return top;
}

static void state_relax(struct shortest *s, uint32_t state, uint32_t a, uint32_t b)
{
    uint32_t least = a + b < SATURATED ? a + b : SATURATED;
    if (least < s->g->least[state]) {
        s->g->least[state] = least;
        heap_push(s, least, state);
    }
}

static void state_settle(struct shortest *s, uint32_t state)
{
    const struct grammar *g = s->g;
    uint32_t least = g->least[state];
    s->final[state] = 1;
    for (uint32_t i = s->first_into[state]; i < s->first_into[state + 1]; i++) {
        const struct grammar_edge *edge = &g->edges[s->into[i]];
        if (edge->kind != GRAMMAR_CALL)
            state_relax(s, s->from[s->into[i]], least, edge->kind == GRAMMAR_BYTES);
        else if (s->final[g->starts[edge->rule]])
            state_relax(s, s->from[s->into[i]], least, g->least[g->starts[edge->rule]]);
    }
    for (uint32_t k = s->first_rule_at[state]; k < s->first_rule_at[state + 1]; k++) {
        uint32_t rule = s->rules_at[k];
        for (uint32_t i = s->first_caller[rule]; i < s->first_caller[rule + 1]; i++)
            if (s->final[g->edges[s->callers[i]].to])
                state_relax(s, s->from[s->callers[i]], least, g->least[g->edges[s->callers[i]].to]);
    }
}

/* A table of what belongs to whom: counted, then placed. `key(i)` in keys[i]; UINT32_MAX: nothing.
 */
static bool table_make(const uint32_t *keys, uint32_t n, uint32_t n_keys, uint32_t **items,
                       uint32_t **first)
{
    *items = calloc(n + 1u, sizeof **items);
    *first = calloc(n_keys + 2u, sizeof **first);
    if (!*items || !*first)
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (keys[i] != UINT32_MAX)
            (*first)[keys[i] + 2]++;
    for (uint32_t i = 0; i < n_keys; i++)
        (*first)[i + 2] += (*first)[i + 1];
    for (uint32_t i = 0; i < n; i++)
        if (keys[i] != UINT32_MAX)
            (*items)[(*first)[keys[i] + 1]++] = i;
    return true;
}

static bool tables_make(struct shortest *s)
{
    const struct grammar *g = s->g;
    uint32_t *to = calloc(g->n_edges + 1u, sizeof *to),
             *rule = calloc(g->n_edges + 1u, sizeof *rule);
    s->from = calloc(g->n_edges + 1u, sizeof *s->from);
    s->final = calloc(g->n_states + 1u, 1);
    bool ok = to && rule && s->from && s->final;
    for (uint32_t state = 0; ok && state < g->n_states; state++)
        for (uint32_t i = g->first[state]; i < g->first[state + 1]; i++) {
            s->from[i] = state;
            to[i] = g->edges[i].to;
            rule[i] = g->edges[i].kind == GRAMMAR_CALL ? g->edges[i].rule : UINT32_MAX;
        }
    ok = ok && table_make(to, g->n_edges, g->n_states, &s->into, &s->first_into) &&
         table_make(rule, g->n_edges, g->n_rules, &s->callers, &s->first_caller) &&
         table_make(g->starts, g->n_rules, g->n_states, &s->rules_at, &s->first_rule_at);
    free(to);
    free(rule);
    return ok;
}

static bool least_find(struct shortest *s)
{
    struct grammar *g = s->g;
    if (!tables_make(s))
        return false;
    for (uint32_t i = 0; i < g->n_states; i++) {
        g->least[i] = g->ends[i] ? 0 : GRAMMAR_NEVER;
        if (g->ends[i])
            heap_push(s, 0, i);
    }
    while (s->n_heap && !s->failed) {
        struct turn t = heap_pop(s);
        if (!s->final[t.state])
            state_settle(s, t.state);
    }
    return !s->failed;
}

static void shortest_free(struct shortest *s)
{
    free(s->into);
    free(s->first_into);
    free(s->callers);
    free(s->first_caller);
    free(s->from);
    free(s->rules_at);
    free(s->first_rule_at);
    free(s->final);
    free(s->heap);
}

/* ---- rules that call themselves before they read ---- */

static bool edge_lives(const struct grammar *g, const struct grammar_edge *edge)
{
    return g->least[edge->to] != GRAMMAR_NEVER &&
           (edge->kind != GRAMMAR_CALL || g->least[g->starts[edge->rule]] != GRAMMAR_NEVER);
}

/* Where a state leads without reading: the place behind an edge that reads nothing or may, and the
 * start of a rule that is called. A circle that goes through a call is one that never reads; the
 * circles of empty edges alone are harmless. Every state stands in a component (Tarjan); a call
 * within one is what is looked for. */
struct circles {
    const struct grammar *g;
    uint32_t *order, *low, *stack, *component;
    struct circle_frame {
        uint32_t state, at; /* two ways an edge */
    } * frames;
    uint32_t n_order, n_stack, n_frames, n_components;
};

static bool way_of(const struct grammar *g, const struct grammar_edge *edge, bool call,
                   uint32_t *to)
{
    *to = call ? g->starts[edge->rule] : edge->to;
    if (!edge_lives(g, edge) || edge->kind == GRAMMAR_BYTES)
        return false;
    return edge->kind == GRAMMAR_CALL ? call || g->least[g->starts[edge->rule]] == 0 : !call;
}

static void circle_enter(struct circles *c, uint32_t state)
{
    c->order[state] = c->low[state] = ++c->n_order;
    c->stack[c->n_stack++] = state;
    c->frames[c->n_frames++] = (struct circle_frame){state, 2 * c->g->first[state]};
}

static void circle_leave(struct circles *c, uint32_t state)
{
    uint32_t top;
    if (c->low[state] == c->order[state]) {
        c->n_components++;
        do {
            top = c->stack[--c->n_stack];
            c->component[top] = c->n_components;
        } while (top != state);
    }
    if (--c->n_frames && c->low[state] < c->low[c->frames[c->n_frames - 1].state])
        c->low[c->frames[c->n_frames - 1].state] = c->low[state];
}

static void circles_from(struct circles *c, uint32_t state)
{
    const struct grammar *g = c->g;
    circle_enter(c, state);
    while (c->n_frames) {
        struct circle_frame *f = &c->frames[c->n_frames - 1];
        uint32_t at = f->at++, to;
        if (at >= 2 * g->first[f->state + 1]) {
            circle_leave(c, f->state);
            continue;
        }
        if (!way_of(g, &g->edges[at / 2], at % 2, &to))
            continue;
        if (!c->order[to])
            circle_enter(c, to);
        else if (!c->component[to] && c->order[to] < c->low[f->state])
            c->low[f->state] = c->order[to];
    }
}

/* The rule that is called in a circle; n_rules: none. */
static uint32_t circle_find(const struct circles *c)
{
    const struct grammar *g = c->g;
    for (uint32_t state = 0; state < g->n_states; state++)
        for (uint32_t i = g->first[state]; i < g->first[state + 1]; i++) {
            uint32_t to;
            if (g->edges[i].kind == GRAMMAR_CALL && way_of(g, &g->edges[i], true, &to) &&
                c->component[to] == c->component[state])
                return g->edges[i].rule;
        }
    return g->n_rules;
}

static int circles_check(const struct grammar *g, const struct expression_rule *names,
                         struct err *e)
{
    struct circles c = {.g = g};
    uint32_t n = g->n_states;
    uint32_t *numbers = calloc(4 * (size_t)n, sizeof *numbers);
    c.frames = calloc(n + 1u, sizeof *c.frames);
    int rc = numbers && c.frames ? 0 : err_no_memory(e, "a grammar");
    if (rc == 0) {
        c.order = numbers;
        c.low = numbers + n;
        c.stack = numbers + 2 * (size_t)n;
        c.component = numbers + 3 * (size_t)n;
        for (uint32_t i = 0; i < n; i++)
            if (!c.order[i])
                circles_from(&c, i);
        uint32_t rule = circle_find(&c);
        if (rule < g->n_rules)
            rc = err_set(e, HP_EINVAL,
                         "rule \"%s\" of the grammar calls itself before it reads anything",
                         names ? names[rule].name : "?");
    }
    free(numbers);
    free(c.frames);
    return rc;
}

/* ---- both ---- */

/* Chains of empty edges to an end are short where tails help, so a few rounds find them. */
static void tails_find(struct grammar *g)
{
    bool more = true;
    for (int round = 0; more && round < 4; round++) {
        more = false;
        for (uint32_t s = g->n_states; s-- > 0;) {
            uint32_t n = g->first[s + 1] - g->first[s];
            const struct grammar_edge *edge = &g->edges[g->first[s]];
            bool tail =
                (g->ends[s] && n == 0) ||
                (!g->ends[s] && n == 1 && edge->kind == GRAMMAR_NOTHING && g->tails[edge->to]);
            more = more || (tail && !g->tails[s]);
            g->tails[s] = tail;
        }
    }
}

int grammar_check(struct grammar *g, const struct expression_rule *names, struct err *e)
{
    struct shortest s = {.g = g};
    int rc = least_find(&s) ? 0 : err_no_memory(e, "a grammar of %u states", g->n_states);
    shortest_free(&s);
    tails_find(g);
    if (rc == 0 && g->least[g->starts[0]] == GRAMMAR_NEVER)
        rc = err_set(e, HP_EINVAL, "the grammar has no end: rule \"%s\" allows no text",
                     names ? names[0].name : "root");
    if (rc == 0 && g->least[g->starts[0]] > GRAMMAR_MAX_LEAST)
        rc = err_set(e, HP_ELIMIT, "the shortest text of the grammar has more than %d bytes",
                     GRAMMAR_MAX_LEAST);
    return rc < 0 ? rc : circles_check(g, names, e);
}
