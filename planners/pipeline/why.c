#include "planners/pipeline/why.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "planners/pipeline/baselines.h"
#include "planners/pipeline/exact.h"

/* The share of the usual effort that a plan gets that is only made to be compared with. */
#define COMPARISON_EFFORT 0.25

static void describe_value(enum pipeline_objective objective, double v, char *out, size_t size)
{
    snprintf(out, size, "%.4g %s", v, objective == PIPELINE_ENERGY ? "J" : objective == PIPELINE_THROUGHPUT ? "s per prompt" : "s");
}

/* ---- the other methods -------------------------------------------------------------------------------------------------- */

/* A baseline on the devices of the cost in their given order. */
static int run_baseline(struct cost *c, int i, struct layout *l, struct err *e)
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

static void compare_methods(const struct pipeline_request *rq, double chosen, struct arena *arena, json_t *plan)
{
    static const char *const names[] = {"even (Base)", "gpipe", "gpipe on the balanced partition", "tensor parallel within nodes", "terapipe", "hpipe"};
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++) {
        struct cost c;
        struct layout l;
        struct answer_figures f;
        struct err e = {0};
        char reason[900], value[64];
        if (cost_init(&c, rq, rq->devices, rq->n_devices, arena, &e) < 0 || run_baseline(&c, i, &l, &e) < 0 ||
            answer_measure(&c, &l, &f, NULL, &e) < 0) {
            snprintf(reason, sizeof reason, "not possible: %s", e.text);
            plan_add_why(plan, names[i], NAN, reason);
            continue;
        }
        double v = answer_value(rq->objective, &f);
        describe_value(rq->objective, v, value, sizeof value);
        if (v > chosen * (1 + 1e-9))
            snprintf(reason, sizeof reason, "%s, %.2f times as much", value, v / chosen);
        else
            snprintf(reason, sizeof reason, "%s, no better", value);
        plan_add_why(plan, names[i], v, reason);
    }
}

/* ---- devices left out ---------------------------------------------------------------------------------------------------- */

/* The best plan that must use every device of `kind`. */
static int search_with_kind(struct cost *c, const struct pipeline_request *rq, int kind, double *value, struct err *e)
{
    bool *must = arena_alloc(c->arena, (size_t)c->n_devices, sizeof *must);
    if (!must)
        return err_set(e, HP_ENOMEM, "out of memory while planning a pipeline");
    for (int d = 0; d < c->n_devices; d++)
        must[d] = c->devices[d].kind == kind;
    struct exact_options options = {
        .objective = rq->objective, .must_use = must, .seed = rq->seed, .effort = COMPARISON_EFFORT * (rq->effort > 0 ? rq->effort : 1)};
    struct exact_result found;
    int rc = exact_search(c, &options, &found, e);
    if (rc == 0)
        *value = found.value;
    return rc;
}

static void explain_unused(struct cost *c, const struct pipeline_request *rq, const struct layout *chosen, double value, json_t *plan)
{
    for (int kind = 0; kind < c->profile->n_kinds; kind++) {
        int unused = 0;
        for (int d = 0; d < c->n_devices; d++) {
            bool used = c->devices[d].kind != kind;
            for (int j = 0; j < chosen->n_stages; j++)
                used |= chosen->devices[j] == d;
            unused += !used;
        }
        if (unused == 0)
            continue;
        struct err e = {0};
        double with = NAN;
        char candidate[160], reason[900], a[64], b[64];
        snprintf(candidate, sizeof candidate, "with all %s", c->profile->kinds[kind]);
        if (search_with_kind(c, rq, kind, &with, &e) < 0) {
            snprintf(reason, sizeof reason, "%d × %s unused: no plan uses them all", unused, c->profile->kinds[kind]);
        } else {
            describe_value(rq->objective, with, a, sizeof a);
            describe_value(rq->objective, value, b, sizeof b);
            snprintf(reason, sizeof reason, "%d × %s unused: with them %s, without %s", unused, c->profile->kinds[kind], a, b);
        }
        plan_add_why(plan, candidate, with, reason);
    }
}

int why_add(struct cost *c, const struct pipeline_request *rq, const struct layout *chosen, struct pipeline_answer *a, struct err *e)
{
    struct answer_figures f;
    int rc = answer_measure(c, chosen, &f, NULL, e);
    if (rc < 0)
        return rc;
    double value = answer_value(rq->objective, &f);
    if (rq->method == PIPELINE_EXACT && !rq->devices)
        explain_unused(c, rq, chosen, value, a->document);
    compare_methods(rq, value, c->arena, a->document);
    return 0;
}
