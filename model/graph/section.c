#include "model/graph/section.h"

#include <stdlib.h>
#include <string.h>

/* What the making of a section keeps of each value and buffer. */
struct making {
    const struct graph *g;
    struct graph_section *s;
    const uint64_t *sizes;
    bool *free; /* [n_buffers]: nobody's now */
};

/* ---- which operators ---- */

static void ops_take(const struct graph *g, struct graph_section *s, int first, int end)
{
    const struct graph_layer *from = &g->layers[first], *last = &g->layers[end - 1];
    for (int i = from->first_op; i < last->first_op + last->n_ops; i++)
        s->ops[s->n_ops++] = &g->ops[i];
}

static bool section_reads(const struct graph_section *s, int value)
{
    for (int i = 0; i < s->n_ops; i++)
        for (int k = 0; k < s->ops[i]->n_inputs; k++)
            if (s->ops[i]->inputs[k] == value)
                return true;
    return false;
}

/* The prelude's operators whose results are read, before the others; a prelude is short. */
static void prelude_take(const struct graph *g, struct graph_section *s)
{
    for (int p = g->n_prelude_ops - 1; p >= 0; p--)
        if (section_reads(s, g->ops[p].outputs[0])) {
            memmove(s->ops + 1, s->ops, (size_t)s->n_ops * sizeof *s->ops);
            s->ops[0] = &g->ops[p];
            s->n_ops++;
        }
}

static bool is_of_wanted_rows(const struct graph *g, const struct graph_op *op)
{
    const struct graph_value *v = &g->values[op->outputs[0]];
    return v->n_dims > 0 && v->dims[0].size == 0 && v->dims[0].symbol == GRAPH_WANTED;
}

static void wanted_find(const struct graph *g, struct graph_section *s)
{
    s->first_wanted_op = 0;
    while (s->first_wanted_op < s->n_ops && !is_of_wanted_rows(g, s->ops[s->first_wanted_op]))
        s->first_wanted_op++;
}

/* ---- what enters and leaves ---- */

static int borders_take(const struct graph *g, struct graph_section *s, int first, int end)
{
    s->outputs = g->layers[end - 1].outputs;
    s->n_outputs = g->layers[end - 1].n_outputs;
    if (first > 0) {
        s->inputs = g->layers[first - 1].outputs;
        s->n_inputs = g->layers[first - 1].n_outputs;
        return 0;
    }
    s->inputs = s->own_inputs = calloc((size_t)g->n_values + 1, sizeof *s->own_inputs);
    for (int v = 0; s->own_inputs && v < g->n_values; v++)
        if (g->values[v].origin == VALUE_INPUT)
            s->own_inputs[s->n_inputs++] = v;
    return s->own_inputs ? 0 : HP_ENOMEM;
}

/* ---- which values are parts of others ---- */

/* The value in whose buffer another lies: itself, or that of which it is a part. */
static int whole_of(const struct graph_section *s, int value)
{
    return s->views[value].of == SECTION_NO_VIEW ? value : s->views[value].of;
}

static void views_find(const struct graph *g, struct graph_section *s)
{
    for (int v = 0; v < g->n_values; v++)
        s->views[v] = (struct section_view){SECTION_NO_VIEW, 0};
    for (int i = 0; i < s->n_ops; i++) {
        const struct graph_op *op = s->ops[i];
        if (op_kind_info(op->kind)->is_view)
            s->views[op->outputs[0]] = (struct section_view){
                whole_of(s, op->inputs[0]), s->views[op->inputs[0]].first + op->u.slice.first};
    }
}

/* ---- how long values live ---- */

static void read_at(struct making *m, int value, int at)
{
    int whole = whole_of(m->s, value);
    m->s->last_read[value] = at;
    m->s->last_read[whole] = at > m->s->last_read[whole] ? at : m->s->last_read[whole];
}

static void lives_find(struct making *m)
{
    const struct graph_section *s = m->s;
    for (int v = 0; v < m->g->n_values; v++)
        m->s->last_read[v] = SECTION_NEVER;
    for (int i = 0; i < s->n_ops; i++)
        for (int k = 0; k < s->ops[i]->n_inputs; k++)
            read_at(m, s->ops[i]->inputs[k], i);
    for (int i = 0; i < s->n_outputs; i++)
        read_at(m, s->outputs[i], s->n_ops);
    /* What rows that are wanted are made of is read again for the next of them. */
    for (int i = 0; i < s->first_wanted_op; i++) {
        int made = s->ops[i]->outputs[0];
        if (m->s->last_read[made] >= s->first_wanted_op)
            read_at(m, made, s->n_ops);
    }
    for (int i = 0; i < s->n_inputs; i++)
        if (m->s->last_read[s->inputs[i]] >= s->first_wanted_op)
            m->s->last_read[s->inputs[i]] = s->n_ops;
}

/* ---- which buffers ---- */

static int buffer_add(struct making *m, uint64_t bytes)
{
    m->free[m->s->n_buffers] = false;
    m->s->buffer_bytes[m->s->n_buffers] = bytes;
    return m->s->n_buffers++;
}

