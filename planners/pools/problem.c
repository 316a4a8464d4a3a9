#include "planners/pools/problem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The slowest first NIC among the nodes that have devices of this kind, and the most devices of it
 * on one node. */
static void kind_nic(const struct cluster *c, struct pools_kind *k)
{
    if (c->hypothetical) {
        k->bytes_per_s = c->pool_nic.bandwidth_bytes_per_s;
        k->latency_s = c->pool_nic.latency_s;
        return;
    }
    k->bytes_per_s = INFINITY;
    for (int i = 0; i < c->n_devices; i++) {
        const struct cluster_node *node = &c->nodes[c->devices[i].node];
        if (strcmp(c->devices[i].kind, k->name) != 0)
            continue;
        struct cluster_wire wire = node->n_nics ? node->nics[0].wire : node->device_link;
        if (wire.bandwidth_bytes_per_s < k->bytes_per_s)
            k->bytes_per_s = wire.bandwidth_bytes_per_s;
        if (wire.latency_s > k->latency_s)
            k->latency_s = wire.latency_s;
    }
}

static double kind_memory(const struct cluster *c, const struct pools_kind *k)
{
    double most = c->hypothetical ? INFINITY : 0;
    for (int i = 0; i < c->n_devices; i++)
        if (strcmp(c->devices[i].kind, k->name) == 0)
            most = fmax(most, c->devices[i].memory_bytes);
    return most;
}

double pools_resident_bytes(const struct profile *f, int first, int end, int batch)
{
    double weights = 0, within = 0, most = first > 0 ? f->layers[first - 1].output_bytes : 0;
    for (int l = first; l < end; l++) {
        weights += f->layers[l].param_bytes;
        most = fmax(most, f->layers[l].output_bytes);
        within = fmax(within, f->layers[l].activation_bytes);
    }
    return weights + batch * (2 * most + within);
}

static int make_kinds(const struct cluster *c, const struct workload *w, struct pools_problem *p,
                      struct err *e)
{
    for (int i = 0; i < c->n_pools; i++) {
        if (c->pools[i].count == 0)
            continue;
        if (p->n_kinds == POOLS_MAX_KINDS)
            return err_set(e, HP_ELIMIT,
                           "the cluster has more than %d kinds of devices; pools are planned for "
                           "up to that many",
                           POOLS_MAX_KINDS);
        struct pools_kind *k = &p->kinds[p->n_kinds++];
        k->name = c->pools[i].kind;
        k->count = c->pools[i].count;
        k->per_node = c->pools[i].devices_per_node > 0 ? c->pools[i].devices_per_node : 1;
        kind_nic(c, k);
        k->memory_bytes = w->memory_counts ? kind_memory(c, k) : INFINITY;
        struct workload_shares s = workload_shares_of(w, k->name);
        memcpy(k->shares, s.shares, sizeof k->shares);
        k->n_shares = s.n_shares;
    }
    if (p->n_kinds == 0)
        return err_set(e, HP_EINFEASIBLE, "the cluster has no devices");
    for (int i = 0; i < w->n_shares; i++) {
        bool known = false;
        for (int k = 0; k < w->n_models && !known; k++)
            known = profile_find_kind(&w->models[k].profile, w->shares[i].kind) >= 0;
        if (!known)
            return err_set(e, HP_EINVAL,
                           "the workload gives shares of \"%s\", a kind that no profile knows",
                           w->shares[i].kind);
    }
    return 0;
}

/* The union of the batch axes of the model's tables, whole numbers only. */
static void find_batches(const struct profile *f, struct pools_model *m)
{
    for (int t = 0; t < f->n_kinds * f->n_classes; t++)
        for (int j = 0; j < f->tables[t].n_y; j++) {
            double b = f->tables[t].y[j];
            if (b < 1 || b > 65536 || b != floor(b))
                continue;
            int at = 0;
            while (at < m->n_batches && m->batches[at] < (int)b)
                at++;
            if ((at < m->n_batches && m->batches[at] == (int)b) ||
                m->n_batches == POOLS_MAX_BATCHES)
                continue;
            memmove(&m->batches[at + 1], &m->batches[at],
                    (size_t)(m->n_batches - at) * sizeof *m->batches);
            m->batches[at] = (int)b;
            m->n_batches++;
        }
}

