#include "agent/engine/fixed.h"

#include <stdlib.h>
#include <string.h>

#include "agent/engine/section_run.h"
#include "model/model.h"

struct fixed {
    struct fixed_config config;
    const struct backend *backend;
    struct section_run *run;
    struct event *done[FIXED_DEPTH]; /* a ring: the oldest batch's is at `oldest` */
    int oldest, n_flying;
};

/* ---- loading ---- */

static int dims_check(const struct graph *g, int value, struct err *e)
{
    const struct graph_value *v = &g->values[value];
    if (v->n_dims < 1)
        return err_set(e, HP_EUNSUPPORTED, "%s has no dimensions", v->name);
    for (int d = 0; d < v->n_dims; d++)
        if (v->dims[d].size == 0)
            return err_set(e, HP_EUNSUPPORTED,
                           "dimension %d of %s is not fixed (\"%s\"): a graph of fixed shape has a "
                           "number for each",
                           d, v->name, g->symbols[v->dims[d].symbol]);
    return 0;
}

/* Every value that the layers read or write. */
static int graph_check(const struct section_config *c, struct err *e)
{
    const struct graph *g = c->graph;
    int rc = section_layers_check(g, c->first_layer, c->end_layer, e);
    for (int l = c->first_layer; l < c->end_layer && rc == 0; l++)
        for (int i = 0; i < g->layers[l].n_ops && rc == 0; i++) {
            const struct graph_op *op = &g->ops[g->layers[l].first_op + i];
            for (int k = 0; k < op->n_inputs && rc == 0; k++)
                rc = dims_check(g, op->inputs[k], e);
            for (int k = 0; k < op->n_outputs && rc == 0; k++)
                rc = dims_check(g, op->outputs[k], e);
            if (rc == 0 && op->kind == OP_ATTENTION)
                rc = err_set(e, HP_EUNSUPPORTED,
                             "attention over a KV cache is of sequences; a graph of fixed shape "
                             "has none");
        }
    return rc;
}

static int weights_check(const struct fixed *f, struct err *e)
{
    return f->config.model ? model_check(f->config.model, e) : 0;
}

/* After each batch. */
static int weights_glance(const struct fixed *f, struct err *e)
{
    return f->config.model ? model_glance(f->config.model, e) : 0;
}

int fixed_load(const struct fixed_config *c, struct fixed **out, struct err *e)
{
    struct section_config section = c->section;
    struct section_need need;
    memset(section.sizes, 0, sizeof section.sizes);
    int rc = graph_check(&section, e);
    rc = rc < 0 ? rc : section_footprint(&section, &need, e);
    rc = rc < 0 ? rc : section_memory_check(&section, &need, c->beside_bytes, e);
    if (rc < 0)
        return rc;
    struct fixed *f = calloc(1, sizeof *f);
    if (!f)
        return err_set(e, HP_ENOMEM, "no memory for a graph");
    f->config = *c;
    f->backend = section.device->backend;
    for (int i = 0; i < FIXED_DEPTH && rc == 0; i++)
        rc = f->backend->event_create(section.device, &f->done[i], e);
    rc = rc < 0 ? rc : section_run_create(&section, &f->run, e);
    rc = rc < 0 ? rc : weights_check(f, e);
    if (rc < 0)
        fixed_unload(&f);
    else
        *out = f;
    return rc;
}

void fixed_unload(struct fixed **self)
{
    struct fixed *f = *self;
    *self = NULL;
    if (!f)
        return;
    section_run_destroy(&f->run);
    for (int i = 0; i < FIXED_DEPTH; i++)
        if (f->done[i])
            f->backend->event_destroy(&f->done[i]);
    free(f);
}

/* ---- running ---- */

static const struct graph_value *value_row(const struct fixed *f, int value)
{
    return &f->config.section.graph->values[value];
}

/* The one of that name among the graph's; -1. */
static int value_find(const struct fixed *f, const int *values, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(value_row(f, values[i])->name, name) == 0)
            return values[i];
    return -1;
}

/* As section_run_copy has it: what is not float32 comes and goes as it is. */
static bool formats_copy(enum dtype inside, enum dtype outside)
{
    return inside == outside || (inside == DTYPE_F32 && outside <= DTYPE_BF16);
}

