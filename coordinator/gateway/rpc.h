/* Unary calls over gRPC, as libhp-grpc.so carries them (coordinator/gateway/grpc/): a call comes
 * with its method and metadata, its owner asks for the message or not, and answers it once. Knows
 * nothing of what is served.
 *
 * The plugin has a thread of its own for the library's completion queue. It says by `wake` that
 * there are events, and the owner's thread takes them with `next`; all functions but `wake` are
 * that thread's.
 *
 * Bounded: calls at once, bytes of a message, what the library may hold of all connections
 * together, answers that nobody reads, and the time that a caller may take to send or to read. A
 * message is read from its connection only once it was asked for. */
#ifndef HP_COORDINATOR_GATEWAY_RPC_H
#define HP_COORDINATOR_GATEWAY_RPC_H

#include <stdbool.h>
#include <stdint.h>

#include "common/bytes.h"
#include "common/status.h"

#define RPC_MAGIC "hp-grpc/1"
#define RPC_SYMBOL "hp_grpc_plugin"

struct rpc_server;
struct rpc_call;

struct rpc_config {
    uint32_t message_bytes_max;
    uint64_t memory_bytes; /* of all that connections hold, and again of answers that wait for
                              their readers */
    uint32_t calls_max;
    /* Until the caller has sent its message, or read its answer: so long, and a second for every so
     * many bytes of the answer. */
    uint32_t caller_ms, caller_bytes_per_s;
    void *ctx;
    void (*wake)(void *ctx); /* from any thread */
};

/* A call as it came; valid as long as the call is the owner's. NULL: it was not sent. */
struct rpc_head {
    const char *method; /* "/inference.GRPCInferenceService/ModelInfer" */
    const char *authorization, *api_key;
    int connection;  /* the socket that it came by; -1: not known */
    int64_t left_ns; /* until the caller's deadline; INT64_MAX: it has none */
};

enum rpc_event_kind {
    RPC_CALL,    /* a new one: `read` or `answer` it */
    RPC_MESSAGE, /* what it brings, which is the receiver's; none where `missing` says why */
    RPC_GONE     /* the caller is gone or its deadline passed: the call is no longer the owner's */
};

struct rpc_event {
    enum rpc_event_kind kind;
    struct rpc_call *call;
    void *data; /* that the owner keeps with it */
    struct buffer message;
    const char *missing;
};

/* Codes as gRPC numbers them. */
enum rpc_status {
    RPC_OK = 0,
    RPC_INVALID_ARGUMENT = 3,
    RPC_DEADLINE_EXCEEDED = 4,
    RPC_NOT_FOUND = 5,
    RPC_PERMISSION_DENIED = 7,
    RPC_RESOURCE_EXHAUSTED = 8,
    RPC_UNIMPLEMENTED = 12,
    RPC_INTERNAL = 13,
    RPC_UNAVAILABLE = 14,
    RPC_UNAUTHENTICATED = 16
};

struct rpc_answer {
    enum rpc_status status;
    const char *text;       /* why not; of RPC_OK not looked at */
    uint32_t retry_after_s; /* said as "retry-after" in the trailing metadata; 0: nothing is */
    struct buffer *message; /* of RPC_OK; taken */
};

struct rpc_table {
    char magic[16];
    uint64_t bytes;      /* of this struct */
    const char *version; /* of Hodgepodge, the program's own */
    /* HP_ENOMEM. */
    int (*start)(const struct rpc_config *config, struct rpc_server **out, struct err *e);
    /* A connection that was accepted, which is the library's from then on: one that listens by
     * itself never accepts again once it has run out of descriptors. It takes them in the clear
     * alone. */
    void (*connect)(struct rpc_server *s, int fd);
    bool (*next)(struct rpc_server *s, struct rpc_event *out);
    const struct rpc_head *(*head)(const struct rpc_call *c);
    void (*keep)(struct rpc_call *c, void *data);
    void (*read)(struct rpc_call *c);
    /* The call is no longer the owner's. */
    void (*answer)(struct rpc_call *c, const struct rpc_answer *a);
    /* Now and then: cancels the calls whose callers have taken too long. */
    void (*tend)(struct rpc_server *s);
    /* Ends all calls, whose owners hear nothing more, and waits for the thread. */
    void (*stop)(struct rpc_server **s);
};

/* Loads libhp-grpc.so once; it stays. HP_EUNSUPPORTED: it is nowhere, or is of another version. */
int rpc_plugin_load(const struct rpc_table **out, struct err *e);

#endif