/* Times that no device has would overflow what is made from them. */
static int check_times(const struct workload_model *w, struct err *e)
{
    for (int t = 0; t < w->profile.n_kinds * w->profile.n_classes; t++) {
        const struct profile_table *table = &w->profile.tables[t];
        for (int i = 0; i < table->n_x * table->n_y; i++)
            if (table->seconds[i] < 1e-9 || table->seconds[i] > 1e6)
                return err_set(e, HP_EINVAL, "%s: a layer takes %g s; expected 1e-9 to 1e6",
                               w->profile_file, table->seconds[i]);
    }
    for (int l = 0; l < w->profile.n_layers; l++)
        if (w->profile.layers[l].output_bytes > 1e15)
            return err_set(e, HP_EINVAL,
                           "%s: layer %d has an output of %g bytes; expected at most 1e15",
                           w->profile_file, l, w->profile.layers[l].output_bytes);
    return 0;
}

static void fill_ranges(const struct profile *f, int kind_in_profile, int share, int batch, int n,
                        double room_bytes, double *to)
{
    double layer[POOLS_MAX_LAYERS];
    for (int l = 0; l < n; l++)
        layer[l] = profile_table_exact(
            profile_table_of(f, kind_in_profile, f->layers[l].class_index), share, batch);
    for (int i = 0; i < n; i++) {
        double sum = 0;
        for (int j = i; j < n; j++) {
            sum += layer[j];
            if (room_bytes < INFINITY && pools_resident_bytes(f, i, j + 1, batch) > room_bytes)
                break; /* nor with more layers */
            to[i * (n + 1) + j + 1] = sum;
        }
    }
}

enum { KINDS_TEXT = 200 };

/* ", a kind" behind those before it, as far as there is room. */
static void kind_append(char text[KINDS_TEXT], const char *kind)
{
    size_t n = strlen(text);
    snprintf(text + n, KINDS_TEXT - n, "%s%.60s", n ? ", " : "", kind);
}

static int kinds_differ(const struct pools_problem *p, const struct workload_model *w,
                        struct err *e)
{
    char profiled[KINDS_TEXT] = "", there[KINDS_TEXT] = "";
    for (int k = 0; k < w->profile.n_kinds; k++)
        kind_append(profiled, w->profile.kinds[k]);
    for (int k = 0; k < p->n_kinds; k++)
        kind_append(there, p->kinds[k].name);
    err_set(e, HP_EINFEASIBLE, "%s: its profile is of %s, and the devices that are there are %s",
            w->name, profiled[0] ? profiled : "no kind of device", there);
    return err_hint(e, "leave \"profile\" out and the agents measure it, or `hpctl profile model` "
                       "on this cluster makes one");
}

static int fill_compute(struct pools_problem *p, const struct workload_model *w,
                        struct pools_model *m, struct err *e)
{
    size_t ranges = (size_t)(m->n_layers + 1) * (size_t)(m->n_layers + 1);
    size_t total = (size_t)p->n_kinds * WORKLOAD_MAX_SHARES * (size_t)m->n_batches * ranges;
    m->compute_s = arena_alloc(&p->arena, total, sizeof *m->compute_s);
    if (!m->compute_s)
        return err_no_memory(e, "preparing the plan of pools");
    for (size_t i = 0; i < total; i++)
        m->compute_s[i] = NAN;
    bool any = p->n_kinds == 0;
    for (int k = 0; k < p->n_kinds; k++) {
        int in_profile = profile_find_kind(&w->profile, p->kinds[k].name);
        any = any || in_profile >= 0;
        if (in_profile < 0 && w->spares_kinds)
            continue;
        if (in_profile < 0) {
            err_set(e, HP_EINVAL,
                    "the cluster has %s, a kind that the profile of %s (%s) does not know",
                    p->kinds[k].name, w->name, w->profile_file);
            return err_hint(e, "profile the model on %s, or leave %s out of the cluster file",
                            p->kinds[k].name, p->kinds[k].name);
        }
        for (int s = 0; s < p->kinds[k].n_shares; s++)
            for (int b = 0; b < m->n_batches; b++)
                fill_ranges(&w->profile, in_profile, p->kinds[k].shares[s], m->batches[b],
                            m->n_layers, p->kinds[k].memory_bytes / p->kinds[k].shares[s],
                            m->compute_s + (((size_t)k * WORKLOAD_MAX_SHARES + (size_t)s) *
                                                (size_t)m->n_batches +
                                            (size_t)b) *
                                               ranges);
    }
    return any ? 0 : kinds_differ(p, w, e);
}

