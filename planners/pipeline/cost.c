#include "planners/pipeline/cost.h"

#include <math.h>
#include <string.h>

static int check_request(const struct pipeline_request *rq, struct err *e)
{
    if (rq->cluster->hypothetical)
        return err_set(e, HP_EINVAL,
                       "a pipeline needs a cluster with nodes and links; this file describes pools "
                       "of devices only");
    if (rq->profile->shape != PROFILE_SEQUENCE)
        return err_set(e, HP_EINVAL,
                       "the profile is of a fixed-shape model (axes share and batch); a pipeline "
                       "over tokens needs slice and prefix");
    if (rq->tokens < 1)
        return err_set(e, HP_EINVAL, "%d is no number of tokens: a prompt has at least 1",
                       rq->tokens);
    if (rq->unit < 0 || rq->cached_tokens < 0 || rq->decode_tokens < 0)
        return err_set(e, HP_EINVAL,
                       "unit %d, cached tokens %d and decode tokens %d must not be negative",
                       rq->unit, rq->cached_tokens, rq->decode_tokens);
    if (rq->max_slice < 0)
        return err_set(e, HP_EINVAL,
                       "%d is no length of a slice: it has at least 1 token, or 0 for any",
                       rq->max_slice);
    if (rq->batch < 0 || rq->context_tokens < 0 || rq->sequences < 0 || rq->effort < 0)
        return err_set(e, HP_EINVAL, "batch, context, sequences and effort must not be negative");
    if (rq->cluster->n_devices == 0)
        return err_set(e, HP_EINFEASIBLE, "the cluster has no devices");
    return 0;
}

/* The longest step of any table; 1 where nobody knows of one. */
static int longest_step(const struct profile *p)
{
    int longest = 1;
    for (int i = 0; i < p->n_kinds * p->n_classes; i++)
        longest = p->tables[i].step > longest ? p->tables[i].step : longest;
    return longest;
}

int pipeline_unit(const struct pipeline_request *rq)
{
    double useful = rq->profile->useful_slice_tokens, most = rq->tokens / 8.0;
    useful = useful < most ? useful : most;
    int unit = useful > PIPELINE_DEFAULT_UNIT ? (int)useful : PIPELINE_DEFAULT_UNIT,
        step = longest_step(rq->profile);
    return rq->unit > 0 ? rq->unit : unit < step ? step : unit / step * step;
}

/* Cut positions: multiples of the unit, coarser (a multiple of it) where there would be more than
 * PIPELINE_MAX_UNITS. */
static int set_units(struct pipeline_cost *c, int unit, struct err *e)
{
    long units = ((long)c->tokens + unit - 1) / unit;
    long factor = (units + PIPELINE_MAX_UNITS - 1) / PIPELINE_MAX_UNITS;
    c->unit = (int)(unit * factor);
    c->n_units = (int)((c->tokens + (long)c->unit - 1) / c->unit);
    c->starts = arena_alloc(c->arena, (size_t)c->n_units + 1, sizeof *c->starts);
    c->row = arena_alloc(c->arena, (size_t)c->n_units, sizeof *c->row);
    if (!c->starts || !c->row)
        return err_no_memory(e, "planning a pipeline");
    ptrdiff_t offset = 0;
    for (int i = 0; i < c->n_units; i++) {
        c->starts[i] = i * c->unit;
        c->row[i] = offset - i - 1;
        offset += c->n_units - i;
    }
    c->starts[c->n_units] = c->tokens;
    c->table_size = (size_t)offset;
    return 0;
}

static int set_layers(struct pipeline_cost *c, struct err *e)
{
    const struct profile *p = c->profile;
    size_t n = (size_t)p->n_layers + 1, classes = (size_t)p->n_classes;
    c->n_layers = p->n_layers;
    c->n_classes = p->n_classes;
    c->class_count = arena_alloc(c->arena, n * classes, sizeof *c->class_count);
    c->param_sum = arena_alloc(c->arena, n, sizeof(double));
    c->state_sum = arena_alloc(c->arena, n, sizeof(double));
    c->activation_sum = arena_alloc(c->arena, n, sizeof(double));
    c->tables = arena_alloc(c->arena, (size_t)p->n_kinds * classes + 1, sizeof *c->tables);
    if (!c->class_count || !c->param_sum || !c->state_sum || !c->activation_sum || !c->tables)
        return err_no_memory(e, "planning a pipeline");
    for (int l = 0; l < p->n_layers; l++) {
        const struct profile_layer *layer = &p->layers[l];
        int *next = c->class_count + ((size_t)l + 1) * classes;
        memcpy(next, next - classes, classes * sizeof *next);
        next[layer->class_index]++;
        c->param_sum[l + 1] = c->param_sum[l] + layer->param_bytes;
        c->state_sum[l + 1] = c->state_sum[l] + layer->state_bytes_per_token;
        c->activation_sum[l + 1] = c->activation_sum[l] + layer->activation_bytes_per_token;
    }
    return 0;
}

