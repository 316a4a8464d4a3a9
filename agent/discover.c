#include "agent/discover.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <hwloc.h>
#include <jansson.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/discover_gpus.h"
#include "agent/discover_limits.h"
#include "common/json.h"
#include "common/log.h"

/* Where the system does not say: loopback between two processes of one box, and an interface
 * without a speed (virtual machines). */
#define LOOPBACK_BYTES_PER_S 2e9
#define LOOPBACK_LATENCY_S 3e-5
#define UNKNOWN_BYTES_PER_S 1.25e8
#define NIC_LATENCY_S 1e-4

static const struct discover_box this_box;

/* ---- cores and memory ---- */

static int topology_open(const struct discover_box *box, hwloc_topology_t *out, struct err *e)
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

/* Physical cores among the processing units of the share. */
static int physical_cores(hwloc_topology_t t, const struct discover_share *s)
{
    hwloc_bitmap_t mine = hwloc_bitmap_alloc();
    for (int i = 0; mine && i < s->n_cores; i++)
        hwloc_bitmap_set(mine, (unsigned)s->cores[i]);
    int n = 0, all = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_CORE);
    for (int i = 0; mine && i < all; i++)
        n += hwloc_bitmap_intersects(hwloc_get_obj_by_type(t, HWLOC_OBJ_CORE, (unsigned)i)->cpuset,
                                     mine) != 0;
    hwloc_bitmap_free(mine);
    return n > 0 ? n : s->n_cores;
}

/* What this process may have: the box's memory, or less where a control group says so. */
static uint64_t memory_limit(hwloc_topology_t t, const struct discover_limits *limits)
{
    uint64_t all = hwloc_get_root_obj(t)->total_memory;
    return limits->memory_bytes < all ? limits->memory_bytes : all;
}

/* More threads than the quota has cores would only be stopped in the middle of their work. */
static int threads_limit(int n, const struct discover_limits *limits)
{
    int whole = limits->cpus > 1 ? (int)limits->cpus : 1;
    return limits->cpus > 0 && whole < n ? whole : n;
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

int discover_share(const char *cores, int threads, uint64_t memory_bytes,
                   struct discover_share *out, struct err *e)
{
    hwloc_topology_t t;
    struct discover_limits limits;
    int rc = cores_read(cores, out, e);
    rc = rc < 0 ? rc : topology_open(&this_box, &t, e);
    if (rc < 0)
        return rc;
    discover_limits("", &limits);
    uint64_t most = memory_limit(t, &limits);
    out->n_threads = threads > 0 ? threads : threads_limit(physical_cores(t, out), &limits);
    out->memory_bytes = memory_bytes ? memory_bytes : most / 10 * 9;
    if (out->memory_bytes > most) {
        log_warn("agent", "memory_limited", "asked_bytes=%llu bytes=%llu by=%s",
                 (unsigned long long)memory_bytes, (unsigned long long)most,
                 limits.memory_bytes == most ? limits.memory_group : "box");
        out->memory_bytes = most;
    }
    hwloc_topology_destroy(t);
    return 0;
}

/* ---- network ---- */

static void line_of_file(const char *folder, const char *name, const char *file, char *out,
                         size_t size)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s/%s", folder, name, file);
    FILE *f = fopen(path, "re");
    out[0] = '\0';
    if (f && fgets(out, (int)size, f))
        out[strcspn(out, "\n")] = '\0';
    if (f)
        fclose(f);
}

static json_t *nic_read(const char *folder, const char *name)
{
    char state[32], speed[32];
    line_of_file(folder, name, "operstate", state, sizeof state);
    line_of_file(folder, name, "speed", speed, sizeof speed);
    if (strcmp(name, "lo") == 0)
        return json_pack("{s:s, s:f, s:f, s:b}", "name", name, "bandwidth_bytes_per_s",
                         LOOPBACK_BYTES_PER_S, "latency_s", LOOPBACK_LATENCY_S, "assumed", 1);
    double mbit = atof(speed);
    return json_pack("{s:s, s:f, s:f, s:b, s:s}", "name", name, "bandwidth_bytes_per_s",
                     mbit > 0 ? mbit * 125000 : UNKNOWN_BYTES_PER_S, "latency_s", NIC_LATENCY_S,
                     "assumed", mbit <= 0, "state", state);
}

