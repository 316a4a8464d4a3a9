/* What the networks of one device hold there, all together: their bytes count against the device's
 * limit, beside what its owner holds, and what several of them have alike is there once: two plans
 * of pools, while one takes over from the other, have most of their weights so. Any thread.
 *
 * A device whose own memory the networks allocate counts that itself (backend.h); of the host's
 * they only say it (`memory_reserve`). */
#ifndef HP_AGENT_ENGINE_NETWORK_NETWORK_MEMORY_H
#define HP_AGENT_ENGINE_NETWORK_NETWORK_MEMORY_H

#include "agent/backend/backend.h"

struct network_memory;

/* Of one network: alike is only what networks of the same file have. */
struct network_account {
    struct network_memory *memory; /* NULL: it has all for itself, and nobody counts */
    uint64_t file;                 /* the same number for the same file */
};

/* `device` outlives it. HP_ENOMEM. */
int network_memory_create(struct device *device, struct network_memory **out, struct err *e);
/* After all networks. */
void network_memory_destroy(struct network_memory **m);

/* Bytes that one network alone holds. HP_ENOMEM says how many are missing. */
int network_memory_take(const struct network_account *a, uint64_t bytes, const char *what,
                        struct err *e);
void network_memory_give(const struct network_account *a, uint64_t bytes);

/* What networks of a file have alike is known by these. */
struct network_alike {
    uint64_t hash, bytes;
};
/* Makes it where nobody has it yet, while others wait; failures are its own. */
typedef int (*network_alike_make_fn)(void *ctx, void **out, struct err *e);
typedef void (*network_alike_free_fn)(void *ctx, void *made);

/* *out is what the first who asked has made (`make` NULL: nothing is made, it is only counted
 * once), and stays until all who hold it have dropped it. `counted_bytes` are the host's. As
 * network_memory_take and `make` fail. */
int network_memory_hold(const struct network_account *a, const struct network_alike *k,
                        uint64_t counted_bytes, const char *what, network_alike_make_fn make,
                        void *ctx, void **out, struct err *e);
/* The last who drops it frees it. Without a memory it is freed at once. */
void network_memory_drop(const struct network_account *a, const struct network_alike *k,
                         network_alike_free_fn release, void *ctx, void *made);

/* Bytes that are counted now. */
uint64_t network_memory_bytes(struct network_memory *m);

#endif
