/* What a slicing holds, as its maker and its readers share it. */
#ifndef HP_PLANNERS_PIPELINE_SLICING_INT_H
#define HP_PLANNERS_PIPELINE_SLICING_INT_H

#include "common/arena.h"
#include "planners/pipeline/cost.h"
#include "planners/pipeline/slicing.h"

enum { SLICING_LEVELS = 56, SLICING_PREFIXES = 64, SLICING_MAX_RULES = 255 };

/* Slices climb or descend from level `start` by `step` a slice, and stay at `top`. */
struct slicing_rule {
    uint8_t start, top;
    int8_t step;
};

struct slicing {
    struct arena arena;
    struct pipeline_cost cost; /* devices 0 .. n_stages - 1 are the stages */
    int n_stages, context;
    int *ends;
    double *wire_per_token, *latency_s; /* [n_stages] */

    double *stage_seconds; /* [stage * table_size + row[i] + j]; only while it is made */
    double *slowest;       /* the same of the slowest stage or hop; only while it is made */

    uint16_t *longest; /* [level * n_units + position] end of the longest slice from there */
    struct slicing_rule rules[SLICING_MAX_RULES];
    int n_rules;
    uint8_t *best_rule; /* [prefix step * n_units + length - 1] */
    int prefix_step;    /* units */
    uint32_t *list_at;  /* [n_units + 1] where the cuts of a length begin in `lists` */
    uint16_t *lists;
    size_t memory_bytes;
};

static inline int slicing_next_level(const struct slicing_rule *r, int level)
{
    if (r->step > 0)
        return level + r->step < r->top ? level + r->step : r->top;
    return level + r->step > r->top ? level + r->step : r->top;
}

/* Finds stages, rules and lists; the cost's tables live in `scratch` until then. HP_EINVAL,
 * HP_ENOENT, HP_EINFEASIBLE, HP_ENOMEM. */
int slicing_make(struct slicing *s, const struct pipeline_request *rq,
                 const struct plan_pipeline *plan, struct arena *scratch, struct err *e);

#endif
