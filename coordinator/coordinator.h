/* The coordinator's shell: it owns loop handles, sockets, the store and the clock, feeds the core
 * (core.h) and does what its actions say.
 *
 * State lies in one folder:
 *     server.key         of the control channel; made on first start, mode 0600
 *     admin.key          whose owner may ask anything: hpctl's; made on first start
 *     store.db           what must survive (store/store.h)
 *     coordinator.json   {"pid", "control", "http", "grpc", "public_key"}: where it listens,
 *                        written when it does
 *     models/ID/         heads of the models that are deployed */
#ifndef HP_COORDINATOR_COORDINATOR_H
#define HP_COORDINATOR_COORDINATOR_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/status.h"
#include "transport/data_choice.h"

struct control_hub;
struct coordinator;

struct coordinator_config {
    const char *dir;               /* made where it is missing */
    const char *listen;            /* "127.0.0.1:7070"; port 0: any free one; a name within `hub` */
    struct control_hub *hub;       /* NULL: ZeroMQ; else the twin within this process */
    bool forgets;                  /* nothing has to outlive this run: what is stored is memory's */
    const char *http;              /* "127.0.0.1:8080"; "none": no gateway */
    const char *grpc;              /* KServe over gRPC, as `http`; NULL: nowhere */
    const char *name;              /* of the cluster */
    const char *const *http_hosts; /* names beside loopback's under which a loopback gateway is
                                      spoken to; borrowed until coordinator_close */
    int n_http_hosts;
    const char *const *http_origins; /* whose pages may use the API; borrowed while it runs */
    int n_http_origins;
    const char *http_certificate, *http_key; /* files, PEM: the gateway speaks HTTPS; NULL: HTTP */
    bool http_open; /* on loopback the gateway needs no key, although there are some */
    uint64_t http_max_body_bytes; /* 0: as gateway.h says */
    uint64_t resume_ms; /* so long agents go on without a coordinator, requests that may be resumed
                           without a reader, and whole answers are kept; 0: COORD_RESUME_MS,
                           and agents as they have it */
    struct data_policy
        data; /* which data endpoints its agents open; empty: auto, no trusted network */
};

/* Makes folder and keys, where they are missing, and nothing else. */
int coordinator_init(const char *dir, struct err *e);
/* Starts on a loop that the caller runs. HP_EIO (a port in use, saying so), HP_EBUSY (another
 * coordinator has the folder), HP_EDENIED (key files that others may read), HP_ECORRUPT and what
 * the store says. Beyond loopback the gateway waits until there is an API key. */
int coordinator_open(uv_loop_t *loop, const struct coordinator_config *config,
                     struct coordinator **out, struct err *e);
/* Before coordinator_close: the gateway takes no new requests, and those that are open may go on
 * for `patience_ms`; then they end with an error. Calls `drained` once, from the loop or at once
 * where there is no gateway. */
void coordinator_drain(struct coordinator *c, uint64_t patience_ms, void (*drained)(void *ctx),
                       void *ctx);
/* Closes all; the loop runs until the handles are closed. */
void coordinator_close(struct coordinator **c);

/* Where it listens: "127.0.0.1:40123"; "" for a gateway that is not there. */
const char *coordinator_control_address(const struct coordinator *c);
const char *coordinator_http_address(const struct coordinator *c);
const char *coordinator_public_key(const struct coordinator *c);

#endif
