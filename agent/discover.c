#include "agent/discover.h"

#include <ctype.h>
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/discover_gpus.h"
#include "agent/discover_int.h"
#include "common/cluster.h"
#include "common/host_limits.h"
#include "common/json.h"

/* Where the system does not say: an interface without a speed (virtual machines). */
#define UNKNOWN_BYTES_PER_S 1.25e8
/* Between two devices of one agent: a copy in memory, and two threads that wake. */
#define HANDOVER_BYTES_PER_S 4e9
#define HANDOVER_LATENCY_S 2e-5
#define NIC_LATENCY_S 1e-4

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
                         CLUSTER_LOOPBACK_BYTES_PER_S, "latency_s", CLUSTER_LOOPBACK_LATENCY_S,
                         "assumed", 1);
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

/* Letters and digits of the CPU's or GPU's model name, words joined by "-", without what every CPU
 * says of itself. */
static void kind_name(hwloc_topology_t t, const struct discover_device *d, char kind[DISCOVER_KIND])
{
    static const char *const noise[] = {"(R)", "(r)", "(TM)", "(tm)", " CPU", " Processor"};
    char model[96] = "cpu", clean[96];
    hwloc_obj_t package = hwloc_get_obj_by_type(t, HWLOC_OBJ_PACKAGE, 0);
    const char *said = package ? hwloc_obj_get_info_by_name(package, "CPUModel") : NULL;
    if (d->backend)
        snprintf(model, sizeof model, "%s", d->model);
    else if (said && *said)
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
    if (d->backend)
        snprintf(kind, DISCOVER_KIND, "%s", n ? clean : "gpu");
    else
        snprintf(kind, DISCOVER_KIND, "%s-%dc%dt", n ? clean : "cpu", d->n_cores, d->n_threads);
}

static json_t *cores_json(const int *cores, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_integer(cores[i]));
    return list;
}

/* What a GPU computes with, and which share of it the device is. */
static void gpu_tell(json_t *row, const struct discover_device *d)
{
    json_object_set_new(row, "multiprocessors", json_integer(d->multiprocessors));
    if (d->host_bytes)
        json_object_set_new(row, "host_bytes", json_integer((json_int_t)d->host_bytes));
    if (!d->part.cut)
        return;
    json_object_set_new(row, "share", json_sprintf("1/%d", d->part.cut / d->part.count));
    json_object_set_new(row, "kept_by", json_string(d->kept_by));
    if (d->all_multiprocessors)
        json_object_set_new(row, "all_multiprocessors", json_integer(d->all_multiprocessors));
}

static json_t *devices_list(hwloc_topology_t t, const struct discover_share *share,
                            char (*kinds)[DISCOVER_KIND])
{
    json_t *list = json_array();
    for (int i = 0; i < discover_device_count(share); i++) {
        struct discover_device d = discover_device_at(share, i);
        kind_name(t, &d, kinds[i]);
        json_t *row = json_pack("{s:s, s:s, s:I, s:i, s:o}", "name", d.name, "kind", kinds[i],
                                "memory_bytes", (json_int_t)d.memory_bytes, "threads", d.n_threads,
                                "cores", cores_json(share->cores + d.first_core, d.n_cores));
        if (d.backend)
            gpu_tell(row, &d);
        json_array_append_new(list, row);
    }
    return list;
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

/* All of the box: the system's own count, which a NUMA node of sysfs may lag behind. */
static uint64_t total_memory(const struct discover_box *box, hwloc_topology_t t)
{
    struct host_limits limits;
    if (box->tree_file || box->tree_synthetic)
        return hwloc_get_root_obj(t)->total_memory;
    host_limits_read("", &limits);
    return limits.box_bytes;
}

int discover_node(const char *name, const struct discover_share *share, const char *network,
                  struct buffer *json, char (*kinds)[DISCOVER_KIND], struct err *e)
{
    struct discover_box box = {0};
    struct nvml nvml;
    if (nvml_open(&nvml))
        box.nvml = &nvml;
    int rc = discover_node_of(&box, name, share, network, json, kinds, e);
    if (box.nvml)
        nvml_close(&nvml);
    return rc;
}

int discover_node_of(const struct discover_box *box, const char *name,
                     const struct discover_share *share, const char *network, struct buffer *json,
                     char (*kinds)[DISCOVER_KIND], struct err *e)
{
    hwloc_topology_t t;
    int rc = discover_tree_open(box, &t, e);
    if (rc < 0)
        return rc;
    json_memory_reset();
    json_t *node =
        json_pack("{s:s, s:o, s:o, s:o, s:i, s:I, s:o}", "name", name, "devices",
                  devices_list(t, share, kinds), "nics",
                  nics_read(box->net_folder ? box->net_folder : "/sys/class/net", network), "cores",
                  cores_json(share->cores, share->n_cores), "packages",
                  hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_PACKAGE), "total_memory_bytes",
                  (json_int_t)total_memory(box, t), "caches", caches_list(t));
    json_object_set_new(node, "pool_bytes", json_integer((json_int_t)discover_pool_bytes(share)));
    if (share->n_devices > 1)
        json_object_set_new(node, "device_link",
                            json_pack("{s:f, s:f, s:b}", "bandwidth_bytes_per_s",
                                      HANDOVER_BYTES_PER_S, "latency_s", HANDOVER_LATENCY_S,
                                      "assumed", 1));
    json_t *numa = numa_list(t);
    if (numa)
        json_object_set_new(node, "numa", numa);
    discover_gpus_add(node, t, box->nvml);
    hwloc_topology_destroy(t);
    return node_text(node, json, e);
}
