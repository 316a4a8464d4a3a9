#include "agent/discover_gpus.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"

#define NO_LIBRARY "the driver's library libnvidia-ml.so.1 is not here"
#define NO_BACKEND "no backend for GPUs is loaded"

enum { VENDOR_NVIDIA = 0x10de, VENDOR_AMD = 0x1002, CLASS_DISPLAY = 0x03 };

struct gpu {
    hwloc_obj_t place; /* its PCI device in the tree; NULL: not there */
    void *handle;      /* NVML's */
    json_t *device;    /* in the node */
};

struct gpus {
    struct gpu list[DISCOVER_MAX_GPUS];
    int n;
};

/* ---- places in the tree ---- */

static hwloc_obj_t place_of(hwloc_topology_t t, unsigned domain, unsigned bus, unsigned device)
{
    return hwloc_get_pcidev_by_busid(t, domain, bus, device, 0);
}

static bool is_bridge(hwloc_obj_t o)
{
    return o->type == HWLOC_OBJ_BRIDGE;
}
static bool is_host_bridge(hwloc_obj_t o)
{
    return is_bridge(o) && o->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST;
}

/* The PCIe port at the root that all traffic of a device goes through; its host bridge where it
 * hangs on that itself. */
static hwloc_obj_t root_of(hwloc_obj_t o)
{
    while (o->parent && is_bridge(o->parent) && !is_host_bridge(o->parent))
        o = o->parent;
    return is_bridge(o) || !o->parent || !is_bridge(o->parent) ? o : o->parent;
}

static int numa_node(hwloc_topology_t t, hwloc_obj_t o)
{
    hwloc_obj_t cpu_side = hwloc_get_non_io_ancestor_obj(t, o);
    return cpu_side && cpu_side->nodeset && hwloc_bitmap_weight(cpu_side->nodeset) == 1
               ? hwloc_bitmap_first(cpu_side->nodeset)
               : -1;
}

/* The lowest bridge above both; NULL: there is none. (hwloc_get_common_ancestor_obj goes by depth,
 * which I/O objects do not have.) */
static hwloc_obj_t bridge_above(hwloc_obj_t a, hwloc_obj_t b)
{
    for (hwloc_obj_t up = a->parent; up && is_bridge(up); up = up->parent)
        for (hwloc_obj_t other = b->parent; other && is_bridge(other); other = other->parent)
            if (up == other)
                return up;
    return NULL;
}

/* What the two share before their ways part; NULL: nothing of PCIe. */
static const char *shared_by(hwloc_obj_t a, hwloc_obj_t b)
{
    hwloc_obj_t up = bridge_above(a, b);
    if (!up)
        return NULL;
    if (is_host_bridge(up))
        return "host bridge";
    return up->parent && is_host_bridge(up->parent) ? "root port" : "switch";
}

static void pci_set(json_t *o, hwloc_topology_t t, hwloc_obj_t place)
{
    const struct hwloc_pcidev_attr_s *p = &place->attr->pcidev;
    int node = numa_node(t, place);
    json_object_set_new(o, "pci",
                        json_sprintf("%04x:%02x:%02x.%01x", p->domain, p->bus, p->dev, p->func));
    if (node >= 0)
        json_object_set_new(o, "numa_node", json_integer(node));
}

/* ---- what is known of each ---- */

/* Letters and digits, words joined by "-". */
static void kind_of(const char *name, char *kind, size_t size)
{
    size_t n = 0;
    for (const char *p = name; *p && n < size - 1; p++)
        if (isalnum((unsigned char)*p))
            kind[n++] = *p;
        else if (n && kind[n - 1] != '-')
            kind[n++] = '-';
    while (n && kind[n - 1] == '-')
        n--;
    kind[n] = '\0';
}

static json_t *device_add(json_t *node, struct gpus *g, const char *name, double memory,
                          const char *why)
{
    char kind[NVML_TEXT];
    kind_of(name, kind, sizeof kind);
    json_t *d = json_pack("{s:o, s:s, s:f, s:b, s:s}", "name", json_sprintf("gpu%d", g->n), "kind",
                          kind[0] ? kind : "gpu", "memory_bytes", memory, "usable", 0, "why", why);
    d = json_item_add(json_object_get(node, "devices"), d);
    g->list[g->n++].device = d;
    return d;
}

