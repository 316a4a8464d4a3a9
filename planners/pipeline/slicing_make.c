/* Prepares a slicing: rules for every prefix and length, and lists for prompts without a prefix. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/vector.h"
#include "planners/pipeline/cost.h"
#include "planners/pipeline/slices.h"
#include "planners/pipeline/slicing_int.h"

static void *slicing_keep(struct slicing *s, size_t count, size_t size)
{
    s->memory_bytes += count * size;
    return arena_alloc(&s->arena, count, size);
}

static int set_stages(struct slicing *s, const struct pipeline_request *rq,
                      const struct plan_pipeline *plan, struct err *e)
{
    struct pipeline_request own = *rq;
    int *order = arena_alloc(&s->arena, (size_t)plan->n_stages, sizeof *order), rc;
    s->n_stages = plan->n_stages;
    s->ends = slicing_keep(s, (size_t)plan->n_stages, sizeof *s->ends);
    s->wire_per_token = slicing_keep(s, (size_t)plan->n_stages, sizeof(double));
    s->latency_s = slicing_keep(s, (size_t)plan->n_stages, sizeof(double));
    if (!order || !s->ends || !s->wire_per_token || !s->latency_s)
        return err_no_memory(e, "preparing slices");
    for (int j = 0; j < plan->n_stages; j++) {
        order[j] = cluster_find_device(rq->cluster, plan->stages[j].device);
        s->ends[j] = plan->stages[j].end_layer;
        if (order[j] < 0)
            return err_set(e, HP_ENOENT, "the cluster has no device %s, which the plan uses",
                           plan->stages[j].device);
        if (profile_find_kind(rq->profile, rq->cluster->devices[order[j]].kind) < 0)
            return err_set(e, HP_EINFEASIBLE, "the profile has no times for %s",
                           plan->stages[j].device);
    }
    if (plan->n_stages == 0 || s->ends[plan->n_stages - 1] != rq->profile->n_layers)
        return err_set(e, HP_EINVAL, "the plan's stages do not cover the profile's %d layers",
                       rq->profile->n_layers);
    own.tokens = s->context;
    own.cached_tokens = 0;
    if ((rc = cost_init(&s->cost, &own, order, plan->n_stages, &s->arena, e)) < 0)
        return rc;
    for (int j = 0; j + 1 < s->n_stages; j++) {
        s->wire_per_token[j] = cost_wire_seconds(&s->cost, j, j + 1, s->ends[j], 1, s->cost.batch);
        s->latency_s[j] = s->cost.hops[j * s->n_stages + j + 1].latency_s;
        if (!isfinite(s->wire_per_token[j]))
            return err_set(e, HP_EINFEASIBLE, "%s and %s are not connected", plan->stages[j].device,
                           plan->stages[j + 1].device);
    }
    return 0;
}

/* Times of all slices on all stages. They live in an arena of their own, and go when the tables are
 * made. */
static int set_times(struct slicing *s, struct arena *scratch, struct err *e)
{
    struct pipeline_cost *c = &s->cost;
    c->arena = scratch;
    s->stage_seconds = arena_alloc(scratch, (size_t)s->n_stages * c->table_size, sizeof(double));
    s->slowest = arena_alloc(scratch, c->table_size, sizeof(double));
    if (!s->stage_seconds || !s->slowest)
        return err_no_memory(e, "preparing slices");
    for (int k = 0; k < s->n_stages; k++) {
        int kind = c->devices[k].kind, rc = cost_kind_prepare(c, kind, e);
        if (rc < 0)
            return rc;
        for (int i = 0; i < c->n_units; i++)
            for (int j = i + 1; j <= c->n_units; j++) {
                double t = cost_units_seconds(c, kind, k ? s->ends[k - 1] : 0, s->ends[k], i, j);
                double wire = s->wire_per_token[k] * (c->starts[j] - c->starts[i]),
                       *slowest = &s->slowest[c->row[i] + j];
                s->stage_seconds[(size_t)k * c->table_size + (size_t)(c->row[i] + j)] = t;
                t = t > wire ? t : wire;
                *slowest = t > *slowest ? t : *slowest;
            }
    }
    return 0;
}

