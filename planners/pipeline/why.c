#include "planners/pipeline/why.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "planners/pipeline/baselines.h"
#include "planners/pipeline/exact.h"

/* The share of the usual effort that a plan gets that is only made to be compared with. */
#define COMPARISON_EFFORT 0.15

static void describe_value(enum pipeline_objective objective, double v, char *out, size_t size)
{
    snprintf(out, size, "%.4g %s", v,
             objective == PIPELINE_ENERGY       ? "J"
             : objective == PIPELINE_THROUGHPUT ? "s per prompt"
                                                : "s");
}

/* ---- the other methods ---- */

/* A baseline on the devices of the cost in their given order. */
static int run_baseline(struct pipeline_cost *c, int i, struct layout *l, struct err *e)
{
    switch (i) {
    case 0: return baseline_even(c, l, e);
    case 1: return baseline_gpipe(c, PIPELINE_PARTITION_EVEN, 0, l, e);
    case 2: return baseline_gpipe(c, PIPELINE_PARTITION_BALANCED, 0, l, e);
    case 3: return baseline_tensor(c, 0, l, e);
    case 4: return baseline_terapipe(c, l, e);
    default: return baseline_hpipe(c, l, e);
    }
}

static void compare_methods(const struct pipeline_request *rq, double chosen, struct arena *arena,
                            json_t *plan)
{
    static const char *const names[] = {
        "even (Base)", "gpipe", "gpipe on the balanced partition", "tensor parallel within nodes",
        "terapipe",    "hpipe"};
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++) {
        struct pipeline_cost c;
        struct layout l;
        struct pipeline_answer_figures f;
        struct err e = {0};
        char reason[900], value[64];
        if (cost_init(&c, rq, rq->devices, rq->n_devices, arena, &e) < 0 ||
            run_baseline(&c, i, &l, &e) < 0 || pipeline_answer_measure(&c, &l, &f, NULL, &e) < 0) {
            snprintf(reason, sizeof reason, "not possible: %s", e.text);
            plan_add_why(plan, names[i], NAN, reason);
            continue;
        }
        double v = pipeline_answer_value(rq->objective, &f);
        describe_value(rq->objective, v, value, sizeof value);
        if (v > chosen * (1 + 1e-9))
            snprintf(reason, sizeof reason, "%s, %.2f times as much", value, v / chosen);
        else if (v < chosen * (1 - 1e-9))
            snprintf(reason, sizeof reason, "%s, better: %.2f of it", value, v / chosen);
        else
            snprintf(reason, sizeof reason, "%s, the same", value);
        plan_add_why(plan, names[i], v, reason);
    }
}

/* ---- devices left out ---- */

static int search_with_kind(struct pipeline_cost *c, const struct pipeline_request *rq, int kind,
                            struct exact_result *found, struct err *e)
{
    bool *must = arena_alloc(c->arena, (size_t)c->n_devices, sizeof *must);
    if (!must)
        return err_set(e, HP_ENOMEM, "out of memory while planning a pipeline");
    for (int d = 0; d < c->n_devices; d++)
        must[d] = c->devices[d].kind == kind;
    struct exact_options options = {.objective = rq->objective,
                                    .must_use = must,
                                    .seed = rq->seed,
                                    .effort =
                                        COMPARISON_EFFORT * (rq->effort > 0 ? rq->effort : 1)};
    return exact_search(c, &options, found, e);
}

static int count_unused(const struct pipeline_cost *c, const struct layout *chosen, int kind)
{
    int unused = 0;
    for (int d = 0; d < c->n_devices; d++) {
        bool used = c->devices[d].kind != kind;
        for (int j = 0; j < chosen->n_stages; j++)
            used |= chosen->devices[j] == d;
        unused += !used;
    }
    return unused;
}

int why_weigh_kinds(struct pipeline_cost *c, const struct pipeline_request *rq,
                    struct layout *chosen, double *value, struct why_kinds *out, struct err *e)
{
    int n_kinds = c->profile->n_kinds;
    *out = (struct why_kinds){.rows = arena_alloc(c->arena, (size_t)n_kinds, sizeof *out->rows)};
    if (!out->rows)
        return err_set(e, HP_ENOMEM, "out of memory while planning a pipeline");
    for (int kind = 0; kind < n_kinds; kind++) {
        struct exact_result found;
        struct err none = {0};
        struct why_kind row = {.kind = kind, .unused = count_unused(c, chosen, kind), .with = NAN};
        if (row.unused == 0)
            continue;
        int rc = search_with_kind(c, rq, kind, &found, &none);
        if (rc == HP_ENOMEM)
            return err_set(e, rc, "%s", none.text);
        if (rc == 0)
            row.with = found.value;
        if (rc == 0 && found.value < *value * (1 - 1e-9)) {
            *chosen = found.layout;
            *value = found.value;
        }
        out->rows[out->n++] = row;
    }
    return 0;
}

static void explain_unused(const struct pipeline_cost *c, const struct pipeline_request *rq,
                           const struct layout *chosen, double value, const struct why_kinds *kinds,
                           json_t *plan)
{
    for (int i = 0; i < kinds->n; i++) {
        const struct why_kind *row = &kinds->rows[i];
        const char *name = c->profile->kinds[row->kind];
        char candidate[160], reason[400], a[64], b[64];
        int unused = count_unused(c, chosen, row->kind);
        if (unused == 0)
            continue; /* the plan with them took the first one's place */
        describe_value(rq->objective, row->with, a, sizeof a);
        describe_value(rq->objective, value, b, sizeof b);
        snprintf(candidate, sizeof candidate, "with all %s", name);
        if (isfinite(row->with))
            snprintf(reason, sizeof reason, "%d × %s unused: with them %s, without %s", unused,
                     name, a, b);
        else
            snprintf(reason, sizeof reason, "%d × %s unused: no plan was found that uses them all",
                     unused, name);
        plan_add_why(plan, candidate, row->with, reason);
    }
}

int why_add(struct pipeline_cost *c, const struct pipeline_request *rq, const struct layout *chosen,
            const struct why_kinds *kinds, struct pipeline_answer *a, struct err *e)
{
    struct pipeline_answer_figures f;
    int rc = pipeline_answer_measure(c, chosen, &f, NULL, e);
    if (rc < 0)
        return rc;
    double value = pipeline_answer_value(rq->objective, &f);
    explain_unused(c, rq, chosen, value, kinds, a->document);
    compare_methods(rq, value, c->arena, a->document);
    return 0;
}