/* `named`: the request names them; else those whose memory is below 0 are left out. */
static int set_devices(struct pipeline_cost *c, const int *order, int n, bool named, struct err *e)
{
    const struct cluster *cl = c->cluster;
    int left_out = 0;
    if (!order)
        n = cl->n_devices;
    if (n > PIPELINE_MAX_DEVICES) {
        err_set(e, HP_ELIMIT, "the cluster has %d devices; a pipeline is planned over at most %d",
                n, PIPELINE_MAX_DEVICES);
        return err_hint(e, "name the devices to use");
    }
    c->devices = arena_alloc(c->arena, (size_t)n, sizeof *c->devices);
    int *from_cluster = arena_alloc(c->arena, (size_t)n, sizeof *from_cluster);
    if (!c->devices || !from_cluster)
        return err_no_memory(e, "planning a pipeline");
    for (int i = 0; i < n; i++) {
        int index = order ? order[i] : i;
        const struct cluster_device *d = &cl->devices[index];
        int kind = profile_find_kind(c->profile, d->kind);
        bool out = !named && d->memory_bytes < 0;
        left_out += out;
        if (kind < 0 || out)
            continue;
        from_cluster[c->n_devices] = index;
        c->devices[c->n_devices++] =
            (struct cost_device){index, kind, d->memory_bytes, d->idle_w, d->busy_w};
    }
    if (c->n_devices == 0 && left_out)
        return err_set(e, HP_EINFEASIBLE, "every device is left out");
    if (c->n_devices == 0)
        return err_set(
            e, HP_EINFEASIBLE,
            "the profile has times for none of the cluster's devices (the first is %s, of kind %s)",
            cl->devices[order ? order[0] : 0].id, cl->devices[order ? order[0] : 0].kind);
    c->hops = arena_alloc(c->arena, (size_t)c->n_devices * (size_t)c->n_devices, sizeof *c->hops);
    if (!c->hops)
        return err_no_memory(e, "planning a pipeline");
    cluster_hops(cl, from_cluster, c->n_devices, c->hops);
    return 0;
}

int cost_init(struct pipeline_cost *c, const struct pipeline_request *rq, const int *order, int n,
              struct arena *arena, struct err *e)
{
    int rc = check_request(rq, e);
    if (rc < 0)
        return rc;
    *c = (struct pipeline_cost){
        .cluster = rq->cluster, .profile = rq->profile, .arena = arena, .tokens = rq->tokens};
    c->cached_tokens = rq->cached_tokens;
    c->max_slice = rq->max_slice;
    c->batch = rq->batch > 0 ? rq->batch : rq->profile->batch;
    c->decode_tokens = rq->decode_tokens;
    c->kv_tokens =
        (rq->context_tokens > 0 ? rq->context_tokens
                                : (double)rq->tokens + rq->cached_tokens + rq->decode_tokens) *
        (rq->sequences > 0 ? rq->sequences : c->batch);
    c->hands_on_bytes = rq->hands_on_bytes;
    c->last_bytes = rq->last_bytes;
    if ((rc = set_units(c, pipeline_unit(rq), e)) < 0 || (rc = set_layers(c, e)) < 0 ||
        (rc = set_devices(c, order, n, rq->devices != NULL, e)) < 0)
        return rc;
    return 0;
}

static double piece_seconds(const struct pipeline_cost *c, int kind, int class_index, double slice,
                            double prefix, double batch)
{
    double scaled = slice * batch / c->profile->batch;
    return profile_table_at(profile_table_of(c->profile, kind, class_index), scaled,
                            prefix + (slice - scaled) / 2);
}