/* Those that are up come first, then the faster ones, then by name: the first NIC of a node is the
 * one that counts. */
static int nic_before(const void *a, const void *b)
{
    const json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
    const char *up_x = json_string_value(json_object_get(x, "state")),
               *up_y = json_string_value(json_object_get(y, "state"));
    bool down_x = up_x && strcmp(up_x, "down") == 0, down_y = up_y && strcmp(up_y, "down") == 0;
    double fast_x = json_real_value(json_object_get(x, "bandwidth_bytes_per_s")),
           fast_y = json_real_value(json_object_get(y, "bandwidth_bytes_per_s"));
    if (down_x != down_y)
        return down_x ? 1 : -1;
    if (fast_x < fast_y || fast_x > fast_y)
        return fast_x < fast_y ? 1 : -1;
    return strcmp(json_string_value(json_object_get(x, "name")),
                  json_string_value(json_object_get(y, "name")));
}

/* A card or a bridge of cards; not loopback, not what containers and traffic control make. */
static bool nic_counts(const char *folder, const char *name, const char *network)
{
    char device[64];
    if (network)
        return strcmp(name, network) == 0;
    line_of_file(folder, name, "type", device, sizeof device);
    return name[0] != '.' && strcmp(name, "lo") != 0 && strncmp(name, "ifb", 3) != 0 &&
           strncmp(name, "veth", 4) != 0 && strncmp(name, "docker", 6) != 0 &&
           strcmp(device, "1") == 0;
}

static json_t *nics_read(const char *folder, const char *network)
{
    enum { MAX_NICS = 64 };
    json_t *list[MAX_NICS], *out = json_array();
    int n = 0;
    DIR *d = opendir(folder);
    struct dirent *entry;
    while (d && n < MAX_NICS && (entry = readdir(d)) != NULL)
        if (nic_counts(folder, entry->d_name, network) &&
            (list[n] = nic_read(folder, entry->d_name)) != NULL)
            n++;
    if (d)
        closedir(d);
    if (n)
        qsort(list, (size_t)n, sizeof *list, nic_before);
    for (int i = 0; i < n; i++)
        json_array_append_new(out, list[i]);
    return out;
}

static int node_text(json_t *value, struct buffer *out, struct err *e)
{
    char *text = value && !json_memory_was_short() ? json_dumps(value, JSON_COMPACT) : NULL;
    bool whole = text && !json_memory_was_short();
    if (whole)
        buffer_append(out, text, strlen(text));
    free(text);
    json_decref(value);
    return !whole || out->failed ? err_set(e, HP_ENOMEM, "no memory to describe this box") : 0;
}

int discover_nics(const char *folder, const char *network, struct buffer *json, struct err *e)
{
    json_memory_reset();
    return node_text(nics_read(folder, network), json, e);
}

/* ---- the node ---- */

/* Letters and digits of the CPU's model name, words joined by "-", without what every CPU says of
 * itself. */
static void kind_name(hwloc_topology_t t, const struct discover_share *s, char kind[DISCOVER_KIND])
{
    static const char *const noise[] = {"(R)", "(r)", "(TM)", "(tm)", " CPU", " Processor"};
    char model[96] = "cpu", clean[96];
    hwloc_obj_t package = hwloc_get_obj_by_type(t, HWLOC_OBJ_PACKAGE, 0);
    const char *said = package ? hwloc_obj_get_info_by_name(package, "CPUModel") : NULL;
    if (said && *said)
        snprintf(model, sizeof model, "%s", said);
    model[strcspn(model, "@")] = '\0';
    for (size_t i = 0; i < sizeof noise / sizeof *noise; i++)
        for (char *at; (at = strstr(model, noise[i])) != NULL;)
            memmove(at, at + strlen(noise[i]), strlen(at + strlen(noise[i])) + 1);
    size_t n = 0;
    for (const char *p = model; *p && n < sizeof clean - 1; p++)
        if (isalnum((unsigned char)*p))
            clean[n++] = *p;
        else if (n && clean[n - 1] != '-')
            clean[n++] = '-';
    while (n && clean[n - 1] == '-')
        n--;
    clean[n] = '\0';
    snprintf(kind, DISCOVER_KIND, "%s-%dc%dt", n ? clean : "cpu", s->n_cores, s->n_threads);
}

