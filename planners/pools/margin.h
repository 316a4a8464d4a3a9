/* The margin by simulation: plans with several margins, serves each in the simulator, and keeps the
 * plan that serves most at the target attainment.
 *
 * The margin is what planning leaves to queueing. How much queueing there is depends on the plan:
 * many small pools wait longer than a few large ones. So margins are tried first the same for all
 * models, then one model at a time, as are weights a little above and below the model's own (a
 * model that meets its deadlines less often than the others gets more devices). Training and the
 * final choice use different seeds, and the figure that is reported comes from seeds that the
 * choice never saw. */
#ifndef HP_PLANNERS_POOLS_MARGIN_H
#define HP_PLANNERS_POOLS_MARGIN_H

#include "planners/pools/pools.h"

struct pools_margin_options {
    uint64_t seed;
    double seconds; /* of searching, by the request's env; 0: 20 */
    int plans;     /* to simulate while searching, at most; 0: 60. Unless time is up first, the same
                      seed gives the same plan */
    double target; /* attainment of every model; 0: 0.99 */
    /* Told now and then how far it is (0 to 1) and what is best; may be NULL. */
    void (*progress)(void *ctx, const char *text, double part);
    void *progress_ctx;
};

/* As pools_plan, with the margin chosen so. The answer's `served` is set. */
int pools_plan_auto(const struct pools_request *rq, const struct pools_margin_options *options,
                    struct pools_answer *out, struct err *e);

#endif