/* Levels in equal ratios from the shortest slice to the whole context. */
static int set_levels(struct slicing *s, struct err *e)
{
    const struct pipeline_cost *c = &s->cost;
    size_t n = (size_t)c->n_units;
    s->longest = slicing_keep(s, SLICING_LEVELS * n, sizeof *s->longest);
    if (!s->longest)
        return err_no_memory(e, "preparing slices");
    double low = s->slowest[c->row[0] + 1], high = s->slowest[c->row[0] + c->n_units];
    low = low > 0 ? low : high * 1e-3;
    for (int level = 0; level < SLICING_LEVELS; level++) {
        double limit = low * pow(high / low, (double)level / (SLICING_LEVELS - 1)) * (1 + 1e-12);
        for (int at = 0; at < c->n_units; at++) {
            int end = at + 1;
            while (end < c->n_units && s->slowest[c->row[at] + end + 1] <= limit)
                end++;
            s->longest[(size_t)level * n + (size_t)at] = (uint16_t)end;
        }
    }
    return 0;
}

static void add_rule(struct slicing *s, int start, int top, int step)
{
    if (start >= 0 && start < SLICING_LEVELS && s->n_rules < SLICING_MAX_RULES)
        s->rules[s->n_rules++] = (struct slicing_rule){(uint8_t)start, (uint8_t)top, (int8_t)step};
}

static void set_rules(struct slicing *s)
{
    for (int top = 0; top < SLICING_LEVELS; top++) {
        add_rule(s, top, top, 0);
        add_rule(s, top - 9, top, 1);
        add_rule(s, top - 16, top, 2);
        add_rule(s, top + 12, top, -1);
    }
}

/* ---- rules for every prefix and length ---- */

struct race {
    struct slicing *s;
    double *state, *last; /* [2 * n_stages] when stages and hops are free: after the whole slices,
                             and with the last one */
    double *best;         /* [n_units] by length - 1, of the current prefix */
};

/* Units [i, j) flow through all stages; gives the end. */
static double flow_slice(const struct slicing *s, int i, int j, const double *in, double *out)
{
    const struct pipeline_cost *c = &s->cost;
    const double *seconds = s->stage_seconds + c->row[i] + j;
    double arrival = 0, tokens = c->starts[j] - c->starts[i];
    for (int k = 0; k < s->n_stages; k++, seconds += c->table_size) {
        double free_s = (in[2 * k] > arrival ? in[2 * k] : arrival) + *seconds;
        double wire_s =
            (in[2 * k + 1] > free_s ? in[2 * k + 1] : free_s) + s->wire_per_token[k] * tokens;
        arrival = wire_s + s->latency_s[k];
        out[2 * k] = free_s;
        out[2 * k + 1] = wire_s;
    }
    return out[2 * (s->n_stages - 1)];
}

/* Walks a rule from a prefix to the end of the context; every length on the way ends with one slice
 * that takes the rest. */
static void race_rule(struct race *r, int rule, int prefix)
{
    struct slicing *s = r->s;
    int n_units = s->cost.n_units, at = prefix, level = s->rules[rule].start;
    uint8_t *winner = s->best_rule + (size_t)(prefix / s->prefix_step) * (size_t)n_units;
    memset(r->state, 0, 2 * (size_t)s->n_stages * sizeof(double));
    while (at < n_units) {
        int whole = s->longest[(size_t)level * (size_t)n_units + (size_t)at];
        for (int end = at + 1; end <= whole; end++) {
            double t = flow_slice(s, at, end, r->state, r->last);
            int length = end - prefix - 1;
            if (t < r->best[length]) {
                r->best[length] = t;
                winner[length] = (uint8_t)rule;
            }
        }
        double *swap = r->state; /* the last one tried was the whole slice */
        r->state = r->last;
        r->last = swap;
        at = whole;
        level = slicing_next_level(&s->rules[rule], level);
    }
}

static int set_best_rules(struct slicing *s, struct arena *scratch, struct err *e)
{
    size_t n = (size_t)s->cost.n_units;
    struct race r = {.s = s};
    s->prefix_step = (s->cost.n_units + SLICING_PREFIXES - 1) / SLICING_PREFIXES;
    s->best_rule = slicing_keep(s, ((n - 1) / (size_t)s->prefix_step + 1) * n, 1);
    r.state = arena_alloc(scratch, 2 * (size_t)s->n_stages, sizeof(double));
    r.last = arena_alloc(scratch, 2 * (size_t)s->n_stages, sizeof(double));
    r.best = arena_alloc(scratch, n, sizeof(double));
    if (!s->best_rule || !r.state || !r.last || !r.best)
        return err_no_memory(e, "preparing slices");
    for (int prefix = 0; prefix < s->cost.n_units; prefix += s->prefix_step) {
        for (size_t i = 0; i < n; i++)
            r.best[i] = INFINITY;
        for (int rule = 0; rule < s->n_rules; rule++)
            race_rule(&r, rule, prefix);
    }
    return 0;
}

