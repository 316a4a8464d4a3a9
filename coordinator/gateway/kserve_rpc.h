/* The KServe v2 protocol over gRPC: GRPCInferenceService of package `inference`, on an address of
 * its own beside HTTP's. Which models there are, who may use them and what runs them is what it is
 * over HTTP (kserve.h, access.h, pool_infer.h); why something is refused is said in the same words,
 * as the status of the call. On the loop's thread; libgrpc is loaded when it starts (rpc.h). */
#ifndef HP_COORDINATOR_GATEWAY_KSERVE_RPC_H
#define HP_COORDINATOR_GATEWAY_KSERVE_RPC_H

#include <uv.h>

#include "coordinator/gateway/access.h"
#include "coordinator/gateway/kserve.h"
#include "coordinator/gateway/pool_infer.h"

enum {
    KSERVE_RPC_CALLS = 4096,
    KSERVE_RPC_MESSAGE_BYTES = 256 << 20,
    KSERVE_RPC_MEMORY_BYTES = 512 << 20,  /* that connections may hold; more ends the largest */
    KSERVE_RPC_MESSAGE_MS = 30000,        /* until a call's message is there, or its answer read, */
    KSERVE_RPC_ANSWER_BYTES_PER_S = 65536 /* and a second more for so many bytes of this */
};

struct kserve_rpc;

struct kserve_rpc_config {
    const char *listen; /* "127.0.0.1:8001"; port 0: any free one */
    bool encrypted;     /* the API is to be spoken by TLS, which this is not: loopback alone */
    const struct requests *requests;
    bool open; /* on loopback no key is needed, although there are some */
    const struct kserve_backend *kserve;
    struct pool_infer_desk *desk;
};

/* `config` and what it points at outlive it, but for `listen`. HP_EUNSUPPORTED: there is no gRPC
 * here; HP_EDENIED beyond loopback while there are no API keys; HP_EUSAGE, HP_EIO. */
int kserve_rpc_start(uv_loop_t *loop, const struct kserve_rpc_config *config,
                     struct kserve_rpc **out, struct err *e);
int kserve_rpc_port(const struct kserve_rpc *k);
/* New calls are refused; how many are open. */
void kserve_rpc_drain(struct kserve_rpc *k);
int kserve_rpc_open(const struct kserve_rpc *k);
/* Ends all calls; the loop then runs until its handles are closed. */
void kserve_rpc_stop(struct kserve_rpc **k);

#endif