/* The free buffer that fits best, the largest made larger, or a new one. */
static int buffer_take(struct making *m, uint64_t bytes)
{
    const uint64_t *has = m->s->buffer_bytes;
    int best = SECTION_NO_BUFFER;
    for (int b = 0; b < m->s->n_buffers; b++) {
        if (!m->free[b])
            continue;
        bool fits = has[b] >= bytes, fitted = best >= 0 && has[best] >= bytes;
        if (best < 0 || (fits && (!fitted || has[b] < has[best])) ||
            (!fits && !fitted && has[b] > has[best]))
            best = b;
    }
    if (best < 0)
        return buffer_add(m, bytes);
    m->free[best] = false;
    if (m->s->buffer_bytes[best] < bytes)
        m->s->buffer_bytes[best] = bytes;
    return best;
}

/* The input's buffer where the kind allows it and the input is read by nobody later. */
static int buffer_shared(const struct making *m, const struct graph_op *op, int at)
{
    int shares = op_kind_info(op->kind)->shares;
    if (shares == OP_NO_INPUT || shares >= op->n_inputs)
        return SECTION_NO_BUFFER;
    int v = op->inputs[shares];
    bool dies =
        m->s->last_read[v] == at && m->g->values[v].origin == VALUE_MADE && whole_of(m->s, v) == v;
    for (int i = 0; i < op->n_inputs; i++)
        dies = dies && (i == shares || whole_of(m->s, op->inputs[i]) != v);
    return dies ? m->s->buffer_of[v] : SECTION_NO_BUFFER;
}

static void inputs_release(struct making *m, const struct graph_op *op, int at, int kept)
{
    for (int i = 0; i < op->n_inputs; i++) {
        int v = whole_of(m->s, op->inputs[i]), b = m->s->buffer_of[v];
        if (m->s->last_read[v] == at && b != kept && m->g->values[v].origin == VALUE_MADE)
            m->free[b] = true;
    }
}

static uint64_t bytes_of(const struct making *m, int value)
{
    return graph_value_bytes(&m->g->values[value], m->sizes);
}

static void buffers_place(struct making *m)
{
    struct graph_section *s = m->s;
    for (int v = 0; v < m->g->n_values; v++)
        s->buffer_of[v] = SECTION_NO_BUFFER;
    for (int i = 0; i < s->n_inputs; i++)
        s->buffer_of[s->inputs[i]] = buffer_add(m, bytes_of(m, s->inputs[i]));
    for (int v = 0; v < m->g->n_values; v++)
        if (m->g->values[v].origin == VALUE_BATCH && m->s->last_read[v] != SECTION_NEVER) {
            s->buffer_of[v] = buffer_add(m, bytes_of(m, v));
            s->given[s->n_given++] = v;
        }
    for (int i = 0; i < s->n_ops; i++) {
        const struct graph_op *op = s->ops[i];
        int shared = buffer_shared(m, op, i), out = op->outputs[0];
        if (op_kind_info(op->kind)->is_view) {
            s->buffer_of[out] = s->buffer_of[op->inputs[0]];
            continue;
        }
        s->buffer_of[out] = shared != SECTION_NO_BUFFER ? shared : buffer_take(m, bytes_of(m, out));
        inputs_release(m, op, i, shared);
    }
}

/* ---- the whole ---- */

static int tables_alloc(struct making *m, int first, int end)
{
    const struct graph *g = m->g;
    struct graph_section *s = m->s;
    const struct graph_layer *last = &g->layers[end - 1];
    size_t n_ops = (size_t)(last->first_op + last->n_ops - g->layers[first].first_op) +
                   (size_t)g->n_prelude_ops,
           n_values = (size_t)g->n_values + 1;
    s->ops = calloc(n_ops, sizeof *s->ops);
    s->buffer_of = calloc(n_values, sizeof *s->buffer_of);
    s->buffer_bytes = calloc(n_values, sizeof *s->buffer_bytes);
    s->given = calloc(n_values, sizeof *s->given);
    s->views = calloc(n_values, sizeof *s->views);
    s->last_read = calloc(n_values, sizeof *s->last_read);
    m->free = calloc(n_values, sizeof *m->free);
    return s->ops && s->buffer_of && s->buffer_bytes && s->given && s->views && s->last_read &&
                   m->free
               ? 0
               : HP_ENOMEM;
}

int graph_section_make(const struct graph *g, int first, int end, const uint64_t *sizes,
                       struct graph_section *out, struct err *e)
{
    struct making m = {.g = g, .s = out, .sizes = sizes};
    *out = (struct graph_section){.graph = g};
    int rc = tables_alloc(&m, first, end);
    rc = rc < 0 ? rc : borders_take(g, out, first, end);
    if (rc == 0) {
        ops_take(g, out, first, end);
        prelude_take(g, out);
        wanted_find(g, out);
        views_find(g, out);
        lives_find(&m);
        buffers_place(&m);
    }
    free(m.free);
    if (rc < 0) {
        graph_section_free(out);
        return err_set(e, rc, "no memory for the plan of %d layers", end - first);
    }
    return 0;
}

void graph_section_free(struct graph_section *s)
{
    free(s->own_inputs);
    free(s->given);
    free(s->views);
    free(s->last_read);
    free(s->ops);
    free(s->buffer_of);
    free(s->buffer_bytes);
    *s = (struct graph_section){0};
}

uint64_t graph_section_bytes(const struct graph_section *s)
{
    uint64_t bytes = 0;
    for (int i = 0; i < s->n_buffers; i++)
        bytes += s->buffer_bytes[i];
    return bytes;
}
