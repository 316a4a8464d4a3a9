/* What a deployment lies on has become far worse than it was planned with: a device several times
 * slower than its profile, a link that loses packets, or one whose frames come late. It works
 * still, and whoever may go elsewhere does so as if it were lost, but only where that is much
 * better. */
#ifndef HP_COORDINATOR_DEGRADED_H
#define HP_COORDINATOR_DEGRADED_H

#include "coordinator/deployment.h"

struct degraded_hashes {
    uint64_t which; /* of its devices and links; 0: none */
    uint64_t told;  /* changes when one of them is far worse still, too */
};
struct degraded_hashes degraded_hash(const struct deployment *d);

#endif
