#include "planners/pipeline/slicing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planners/pipeline/cost.h"
#include "planners/pipeline/exact_int.h"
#include "planners/pipeline/flow.h"

enum { LEVELS = 56, PREFIXES = 64, MAX_RULES = 255 };

/* Slices climb or descend from level `start` by `step` a slice, and stay at `top`. */
struct rule {
    uint8_t start, top;
    int8_t step;
};

struct slicing {
    struct arena arena;
    struct cost cost; /* devices 0 .. n_stages - 1 are the stages */
    int n_stages, context;
    int *ends;
    double *wire_per_token, *latency_s; /* [n_stages] */

    double *stage_seconds; /* [stage * table_size + row[i] + j]; only while it is made */
    double *slowest;       /* the same of the slowest stage or hop; only while it is made */

    uint16_t *longest; /* [level * n_units + position] end of the longest slice from there */
    struct rule rules[MAX_RULES];
    int n_rules;
    uint8_t *best_rule; /* [prefix step * n_units + length - 1] */
    int prefix_step;    /* units */
    uint32_t *list_at;  /* [n_units + 1] where the cuts of a length begin in `lists` */
    uint16_t *lists;
    size_t memory_bytes;
};

/* ---- setting up
 * ------------------------------------------------------------------------------------------------------------
 */

static int no_memory(struct err *e)
{
    return err_set(e, HP_ENOMEM, "out of memory while preparing slices");
}

static void *keep(struct slicing *s, size_t count, size_t size)
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
    s->ends = keep(s, (size_t)plan->n_stages, sizeof *s->ends);
    s->wire_per_token = keep(s, (size_t)plan->n_stages, sizeof(double));
    s->latency_s = keep(s, (size_t)plan->n_stages, sizeof(double));
    if (!order || !s->ends || !s->wire_per_token || !s->latency_s)
        return no_memory(e);
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
    struct cost *c = &s->cost;
    c->arena = scratch;
    s->stage_seconds = arena_alloc(scratch, (size_t)s->n_stages * c->table_size, sizeof(double));
    s->slowest = arena_alloc(scratch, c->table_size, sizeof(double));
    if (!s->stage_seconds || !s->slowest)
        return no_memory(e);
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
    const struct cost *c = &s->cost;
    size_t n = (size_t)c->n_units;
    s->longest = keep(s, LEVELS * n, sizeof *s->longest);
    if (!s->longest)
        return no_memory(e);
    double low = s->slowest[c->row[0] + 1], high = s->slowest[c->row[0] + c->n_units];
    low = low > 0 ? low : high * 1e-3;
    for (int level = 0; level < LEVELS; level++) {
        double limit = low * pow(high / low, (double)level / (LEVELS - 1)) * (1 + 1e-12);
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
    if (start >= 0 && start < LEVELS && s->n_rules < MAX_RULES)
        s->rules[s->n_rules++] = (struct rule){(uint8_t)start, (uint8_t)top, (int8_t)step};
}

static void set_rules(struct slicing *s)
{
    for (int top = 0; top < LEVELS; top++) {
        add_rule(s, top, top, 0);
        add_rule(s, top - 9, top, 1);
        add_rule(s, top - 16, top, 2);
        add_rule(s, top + 12, top, -1);
    }
}

/* ---- rules for every prefix and length
 * ------------------------------------------------------------------------------------- */

struct race {
    struct slicing *s;
    double *state, *last; /* [2 * n_stages] when stages and hops are free: after the whole slices,
                             and with the last one */
    double *best;         /* [n_units] by length - 1, of the current prefix */
};

/* Units [i, j) flow through all stages; gives the end. */
static double flow_slice(const struct slicing *s, int i, int j, const double *in, double *out)
{
    const struct cost *c = &s->cost;
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

static inline int next_level(const struct rule *r, int level)
{
    if (r->step > 0)
        return level + r->step < r->top ? level + r->step : r->top;
    return level + r->step > r->top ? level + r->step : r->top;
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
        level = next_level(&s->rules[rule], level);
    }
}

static int set_best_rules(struct slicing *s, struct arena *scratch, struct err *e)
{
    size_t n = (size_t)s->cost.n_units;
    struct race r = {.s = s};
    s->prefix_step = (s->cost.n_units + PREFIXES - 1) / PREFIXES;
    s->best_rule = keep(s, ((n - 1) / (size_t)s->prefix_step + 1) * n, 1);
    r.state = arena_alloc(scratch, 2 * (size_t)s->n_stages, sizeof(double));
    r.last = arena_alloc(scratch, 2 * (size_t)s->n_stages, sizeof(double));
    r.best = arena_alloc(scratch, n, sizeof(double));
    if (!s->best_rule || !r.state || !r.last || !r.best)
        return no_memory(e);
    for (int prefix = 0; prefix < s->cost.n_units; prefix += s->prefix_step) {
        for (size_t i = 0; i < n; i++)
            r.best[i] = INFINITY;
        for (int rule = 0; rule < s->n_rules; rule++)
            race_rule(&r, rule, prefix);
    }
    return 0;
}

/* ---- lists for prompts without a prefix
 * ------------------------------------------------------------------------------------ */

