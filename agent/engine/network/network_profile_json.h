/* What was measured of a network's layers as hp-profile/1, of one kind of device. */
#ifndef HP_AGENT_ENGINE_NETWORK_NETWORK_PROFILE_JSON_H
#define HP_AGENT_ENGINE_NETWORK_NETWORK_PROFILE_JSON_H

#include <jansson.h>

#include "agent/engine/network/network_profile.h"

struct network_profile_document {
    const char *model, *kind;
    const struct network_profile_ask *ask; /* whose batches were measured */
    const struct network_profile *shares;  /* [n_shares]: the device cut into ... */
    const int *parts;                      /* ... so many, rising; all of the same layers */
    int n_shares;
};

/* Layers, their times by share and batch, and under "measured" how far their sum is from the whole,
 * for each: {"kind", "share", "batch", "whole_s", "sum_s", "sum_error", "spread", "runs",
 * "sections"}. NULL: no
 * memory. */
json_t *network_profile_json(const struct network_profile_document *d);

#endif
