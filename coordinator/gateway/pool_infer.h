/* KServe's requests to the models that pools serve: read, handed to the pools, answered. On the
 * loop's thread; large bodies and answers are read and written in the gateway's lanes. */
#ifndef HP_COORDINATOR_GATEWAY_POOL_INFER_H
#define HP_COORDINATOR_GATEWAY_POOL_INFER_H

#include "coordinator/gateway/kserve.h"
#include "coordinator/gateway/lanes.h"
#include "coordinator/pools/pool_requests.h"

enum {
    POOL_INFER_MOST = 8192,    /* requests at once */
    POOL_INFER_BYTES = 1 << 30 /* of their bodies; a single one passes whatever its size */
};

struct pool_infer_desk {
    const struct pool_requests *pools;
    struct lanes *lanes;
    int open;       /* requests under way */
    uint64_t bytes; /* of their bodies */
};

struct pool_infer;

/* How bodies of one kind of caller are read, and how it is answered. */
struct pool_infer_caller {
    /* As infer_request_read and infer_answer_write; on any thread. */
    int (*read)(const struct infer_model *m, struct buffer *body, size_t json_bytes,
                struct infer_request *out, struct err *e);
    size_t (*write)(const struct infer_model *m, const struct infer_request *r,
                    const struct ndarray *outputs, struct buffer *out);
    /* One of these, once; the answer is taken or freed. */
    void (*answer)(void *caller, struct buffer *answer, size_t json_bytes);
    void (*fail)(void *caller, const struct err *why, uint32_t retry_after_s);
};

/* A request whose body (taken) is there; `left_ns` is its caller's own deadline from now on
 * (INT64_MAX: none). NULL: too much is under way, and the caller has been told. What follows begins
 * with pool_infer_run, from within which it may be answered. */
struct pool_infer *pool_infer_open(struct pool_infer_desk *desk,
                                   const struct pool_infer_caller *how, void *caller,
                                   const struct infer_model *m, const char *client,
                                   struct buffer *body, size_t json_bytes, int64_t left_ns);
void pool_infer_run(struct pool_infer *p);
/* The caller is gone: it is told nothing more. */
void pool_infer_leave(struct pool_infer *p);

/* The table that kserve.h takes; `desk` outlives it. */
struct kserve_backend pool_infer_backend(struct pool_infer_desk *desk);

#endif
