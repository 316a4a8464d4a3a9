/* What computes what on a device, and why, as people and hpctl are told it. */
#ifndef HP_AGENT_BACKEND_CHOICES_H
#define HP_AGENT_BACKEND_CHOICES_H

#include <jansson.h>

#include "agent/backend/backend.h"

/* A list of {"what": "instructions", "how": "avx512_bf16", "why": "…"}, the set of instructions
 * first; NULL: no memory. The caller's. */
json_t *device_choices_json(const struct device *d);

#endif
