/* Requests of several lengths (texts) to a model of fixed shape: each is padded with zeros to the
 * next length that the model was planned for, its attention mask too, and its answer is cut back.
 * Pure. */
#ifndef HP_COORDINATOR_POOLS_POOL_LENGTHS_H
#define HP_COORDINATOR_POOLS_POOL_LENGTHS_H

#include "coordinator/pools/pool_state.h"

/* The length of a request's inputs; 0 of a model with one size. HP_EINVAL: they have two, or a
 * longer one than the model is served with. */
int pool_length_of(const struct pool_model *m, const struct ndarray *inputs, int64_t *out,
                   struct err *e);
/* Which of the model's lengths it is padded to: the shortest that holds it. */
int pool_length_size(const struct pool_model *m, int64_t length);

/* One sample of an array whose dimension `axis` has one size here and another there. */
struct pool_stretch {
    size_t rows, from_bytes, to_bytes; /* as many rows, each of so many bytes */
};

/* `dims` are those of the array here; the first is the batch where `batched`. An axis below 0: no
 * size differs. */
struct pool_stretch pool_stretch_of(const struct ndarray *a, bool batched, int axis, int64_t to);
/* What is beyond the shorter one is zero. */
void pool_stretch_copy(const struct pool_stretch *s, uint8_t *to, const uint8_t *from);

#endif