static void pcie_set(json_t *d, const struct nvml *nvml, void *gpu)
{
    const struct {
        const char *key;
        int (*read)(void *gpu, unsigned *out);
    } figures[] = {{"pcie_generation", nvml->generation_now},
                   {"pcie_width", nvml->width_now},
                   {"pcie_best_generation", nvml->generation_best},
                   {"pcie_best_width", nvml->width_best}};
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        unsigned v;
        if (figures[i].read(gpu, &v) == 0)
            json_object_set_new(d, figures[i].key, json_integer(v));
    }
}

static void gpus_of_nvml(json_t *node, hwloc_topology_t t, const struct nvml *nvml, struct gpus *g)
{
    char driver[NVML_TEXT] = "", name[NVML_TEXT];
    unsigned n = 0;
    if (nvml->driver_version(driver, sizeof driver) != 0)
        driver[0] = '\0';
    if (nvml->count(&n) != 0)
        return;
    for (unsigned i = 0; i < n && g->n < DISCOVER_MAX_GPUS; i++) {
        struct nvml_memory memory = {0};
        struct nvml_pci pci = {.bus_id = ""};
        void *handle;
        if (nvml->by_index(i, &handle) != 0 || nvml->name(handle, name, sizeof name) != 0)
            continue;
        struct gpu *own = &g->list[g->n];
        double bytes = nvml->memory(handle, &memory) == 0 ? (double)memory.total : 0;
        json_t *d = device_add(node, g, name, bytes, NO_BACKEND);
        own->handle = handle;
        pcie_set(d, nvml, handle);
        json_object_set_new(d, "driver", json_string(driver));
        if (nvml->pci(handle, &pci) != 0)
            continue;
        own->place = place_of(t, pci.domain, pci.bus, pci.device);
        if (own->place)
            pci_set(d, t, own->place);
        else
            json_object_set_new(d, "pci",
                                json_sprintf("%04x:%02x:%02x.0", pci.domain, pci.bus, pci.device));
    }
}

/* Without the driver's library: what PCI shows. */
static void gpus_of_tree(json_t *node, hwloc_topology_t t, struct gpus *g)
{
    for (hwloc_obj_t o = NULL;
         (o = hwloc_get_next_pcidev(t, o)) != NULL && g->n < DISCOVER_MAX_GPUS;) {
        const struct hwloc_pcidev_attr_s *p = &o->attr->pcidev;
        if (p->class_id >> 8 != CLASS_DISPLAY ||
            (p->vendor_id != VENDOR_NVIDIA && p->vendor_id != VENDOR_AMD))
            continue;
        const char *said = hwloc_obj_get_info_by_name(o, "PCIDevice");
        char name[NVML_TEXT];
        if (said)
            snprintf(name, sizeof name, "%s", said);
        else
            snprintf(name, sizeof name, "gpu %04x %04x", p->vendor_id, p->device_id);
        struct gpu *own = &g->list[g->n];
        pci_set(
            device_add(node, g, name, 0, p->vendor_id == VENDOR_NVIDIA ? NO_LIBRARY : NO_BACKEND),
            t, o);
        own->place = o;
    }
}

static void nvlinks_set(const struct nvml *nvml, const struct gpus *g)
{
    for (int i = 0; i < g->n; i++) {
        json_t *peers = json_array();
        int links = 0, status, active;
        for (int k = 0; k < g->n && nvml->peer_status; k++)
            if (k != i &&
                nvml->peer_status(g->list[i].handle, g->list[k].handle, NVML_P2P_BY_NVLINK,
                                  &status) == 0 &&
                status == NVML_P2P_OK)
                json_array_append(peers, json_object_get(g->list[k].device, "name"));
        for (unsigned l = 0; l < NVML_MOST_LINKS && nvml->link_state; l++)
            links += nvml->link_state(g->list[i].handle, l, &active) == 0 && active;
        if (json_array_size(peers))
            json_object_set(g->list[i].device, "nvlink_peers", peers);
        if (links)
            json_object_set_new(g->list[i].device, "nvlinks", json_integer(links));
        json_decref(peers);
    }
}

