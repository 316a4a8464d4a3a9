/* What a gateway may ask of pools: which models of fixed shape are served, and to run one. On the
 * coordinator's loop; callbacks come from the loop, never from within a call. */
#ifndef HP_COORDINATOR_POOLS_POOL_REQUESTS_H
#define HP_COORDINATOR_POOLS_POOL_REQUESTS_H

#include <stdbool.h>

#include "common/status.h"
#include "coordinator/infer_model.h"
#include "coordinator/infer_times.h"

struct model; /* model/model.h */

enum { POOL_MAX_MODELS = 64, POOL_MAX_SAMPLES = 256 };

struct pool_statistics {
    uint64_t success, fail, samples, batches;
    uint64_t total_ns, queue_ns, compute_ns; /* sums over successes */
    uint64_t last_unix_s;
};

/* A language model that pools serve. */
struct pool_text {
    struct model *model; /* with its tokenizer, ready; until control returns to the loop */
    uint64_t longest;    /* tokens of a text */
    uint64_t applied_s;  /* Unix time at which its workload came */
    bool rows;           /* it gives a row for a text; else the probability of each token */
};

struct pool_call {
    const char *client; /* who asks (requests.h); NULL: nobody in particular */
    const char *model;
    const struct infer_model *facts; /* by which the inputs were read, and the outputs will be;
                                        NULL: as `text` below said in this moment */
    const struct ndarray *inputs; /* [the model's inputs]; borrowed until one of the callbacks, or
                                     `cancel` below, returned */
    uint64_t timeout_ns;          /* the caller's own deadline; 0: the model's alone */
    uint64_t waited_ns;           /* since it came: deadlines count from then */
    void *ctx;
    /* One of these two, once: the outputs are the callee's to free, the times are valid during the
     * call. */
    void (*answered)(void *ctx, struct ndarray *outputs, const struct infer_times *times);
    void (*failed)(void *ctx, const struct err *why);
};

struct pool_requests {
    void *ctx;
    /* Models that the client may use: those that are served, as they are served, and those that are
     * applied and not served yet; `out` has room for POOL_MAX_MODELS. Valid until control returns
     * to the loop. */
    int (*models)(void *ctx, const char *client, const struct infer_model **out);
    /* HP_EDENIED: the client's key may not use the model of this name. */
    int (*may_use)(void *ctx, const char *client, const char *model, struct err *e);
    /* 0; HP_EBUSY and why where no plan serves it now. */
    int (*ready)(void *ctx, const struct infer_model *m, struct err *e);
    /* Its inputs are int64 [samples, tokens]: ids, and a mask of ones. HP_ENOENT: pools serve no
     * language model of this name; HP_EDENIED; HP_EBUSY: it is being prepared, or cannot be. */
    int (*text)(void *ctx, const char *client, const char *name, struct pool_text *out,
                struct err *e);
    struct pool_statistics (*statistics)(void *ctx, const struct infer_model *m);
    /* HP_ENOENT, HP_EINVAL (sizes), HP_EBUSY (no plan serves yet, or another model by this name
     * than `facts` says), HP_ENOMEM. Of a key: HP_EDENIED, HP_ELIMIT (more than it may ever use at
     * once), HP_ERATE, HP_EQUOTA, and *retry_after_s (left alone otherwise) says when to come
     * again. A sample counts as one token; what was refused or failed before it was computed costs
     * nothing. What `call` points at beside the inputs is read during the call only. */
    int (*infer)(void *ctx, const struct pool_call *call, uint64_t *id, uint32_t *retry_after_s,
                 struct err *e);
    /* No callback comes any more. */
    void (*cancel)(void *ctx, uint64_t id);
};

#endif
