/* What a gateway may ask of pools: which models of fixed shape are served, and to run one. On the
 * coordinator's loop; callbacks come from the loop, never from within a call. */
#ifndef HP_COORDINATOR_POOLS_POOL_REQUESTS_H
#define HP_COORDINATOR_POOLS_POOL_REQUESTS_H

#include "common/status.h"
#include "coordinator/infer_model.h"

enum { POOL_MAX_MODELS = 64, POOL_MAX_SAMPLES = 256 };

struct pool_statistics {
    uint64_t success, fail, samples, batches;
    uint64_t total_ns, queue_ns, compute_ns; /* sums over successes */
    uint64_t last_unix_s;
};

struct pool_call {
    const char *model;
    const struct ndarray *inputs; /* [the model's inputs]; borrowed until one of the callbacks, or
                                     pool_cancel, returned */
    uint64_t timeout_ns;          /* the caller's own deadline; 0: the model's alone */
    void *ctx;
    /* One of these two, once: the outputs are the callee's to free. */
    void (*answered)(void *ctx, struct ndarray *outputs);
    void (*failed)(void *ctx, const struct err *why);
};

struct pool_requests {
    void *ctx;
    /* Models that are applied; `out` has room for POOL_MAX_MODELS. Valid until control returns to
     * the loop. */
    int (*models)(void *ctx, const struct infer_model **out);
    bool (*ready)(void *ctx, const struct infer_model *m);
    struct pool_statistics (*statistics)(void *ctx, const struct infer_model *m);
    /* HP_ENOENT, HP_EINVAL (sizes), HP_ELIMIT (samples), HP_EBUSY (no plan serves yet), HP_ENOMEM.
     */
    int (*infer)(void *ctx, const struct pool_call *call, uint64_t *id, struct err *e);
    /* No callback comes any more. */
    void (*cancel)(void *ctx, uint64_t id);
};

#endif
