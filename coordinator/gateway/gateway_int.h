/* What the two halves of the gateway share: gateway.c starts, refuses and stops, gateway_routes.c
 * says who answers which path. */
#ifndef HP_COORDINATOR_GATEWAY_GATEWAY_INT_H
#define HP_COORDINATOR_GATEWAY_GATEWAY_INT_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "coordinator/gateway/access.h"
#include "coordinator/gateway/dialect.h"
#include "coordinator/gateway/embedding_body.h"
#include "coordinator/gateway/gateway.h"
#include "coordinator/gateway/http.h"
#include "coordinator/gateway/kserve_rpc.h"
#include "coordinator/gateway/live.h"
#include "coordinator/gateway/openai.h"
#include "coordinator/gateway/pool_infer.h"
#include "coordinator/gateway/text_api.h"

struct gateway {
    struct http_server *http;
    uv_loop_t *loop;
    struct gateway_config config;
    struct access access;
    struct openai openai;
    struct pool_infer_desk pools;
    struct kserve_backend kserve;
    struct kserve_rpc *rpc; /* NULL: it does not listen */
    const struct requests *requests;
    struct live live;
    bool draining;
    uv_timer_t drain, pulse;
    int handles; /* of these, open */
    uint64_t drain_until_ns;
    void (*drained)(void *ctx);
    void *drained_ctx;
};

/* A request that a route answers, or takes over. */
struct gateway_call {
    struct gateway *g;
    struct http_exchange *x;
    const struct gateway_route *route;
    const char *rest; /* what follows the route's path */
    char client[REQUEST_CLIENT_BYTES];
};

/* A row of the table of routes, with what its handler has to know beside the path. */
struct gateway_route {
    const char *method, *path; /* a path that ends in "/" serves what lies below it, but for "/" */
    void (*handle)(const struct gateway_call *c);
    bool whole;                    /* about all deployments: not for keys that may use some */
    bool looks;                    /* a POST that asks for no work: no limit is counted */
    bool open;                     /* needs no key, and is answered while the gateway drains */
    const struct dialect *dialect; /* of post_completion, as `chat`: a body of messages */
    bool chat;
    enum text_task task;            /* of post_text */
    enum embedding_form form;       /* of post_embedding */
    bool kserve;                    /* of any_kserve: the body's limit is the model's */
    bool running;                   /* of get_ollama_list: the models that run, not all */
    enum request_document document; /* of get_document */
};

/* The route of a request; NULL: there is none, and the request has been answered so. */
const struct gateway_route *gateway_route_find(struct http_exchange *x,
                                               const struct http_request *r);
/* What follows the route's path in one of its paths; NULL: the path is another's. */
const char *gateway_route_rest(const struct gateway_route *route, const char *path);

#endif
