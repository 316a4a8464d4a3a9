/* How likely the tokens of a prompt are, by a decoder that pools serve: a request_spec with
 * `prompt_scores` and no answer is told what the core would tell of it. On the loop's thread. */
#ifndef HP_COORDINATOR_GATEWAY_POOL_SCORES_H
#define HP_COORDINATOR_GATEWAY_POOL_SCORES_H

#include "coordinator/pools/pool_requests.h"
#include "coordinator/requests.h"

enum { POOL_SCORES_TOP = 1 /* likeliest tokens that are known */ };

struct pool_scores;

/* `waited_ns` since the HTTP request came. Its callbacks are `scores`, where it asks for some, and
 * then `finished`, or `failed`; *out, which stays where it is meanwhile, is NULL before the last
 * one. As pool_text_open; HP_EINVAL: more of the likeliest than are known. */
int pool_scores_open(const struct pool_requests *pools, const struct model *model,
                     const struct request_spec *r, uint64_t waited_ns, struct pool_scores **out,
                     uint32_t *retry_after_s, struct err *e);
/* Nothing is told of it any more; also from a callback. */
void pool_scores_cancel(struct pool_scores **s);

#endif
