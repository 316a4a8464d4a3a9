#include "hpctl/topo_view.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "hpctl/shown.h"
#include "hpctl/table.h"

/* ---- devices ---- */

/* "a switch with eth1, a root port with gpu2": whom a device is near to. */
static void near_notes(const json_t *node, const json_t *device, struct buffer *out)
{
    const json_t *o;
    size_t i, n = 0;
    json_array_foreach(json_object_get(node, "near"), i, o)
    {
        const char *other =
            json_object_get(o, "nic") ? string_member(o, "nic") : string_member(o, "other_device");
        if (strcmp(string_member(o, "device"), string_member(device, "name")) == 0)
            buffer_printf(out, "%s %s with %s", n++ ? "," : "shares a", string_member(o, "share"),
                          other);
    }
}

/* What is worth knowing of a device beside its kind: its place on PCIe, its peers, why it is not
 * used, whom it is near to. */
static void device_notes(const json_t *node, const json_t *d, struct buffer *out)
{
    const json_t *usable = json_object_get(d, "usable"),
                 *peers = json_object_get(d, "nvlink_peers");
    if (json_object_get(d, "pcie_generation"))
        buffer_printf(out, "PCIe %.0f x%.0f (best %.0f x%.0f)  ",
                      number_member(d, "pcie_generation"), number_member(d, "pcie_width"),
                      number_member(d, "pcie_best_generation"),
                      number_member(d, "pcie_best_width"));
    if (json_array_size(peers))
        buffer_printf(out, "NVLink to %zu  ", json_array_size(peers));
    if (usable && !json_is_true(usable))
        buffer_printf(out, "not used: %s  ", string_member(d, "why"));
    near_notes(node, d, out);
}

static int print_devices(const json_t *cluster, struct err *e)
{
    static const struct table_column columns[] = {{"DEVICE", NULL, NULL},
                                                  {"KIND", NULL, NULL},
                                                  {">MEMORY", NULL, NULL},
                                                  {"NOTES", NULL, NULL},
                                                  {0}};
    struct table *t = table_create(columns);
    json_t *node, *d;
    size_t i, k;
    json_array_foreach(json_object_get(cluster, "nodes"), i, node)
    {
        json_array_foreach(json_object_get(node, "devices"), k, d)
        {
            struct buffer notes = {0};
            device_notes(node, d, &notes);
            table_cell(t, "%s/%s", string_member(node, "name"), string_member(d, "name"));
            table_cell(t, "%s", string_member(d, "kind"));
            table_cell(t, "%s", shown_bytes(number_member(d, "memory_bytes")).s);
            table_cell(t, "%s", buffer_cstr(&notes));
            buffer_free(&notes);
        }
    }
    return table_print(&t, "no device", e);
}

static int print_nics(const json_t *cluster, struct err *e)
{
    static const struct table_column columns[] = {{"NODE", NULL, NULL},   {"NIC", NULL, NULL},
                                                  {">SPEED", NULL, NULL}, {">LATENCY", NULL, NULL},
                                                  {"NOTES", NULL, NULL},  {0}};
    struct table *t = table_create(columns);
    json_t *node, *nic;
    size_t i, k;
    json_array_foreach(json_object_get(cluster, "nodes"), i, node)
    {
        json_array_foreach(json_object_get(node, "nics"), k, nic)
        {
            const char *state = json_string_value(json_object_get(nic, "state"));
            bool assumed = bool_member(nic, "assumed");
            table_cell(t, "%s", string_member(node, "name"));
            table_cell(t, "%s", string_member(nic, "name"));
            table_cell(t, "%s", shown_rate(number_member(nic, "bandwidth_bytes_per_s")).s);
            table_cell(t, "%s", shown_seconds(number_member(nic, "latency_s")).s);
            table_cell(t, "%s%s%s", state ? state : "", state && assumed ? ", " : "",
                       assumed ? "speed assumed" : "");
        }
    }
    return table_print(&t, NULL, e);
}

/* ---- links ---- */

static void cell_when(struct buffer *cell, const json_t *link)
{
    double age = (double)time(NULL) - number_member(link, "measured_s");
    if (bool_member(link, "assumed"))
        buffer_printf(cell, "not yet");
    else if (!json_object_get(link, "measured_s"))
        buffer_printf(cell, "given");
    else if (age < 1)
        buffer_printf(cell, "just now");
    else
        buffer_printf(cell, "%s ago", shown_seconds(age).s);
    if (json_object_get(link, "late_s"))
        buffer_printf(cell, "; frames come %s later than usual",
                      shown_seconds(number_member(link, "late_s")).s);
    if (json_object_get(link, "loss"))
        buffer_printf(cell, "; loses %.2g %% of its packets", 100 * number_member(link, "loss"));
}

static int print_links(const json_t *cluster, struct err *e)
{
    static const struct table_column columns[] = {{"FROM", "from", NULL},
                                                  {"TO", "to", NULL},
                                                  {">SPEED", "bandwidth_bytes_per_s", cell_rate},
                                                  {">LATENCY", "latency_s", cell_seconds},
                                                  {"MEASURED", NULL, cell_when},
                                                  {0}};
    const json_t *l;
    size_t i;
    int rc = table_print_list(columns, json_object_get(cluster, "links"),
                              "no link between agents has been measured", e);
    json_array_foreach(json_object_get(cluster, "unreachable"), i, l)
        printf("%s cannot talk to %s (%s): %s\n", string_member(l, "from"), string_member(l, "to"),
               string_member(l, "address"), string_member(l, "why"));
    json_array_foreach(json_object_get(cluster, "doubted"), i, l)
        printf("%s to %s: %s was measured now, which counts once it is measured again; until then "
               "%s does\n",
               string_member(l, "from"), string_member(l, "to"),
               shown_rate(number_member(l, "measured_bytes_per_s")).s,
               shown_rate(number_member(l, "bandwidth_bytes_per_s")).s);
    return rc;
}

int topo_view_print(const json_t *cluster, struct err *e)
{
    int rc = print_devices(cluster, e);
    printf("\n");
    if (rc == 0)
        rc = print_nics(cluster, e);
    printf("\n");
    return rc == 0 ? print_links(cluster, e) : rc;
}
