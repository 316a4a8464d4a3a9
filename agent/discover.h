/* What this box has: sockets, cores, caches and memory (hwloc, control group), network interfaces
 * and their speeds (sysfs). All read-only. */
#ifndef HP_AGENT_DISCOVER_H
#define HP_AGENT_DISCOVER_H

#include <stdint.h>

#include "agent/backend/backend.h"
#include "common/bytes.h"
#include "common/status.h"

struct nvml;

enum {
    DISCOVER_MAX_CORES = 1024,
    DISCOVER_MAX_DEVICES = 16,
    DISCOVER_DEVICE_NAME = 12,
    DISCOVER_MODEL = 96,
    DISCOVER_KIND = 128,
    DISCOVER_MAX_POOL = 1 << 30,
    DISCOVER_MAX_PROCESS = 64 << 20
};

/* A part of the share that computes by itself, or a GPU. */
struct discover_device {
    char name[DISCOVER_DEVICE_NAME]; /* "cpu"; "cpu0", "cpu1", … where there are several; "cuda0";
                                        "cuda0-0", "cuda0-1", … where it has several shares */
    const struct backend *backend;   /* of a GPU: its plugin's; NULL: cpu */
    int ordinal;                     /* which of the box's GPUs */
    struct device_part part;         /* of that */
    int multiprocessors, all_multiprocessors; /* of the part, of the GPU */
    const char *kept_by;        /* what keeps the part to these: "green context", "MPS"; or NULL */
    char model[DISCOVER_MODEL]; /* "NVIDIA H100 80GB HBM3" */
    int first_core, n_cores;    /* its run in the share's cores */
    int n_threads;
    uint64_t host_bytes;   /* of a GPU: of the box's memory, for what it reads there */
    uint64_t small_bytes;  /* of a GPU: weights of at most so many bytes are among that */
    uint64_t memory_bytes; /* for its stages: weights, KV cache, activations, work space */
};

/* What an agent may use. */
struct discover_share {
    int cores[DISCOVER_MAX_CORES]; /* processing units, as the system numbers them */
    int n_cores;
    int n_threads;
    uint64_t memory_bytes; /* of all that it does */
    struct discover_device devices[DISCOVER_MAX_DEVICES];
    int n_devices; /* of `devices`; 0: one device, which has all (discover_device_at) */
};

/* How many devices there are, and one of them. */
int discover_device_count(const struct discover_share *s);
struct discover_device discover_device_at(const struct discover_share *s, int i);

/* How the memory is divided: the data channel's pool (a sixteenth, at most 1 GiB; what is received,
 * and a quarter beside it for what is sent), the process itself (a sixteenth, at most 64 MiB), and
 * the rest for stages: weights, KV cache, activations, work space. The rest is what the cluster is
 * told. */
uint64_t discover_pool_bytes(const struct discover_share *s);
uint64_t discover_stage_bytes(const struct discover_share *s);

/* `cores` is NULL (all that the process may use), a list "0,2-3", or "any:4"; `threads` 0: one for
 * each physical core among them, no more than the control groups' quota has whole cores;
 * `memory_bytes` 0: nine tenths of what the box, or the tightest control group (host_limits.h),
 * has; more than that is cut to it, with a warning. HP_EUSAGE for cores that there are not,
 * HP_EDEVICE when the box cannot be read. */
int discover_share(const char *cores, int threads, uint64_t memory_bytes,
                   struct discover_share *out, struct err *e);

/* Threads that compute on these cores where nobody says how many: one for each physical core among
 * them, no more than `part` of the control groups' quota has whole cores, and at least one.
 * HP_EDEVICE. */
int discover_threads(const int *cores, int n_cores, double part, int *out, struct err *e);

/* Appends a node of hp-cluster/1 as JSON: the share's devices, its NICs (of `network` alone where
 * that is given), and beside these what people want to see ("cores", "packages", "caches", "numa"),
 * and its GPUs (discover_gpus.h). `kinds` gets the kind of each device: CPU model, cores and
 * threads, the same on equal boxes and for equal parts of a box. */
int discover_node(const char *name, const struct discover_share *share, const char *network,
                  struct buffer *json, char (*kinds)[DISCOVER_KIND], struct err *e);

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
                     char (*kinds)[DISCOVER_KIND], struct err *e);

/* The same from a folder that looks like /sys/class/net; what discover_node uses, open to tests.
 * Appends a JSON array. */
int discover_nics(const char *folder, const char *network, struct buffer *json, struct err *e);

#endif
