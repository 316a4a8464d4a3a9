#include "planners/pipeline/evaluate.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "planners/pipeline/flow.h"

static bool same_wire(const struct cluster_wire *a, const struct cluster_wire *b)
{
    return a->bandwidth_bytes_per_s == b->bandwidth_bytes_per_s && a->latency_s == b->latency_s;
}

/* Whether exchanging two devices in any plan changes nothing. */
static bool are_twins(const struct pipeline_cost *c, int a, int b)
{
    const struct cost_device *x = &c->devices[a], *y = &c->devices[b];
    int n = c->n_devices;
    if (x->kind != y->kind || x->memory_bytes != y->memory_bytes || x->idle_w != y->idle_w ||
        x->busy_w != y->busy_w)
        return false;
    for (int d = 0; d < n; d++)
        if (d != a && d != b &&
            (!same_wire(&c->hops[a * n + d], &c->hops[b * n + d]) ||
             !same_wire(&c->hops[d * n + a], &c->hops[d * n + b])))
            return false;
    return same_wire(&c->hops[a * n + b], &c->hops[b * n + a]);
}

static void find_twins(struct exact *x)
{
    for (int d = 0; d < x->c->n_devices; d++) {
        x->must[d] = x->options->order_fixed || (x->options->must_use && x->options->must_use[d]);
        x->twin_of[d] = d;
        for (int k = 0; k < d && x->twin_of[d] == d; k++)
            if (x->twin_of[k] == k && are_twins(x->c, k, d) && x->must[k] == x->must[d])
                x->twin_of[d] = k;
        for (int l = 0; l <= x->c->n_layers; l++)
            x->furthest[d * (x->c->n_layers + 1) + l] = cost_furthest_fit(x->c, d, l);
    }
}

/* ---- setting up ---- */

static int pieces_init(struct exact *x, struct err *e)
{
    struct pipeline_cost *c = x->c;
    struct pieces *p = &x->pieces;
    size_t cells = ((size_t)c->n_layers + 1) * (size_t)c->n_units;
    int rc = 0;
    p->sum = arena_alloc(c->arena, (size_t)c->profile->n_kinds, sizeof *p->sum);
    p->tokens = arena_alloc(c->arena, (size_t)c->n_units, sizeof *p->tokens);
    p->rest = arena_alloc(c->arena, (size_t)c->n_layers + 1, sizeof *p->rest);
    p->total = arena_alloc(c->arena, (size_t)c->profile->n_kinds * ((size_t)c->n_layers + 1),
                           sizeof *p->total);
    if (!p->sum || !p->tokens || !p->rest || !p->total)
        return err_set(e, HP_ENOMEM, "out of memory while planning a pipeline");
    for (int d = 0; d < c->n_devices; d++) {
        double **sum = &p->sum[c->devices[d].kind];
        if ((rc = cost_kind_prepare(c, c->devices[d].kind, e)) < 0)
            return rc;
        if (!*sum && !(*sum = arena_alloc(c->arena, cells, sizeof **sum)))
            return err_set(e, HP_ENOMEM, "out of memory while planning a pipeline");
    }
    return 0;
}

/* Seconds of the decode steps of one request, for layers before l, by kind: only throughput asks.
 */
static int decode_init(struct exact *x, struct err *e)
{
    const struct pipeline_cost *c = x->c;
    size_t row = (size_t)c->n_layers + 1;
    if (x->options->objective != PIPELINE_THROUGHPUT || c->decode_tokens <= 0)
        return 0;
    x->decode_sum = arena_alloc(c->arena, (size_t)c->profile->n_kinds * row, sizeof *x->decode_sum);
    if (!x->decode_sum)
        return err_set(e, HP_ENOMEM, "out of memory while planning a pipeline");
    for (int d = 0; d < c->n_devices; d++) {
        double *sum = x->decode_sum + (size_t)c->devices[d].kind * row;
        for (int l = 0; l < c->n_layers; l++)
            sum[l + 1] =
                sum[l] + c->decode_tokens * cost_decode_seconds(c, c->devices[d].kind, l, l + 1);
    }
    return 0;
}

