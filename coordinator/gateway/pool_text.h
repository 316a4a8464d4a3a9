/* One text as a request to pools: its tokens become the tensors of a language model's network
 * (model/text_network.h), and what comes back is numbers. On the loop's thread. */
#ifndef HP_COORDINATOR_GATEWAY_POOL_TEXT_H
#define HP_COORDINATOR_GATEWAY_POOL_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "coordinator/pools/pool_requests.h"

struct pool_text_request;

struct pool_text_ask {
    const char *client, *name;
    const struct model *model; /* whose tokens these are; read during the call only */
    const uint32_t *ids;       /* [n > 0]; copied */
    size_t n;
    uint64_t waited_ns; /* since the HTTP request came: the model's deadline counts from then */
    void *ctx;
    /* One of these, once, from the loop; the request is gone then. The network's outputs
     * (model/text_network.h) are valid during the call. */
    void (*answered)(void *ctx, const struct ndarray *outputs);
    void (*failed)(void *ctx, const struct err *why);
};

/* As infer of struct pool_requests; HP_ESTALE: pools serve another model of this name now;
 * HP_ENOMEM. */
int pool_text_open(const struct pool_requests *pools, const struct pool_text_ask *ask,
                   struct pool_text_request **out, uint32_t *retry_after_s, struct err *e);
/* Nothing is told of it any more. */
void pool_text_cancel(struct pool_text_request **r);

#endif
