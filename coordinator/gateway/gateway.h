/* The HTTP gateway of the coordinator: the OpenAI dialect, health and metrics. Who may ask what is
 * decided at a request's headers, before its body is read. */
#ifndef HP_COORDINATOR_GATEWAY_GATEWAY_H
#define HP_COORDINATOR_GATEWAY_GATEWAY_H

#include <uv.h>

#include "common/status.h"
#include "coordinator/requests.h"

struct gateway;
struct pool_requests;

enum { GATEWAY_MAX_HOSTS = 64, GATEWAY_BODY_BYTES = 8 << 20, GATEWAY_BODY_BYTES_PER_TOKEN = 16 };

struct gateway_config {
    const char *listen;       /* "127.0.0.1:8080"; port 0: any free one */
    const char *const *hosts; /* names beside those of loopback under which a loopback gateway is
                                 spoken to; borrowed while it runs */
    int n_hosts;
    const char *const *origins; /* whose pages may use the API from browsers: "https://app.example";
                                   borrowed */
    int n_origins;
    const char *certificate_file, *key_file; /* PEM: it speaks HTTPS; NULL: HTTP */
    uint64_t resume_ms; /* so long a request with an Idempotency-Key goes on without a reader, and
                           its answer is kept; 0: COORD_RESUME_MS */
    const char *grpc;   /* where KServe is spoken over gRPC, as `listen`; NULL: nowhere */
    bool open;          /* on loopback no key is needed, although there are some */
    const struct pool_requests *pools; /* outlives the gateway; NULL: there are none */
    uint64_t max_body_bytes; /* 0: GATEWAY_BODY_BYTES, or GATEWAY_BODY_BYTES_PER_TOKEN for each
                                token of the longest context that is served, if that is more */
};

/* `requests` outlives the gateway. HP_EIO when the port is in use; HP_EDENIED beyond loopback while
 * there are no API keys; what tls_files.h says. All on the loop's thread. */
int gateway_start(uv_loop_t *loop, const struct gateway_config *config,
                  const struct requests *requests, struct gateway **out, struct err *e);
int gateway_port(const struct gateway *g);
/* Of gRPC; 0: it does not listen (yet: beyond loopback it waits for the first API key). */
int gateway_grpc_port(const struct gateway *g);
/* From now on new requests are refused (503, and their connections close), while those that are
 * open go on. After `patience_ms` these end with an error. Calls `drained` once, when none is open
 * or none could be ended. */
void gateway_drain(struct gateway *g, uint64_t patience_ms, void (*drained)(void *ctx), void *ctx);
/* Ends open streams and closes its handles; the loop then runs until they are closed. */
void gateway_stop(struct gateway **g);

#endif