/* What decoding adds to stage j's time for a request, and to its outgoing hop's. */
static void decode_seconds(const struct exact *x, const struct trial *t, int j, double *compute,
                           double *wire)
{
    const struct pipeline_cost *c = x->c;
    int device = t->device[j], first = trial_first(t, j), end = t->end[j];
    const double *sum = x->decode_sum + (size_t)c->devices[device].kind * ((size_t)c->n_layers + 1);
    *compute = sum[end] - sum[first];
    *wire = end < c->n_layers ? c->decode_tokens *
                                    cost_wire_seconds(c, device, t->device[j + 1], end, 1, c->batch)
                              : 0;
}

int exact_init(struct exact *x, struct pipeline_cost *c, const struct exact_options *options,
               struct err *e)
{
    size_t n = (size_t)c->n_devices;
    *x = (struct exact){.c = c, .options = options, .random = options->seed ^ 0x68706970656c696eu};
    x->twin_of = arena_alloc(c->arena, n, sizeof *x->twin_of);
    x->must = arena_alloc(c->arena, n, sizeof *x->must);
    x->furthest = arena_alloc(c->arena, n * ((size_t)c->n_layers + 1), sizeof *x->furthest);
    x->flow = arena_alloc(c->arena, 9 * n * ((size_t)c->n_units + 1), sizeof *x->flow);
    x->bytes = arena_alloc(c->arena, (size_t)c->n_layers, sizeof *x->bytes);
    x->arrivals = arena_alloc(c->arena, (n + 1) * (size_t)c->n_units, sizeof *x->arrivals);
    x->computes = arena_alloc(c->arena, (size_t)c->n_units, sizeof *x->computes);
    x->wires = arena_alloc(c->arena, (size_t)c->n_units, sizeof *x->wires);
    x->stage_compute_s = arena_alloc(c->arena, n, sizeof *x->stage_compute_s);
    x->stage_wire_s = arena_alloc(c->arena, n, sizeof *x->stage_wire_s);
    if (!x->twin_of || !x->must || !x->furthest || !x->flow || !x->bytes || !x->arrivals ||
        !x->computes || !x->wires || !x->stage_compute_s || !x->stage_wire_s)
        return err_set(e, HP_ENOMEM, "out of memory while planning a pipeline");
    for (int l = 0; l < c->n_layers; l++)
        x->bytes[l] = c->profile->layers[l].output_bytes_per_token;
    find_twins(x);
    return decode_init(x, e) < 0 ? HP_ENOMEM : pieces_init(x, e);
}

/* ---- evaluating ---- */

static void set_rest(struct exact *x)
{
    const struct pipeline_cost *c = x->c;
    struct pieces *p = &x->pieces;
    size_t m = (size_t)p->m;
    p->rest[c->n_layers] = 0;
    for (int l = c->n_layers - 1; l >= 0; l--) {
        double least = INFINITY;
        for (int q = 0; q < c->profile->n_kinds; q++) {
            const double *last = p->sum[q] ? p->sum[q] + (size_t)l * m + m - 1 : NULL;
            least = last && last[m] - last[0] < least ? last[m] - last[0] : least;
        }
        p->rest[l] = p->rest[l + 1] + least;
    }
}

void pieces_set(struct exact *x, const int *cut, int n_slices)
{
    const struct pipeline_cost *c = x->c;
    struct pieces *p = &x->pieces;
    size_t m = (size_t)n_slices;
    p->m = n_slices;
    x->valid = 0;
    memset(x->arrivals, 0, m * sizeof *x->arrivals);
    for (int k = 0; k < n_slices; k++)
        p->tokens[k] = (c->starts[cut[k + 1]] - c->starts[cut[k]]) * c->batch;
    for (int q = 0; q < c->profile->n_kinds; q++) {
        double *sum = p->sum[q];
        if (!sum)
            continue;
        memset(sum, 0, m * sizeof *sum);
        p->total[(size_t)q * ((size_t)c->n_layers + 1)] = 0;
        for (int l = 0; l < c->n_layers; l++) {
            const double *table = c->tables[q * c->n_classes + c->profile->layers[l].class_index];
            double *row = sum + (size_t)l * m, all = 0;
            for (int k = 0; k < n_slices; k++) {
                double t = table[c->row[cut[k]] + cut[k + 1]];
                row[m + (size_t)k] = row[k] + t;
                all += t;
            }
            double *total = p->total + (size_t)q * ((size_t)c->n_layers + 1) + l;
            total[1] = total[0] + all;
        }
    }
    set_rest(x);
}