/* The cuts of the best rule for the first `length` units. */
static void cuts_of_rule(const struct slicing *s, int length, struct trial *t)
{
    const struct rule *r = &s->rules[s->best_rule[length - 1]];
    int level = r->start;
    t->n_slices = 0;
    for (int at = 0; at < length; level = next_level(r, level)) {
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
    s->list_at = keep(s, (size_t)n_units + 1, sizeof *s->list_at);
    if (rc < 0 || !t || !lists || !s->list_at) {
        free(lists);
        return rc < 0 ? rc : no_memory(e);
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
        if (used + (size_t)t->n_slices + 1 > capacity) {
            uint16_t *more =
                realloc(lists, (capacity = 2 * capacity + (size_t)t->n_slices) * sizeof *lists);
            if (!more) {
                free(lists);
                return no_memory(e);
            }
            lists = more;
        }
        s->list_at[length] = (uint32_t)used;
        for (int k = 1; k <= t->n_slices; k++)
            lists[used++] = (uint16_t)t->cut[k];
    }
    s->lists = keep(s, used, sizeof *s->lists);
    if (s->lists)
        memcpy(s->lists, lists, used * sizeof *lists);
    free(lists);
    return s->lists ? 0 : no_memory(e);
}

/* ---- the face
 * ----------------------------------------------------------------------------------------------------------------
 */

int slicing_create(const struct pipeline_request *rq, const struct plan_pipeline *plan, int context,
                   struct slicing **out, struct err *e)
{
    struct arena scratch = {0};
    struct slicing *s = calloc(1, sizeof *s);
    if (!s)
        return no_memory(e);
    s->context = context;
    s->memory_bytes = sizeof *s;
    int rc = context < 1 ? err_set(e, HP_EINVAL, "a context of %d tokens holds no prompt", context)
                         : set_stages(s, rq, plan, e);
    if (rc == 0 && (rc = set_times(s, &scratch, e)) == 0 && (rc = set_levels(s, e)) == 0) {
        set_rules(s);
        if ((rc = set_best_rules(s, &scratch, e)) == 0)
            rc = set_lists(s, rq, plan, e);
    }
    arena_free(&scratch);
    s->stage_seconds = s->slowest = NULL;
    s->cost.arena = NULL;
    s->cost.tables = NULL;
    if (rc < 0)
        slicing_destroy(&s);
    *out = s;
    return rc;
}

void slicing_destroy(struct slicing **s)
{
    if (*s)
        arena_free(&(*s)->arena);
    free(*s);
    *s = NULL;
}

int slicing_unit(const struct slicing *s)
{
    return s->cost.unit;
}
size_t slicing_memory_bytes(const struct slicing *s)
{
    return s->memory_bytes;
}

int slicing_begin(const struct slicing *s, int length, int cached, struct slicing_cursor *c)
{
    if (length < 1 || cached < 0 || length > s->context - cached)
        return HP_EINVAL;
    int unit = s->cost.unit, units = (length + unit - 1) / unit, position = cached / unit;
    *c = (struct slicing_cursor){.slicing = s, .left = length, .position = position};
    /* A cached part of less than a unit counts for nothing. */
    if (position == 0) {
        c->cuts = s->lists + s->list_at[units];
        return 0;
    }
    const struct rule *r =
        &s->rules[s->best_rule[(size_t)(position / s->prefix_step) * (size_t)s->cost.n_units +
                               (size_t)units - 1]];
    c->level = r->start;
    c->top = r->top;
    c->step = r->step;
    return 0;
}

int slicing_next(struct slicing_cursor *c)
{
    const struct slicing *s = c->slicing;
    int end, n_units = s->cost.n_units;
    if (c->left == 0)
        return 0;
    if (c->cuts) {
        end = *c->cuts++;
    } else {
        const struct rule r = {0, (uint8_t)c->top, (int8_t)c->step};
        end = c->position < n_units
                  ? s->longest[(size_t)c->level * (size_t)n_units + (size_t)c->position]
                  : c->position + 1;
        c->level = next_level(&r, c->level);
    }
    int tokens = (end - c->position) * s->cost.unit;
    tokens = tokens < c->left ? tokens : c->left;
    c->position = end;
    c->left -= tokens;
    return tokens;
}

double slicing_predict(const struct slicing *s, int cached, const int *slices, int n,
                       double *compute_s, double *wire_s, double *scratch)
{
    double *compute = scratch, *wire = compute + (size_t)s->n_stages * (size_t)n,
           *arrivals = wire + (size_t)s->n_stages * (size_t)n;
    for (int j = 0; j < s->n_stages; j++)
        for (int k = 0, prefix = cached; k < n; prefix += slices[k++]) {
            compute[j * n + k] =
                cost_layers_seconds(&s->cost, s->cost.devices[j].kind, j ? s->ends[j - 1] : 0,
                                    s->ends[j], slices[k], prefix, s->cost.batch);
            wire[j * n + k] = s->wire_per_token[j] * slices[k];
        }
    if (compute_s)
        memcpy(compute_s, compute, (size_t)s->n_stages * (size_t)n * sizeof(double));
    if (wire_s)
        memcpy(wire_s, wire, (size_t)s->n_stages * (size_t)n * sizeof(double));
    return flow_makespan(s->n_stages, n, compute, wire, s->latency_s, arrivals);
}