double cost_class_seconds(const struct pipeline_cost *c, int kind, int class_index, double slice,
                          double prefix, double batch)
{
    double sum = 0;
    for (; c->max_slice > 0 && slice > c->max_slice; slice -= c->max_slice, prefix += c->max_slice)
        sum += piece_seconds(c, kind, class_index, c->max_slice, prefix, batch);
    return sum + piece_seconds(c, kind, class_index, slice, prefix, batch);
}

static inline int layers_of_class(const struct pipeline_cost *c, int first, int end,
                                  int class_index)
{
    return c->class_count[end * c->n_classes + class_index] -
           c->class_count[first * c->n_classes + class_index];
}

double cost_layers_seconds(const struct pipeline_cost *c, int kind, int first, int end,
                           double slice, double prefix, double batch)
{
    double sum = 0;
    for (int k = 0; k < c->n_classes; k++) {
        int count = layers_of_class(c, first, end, k);
        if (count > 0)
            sum += count * cost_class_seconds(c, kind, k, slice, prefix, batch);
    }
    return sum;
}

/* Half-way through the tokens that are made. */
static double decode_prefix(const struct pipeline_cost *c)
{
    return (double)c->cached_tokens + c->tokens + c->decode_tokens / 2;
}

double cost_decode_seconds(const struct pipeline_cost *c, int kind, int first, int end)
{
    return cost_layers_seconds(c, kind, first, end, 1, decode_prefix(c), c->batch);
}

double cost_decode_class_seconds(const struct pipeline_cost *c, int kind, int class_index)
{
    return cost_class_seconds(c, kind, class_index, 1, decode_prefix(c), c->batch);
}

int cost_kind_prepare(struct pipeline_cost *c, int kind, struct err *e)
{
    for (int k = 0; k < c->n_classes; k++) {
        double **table = &c->tables[kind * c->n_classes + k];
        if (*table)
            continue;
        double *t = arena_alloc(c->arena, c->table_size, sizeof *t);
        if (!t)
            return err_no_memory(e, "planning a pipeline");
        /* Backwards, so that what follows a slice's first piece is there already, where pieces end
         * on units. */
        int piece =
            c->max_slice > 0 && c->max_slice % c->unit == 0 ? c->max_slice / c->unit : c->n_units;
        for (int i = c->n_units - 1; i >= 0; i--)
            for (int j = i + 1; j <= c->n_units; j++)
                t[c->row[i] + j] =
                    j - i > piece ? t[c->row[i] + i + piece] + t[c->row[i + piece] + j]
                                  : cost_class_seconds(c, kind, k, c->starts[j] - c->starts[i],
                                                       c->cached_tokens + c->starts[i], c->batch);
        *table = t;
    }
    return 0;
}

double cost_units_seconds(const struct pipeline_cost *c, int kind, int first, int end, int i, int j)
{
    double sum = 0;
    for (int k = 0; k < c->n_classes; k++) {
        int count = layers_of_class(c, first, end, k);
        if (count > 0)
            sum += count * c->tables[kind * c->n_classes + k][c->row[i] + j];
    }
    return sum;
}

double cost_wire_seconds(const struct pipeline_cost *c, int from, int to, int end, double tokens,
                         double batch)
{
    double speed = c->hops[from * c->n_devices + to].bandwidth_bytes_per_s;
    double bytes = c->profile->layers[end - 1].output_bytes_per_token * tokens * batch;
    return speed > 0 ? bytes / speed : INFINITY;
}

double cost_layers_bytes(const struct pipeline_cost *c, int first, int end)
{
    return c->param_sum[end] - c->param_sum[first] +
           (c->state_sum[end] - c->state_sum[first]) * c->kv_tokens +
           (c->activation_sum[end] - c->activation_sum[first]) * (double)c->tokens * c->batch;
}

double cost_memory_bytes(const struct pipeline_cost *c, int first, int end)
{
    return cost_layers_bytes(c, first, end) +
           (end < c->n_layers ? c->hands_on_bytes : c->last_bytes);
}

int cost_furthest_fit(const struct pipeline_cost *c, int device, int first)
{
    int lo = first, hi = c->n_layers - 1;
    if (cost_fits(c, device, first, c->n_layers))
        return c->n_layers;
    while (lo < hi) {
        int mid = (lo + hi + 1) / 2;
        if (cost_fits(c, device, first, mid))
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}