/* ---- lists for prompts without a prefix ---- */

/* The cuts of the best rule for the first `length` units. */
static void cuts_of_rule(const struct slicing *s, int length, struct trial *t)
{
    const struct slicing_rule *r = &s->rules[s->best_rule[length - 1]];
    int level = r->start;
    t->n_slices = 0;
    for (int at = 0; at < length; level = slicing_next_level(r, level)) {
        at = s->longest[(size_t)level * (size_t)s->cost.n_units + (size_t)at];
        t->cut[++t->n_slices] = at < length ? at : length;
    }
}

/* The plan's own slices, where they end at this length and lie on the steps. */
static bool cuts_of_plan(const struct slicing *s, const struct plan_pipeline *plan, int length,
                         struct trial *t)
{
    int at = 0, unit = s->cost.unit;
    if (plan->n_slices == 0 || plan->n_slices > length)
        return false;
    for (int k = 0; k < plan->n_slices; k++) {
        if (plan->slices[k] % unit != 0 || plan->slices[k] > (length - at) * unit)
            return false;
        t->cut[k + 1] = at += plan->slices[k] / unit;
    }
    t->n_slices = plan->n_slices;
    return at == length;
}

/* Local search under the exact flow, from the best rule, for each length; from the plan's own
 * slices for theirs. */
static int set_lists(struct slicing *s, const struct pipeline_request *rq,
                     const struct plan_pipeline *plan, struct err *e)
{
    const struct exact_options options = {
        .objective = PIPELINE_LATENCY, .order_fixed = true, .effort = 1, .seed = rq->seed};
    struct exact x;
    int rc = exact_init(&x, &s->cost, &options, e), n_units = s->cost.n_units;
    struct trial *t = arena_alloc(s->cost.arena, 1, sizeof *t);
    size_t capacity = 64 * (size_t)n_units + 64, used = 0;
    uint16_t *lists = malloc(capacity * sizeof *lists);
    s->list_at = slicing_keep(s, (size_t)n_units + 1, sizeof *s->list_at);
    if (rc < 0 || !t || !lists || !s->list_at) {
        free(lists);
        return rc < 0 ? rc : err_no_memory(e, "preparing slices");
    }
    t->n_stages = s->n_stages;
    for (int j = 0; j < s->n_stages; j++) {
        t->device[j] = j;
        t->end[j] = s->ends[j];
    }
    x.work_limit = (long)(3e8 * (rq->effort > 0 ? rq->effort : 1));
    for (int length = 1; length <= n_units; length++) {
        if (!cuts_of_plan(s, plan, length, t))
            cuts_of_rule(s, length, t);
        slices_polish(&x, t, 1);
        if (!vector_reserve(lists, capacity, used + (size_t)t->n_slices + 1)) {
            free(lists);
            return err_no_memory(e, "preparing slices");
        }
        s->list_at[length] = (uint32_t)used;
        for (int k = 1; k <= t->n_slices; k++)
            lists[used++] = (uint16_t)t->cut[k];
    }
    s->lists = slicing_keep(s, used, sizeof *s->lists);
    if (s->lists)
        memcpy(s->lists, lists, used * sizeof *lists);
    free(lists);
    return s->lists ? 0 : err_no_memory(e, "preparing slices");
}

int slicing_make(struct slicing *s, const struct pipeline_request *rq,
                 const struct plan_pipeline *plan, struct arena *scratch, struct err *e)
{
    int rc = set_stages(s, rq, plan, e);
    rc = rc < 0 ? rc : set_times(s, scratch, e);
    rc = rc < 0 ? rc : set_levels(s, e);
    if (rc < 0)
        return rc;
    set_rules(s);
    rc = set_best_rules(s, scratch, e);
    return rc < 0 ? rc : set_lists(s, rq, plan, e);
}
