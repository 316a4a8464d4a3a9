#include "agent/engine/section_plan.h"

#include <stdlib.h>
#include <string.h>

/* One operator's use of a weight. */
struct use {
    const struct weight *source;
    enum weight_use use;
    int place; /* operator * OP_WEIGHTS_MAX + which of its weights */
};

static int compare_addresses(const void *a, const void *b)
{
    return (a > b) - (a < b);
}

static int compare_uses(const void *a, const void *b)
{
    const struct use *x = a, *y = b;
    if (x->source != y->source)
        return compare_addresses(x->source, y->source);
    return x->use != y->use ? (int)x->use - (int)y->use : x->place - y->place;
}

static int compare_places(const void *a, const void *b)
{
    return ((const struct use *)a)->place - ((const struct use *)b)->place;
}

static int uses_list(const struct graph_section *s, struct use *out)
{
    int n = 0;
    for (int i = 0; i < s->n_ops; i++)
        for (int k = 0; k < s->ops[i]->n_weights; k++)
            if (s->ops[i]->weights[k])
                out[n++] = (struct use){s->ops[i]->weights[k], graph_op_weight_use(s->ops[i], k),
                                        i * OP_WEIGHTS_MAX + k};
    return n;
}

/* Each weight and use once, where it is used first: uses[0..result). */
static int uses_unite(struct use *uses, int n)
{
    int kept = 0;
    qsort(uses, (size_t)n, sizeof *uses, compare_uses);
    for (int i = 0; i < n; i++)
        if (i == 0 || uses[i].source != uses[i - 1].source || uses[i].use != uses[i - 1].use)
            uses[kept++] = uses[i];
    qsort(uses, (size_t)kept, sizeof *uses, compare_places);
    return kept;
}

/* A use of the sorted `all` finds its row: the first of the same weight and use is in `united`. */
static void rows_assign(struct section_plan *p, struct use *all, int n)
{
    int row = 0;
    qsort(all, (size_t)n, sizeof *all, compare_uses);
    for (int i = 0; i < n; i++) {
        if (i == 0 || all[i].source != all[i - 1].source || all[i].use != all[i - 1].use) {
            row = p->weight_of[all[i].place];
            continue;
        }
        p->weight_of[all[i].place] = row;
    }
}

/* The most rows that any value of the section has. */
static uint32_t rows_most(const struct section_config *c, const struct graph_section *s)
{
    uint64_t most = 1;
    for (int i = 0; i < s->n_ops; i++) {
        const struct graph_dim *rows = &c->graph->values[s->ops[i]->outputs[0]].dims[0];
        most = rows->size > most ? rows->size : most;
    }
    for (int i = 0; i < GRAPH_SEQUENCE_SYMBOLS; i++)
        most = c->sizes[i] > most ? c->sizes[i] : most;
    return most < UINT32_MAX ? (uint32_t)most : UINT32_MAX;
}

/* Whether experts are chosen by what the operator makes: rounding there would choose others. */
static bool op_routes(const struct graph_section *s, int op)
{
    for (int i = op + 1; i < s->n_ops; i++)
        if (s->ops[i]->kind == OP_ROUTE && s->ops[i]->inputs[0] == s->ops[op]->outputs[0])
            return true;
    return false;
}

static void weights_fill(const struct section_config *c, struct section_plan *p, struct use *united)
{
    const struct backend *b = c->device->backend;
    uint32_t rows = rows_most(c, &p->section);
    for (int i = 0; i < p->n_weights; i++) {
        const struct use *u = &united[i];
        bool f32 = c->f32 || op_routes(&p->section, u->place / OP_WEIGHTS_MAX);
        p->weights[i] = (struct section_weight){
            u->source, u->use, f32, b->weight_resident_bytes(c->device, u->source, u->use, f32)};
        p->weight_of[u->place] = i;
        p->weight_bytes += p->weights[i].resident_bytes;
        bool product = u->use == WEIGHT_MATMUL || u->use == WEIGHT_MATMUL_TURNED;
        uint64_t scratch =
            product ? b->matmul_scratch_bytes(c->device, u->source, u->use, f32, rows) : 0;
        p->scratch_bytes = scratch > p->scratch_bytes ? scratch : p->scratch_bytes;
        uint32_t step = product && b->matmul_row_step
                            ? b->matmul_row_step(c->device, u->source, u->use, f32)
                            : 0;
        p->row_step = step > p->row_step ? step : p->row_step;
    }
}

