/* The first steps of an answer, each a token through all stages (more where some are guessed): what
 * they took, beside what the planner says of such steps one after the other. Part of a prompt's
 * record (plan_vs_actual.h). On the core's thread. */
#ifndef HP_COORDINATOR_DECODE_STEPS_H
#define HP_COORDINATOR_DECODE_STEPS_H

#include <jansson.h>

#include "transport/message.h"

struct coord;
struct deployment;
struct decode_steps;

enum { DECODE_STEPS_MOST = 32 }; /* that are kept of an answer */

/* NULL: no memory. */
struct decode_steps *decode_steps_create(int n_stages);
void decode_steps_free(struct decode_steps **s);
/* A stage tells of them, whether `beside_others` that are there now; what makes no sense is left
 * out. */
void decode_steps_take(struct coord *c, struct deployment *d, struct decode_steps *s,
                       const struct message_decode *p, bool beside_others);
/* NULL until all stages have told. {"position" (tokens before them), "steps": [tokens of each],
 * "shared" (others ran beside it: then nothing is planned), "measured_s" (all of them),
 * "planned_s", "error", "stages": [{"agent", "on", "layers", "measured", "planned"}]}, times as in
 * a prompt's record, from the start of the first step. */
json_t *decode_steps_json(struct coord *c, struct deployment *d, struct decode_steps *s);

#endif
