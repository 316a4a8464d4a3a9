/* How long a sequence may give no sign of life, so that a frame that was lost or a stage that hangs
 * ends in an error that names the stage, and never in a wait without an end.
 *
 * The plan says what the prompts that are being read should take, all of them, since they share the
 * stages: ten times that and 45 s more may pass without a token; agents, who know more, have given
 * up by then where they live (agent/core_watch.c). Whenever another prompt of the deployment has
 * been read the wait begins anew, since that was what the stages were busy with; ten such waits are
 * the end all the same. Times stretch by coord_config.time_scale. */
#ifndef HP_COORDINATOR_SEQUENCE_DEADLINES_H
#define HP_COORDINATOR_SEQUENCE_DEADLINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

struct coord;
struct deployment;
struct deployment_stage;
struct message_held_stage;
struct sequence;

enum {
    SEQUENCE_STALL_MS = 45000,
    SEQUENCE_SLOWER = 10, /* than the plan says, at most */
    SEQUENCE_WAITS = 10,  /* one after the other */
};

/* What the plan says of reading a prompt of n tokens: in proportion to the plan's own, and more for
 * a longer one, whose attention grows. */
double sequence_reading_s(const struct deployment *d, size_t n);
/* Its stages have heard of it. */
void sequence_deadline_start(const struct coord *c, struct deployment *d, struct sequence *s);
/* The sequence gave a sign of life; `read`: its prompt has been read just now. */
void sequence_deadline_sign(const struct coord *c, struct deployment *d, struct sequence *s,
                            bool read);
/* One whose time is up, with why; NULL: none. Looks at nothing before something can be up. */
struct sequence *sequence_overdue(const struct coord *c, struct deployment *d, struct err *why);
/* A heartbeat tells what a stage has run so far. */
void sequence_deadline_stage(const struct coord *c, struct deployment_stage *s,
                             const struct message_held_stage *h);

#endif
