#include "agent/backend/cpu/numa.h"

#include <hwloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMA_MAX_CORES = 1024 };

struct numa {
    const struct numa_box *box; /* NULL: this one */
    hwloc_topology_t tree;
    hwloc_bitmap_t nodes;
    bool in_turns; /* several nodes */
    char nodes_said[64], text[96];
    atomic_bool refused;
    int n_cores, cores[NUMA_MAX_CORES]; /* of the device, node by node */
    int node_of[NUMA_MAX_CORES];
};

/* Whether this box has memory on one node alone, as most have: the tree is not read then. */
static bool box_has_one_node(void)
{
    char line[64] = "";
    FILE *f = fopen("/sys/devices/system/node/has_memory", "re");
    bool one = !f || !fgets(line, sizeof line, f) || !strpbrk(line, ",-");
    if (f)
        fclose(f);
    return one;
}

static int tree_open(struct numa *p, struct err *e)
{
    if (hwloc_topology_init(&p->tree) != 0) {
        p->tree = NULL;
        return err_set(e, HP_EDEVICE, "hwloc cannot start");
    }
    if (p->box && hwloc_topology_set_synthetic(p->tree, p->box->tree) != 0)
        return err_set(e, HP_EINVAL, "%s: hwloc knows no such box", p->box->tree);
    return hwloc_topology_load(p->tree) == 0 ? 0
                                             : err_set(e, HP_EDEVICE, "hwloc cannot read this box");
}

/* The device's cores in the order of their nodes, and which nodes these are. */
static void cores_place(struct numa *p, const cpu_set_t *mine)
{
    int n = hwloc_get_nbobjs_by_type(p->tree, HWLOC_OBJ_NUMANODE);
    for (int i = 0; i < n; i++) {
        hwloc_obj_t node = hwloc_get_obj_by_type(p->tree, HWLOC_OBJ_NUMANODE, (unsigned)i);
        int core;
        hwloc_bitmap_foreach_begin(core, node->cpuset) if (p->n_cores < NUMA_MAX_CORES &&
                                                           core < CPU_SETSIZE &&
                                                           CPU_ISSET((size_t)core, mine))
        {
            p->cores[p->n_cores] = core;
            p->node_of[p->n_cores++] = (int)node->os_index;
            hwloc_bitmap_set(p->nodes, node->os_index);
        }
        hwloc_bitmap_foreach_end();
    }
}

static void cores_wanted(const int *cores, int n_cores, cpu_set_t *out)
{
    CPU_ZERO(out);
    if (!cores || n_cores < 1)
        sched_getaffinity(0, sizeof *out, out);
    for (int i = 0; cores && i < n_cores; i++)
        if (cores[i] >= 0 && cores[i] < CPU_SETSIZE)
            CPU_SET((size_t)cores[i], out);
}

int numa_create(const struct numa_box *box, const int *cores, int n_cores, struct numa **out,
                struct err *e)
{
    cpu_set_t mine;
    *out = NULL;
    if (!box && box_has_one_node())
        return 0;
    struct numa *p = calloc(1, sizeof *p);
    if (!p)
        return err_set(e, HP_ENOMEM, "no memory for a device");
    p->box = box;
    p->nodes = hwloc_bitmap_alloc();
    int rc = p->nodes ? tree_open(p, e) : err_set(e, HP_ENOMEM, "no memory for a device");
    if (rc == 0) {
        cores_wanted(cores, n_cores, &mine);
        cores_place(p, &mine);
    }
    bool one_node = rc == 0 && (hwloc_get_nbobjs_by_type(p->tree, HWLOC_OBJ_NUMANODE) < 2 ||
                                hwloc_bitmap_iszero(p->nodes));
    if (rc < 0 || one_node) {
        numa_destroy(&p);
        return rc;
    }
    p->in_turns = hwloc_bitmap_weight(p->nodes) > 1;
    hwloc_bitmap_list_snprintf(p->nodes_said, sizeof p->nodes_said, p->nodes);
    snprintf(p->text, sizeof p->text, "NUMA node%s %s%s", p->in_turns ? "s" : "", p->nodes_said,
             p->in_turns ? " in turns" : "");
    *out = p;
    return 0;
}

void numa_destroy(struct numa **self)
{
    struct numa *p = *self;
    *self = NULL;
    if (!p)
        return;
    if (p->tree)
        hwloc_topology_destroy(p->tree);
    hwloc_bitmap_free(p->nodes);
    free(p);
}

static bool area_bind(const struct numa *p, void *area, size_t bytes)
{
    if (p->box)
        return p->box->bind(p->box->ctx, area, bytes, p->nodes_said, p->in_turns);
    /* Not strict: Linux prefers the node and takes others where it is full (MPOL_PREFERRED_MANY).
     */
    return hwloc_set_area_membind(p->tree, area, bytes, p->nodes,
                                  p->in_turns ? HWLOC_MEMBIND_INTERLEAVE : HWLOC_MEMBIND_BIND,
                                  HWLOC_MEMBIND_BYNODESET) == 0;
}

void numa_take(struct numa *p, void *area, size_t bytes)
{
    if (p && bytes && !area_bind(p, area, bytes))
        atomic_store(&p->refused, true);
}

void numa_thread_cores(const struct numa *p, int i, int n, cpu_set_t *out)
{
    int node = p->node_of[(long)i * p->n_cores / n % p->n_cores];
    CPU_ZERO(out);
    for (int k = 0; k < p->n_cores; k++)
        if (p->node_of[k] == node)
            CPU_SET((size_t)p->cores[k], out);
}

const char *numa_text(const struct numa *p)
{
    return p->text;
}

bool numa_refused(const struct numa *p)
{
    return atomic_load(&p->refused);
}
