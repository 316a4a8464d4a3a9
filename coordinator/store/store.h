/* What must survive: records of a few kinds, each a key and bytes. One interface, several stores
 * behind it; tests/unit/coordinator/store_test.c is what each of them must satisfy.
 *
 *   agent       name       JSON: key, machine, hostname, node, draining
 *   token       digest     JSON: when it expires, which agent used it
 *   model       id (hex)   the manifest's bytes
 *   deployment  name       JSON: id, spec, generation, session, plan
 *   key         digest     JSON: name of an API key, and what it may do
 *   key_use     digest     JSON: what it has used
 *   link        name       JSON: the links of an agent to others, as measured
 *   profile     model/kind/compute   JSON tables
 *   network_profile  digest          JSON: what was measured of a network on a kind of device
 *   layout      model                JSON stages, where its layers lay last
 *   pools       "workload"           JSON: the workload that was applied
 *   stream      number (hex)         an open request that may be resumed, and NUMBER.end its answer
 *   meta        word       "boot", "next_deployment"
 *   bad         kind/key   what stood there and could not be read
 *
 * A store is used by one thread at a time. All calls may block on the disk: store_queue.h keeps
 * that from the loop. */
#ifndef HP_COORDINATOR_STORE_STORE_H
#define HP_COORDINATOR_STORE_STORE_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

struct store;

struct store_change {
    const char *kind, *key;
    const void *bytes; /* NULL: the record is removed (of one that is not there: nothing) */
    size_t size;
};

enum { STORE_MAX_KEY_BYTES = 512 };

/* Called once per record in the order of keys; a negative return ends the walk and is passed on.
 * Bytes are valid during the call. */
typedef int (*store_each_fn)(void *ctx, const char *key, const void *bytes, size_t size,
                             struct err *e);

/* In a file, made where there is none. HP_EBUSY: another process has it open, and still after two
 * seconds; HP_ECORRUPT, HP_EIO, HP_EUNSUPPORTED (a newer version's). */
int store_open_sqlite(const char *file, struct store **out, struct err *e);
/* In memory: where nothing has to outlive the process, and what outlives a core in the simulated
 * cluster. */
int store_open_memory(struct store **out, struct err *e);
void store_close(struct store **s);

/* All changes or none, on the disk when it returns 0. HP_EIO, HP_ENOSPACE, HP_EINVAL (a key too
 * long or empty). */
int store_apply(struct store *s, const struct store_change *changes, int n, struct err *e);
int store_each(struct store *s, const char *kind, store_each_fn each, void *ctx, struct err *e);

/* The table behind the interface. */
struct store_api {
    void (*close)(struct store *s);
    int (*apply)(struct store *s, const struct store_change *changes, int n, struct err *e);
    int (*each)(struct store *s, const char *kind, store_each_fn each, void *ctx, struct err *e);
};
struct store {
    const struct store_api *api;
};

#endif
