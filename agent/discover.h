/* What this box has: sockets, cores, caches and memory (hwloc, control group), network interfaces
 * and their speeds (sysfs). All read-only. */
#ifndef HP_AGENT_DISCOVER_H
#define HP_AGENT_DISCOVER_H

#include <stdint.h>

#include "common/bytes.h"
#include "common/status.h"

struct nvml;

enum {
    DISCOVER_MAX_CORES = 1024,
    DISCOVER_KIND = 128,
    DISCOVER_MAX_POOL = 1 << 30,
    DISCOVER_MAX_PROCESS = 64 << 20
};

/* What an agent may use. */
struct discover_share {
    int cores[DISCOVER_MAX_CORES]; /* processing units, as the system numbers them */
    int n_cores;
    int n_threads;
    uint64_t memory_bytes; /* of all that it does */
};

/* How the memory is divided: the data channel's pool (a sixteenth, at most 1 GiB; what is received,
 * and a quarter beside it for what is sent), the process itself (a sixteenth, at most 64 MiB), and
 * the rest for stages: weights, KV cache, activations, work space. The rest is what the cluster is
 * told. */
uint64_t discover_pool_bytes(const struct discover_share *s);
uint64_t discover_stage_bytes(const struct discover_share *s);

/* `cores` is NULL (all that the process may use), a list "0,2-3", or "any:4"; `threads` 0: one for
 * each physical core among them, no more than the control groups' quota has whole cores;
 * `memory_bytes` 0: nine tenths of what the box, or the tightest control group (discover_limits.h),
 * has; more than that is cut to it, with a warning. HP_EUSAGE for cores that there are not,
 * HP_EDEVICE when the box cannot be read. */
int discover_share(const char *cores, int threads, uint64_t memory_bytes,
                   struct discover_share *out, struct err *e);

/* Appends a node of hp-cluster/1 as JSON: its one device `cpu` with the share's memory, its NICs
 * (of `network` alone where that is given), and beside these what people want to see ("cores",
 * "packages", "caches", "numa"), and its GPUs (discover_gpus.h). `kind` gets the device's kind: CPU
 * model, cores and threads, the same on equal boxes. */
int discover_node(const char *name, const struct discover_share *share, const char *network,
                  struct buffer *json, char kind[DISCOVER_KIND], struct err *e);

/* Where to look, for tests: all NULL is this box. */
struct discover_box {
    const char *tree_file;      /* XML as hwloc writes it (lstopo --of xml) */
    const char *tree_synthetic; /* hwloc's words: "node:2 core:4 pu:1" */
    const char *net_folder;     /* looks like /sys/class/net */
    const struct nvml
        *nvml; /* instead of the library; with a tree of its own there is none otherwise */
};
int discover_node_of(const struct discover_box *box, const char *name,
                     const struct discover_share *share, const char *network, struct buffer *json,
                     char kind[DISCOVER_KIND], struct err *e);

/* The same from a folder that looks like /sys/class/net; what discover_node uses, open to tests.
 * Appends a JSON array. */
int discover_nics(const char *folder, const char *network, struct buffer *json, struct err *e);

#endif
