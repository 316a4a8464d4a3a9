/* Asks the planner where the stages of a deployment go, and says what is missing where they cannot
 * be. The planner runs as work (work.h), never on the loop. */
#ifndef HP_COORDINATOR_PLACEMENT_H
#define HP_COORDINATOR_PLACEMENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "coordinator/stage_layout.h"

struct arena;
struct coord;
struct deployment;
struct member;
struct pipeline_schedule; /* planners/pipeline/pipeline.h */
struct placement_job;

/* What the planner says of one layout: a prompt of its tokens alone, and many requests after each
 * other. */
struct placement_forecast {
    double ttft_s, tpot_s;               /* to the first token; for each one after that */
    double tokens_per_s, requests_per_s; /* of answers; with `answer_tokens` each */
};
struct placement {
    struct stage_layout *layout; /* counted; its agents are members */
    /* Of one that was planned beside the stages there are (deployment.h, `beside`): these and the
     * new ones by one yardstick. */
    struct placement_forecast before, after;
    double answer_tokens;
    bool has_room; /* of a plan that there is not: the devices together have the room, and no cut
                      between layers fits each of them */
};
void placement_free(struct placement *p);

enum {
    PLACEMENT_TOKENS = 512,       /* of the prompt that is planned for, where nobody said */
    PLACEMENT_LONG_TOKENS = 2048, /* of one that the same layers are to be good for, too */
    PLACEMENT_LEAST_CONTEXT = 256,
    PLACEMENT_ANSWER_TOKENS = 128
};

/* Plans of a deployment from its spec, the members and their profiles. Without a context in the
 * spec it takes the model's, and halves it, after the number of sequences, until it fits. The first
 * call begins to plan and returns 1, as every call until the plan is there (lifecycle_advance is
 * called then); what turns up outdated is made again. 0: *out is the plan, the caller's to free.
 * HP_EINFEASIBLE says how many bytes are missing where, and what would fit; HP_ENOENT names an
 * agent that does not exist, HP_ELINK one that is not here now; HP_EINVAL a range that makes no
 * sense. One that is planned beside its own stages keeps its context and room for keys and values;
 * HP_ELINK also where one of its stages' agents may not be given stages now. */
int placement_make(struct coord *c, struct deployment *d, struct placement *out, struct err *e);
/* Nobody waits for the plan any more. */
void placement_cancel(struct deployment *d);
struct placement_device {
    struct member *agent;
    int device;
};
/* By its agent's name (device -1: all that it has), by its own id, or by that of the device that a
 * paced agent stands for; agent NULL: there is no such. */
struct placement_device placement_device_named(struct coord *c, const char *text);
/* HP_ENOENT: there is none of that name. */
int placement_name_unknown(const struct coord *c, const char *text, bool is_device, struct err *e);
/* One device of an available agent for each kind whose costs for this model nobody has measured;
 * returns how many. */
int placement_unmeasured(struct coord *c, const struct deployment *d, struct placement_device *out,
                         int max);
/* When each piece of a prompt in these slices, after `cached` tokens, should run on the
 * deployment's stages, by the profile as it is now. In the arena. HP_ELINK: an agent is not here.
 */
int placement_predict(struct coord *c, struct deployment *d, const int *slices, int n, int cached,
                      struct arena *arena, struct pipeline_schedule *out, struct err *e);

#endif
