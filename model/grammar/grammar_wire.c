/* Owns a grammar's memory and its form on the wire: a head of four numbers, the rules' starts, for
 * each state its first edge and whether it ends, for each edge where it leads with its kind, and
 * its bytes or rule; all u32, little-endian. */
#include <stdlib.h>

#include "model/grammar/grammar_int.h"

enum { MAGIC = 0x31475048 /* HPG1 */, ENDS_BIT = 31, KIND_SHIFT = 24 };

int grammar_allocate(uint32_t n_states, uint32_t n_edges, uint32_t n_rules, struct grammar **out,
                     struct err *e)
{
    struct grammar *g = calloc(1, sizeof *g);
    if (g) {
        g->n_states = n_states;
        g->n_edges = n_edges;
        g->n_rules = n_rules;
        g->edges = calloc(n_edges + 1u, sizeof *g->edges);
        g->first = calloc(n_states + 2u, sizeof *g->first);
        g->starts = calloc(n_rules + 1u, sizeof *g->starts);
        g->ends = calloc(n_states + 1u, 1);
        g->tails = calloc(n_states + 1u, 1);
        g->least = calloc(n_states + 1u, sizeof *g->least);
    }
    if (!g || !g->edges || !g->first || !g->starts || !g->ends || !g->tails || !g->least) {
        grammar_destroy(&g);
        return err_no_memory(e, "a grammar of %u states", n_states);
    }
    *out = g;
    return 0;
}

void grammar_destroy(struct grammar **self)
{
    struct grammar *g = *self;
    *self = NULL;
    if (!g)
        return;
    free(g->edges);
    free(g->first);
    free(g->starts);
    free(g->ends);
    free(g->tails);
    free(g->least);
    free(g);
}

static void number_write(struct buffer *out, uint32_t v)
{
    buffer_append(out, &v, sizeof v);
}

void grammar_write(const struct grammar *g, struct buffer *out)
{
    number_write(out, MAGIC);
    number_write(out, g->n_states);
    number_write(out, g->n_edges);
    number_write(out, g->n_rules);
    for (uint32_t i = 0; i < g->n_rules; i++)
        number_write(out, g->starts[i]);
    for (uint32_t i = 0; i < g->n_states; i++)
        number_write(out, g->first[i] | (uint32_t)g->ends[i] << ENDS_BIT);
    for (uint32_t i = 0; i < g->n_edges; i++) {
        const struct grammar_edge *edge = &g->edges[i];
        number_write(out, edge->to | (uint32_t)edge->kind << KIND_SHIFT);
        number_write(out, edge->kind == GRAMMAR_CALL ? edge->rule
                                                     : edge->low | (uint32_t)edge->high << 8);
    }
}

static bool states_read(struct grammar *g, struct reader *r)
{
    for (uint32_t i = 0; i < g->n_rules; i++) {
        g->starts[i] = reader_u32(r);
        if (g->starts[i] >= g->n_states)
            return false;
    }
    for (uint32_t i = 0; i < g->n_states; i++) {
        uint32_t v = reader_u32(r);
        g->ends[i] = (uint8_t)(v >> ENDS_BIT);
        g->first[i] = v & ~(1u << ENDS_BIT);
        if (g->first[i] > g->n_edges || (i ? g->first[i] < g->first[i - 1] : g->first[i] != 0))
            return false;
    }
    g->first[g->n_states] = g->n_edges;
    return true;
}

static bool edges_read(struct grammar *g, struct reader *r)
{
    for (uint32_t i = 0; i < g->n_edges; i++) {
        uint32_t v = reader_u32(r), more = reader_u32(r);
        struct grammar_edge *edge = &g->edges[i];
        edge->to = v & ((1u << KIND_SHIFT) - 1);
        edge->kind = (uint8_t)(v >> KIND_SHIFT);
        if (edge->kind == GRAMMAR_CALL) {
            edge->rule = more;
        } else {
            edge->low = (uint8_t)more;
            edge->high = (uint8_t)(more >> 8);
        }
        if (edge->to >= g->n_states || edge->kind > GRAMMAR_CALL || edge->rule >= g->n_rules ||
            edge->low > edge->high)
            return false;
    }
    return true;
}

int grammar_read(const void *bytes, size_t size, struct grammar **out, struct err *e)
{
    struct reader r = reader_of(bytes, size);
    uint32_t magic = reader_u32(&r), n_states = reader_u32(&r), n_edges = reader_u32(&r),
             n_rules = reader_u32(&r);
    struct grammar *g = NULL;
    if (r.failed || magic != MAGIC || !n_states || !n_rules || n_states > GRAMMAR_MAX_STATES ||
        n_edges > GRAMMAR_MAX_EDGES || n_rules > EXPRESSION_MAX_RULES ||
        size - r.at != 4 * ((size_t)n_rules + n_states + 2 * (size_t)n_edges))
        return err_set(e, HP_EPROTO, "%zu bytes are no grammar of this version", size);
    int rc = grammar_allocate(n_states, n_edges, n_rules, &g, e);
    if (rc < 0)
        return rc;
    if (!states_read(g, &r) || !edges_read(g, &r))
        rc = err_set(e, HP_EPROTO, "a grammar of %u states has a number out of range", n_states);
    rc = rc < 0 ? rc : grammar_check(g, NULL, e);
    if (rc < 0) {
        grammar_destroy(&g);
        return rc;
    }
    *out = g;
    return 0;
}
