/* When something ran on the stages of a deployment: times of every piece on every stage. */
#ifndef HP_COORDINATOR_STAGE_TIMES_H
#define HP_COORDINATOR_STAGE_TIMES_H

#include <jansson.h>
#include <stdint.h>

struct coord;
struct deployment;
struct message_prefill_slice;

/* [stage * width + piece], seconds. Measured ones are the agents' own clocks until they are
 * aligned. */
struct stage_times {
    double *arrive_s, *start_s, *end_s;
};

/* As the stage tells the piece of that cell. */
void stage_times_set(struct stage_times *t, size_t cell, const struct message_prefill_slice *s);
/* From the agents' clocks to seconds from the first piece's start on the first stage; which was, on
 * ours, at the moment that is returned. `n` pieces of every stage. */
double stage_times_align(const struct coord *c, const struct deployment *d, struct stage_times *t,
                         size_t width, int n);
/* {"arrive_s", "start_s", "end_s"} of `n` pieces from that cell on. */
json_t *stage_times_json(const struct stage_times *t, size_t cell, int n);
/* {"agent", "on", "layers"}: which stage that is. */
json_t *stage_name_json(const struct deployment *d, int stage);

#endif
