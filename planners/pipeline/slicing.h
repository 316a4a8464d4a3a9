/* Slices for every length: what a deployment prepares once, so that a request of any length, after
 * any number of cached tokens, finds its slices in constant time (HPipe, section 3.1, prepares all
 * supported lengths; here the cached prefix counts too).
 *
 * Kept are: for prompts without a cached prefix a list of cuts per length; for the others a rule
 * per (prefix, length). A rule is a walk over levels: a level is a limit on a slice's time on the
 * slowest stage, and a table gives, for each level and position, the longest slice under it. Rules
 * stay on one level, climb or descend. Memory is a few hundred kB for any context. All lengths and
 * prefixes are in steps of `slicing_unit`; a length between two steps uses the next one and its
 * last slice takes what is left.
 *
 * A slicing is immutable once made: any number of threads may look things up. Nothing blocks or
 * allocates after slicing_create.
 */
#ifndef HP_PLANNERS_PIPELINE_SLICING_H
#define HP_PLANNERS_PIPELINE_SLICING_H

#include "planners/pipeline/pipeline.h"

struct slicing;

/* Prepares prompts of up to `context` tokens, the cached ones included, for the stages of a plan
 * (its devices and layers; its slices are a start for prompts of their length). `rq` gives cluster,
 * profile, batch (of a request as it is served: often 1, where a plan was made for more) and unit.
 * The cluster and profile must outlive the slicing. Takes some tenths of a second; call it outside
 * of any loop that must not wait. HP_EINVAL, HP_ENOENT (a device that the cluster has not),
 * HP_EINFEASIBLE, HP_ENOMEM.
 */
int slicing_create(const struct pipeline_request *rq, const struct plan_pipeline *plan, int context,
                   struct slicing **out, struct err *e);
void slicing_destroy(struct slicing **s);

/* Tokens: every slice but the last is a multiple of it. */
int slicing_unit(const struct slicing *s);
/* Bytes that lookups read. */
size_t slicing_memory_bytes(const struct slicing *s);

/* A walk over one request's slices. Plain data, owned by the caller; valid as long as the slicing
 * is. */
struct slicing_cursor {
    const struct slicing *slicing;
    int left, position; /* tokens to go; units before the next slice */
    const uint16_t *cuts;
    int level, top, step;
};

/* Finds the slices of `length` tokens after `cached` ones: constant time. HP_EINVAL where length <
 * 1, cached < 0 or both exceed the context. */
int slicing_begin(const struct slicing *s, int length, int cached, struct slicing_cursor *c);
/* Tokens of the next slice, 0 after the last one: constant time. */
int slicing_next(struct slicing_cursor *c);

#endif
