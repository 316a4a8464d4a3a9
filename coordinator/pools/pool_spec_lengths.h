/* What a workload that is applied says of a model's lengths. */
#ifndef HP_COORDINATOR_POOLS_POOL_SPEC_LENGTHS_H
#define HP_COORDINATOR_POOLS_POOL_SPEC_LENGTHS_H

#include "coordinator/pools/pool_state.h"

/* Of a network: {"lengths": [128, 16], "length_symbols": ["seq"], "inputs": [{"length_axis": 1}]};
 * its tensors and free dimensions were read. HP_EPARSE, HP_ENOMEM. */
int pool_lengths_read(const struct json_at *at, struct arena *arena, struct pool_model *m,
                      struct err *e);
/* Of its profile, which is that of the longest: {"lengths": {"16": hp-profile/1}} of the others. A
 * share runs batches of every length: `longest` keeps the times of kinds, parts and batches for
 * which all lengths have some. HP_EPARSE, HP_ENOMEM. */
int pool_length_profiles_read(const struct json_at *profile, struct pool_model *m,
                              struct profile *longest, struct err *e);
/* Of all batches leaves that of `unit` samples, which a request has, as if it were one sample.
 * False: it was not measured. */
bool pool_profile_in_units(struct profile *p, int unit);

#endif