bool exact_stage(struct exact *x, const struct trial *t, int j, double *end_s)
{
    const struct pipeline_cost *c = x->c;
    int m = x->pieces.m, device = t->device[j], first = trial_first(t, j), end = t->end[j];
    bool last = end == c->n_layers;
    assert(end > first && (last || j + 1 < c->n_devices));
    double *in = x->arrivals + (size_t)j * (size_t)c->n_units, *out = in + c->n_units;
    const double *a = x->pieces.sum[c->devices[device].kind] + (size_t)first * (size_t)m,
                 *b = a + (size_t)(end - first) * (size_t)m;
    double compute = 0, wire = 0, latency = 0, per_token = 0;
    if (!cost_fits(c, device, first, end))
        return false;
    if (!last) {
        const struct cluster_wire *w = &c->hops[device * c->n_devices + t->device[j + 1]];
        if (w->bandwidth_bytes_per_s <= 0)
            return false;
        latency = w->latency_s;
        per_token = x->bytes[end - 1] / w->bandwidth_bytes_per_s;
    }
    for (int k = 0; k < m; k++) {
        x->computes[k] = b[k] - a[k];
        x->wires[k] = per_token * x->pieces.tokens[k];
        compute += x->computes[k];
        wire += x->wires[k];
    }
    memcpy(out, in, (size_t)m * sizeof *out);
    *end_s = flow_stage(m, x->computes, last ? NULL : x->wires, latency, out);
    x->stage_compute_s[j] = compute;
    x->stage_wire_s[j] = wire;
    return true;
}

double exact_value(const struct exact *x, const struct trial *t, int n_stages, double makespan_s)
{
    double period = 0, energy = 0;
    if (x->options->objective == PIPELINE_LATENCY)
        return makespan_s;
    for (int j = 0; j < n_stages; j++) {
        const struct cost_device *d = &x->c->devices[t->device[j]];
        double idle = makespan_s - x->stage_compute_s[j];
        energy += d->busy_w * x->stage_compute_s[j] + (idle > 0 ? d->idle_w * idle : 0);
        double compute = 0, wire = 0;
        if (x->decode_sum)
            decode_seconds(x, t, j, &compute, &wire);
        period = fmax(period, fmax(x->stage_compute_s[j] + compute, x->stage_wire_s[j] + wire));
    }
    /* Among equals the shorter plan wins. */
    return (x->options->objective == PIPELINE_ENERGY ? energy : period) + 1e-9 * makespan_s;
}

/* Layers beyond `end` at the best kind for each: no way to go on is faster for the last slice. */
static double least_rest(const struct exact *x, int end)
{
    return x->pieces.rest[end];
}

double exact_evaluate(struct exact *x, const struct trial *t, int changed, double give_up)
{
    double end_s = 0;
    int m = x->pieces.m, from = changed < x->valid ? changed : x->valid;
    bool latency = x->options->objective == PIPELINE_LATENCY;
    x->valid = changed;
    for (int j = from; j < t->n_stages; j++) {
        x->work += m;
        if (!exact_stage(x, t, j, &end_s))
            return INFINITY;
        if (latency && x->arrivals[(size_t)(j + 1) * (size_t)x->c->n_units + (size_t)m - 1] +
                               least_rest(x, t->end[j]) >=
                           give_up)
            return INFINITY;
    }
    return exact_value(x, t, t->n_stages, end_s);
}
