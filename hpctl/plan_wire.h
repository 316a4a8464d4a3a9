/* Plans count the bytes that cross between stages; profiles say them as float32. */
#ifndef HP_HPCTL_PLAN_WIRE_H
#define HP_HPCTL_PLAN_WIRE_H

#include "common/profile.h"
#include "common/status.h"

/* Makes the profile's rows those of a format, "f32", "f16", "bf16" or "q8" (NULL: float32).
 * HP_EUSAGE names the formats. */
int plan_wire_apply(const char *wire, struct profile *p, struct err *e);

#endif
