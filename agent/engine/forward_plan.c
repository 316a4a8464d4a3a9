#include "agent/engine/forward_plan.h"

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
static void rows_assign(struct forward_plan *p, struct use *all, int n)
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

static void weights_fill(const struct forward_config *c, struct forward_plan *p, struct use *united)
{
    const struct backend *b = c->device->backend;
    for (int i = 0; i < p->n_weights; i++) {
        const struct use *u = &united[i];
        p->weights[i] = (struct forward_weight){
            u->source, u->use, b->weight_resident_bytes(c->device, u->source, u->use, c->f32)};
        p->weight_of[u->place] = i;
        p->weight_bytes += p->weights[i].resident_bytes;
        bool product = u->use == WEIGHT_MATMUL || u->use == WEIGHT_MATMUL_TURNED;
        uint64_t scratch =
            product ? b->matmul_scratch_bytes(c->device, u->source, u->use, c->f32, c->max_rows)
                    : 0;
        p->scratch_bytes = scratch > p->scratch_bytes ? scratch : p->scratch_bytes;
    }
}

static int weights_list(const struct forward_config *c, struct forward_plan *p)
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

int forward_plan_make(const struct forward_config *c, struct forward_plan *out, struct err *e)
{
    const uint64_t sizes[GRAPH_SEQUENCE_SYMBOLS] = {
        [GRAPH_TOKENS] = c->max_rows,
        [GRAPH_WANTED] = c->max_rows < FORWARD_LOGIT_ROWS ? c->max_rows : FORWARD_LOGIT_ROWS};
    *out = (struct forward_plan){0};
    int rc = graph_section_make(c->graph, c->first_layer, c->end_layer, sizes, &out->section, e);
    for (int i = 0; i < out->section.n_ops && rc == 0; i++)
        rc = backend_require(c->device->backend, out->section.ops[i], e);
    if (rc == 0 && weights_list(c, out) < 0)
        rc = err_set(e, HP_ENOMEM, "no memory for the list of weights");
    if (rc < 0)
        forward_plan_free(out);
    return rc;
}

void forward_plan_free(struct forward_plan *p)
{
    graph_section_free(&p->section);
    free(p->weights);
    free(p->weight_of);
    *p = (struct forward_plan){0};
}
