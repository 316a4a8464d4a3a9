/* Owns what the agent may use of its box: which cores, how many threads, how much memory. */
#include <ctype.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/discover_int.h"
#include "common/host_limits.h"
#include "common/log.h"

static const struct discover_box this_box;

/* ---- the tree ---- */

int discover_tree_open(const struct discover_box *box, hwloc_topology_t *out, struct err *e)
{
    int rc = 0;
    if (hwloc_topology_init(out) != 0)
        return err_set(e, HP_EDEVICE, "hwloc cannot start");
    if (box->tree_file)
        rc = hwloc_topology_set_xml(*out, box->tree_file);
    else if (box->tree_synthetic)
        rc = hwloc_topology_set_synthetic(*out, box->tree_synthetic);
    hwloc_topology_set_io_types_filter(*out, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    if (rc == 0 && hwloc_topology_load(*out) == 0)
        return 0;
    hwloc_topology_destroy(*out);
    return err_set(e, HP_EDEVICE, "hwloc cannot read this box");
}

static int core_add(struct discover_share *out, const cpu_set_t *allowed, long core,
                    const char *text, struct err *e)
{
    if (core < 0 || core >= CPU_SETSIZE || !CPU_ISSET((size_t)core, allowed) ||
        out->n_cores == DISCOVER_MAX_CORES)
        return err_set(e, HP_EUSAGE, "--cores %s: core %ld is not one that this process may use",
                       text, core);
    for (int i = 0; i < out->n_cores; i++)
        if (out->cores[i] == core)
            return err_set(e, HP_EUSAGE, "--cores %s: core %ld is named twice", text, core);
    out->cores[out->n_cores++] = (int)core;
    return 0;
}

static int cores_list(const char *text, const cpu_set_t *allowed, struct discover_share *out,
                      struct err *e)
{
    const char *p = text;
    while (*p) {
        char *end;
        long from = isdigit((unsigned char)*p) ? strtol(p, &end, 10) : -1, to = from;
        if (from >= 0 && *end == '-' && isdigit((unsigned char)end[1]))
            to = strtol(end + 1, &end, 10);
        if (from < 0 || to < from || (*end && (*end != ',' || !end[1])))
            return err_set(e, HP_EUSAGE,
                           "--cores %s: is neither a list such as 0,2-3 nor any:COUNT", text);
        for (long core = from; core <= to; core++) {
            int rc = core_add(out, allowed, core, text, e);
            if (rc < 0)
                return rc;
        }
        p = *end ? end + 1 : end;
    }
    return 0;
}

static int cores_read(const char *text, struct discover_share *out, struct err *e)
{
    cpu_set_t allowed;
    long most = DISCOVER_MAX_CORES;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return err_set(e, HP_EDEVICE, "cannot read which cores this process may use: %s",
                       strerror(errno));
    out->n_cores = 0;
    if (text && strncmp(text, "any:", 4) != 0)
        return *text ? cores_list(text, &allowed, out, e)
                     : err_set(e, HP_EUSAGE, "--cores names no core");
    if (text) {
        char *end;
        most = strtol(text + 4, &end, 10);
        if (*end || most < 1 || most > CPU_COUNT(&allowed))
            return err_set(e, HP_EUSAGE, "--cores %s: this process may use %d cores", text,
                           CPU_COUNT(&allowed));
    }
    for (size_t i = 0; i < CPU_SETSIZE && out->n_cores < most; i++)
        if (CPU_ISSET(i, &allowed))
            out->cores[out->n_cores++] = (int)i;
    return 0;
}

/* Physical cores among processing units. */
static int physical_cores(hwloc_topology_t t, const int *cores, int n_cores)
{
    hwloc_bitmap_t mine = hwloc_bitmap_alloc();
    for (int i = 0; mine && i < n_cores; i++)
        hwloc_bitmap_set(mine, (unsigned)cores[i]);
    int n = 0, all = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_CORE);
    for (int i = 0; mine && i < all; i++)
        n += hwloc_bitmap_intersects(hwloc_get_obj_by_type(t, HWLOC_OBJ_CORE, (unsigned)i)->cpuset,
                                     mine) != 0;
    hwloc_bitmap_free(mine);
    return n > 0 ? n : n_cores;
}

/* More threads than the quota has cores would only be stopped in the middle of their work. */
static int threads_limit(int n, double cpus)
{
    int whole = cpus > 1 ? (int)cpus : 1;
    return cpus > 0 && whole < n ? whole : n;
}

int discover_threads(const int *cores, int n_cores, double part, int *out, struct err *e)
{
    hwloc_topology_t t;
    struct host_limits limits;
    int rc = discover_tree_open(&this_box, &t, e);
    if (rc < 0)
        return rc;
    host_limits_read("", &limits);
    *out = threads_limit(physical_cores(t, cores, n_cores), limits.cpus * part);
    hwloc_topology_destroy(t);
    return 0;
}

uint64_t discover_pool_bytes(const struct discover_share *s)
{
    uint64_t part = s->memory_bytes / 16;
    return part < DISCOVER_MAX_POOL ? part : DISCOVER_MAX_POOL;
}

uint64_t discover_stage_bytes(const struct discover_share *s)
{
    uint64_t process =
        s->memory_bytes / 16 < DISCOVER_MAX_PROCESS ? s->memory_bytes / 16 : DISCOVER_MAX_PROCESS;
    return s->memory_bytes - discover_pool_bytes(s) / 4 * 5 - process;
}

int discover_device_count(const struct discover_share *s)
{
    return s->n_devices ? s->n_devices : 1;
}

struct discover_device discover_device_at(const struct discover_share *s, int i)
{
    return s->n_devices ? s->devices[i]
                        : (struct discover_device){.name = "cpu",
                                                   .n_cores = s->n_cores,
                                                   .n_threads = s->n_threads,
                                                   .memory_bytes = discover_stage_bytes(s)};
}

int discover_share(const char *cores, int threads, uint64_t memory_bytes,
                   struct discover_share *out, struct err *e)
{
    hwloc_topology_t t;
    struct host_limits limits;
    int rc = cores_read(cores, out, e);
    rc = rc < 0 ? rc : discover_tree_open(&this_box, &t, e);
    if (rc < 0)
        return rc;
    host_limits_read("", &limits);
    uint64_t most = limits.memory_bytes;
    out->n_devices = 0;
    out->n_threads = threads > 0
                         ? threads
                         : threads_limit(physical_cores(t, out->cores, out->n_cores), limits.cpus);
    out->memory_bytes = memory_bytes ? memory_bytes : most / 10 * 9;
    if (out->memory_bytes > most) {
        log_warn("agent", "memory_limited", "asked_bytes=%llu bytes=%llu by=%s",
                 (unsigned long long)memory_bytes, (unsigned long long)most,
                 limits.memory_group[0] ? limits.memory_group : "box");
        out->memory_bytes = most;
    }
    hwloc_topology_destroy(t);
    return 0;
}
