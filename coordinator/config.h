/* What a core is made with. */
#ifndef HP_COORDINATOR_CONFIG_H
#define HP_COORDINATOR_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#include "common/bytes.h"
#include "common/pack.h"
#include "transport/data_choice.h"

struct env;
struct err;

struct coord_config {
    const struct env *env;
    const char *cluster;    /* its name, for people */
    const char *version;    /* of the program */
    const char *public_key; /* of the control channel, for join tokens */
    const char *admin_key;  /* public key whose owner may ask anything; "" nobody */
    const char *http; /* where the HTTP API is to listen, ADDR:PORT; NULL or "": there is none. Told
                         to hpctl, and not used otherwise */
    struct data_policy data; /* which data endpoints agents open; empty: auto, no trusted network */
    uint64_t unix_s;         /* wall clock at coord_create */
    uint32_t max_sequences;  /* at once in a deployment, where memory allows; 0: 8 */
    double time_scale;       /* deadlines of sequences stretch by it; 0: 1 */
    uint64_t resume_ms;      /* so long agents go on without a coordinator; 0: as they have it */
    uint64_t profile_ms;     /* 0: COORD_PROFILE_MS; UINT64_MAX: never measure, estimate */
    /* The last lines of the coordinator's own log, for `logs {node: "coordinator"}`; NULL: there
     * are none. */
    void (*log_read)(void *ctx, size_t lines, struct buffer *out);
    void *log_ctx;
    /* Where results of pools come: the address of the coordinator's own data endpoint, which is
     * opened, of the kind that this agent's is, where that has not happened yet. NULL: there is
     * none. */
    int (*data_open)(void *ctx, struct pack_span agent, struct pack_span *own, struct err *e);
    void *data_ctx;
    /* Called within a call of requests.h that has left something to be taken (coord_take), on the
     * same thread; NULL: whoever calls takes afterwards. */
    void (*wake)(void *ctx);
    void *wake_ctx;
};

#endif