/* ---- buses ---- */

/* Bytes a second of a PCIe link, after its line code; an idle GPU's link sleeps, so the best that
 * it can do counts. */
static double link_speed(const struct gpu *g)
{
    static const double lane[] = {0, 0.25e9, 0.5e9, 0.985e9, 1.969e9, 3.938e9, 7.563e9};
    json_int_t generation = json_integer_value(json_object_get(g->device, "pcie_best_generation")),
               width = json_integer_value(json_object_get(g->device, "pcie_best_width"));
    if (generation > 0 && generation < (json_int_t)(sizeof lane / sizeof *lane) && width > 0)
        return lane[generation] * (double)width;
    return g->place ? (double)g->place->attr->pcidev.linkspeed * 1e9 : 0;
}

static void buses_add(json_t *node, const struct gpus *g)
{
    json_t *buses = json_array();
    for (int i = 0; i < g->n; i++) {
        const struct gpu *own = &g->list[i];
        int first = i;
        for (int k = 0; own->place && k < i && first == i; k++)
            if (g->list[k].place && root_of(g->list[k].place) == root_of(own->place))
                first = k;
        double speed = link_speed(own);
        json_t *bus = first < i ? json_object_get(g->list[first].device, "bus") : NULL;
        if (bus) {
            json_object_set(own->device, "bus", bus);
        } else if (own->place && speed > 0) {
            json_object_set_new(own->device, "bus",
                                json_sprintf("pcie%zu", json_array_size(buses)));
            json_array_append_new(buses, json_pack("{s:O, s:f, s:b}", "name",
                                                   json_object_get(own->device, "bus"),
                                                   "bandwidth_bytes_per_s", speed, "assumed", 1));
        }
    }
    if (json_array_size(buses))
        json_object_set(node, "buses", buses);
    json_decref(buses);
}

/* ---- who is near whom ---- */

static hwloc_obj_t nic_place(hwloc_topology_t t, const char *name)
{
    for (hwloc_obj_t o = NULL; name && (o = hwloc_get_next_osdev(t, o)) != NULL;)
        if (o->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK && o->name && strcmp(o->name, name) == 0)
            return o->parent && o->parent->type == HWLOC_OBJ_PCI_DEVICE ? o->parent : NULL;
    return NULL;
}

static void near_add(json_t *list, const char *key, const json_t *name, hwloc_obj_t place,
                     const struct gpu *g)
{
    const char *by = place && g->place && place != g->place ? shared_by(place, g->place) : NULL;
    if (by)
        json_array_append_new(list, json_pack("{s:O, s:O, s:s}", key, name, "device",
                                              json_object_get(g->device, "name"), "share", by));
}

static void neighbours_add(json_t *node, hwloc_topology_t t, const struct gpus *g)
{
    json_t *list = json_array(), *nic;
    size_t k;
    json_array_foreach(json_object_get(node, "nics"), k, nic)
    {
        const json_t *name = json_object_get(nic, "name");
        hwloc_obj_t place = nic_place(t, json_string_value(name));
        if (place)
            pci_set(nic, t, place);
        for (int i = 0; i < g->n; i++)
            near_add(list, "nic", name, place, &g->list[i]);
    }
    for (int i = 0; i < g->n; i++)
        for (int other = 0; other < i; other++)
            near_add(list, "other_device", json_object_get(g->list[other].device, "name"),
                     g->list[other].place, &g->list[i]);
    if (json_array_size(list))
        json_object_set(node, "near", list);
    json_decref(list);
}

void discover_gpus_add(json_t *node, hwloc_topology_t tree, const struct nvml *nvml)
{
    struct gpus g = {.n = 0};
    if (nvml)
        gpus_of_nvml(node, tree, nvml, &g);
    else
        gpus_of_tree(node, tree, &g);
    if (nvml)
        nvlinks_set(nvml, &g);
    buses_add(node, &g);
    neighbours_add(node, tree, &g);
}
