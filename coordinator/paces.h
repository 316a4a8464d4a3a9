/* Devices that compute slower or faster than the profile of their kind says: how many times as
 * long their prompts take, model by model. Plans take such a device for a kind of its own. What
 * took no prompt for a while is tried at its kind's pace again, and each time later. */
#ifndef HP_COORDINATOR_PACES_H
#define HP_COORDINATOR_PACES_H

#include "coordinator/deployment.h"
#include "coordinator/member.h"

enum {
    PACE_KEPT_MS = 120000, /* after the last prompt there; doubles six times */
    PACE_KIND = DEVICE_KIND + 48,
};
/* Paces are powers of this, so that alike devices are of one kind to the planner still. */
#define PACE_STEP 1.1
/* From here on, or below 1 / this, people are told, and deployments that rebalance by themselves
 * look for a better place. */
#define PACE_GROSS 2.0
enum { PACE_TOLD_STEPS = 8 }; /* and again when it is off by twice as much, or half */
/* From here on, until it takes less than PACE_GROSS, any deployment leaves a device that may
 * (degraded.h). */
#define PACE_DEGRADED 3.0

/* The device takes so many times as long as the kind's profile says; 1: as it says. */
double pace_of(const struct deployment *d, const struct member *m, int device);
/* The pace is `factor` times what it was (kept within 0.01 and 100). False: that is where it was.
 */
bool pace_change(struct coord *c, const struct deployment *d, struct member *m, int device,
                 double factor);
/* The device takes several times as long as the profile says, and `told`: how many, in steps. */
bool pace_is_degraded(const struct deployment *d, const struct member *m, int device, int *told);
/* A prompt has been through the device: its pace holds on. */
void pace_hear(struct coord *c, const struct deployment *d, struct member *m, int device);
/* What the planner takes the device for: its kind, or that and its pace. */
const char *pace_kind(const struct deployment *d, const struct member *m, int device,
                      char out[PACE_KIND]);
struct pace_hashes {
    uint64_t which; /* changes when a device's pace becomes gross or no longer is */
    uint64_t told;  /* changes when it is gross by far more or less than before, too */
};
struct pace_hashes paces_hash(const struct coord *c, const struct deployment *d);
/* Forgets those that nothing confirms. */
void paces_tick(struct coord *c);

#endif