static json_t *caches_list(hwloc_topology_t t)
{
    json_t *list = json_array();
    for (int depth = 0; depth < hwloc_topology_get_depth(t); depth++) {
        hwloc_obj_t o = hwloc_get_obj_by_depth(t, depth, 0);
        if (!o || !hwloc_obj_type_is_dcache(o->type))
            continue;
        json_array_append_new(list, json_pack("{s:i, s:I, s:i}", "level", (int)o->attr->cache.depth,
                                              "bytes", (json_int_t)o->attr->cache.size, "count",
                                              (int)hwloc_get_nbobjs_by_depth(t, depth)));
    }
    return list;
}

/* Memory of each NUMA node, and how far they are from each other as the firmware says (10 is near);
 * NULL for a box of one node. */
static json_t *numa_list(hwloc_topology_t t)
{
    int n = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_NUMANODE);
    struct hwloc_distances_s *found = NULL;
    unsigned one = 1;
    if (n < 2)
        return NULL;
    json_t *memory = json_array(), *rows = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(memory, json_integer((json_int_t)hwloc_get_obj_by_type(
                                                       t, HWLOC_OBJ_NUMANODE, (unsigned)i)
                                                       ->attr->numanode.local_memory));
    bool known = hwloc_distances_get_by_type(t, HWLOC_OBJ_NUMANODE, &one, &found,
                                             HWLOC_DISTANCES_KIND_MEANS_LATENCY, 0) == 0 &&
                 one > 0;
    for (unsigned i = 0; known && i < found->nbobjs; i++) {
        json_t *row = json_array();
        for (unsigned k = 0; k < found->nbobjs; k++)
            json_array_append_new(row,
                                  json_integer((json_int_t)found->values[i * found->nbobjs + k]));
        json_array_append_new(rows, row);
    }
    if (known)
        hwloc_distances_release(t, found);
    return json_pack("{s:o, s:o}", "memory_bytes", memory, "distances", rows);
}

int discover_node(const char *name, const struct discover_share *share, const char *network,
                  struct buffer *json, char kind[DISCOVER_KIND], struct err *e)
{
    struct discover_box box = {0};
    struct nvml nvml;
    if (nvml_open(&nvml))
        box.nvml = &nvml;
    int rc = discover_node_of(&box, name, share, network, json, kind, e);
    if (box.nvml)
        nvml_close(&nvml);
    return rc;
}

int discover_node_of(const struct discover_box *box, const char *name,
                     const struct discover_share *share, const char *network, struct buffer *json,
                     char kind[DISCOVER_KIND], struct err *e)
{
    hwloc_topology_t t;
    int rc = topology_open(box, &t, e);
    if (rc < 0)
        return rc;
    kind_name(t, share, kind);
    json_memory_reset();
    json_t *cores = json_array();
    for (int i = 0; i < share->n_cores; i++)
        json_array_append_new(cores, json_integer(share->cores[i]));
    json_t *node = json_pack(
        "{s:s, s:[{s:s, s:s, s:I, s:i}], s:o, s:o, s:i, s:I, s:o}", "name", name, "devices", "name",
        "cpu", "kind", kind, "memory_bytes", (json_int_t)discover_stage_bytes(share), "threads",
        share->n_threads, "nics",
        nics_read(box->net_folder ? box->net_folder : "/sys/class/net", network), "cores", cores,
        "packages", hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_PACKAGE), "total_memory_bytes",
        (json_int_t)hwloc_get_root_obj(t)->total_memory, "caches", caches_list(t));
    json_t *numa = numa_list(t);
    if (numa)
        json_object_set_new(node, "numa", numa);
    discover_gpus_add(node, t, box->nvml);
    hwloc_topology_destroy(t);
    return node_text(node, json, e);
}
