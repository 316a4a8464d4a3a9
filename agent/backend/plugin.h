/* Backends that come as a shared object beside the program, loaded where a device asks for one:
 * libhp-cuda.so, found by the variable HP_CUDA_PLUGIN, beside hp-agent, in ../lib/hodgepodge, or
 * where the dynamic linker looks. */
#ifndef HP_AGENT_BACKEND_PLUGIN_H
#define HP_AGENT_BACKEND_PLUGIN_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/backend/backend.h"

#define PLUGIN_MAGIC "hp-backend/1"
#define PLUGIN_SYMBOL "hp_backend_plugin"

/* Of this header and all that it includes, a checksum: structs and functions that the two sides
 * share look alike where it is the same (tools/plugin_interface writes it). */
extern const char plugin_interface[];

/* A device of a plugin, before it is opened. */
enum { PLUGIN_NAME = 128 };
struct plugin_facts {
    char name[PLUGIN_NAME]; /* "NVIDIA H100 80GB HBM3" */
    uint64_t total_bytes, free_bytes;
    int multiprocessors, all_multiprocessors; /* of the part, of the GPU; 0: MPS hides it */
    const char *kept_by; /* "green context" or "MPS": what keeps a part to these; NULL: it is all */
};

/* What a plugin exports as PLUGIN_SYMBOL. */
struct plugin {
    char magic[16];
    uint64_t bytes;        /* of this struct */
    const char *version;   /* of Hodgepodge, the program's own */
    const char *interface; /* plugin_interface */
    const struct backend *backend;
    /* HP_EDEVICE says why there is none: no driver, one that is too old, no such device, or that it
     * has no such parts. The part may be opened from then on. */
    int (*facts)(int ordinal, const struct device_part *part, struct plugin_facts *out,
                 struct err *e);
};

/* Loads libhp-cuda.so once; it stays. One thread at a time. HP_EDEVICE: it is nowhere, or is of
 * another version. */
int plugin_cuda(const struct plugin **out, struct err *e);
/* Whether there is one to load, though it may fail to (common/plugin_object.h). */
bool plugin_cuda_is_there(void);

#endif