static int weights_list(const struct section_config *c, struct section_plan *p)
{
    size_t n_places = (size_t)p->section.n_ops * OP_WEIGHTS_MAX;
    struct use *all = calloc(n_places, sizeof *all), *united = calloc(n_places, sizeof *united);
    p->weights = calloc(n_places, sizeof *p->weights);
    p->weight_of = calloc(n_places, sizeof *p->weight_of);
    bool good = all && united && p->weights && p->weight_of;
    if (good) {
        for (size_t i = 0; i < n_places; i++)
            p->weight_of[i] = -1;
        int n = uses_list(&p->section, all);
        memcpy(united, all, (size_t)n * sizeof *all);
        p->n_weights = uses_unite(united, n);
        weights_fill(c, p, united);
        rows_assign(p, all, n);
    }
    free(all);
    free(united);
    return good ? 0 : HP_ENOMEM;
}

int section_plan_make(const struct section_config *c, struct section_plan *out, struct err *e)
{
    *out = (struct section_plan){0};
    int rc = graph_section_make(c->graph, c->first_layer, c->end_layer, c->sizes, &out->section, e);
    for (int i = 0; i < out->section.n_ops && rc == 0; i++)
        rc = backend_require(c->device->backend, out->section.ops[i], e);
    if (rc == 0 && weights_list(c, out) < 0)
        rc = err_set(e, HP_ENOMEM, "no memory for the list of weights");
    if (rc < 0)
        section_plan_free(out);
    return rc;
}

static uint64_t buffers_bytes(const struct backend *b, const struct graph_section *s)
{
    uint64_t bytes = 0;
    for (int i = 0; i < s->n_buffers; i++)
        bytes += backend_memory_bytes(b, s->buffer_bytes[i]);
    return bytes;
}

/* What operators keep on the device beside their weights. */
static uint64_t ops_bytes(const struct backend *b, const struct graph_section *s)
{
    uint64_t bytes = 0;
    for (int i = 0; b->op_bytes && i < s->n_ops; i++)
        bytes += b->op_bytes(s->ops[i]);
    return bytes;
}

int section_footprint(const struct section_config *c, struct section_need *out, struct err *e)
{
    struct section_plan plan;
    int rc = section_plan_make(c, &plan, e);
    if (rc < 0)
        return rc;
    *out = (struct section_need){
        .weight_bytes = plan.weight_bytes,
        .activation_bytes = buffers_bytes(c->device->backend, &plan.section) +
                            ops_bytes(c->device->backend, &plan.section) + plan.scratch_bytes,
        .row_step = plan.row_step};
    section_plan_free(&plan);
    return 0;
}

int section_layers_check(const struct graph *g, int first, int end, struct err *e)
{
    if (first < 0 || end > g->n_layers || first >= end)
        return err_set(e, HP_EINVAL, "layers %d to %d are no part of a model with layers 0 to %d",
                       first, end - 1, g->n_layers - 1);
    return 0;
}

int section_memory_check(const struct section_config *c, const struct section_need *need,
                         uint64_t beside_bytes, struct err *e)
{
    uint64_t left = c->device->backend->memory_free(c->device), total;
    if (left != UINT64_MAX)
        left = left > beside_bytes ? left - beside_bytes : 0;
    if (__builtin_add_overflow(need->weight_bytes + need->activation_bytes, need->state_bytes,
                               &total))
        total = UINT64_MAX;
    if (total <= left)
        return 0;
    err_set(e, HP_ENOMEM,
            "layers %d to %d need %llu bytes (weights %llu, KV cache %llu, activations %llu) and "
            "%llu are free: %llu bytes are missing",
            c->first_layer, c->end_layer - 1, (unsigned long long)total,
            (unsigned long long)need->weight_bytes, (unsigned long long)need->state_bytes,
            (unsigned long long)need->activation_bytes, (unsigned long long)left,
            (unsigned long long)(total - left));
    return err_hint(
        e, "spread the model over more agents, shorten the context, or raise the memory limit");
}

void section_plan_free(struct section_plan *p)
{
    graph_section_free(&p->section);
    free(p->weights);
    free(p->weight_of);
    *p = (struct section_plan){0};
}