static int make_model(struct pools_problem *p, const struct workload_model *w,
                      struct pools_model *m, struct err *e)
{
    m->name = w->name;
    m->weight = w->weight;
    m->slo_s = w->slo_s;
    m->batching_s = w->has_batching ? w->batching_factor / w->batching_throughput_per_s : 0;
    m->n_layers = w->profile.n_layers;
    if (m->n_layers > POOLS_MAX_LAYERS) {
        err_set(e, HP_ELIMIT, "%s: %d layers; pools are planned over at most %d", w->profile_file,
                m->n_layers, POOLS_MAX_LAYERS);
        return err_hint(e, "group them first: hpctl profile split %s --blocks 10", w->profile_file);
    }
    int rc = check_times(w, e);
    if (rc < 0)
        return rc;
    find_batches(&w->profile, m);
    if (m->n_batches == 0)
        return err_set(e, HP_EINVAL, "%s: has no time for any whole batch size", w->profile_file);
    m->output_bytes = arena_alloc(&p->arena, (size_t)m->n_layers, sizeof *m->output_bytes);
    if (!m->output_bytes)
        return err_no_memory(e, "preparing the plan of pools");
    for (int l = 0; l < m->n_layers; l++)
        m->output_bytes[l] = w->profile.layers[l].output_bytes;
    return fill_compute(p, w, m, e);
}

int pools_problem_make(const struct cluster *c, const struct workload *w, struct pools_problem *out,
                       struct err *e)
{
    struct pools_problem p = {0};
    int rc = make_kinds(c, w, &p, e);
    p.max_stages = w->max_stages;
    p.pipelines_per_assignment = w->pipelines_per_assignment;
    p.share_devices = w->share_devices_across_pipelines;
    p.models = arena_alloc(&p.arena, (size_t)w->n_models, sizeof *p.models);
    if (rc == 0 && !p.models)
        rc = err_no_memory(e, "preparing the plan of pools");
    for (int i = 0; rc == 0 && i < w->n_models; i++) {
        rc = make_model(&p, &w->models[i], &p.models[i], e);
        p.n_models++;
        pools_problem_set_margin(&p, i, w->models[i].slo_margin);
        p.models[i].workload_margin = w->models[i].slo_margin;
    }
    if (rc < 0)
        arena_free(&p.arena);
    else
        *out = p;
    return rc;
}

void pools_problem_free(struct pools_problem *p)
{
    arena_free(&p->arena);
    *p = (struct pools_problem){0};
}

void pools_problem_set_margin(struct pools_problem *p, int model, double margin)
{
    p->models[model].margin = margin;
    p->models[model].budget_s = p->models[model].slo_s * (1 - margin);
}

double pools_transfer_s(const struct pools_problem *p, const struct pools_model *m, int end,
                        int from_kind, int to_kind)
{
    if (end >= m->n_layers)
        return 0;
    double slower = fmin(p->kinds[from_kind].bytes_per_s, p->kinds[to_kind].bytes_per_s);
    return m->output_bytes[end - 1] / slower;
}

double pools_share_rate(const struct pools_problem *p, const struct pools_model *m, int kind,
                        int share, int batch, int first, int end)
{
    const struct pools_kind *k = &p->kinds[kind];
    double compute_s = pools_compute_s(m, kind, share, batch, first, end);
    double in_s = first > 0 ? m->output_bytes[first - 1] / k->bytes_per_s : POOLS_END_S;
    double out_s = end < m->n_layers ? m->output_bytes[end - 1] / k->bytes_per_s : POOLS_END_S;
    double parts = (double)k->shares[share] * k->per_node;
    double nic =
        fmin(in_s > 0 ? 1 / (in_s * parts) : INFINITY, out_s > 0 ? 1 / (out_s * parts) : INFINITY);
    double rate = m->batches[batch] / compute_s;
    return isnan(rate) ? rate : fmin(rate, nic);
}

int pools_problem_find_kind(const struct pools_problem *p, const char *name)
{
    for (int k = 0; k < p->n_kinds; k++)
        if (strcmp(p->kinds[k].name, name) == 0)
            return k;
    return -1;
}
