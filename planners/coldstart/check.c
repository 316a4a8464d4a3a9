#include <math.h>

#include "planners/coldstart/bounds.h"
#include "planners/coldstart/coldstart.h"
#include "planners/coldstart/picture.h"
#include "planners/coldstart/plan_file.h"

static int plan_judge(const struct json_at *plan, const struct coldstart_problem *p,
                      struct coldstart_verdict *out, struct timeline *timeline, struct err *e)
{
    struct arena arena = {0};
    struct coldstart_plan read;
    struct coldstart_bounds bounds;
    struct timing t = {0};
    struct json_at predicted;
    int rc = coldstart_plan_from_json(plan, p, &arena, &read, e);
    if (rc == 0 && (rc = timing_init(&t, p, read.capacity, e)) == 0) {
        out->latency_s = timing_run(&t, &read);
        rc = t.fault == TIMING_OK ? 0 : timing_explain(&t, e);
    }
    if (rc == 0 && (rc = coldstart_bounds_find(p, out->latency_s, &bounds)) == 0)
        out->bound_s = fmin(bounds.best_s, out->latency_s);
    out->predicted_s = -1;
    if (rc == 0 && json_find(plan, "predicted", &predicted))
        rc = json_opt_number_min(&predicted, "latency_s", 0, -1, &out->predicted_s, e);
    if (rc == 0 && timeline)
        rc = coldstart_picture(&t, &read, timeline);
    timing_fini(&t);
    arena_free(&arena);
    return rc == HP_ENOMEM
               ? err_set(e, HP_ENOMEM, "out of memory: the graph has %d nodes", p->n_nodes)
               : rc;
}

int coldstart_plan_check(const struct json_at *plan, const struct opgraph *g, bool force,
                         bool contention, struct coldstart_verdict *out, struct timeline *timeline,
                         struct err *e)
{
    struct coldstart_verdict v = {.contention = contention};
    struct coldstart_problem p;
    int rc = force ? 0 : coldstart_plan_contention(plan, &v.contention, e);
    if (rc < 0 || (rc = coldstart_problem_init(&p, g, v.contention, e)) < 0)
        return rc;
    rc = plan_judge(plan, &p, &v, timeline, e);
    coldstart_problem_fini(&p);
    if (rc == 0)
        *out = v;
    return rc;
}
