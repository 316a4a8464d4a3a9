/* A device beside the host on which networks run: a stream on some of it, a copy of a plan's arena,
 * and the weights that its plans read there. Used by one thread, but for the device, which is
 * somebody else's too. */
#ifndef HP_AGENT_ENGINE_NETWORK_NETWORK_DEVICE_H
#define HP_AGENT_ENGINE_NETWORK_NETWORK_DEVICE_H

#include "agent/backend/arrays.h"
#include "agent/engine/network/network_memory.h"

struct network_device {
    struct device *device;
    struct network_account account;
    const struct backend *backend;
    const struct backend_arrays *arrays;
    struct stream *stream;
    struct memory arena;
    struct network_kept *kept;
    int n_kept, room_kept;
    uint64_t kept_bytes;
    bool sends; /* what the host has written is on its way */
};

/* Part `part` of as many equal parts of a device, which outlives it. What is kept there is that of
 * the account's (NULL: it has none) other networks, too. The calling thread is the one that uses
 * it. HP_EUNSUPPORTED: it has no such parts, or its backend runs no networks; HP_ENOMEM,
 * HP_EDEVICE. */
int network_device_open(struct device *d, int part, int parts,
                        const struct network_account *account, struct network_device **out,
                        struct err *e);
/* After all plans and operators on it. */
void network_device_close(struct network_device **d);

/* An arena of at least so many bytes; what was in it is lost where it grows. HP_ENOMEM. */
int network_device_arena(struct network_device *d, uint64_t bytes, struct err *e);
/* The host's bytes (whole floats) there, once for all who have the same; `stays`: nothing else will
 * lie where they do as long as the device is open, so that a look tells. They are there until it is
 * closed, and are read from the host until network_device_wait. HP_ENOMEM. */
int network_device_keep(struct network_device *d, const void *data, uint64_t bytes, bool stays,
                        const void **out, struct err *e);
/* Lets go of all that is kept. */
void network_device_clear(struct network_device *d);
/* Bytes between the host and memory of the device; those to the host are there after the wait. */
void network_device_send(struct network_device *d, void *to, const void *from, uint64_t bytes);
void network_device_fetch(struct network_device *d, void *to, const void *from, uint64_t bytes);
/* Until all is done. HP_EDEVICE, HP_ENOMEM. */
int network_device_wait(struct network_device *d, struct err *e);
/* Of its arena and what it keeps. */
uint64_t network_device_bytes(const struct network_device *d);

#endif