static int value_check(const struct fixed *f, int value, const struct fixed_value *given,
                       struct err *e)
{
    const struct graph_value *v = value_row(f, value);
    uint64_t elements = graph_value_elements(v, NULL);
    if (given->dtype >= DTYPE_COUNT || !formats_copy(v->dtype, given->dtype))
        return err_set(e, HP_EINVAL, "%s is %s, and comes or goes as another format", v->name,
                       dtype_info(v->dtype)->name);
    uint64_t bytes = elements * dtype_info(given->dtype)->block_bytes;
    if (given->bytes != bytes)
        return err_set(e, HP_EINVAL, "%s has %llu elements of %s in %llu bytes, not in %llu",
                       v->name, (unsigned long long)elements, dtype_info(given->dtype)->name,
                       (unsigned long long)bytes, (unsigned long long)given->bytes);
    return 0;
}

/* All names are known, each stands once, and sizes and formats fit. */
static int values_check(const struct fixed *f, const int *values, int n,
                        const struct fixed_value *given, int n_given, const char *what,
                        struct err *e)
{
    int rc = 0;
    for (int i = 0; i < n_given && rc == 0; i++) {
        int value = value_find(f, values, n, given[i].name);
        if (value < 0)
            return err_set(e, HP_EINVAL, "the graph has no %s %.80s", what, given[i].name);
        for (int k = 0; k < i; k++)
            if (strcmp(given[k].name, given[i].name) == 0)
                return err_set(e, HP_EINVAL, "the %s %.80s is given twice", what, given[i].name);
        rc = value_check(f, value, &given[i], e);
    }
    return rc;
}

static int inputs_complete(const struct fixed *f, const struct fixed_value *given, int n_given,
                           struct err *e)
{
    const struct graph_section *s = section_run_plan(f->run);
    for (int i = 0; i < s->n_inputs; i++) {
        const char *name = value_row(f, s->inputs[i])->name;
        int k = 0;
        while (k < n_given && strcmp(given[k].name, name) != 0)
            k++;
        if (k == n_given)
            return err_set(e, HP_EINVAL, "the input %s is missing", name);
    }
    return 0;
}

static void values_copy(struct fixed *f, const int *values, int n, const struct fixed_value *given,
                        int n_given, bool to_host)
{
    for (int i = 0; i < n_given; i++) {
        int value = value_find(f, values, n, given[i].name);
        section_run_copy(f->run, &value, 1, value_row(f, value)->dims[0].size, given[i].dtype,
                         given[i].data, to_host);
    }
}

int fixed_submit(struct fixed *f, const struct fixed_value *inputs, int n_inputs,
                 const struct fixed_value *outputs, int n_outputs, struct err *e)
{
    const struct graph_section *s = section_run_plan(f->run);
    if (f->n_flying == FIXED_DEPTH)
        return err_set(e, HP_EBUSY, "%d batches are under way already", f->n_flying);
    int rc = values_check(f, s->inputs, s->n_inputs, inputs, n_inputs, "input", e);
    rc = rc < 0 ? rc : inputs_complete(f, inputs, n_inputs, e);
    rc = rc < 0 ? rc : values_check(f, s->outputs, s->n_outputs, outputs, n_outputs, "output", e);
    if (rc < 0)
        return rc;
    values_copy(f, s->inputs, s->n_inputs, inputs, n_inputs, false);
    section_run_ops(f->run, 0, s->n_ops, NULL);
    values_copy(f, s->outputs, s->n_outputs, outputs, n_outputs, true);
    f->backend->event_record(f->done[(f->oldest + f->n_flying) % FIXED_DEPTH],
                             section_run_stream(f->run));
    f->n_flying++;
    return 0;
}

bool fixed_pending(const struct fixed *f, void (*over)(void *ctx), void *ctx)
{
    int newest = (f->oldest + f->n_flying + FIXED_DEPTH - 1) % FIXED_DEPTH;
    return f->n_flying > 0 && f->backend->event_pending(f->done[newest], over, ctx);
}

int fixed_complete(struct fixed *f, struct err *e)
{
    if (f->n_flying == 0)
        return err_set(e, HP_EINVAL, "no batch is under way");
    int rc = f->backend->event_wait(f->done[f->oldest], e);
    f->oldest = (f->oldest + 1) % FIXED_DEPTH;
    f->n_flying--;
    return rc < 0 ? rc : weights_glance(f, e);
}

int fixed_warm(struct fixed *f, struct err *e)
{
    const struct graph_section *s = section_run_plan(f->run);
    section_run_ops(f->run, 0, s->n_ops, NULL); /* memory of values is zeroed */
    return f->backend->stream_wait(section_run_stream(f->run), e);
}
