/* Where a device's memory and threads lie on a box with several NUMA nodes: on the nodes of its
 * cores. Memory of a device whose cores are of one node is taken there while there is room; of a
 * device whose cores are of several, page by page from each of them in turns, since any thread may
 * come to any part of a weight. Each thread keeps to the cores of one node, and what it alone uses
 * lies where it first writes. A box with one node has none of this: NULL, and nothing is asked of
 * the system.
 *
 * Files' pages that are used where they are mapped lie where the system read them. */
#ifndef HP_AGENT_BACKEND_CPU_NUMA_H
#define HP_AGENT_BACKEND_CPU_NUMA_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/status.h"

struct numa;

/* For tests: a box in hwloc's words ("node:2 core:4 pu:1") instead of this one, and what is asked
 * of its system: nodes as hwloc prints them ("0-1"); false: refused. */
struct numa_box {
    const char *tree;
    bool (*bind)(void *ctx, void *area, size_t bytes, const char *nodes, bool in_turns);
    void *ctx;
};

/* Of a device on these cores (NULL: those that the process may use). *out is NULL where all of the
 * box's memory is one node. HP_EDEVICE, HP_ENOMEM. `box`: NULL for this one, outlives it. */
int numa_create(const struct numa_box *box, const int *cores, int n_cores, struct numa **out,
                struct err *e);
void numa_destroy(struct numa **p);

/* Says where these pages, which nobody has written to, will lie. From any thread; does nothing for
 * NULL. */
void numa_take(struct numa *p, void *area, size_t bytes);
/* The cores that thread i of n keeps to: those of the device's on one node. */
void numa_thread_cores(const struct numa *p, int i, int n, cpu_set_t *out);

/* "NUMA node 1", "NUMA nodes 0-1 in turns". */
const char *numa_text(const struct numa *p);
/* Whether the system has refused to place some memory: it lies where it was first written to. */
bool numa_refused(const struct numa *p);

#endif
