/* `hpctl topo`: what there is, as tables, as a file for the planners, as a picture. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/cluster.h"
#include "common/json.h"
#include "hpctl/client.h"
#include "hpctl/table.h"
#include "hpctl/topo_svg.h"
#include "hpctl/verbs.h"

/* ---- tables
 * ------------------------------------------------------------------------------------------------------------------------------
 */

/* "a switch with eth1, a root port with gpu2": whom a device is near to. */
static size_t near_notes(const json_t *node, const json_t *device, char *out, size_t size)
{
    const json_t *o;
    size_t i, n = 0;
    json_array_foreach(json_object_get(node, "near"), i, o)
    {
        const char *other =
            json_object_get(o, "nic") ? text_member(o, "nic") : text_member(o, "other_device");
        if (n < size && strcmp(text_member(o, "device"), text_member(device, "name")) == 0)
            n += (size_t)snprintf(out + n, size - n, "%s %s with %s", n ? "," : "shares a",
                                  text_member(o, "share"), other);
    }
    return n < size ? n : size - 1;
}

/* What is worth knowing of a device beside its kind: its place on PCIe, its peers, why it is not
 * used. */
static const char *device_notes(const json_t *node, const json_t *d)
{
    static char notes[512];
    const json_t *usable = json_object_get(d, "usable"),
                 *peers = json_object_get(d, "nvlink_peers");
    size_t n = 0;
    notes[0] = '\0';
    if (json_object_get(d, "pcie_generation"))
        n += (size_t)snprintf(notes + n, sizeof notes - n, "PCIe %.0f x%.0f (best %.0f x%.0f)  ",
                              number_member(d, "pcie_generation"), number_member(d, "pcie_width"),
                              number_member(d, "pcie_best_generation"),
                              number_member(d, "pcie_best_width"));
    if (json_array_size(peers))
        n += (size_t)snprintf(notes + n, sizeof notes - n, "NVLink to %zu  ",
                              json_array_size(peers));
    if (usable && !json_is_true(usable) && n < sizeof notes)
        n += (size_t)snprintf(notes + n, sizeof notes - n, "not used: %s  ", text_member(d, "why"));
    if (n < sizeof notes)
        near_notes(node, d, notes + n, sizeof notes - n);
    return notes[0] ? notes : "";
}

static void print_nodes(const json_t *o)
{
    static const char *const device_columns[] = {"DEVICE", "KIND", ">MEMORY", "NOTES", NULL};
    static const char *const nic_columns[] = {"NODE", "NIC", ">SPEED", ">LATENCY", "NOTES", NULL};
    struct table *devices = table_create(device_columns), *nics = table_create(nic_columns);
    json_t *node, *item;
    size_t i, k;
    json_array_foreach(json_object_get(o, "nodes"), i, node)
    {
        json_array_foreach(json_object_get(node, "devices"), k, item)
        {
            const char *row[] = {
                text_format("%s/%s", text_member(node, "name"), text_member(item, "name")),
                text_member(item, "kind"), text_bytes(number_member(item, "memory_bytes")),
                device_notes(node, item)};
            table_row(devices, row);
        }
        json_array_foreach(json_object_get(node, "nics"), k, item)
        {
            const char *state = json_string_value(json_object_get(item, "state"));
            const char *row[] = {
                text_member(node, "name"), text_member(item, "name"),
                text_format("%s/s", text_bytes(number_member(item, "bandwidth_bytes_per_s"))),
                text_seconds(number_member(item, "latency_s")),
                text_format("%s%s", state ? state : "",
                            json_is_true(json_object_get(item, "assumed"))
                                ? state ? ", speed assumed" : "speed assumed"
                                : "")};
            table_row(nics, row);
        }
    }
    table_print(&devices, "no device");
    printf("\n");
    table_print(&nics, NULL);
}

static void print_links(const json_t *o)
{
    static const char *const columns[] = {"FROM", "TO", ">SPEED", ">LATENCY", "MEASURED", NULL};
    struct table *links = table_create(columns);
    const json_t *l;
    size_t i;
    time_t now = time(NULL);
    json_array_foreach(json_object_get(o, "links"), i, l)
    {
        double age = (double)now - number_member(l, "measured_s");
        const char *when = bool_member(l, "assumed")           ? "not yet"
                           : !json_object_get(l, "measured_s") ? "given"
                           : age < 1                           ? "just now"
                                     : text_format("%s ago", text_seconds(age));
        const char *row[] = {
            text_member(l, "from"), text_member(l, "to"),
            text_format("%s/s", text_bytes(number_member(l, "bandwidth_bytes_per_s"))),
            text_seconds(number_member(l, "latency_s")), when};
        table_row(links, row);
    }
    printf("\n");
    table_print(&links, "no link between agents has been measured");
    json_array_foreach(json_object_get(o, "unreachable"), i, l)
        printf("%s cannot talk to %s (%s): %s\n", text_member(l, "from"), text_member(l, "to"),
               text_member(l, "address"), text_member(l, "why"));
}

/* ---- the verb
 * -----------------------------------------------------------------------------------------------------------------------------
 */

static int on_measure(void *ctx, const json_t *part, struct err *e)
{
    (void)e;
    progress_show(
        ctx, text_format("measuring %s to %s", text_member(part, "from"), text_member(part, "to")),
        0, 0);
    return 0;
}

static int cluster_of(struct invocation *in, json_t **out, struct err *e)
{
    const char *file = invocation_option(in, "cluster");
    struct client *client;
    int rc;
    if (file) {
        struct cluster c = {0};
        struct json_at at;
        if ((rc = json_load_at(file, out, &at, e)) < 0)
            return rc;
        rc = cluster_from_json(&at, &c, e);
        cluster_free(&c);
        if (rc < 0) {
            json_decref(*out);
            *out = NULL;
        }
        return rc;
    }
    if ((rc = client_open(invocation_option(in, "context"), &client, e)) < 0)
        return rc;
    struct progress bar;
    progress_init(&bar, in->json);
    bool measure = invocation_flag(in, "measure");
    struct client_ask ask = {.verb = "topo",
                             .arguments = measure ? json_pack("{s:b}", "measure", 1) : NULL,
                             .progress = on_measure,
                             .ctx = &bar};
    rc = client_ask(client, &ask, out, NULL, e);
    progress_end(&bar);
    client_close(&client);
    return rc;
}

static int picture_save(const json_t *cluster, const char *file, struct err *e)
{
    struct buffer svg = {0};
    FILE *f = NULL;
    int rc =
        topo_svg_write(cluster, &svg) < 0 ? err_set(e, HP_ENOMEM, "no memory for a picture") : 0;
    if (rc == 0 && (!(f = fopen(file, "we")) || fwrite(svg.data, 1, svg.size, f) != svg.size))
        rc = err_set(e, HP_EIO, "%s: cannot be written", file);
    if (f && fclose(f) != 0 && rc == 0)
        rc = err_set(e, HP_EIO, "%s: cannot be written", file);
    buffer_free(&svg);
    return rc;
}

static int run_topo(struct invocation *in, struct err *e)
{
    json_t *o = NULL;
    const char *svg = invocation_option(in, "svg");
    int rc = cluster_of(in, &o, e);
    if (rc == 0 && svg)
        rc = picture_save(o, svg, e);
    if (rc == 0 && (in->json || in->output))
        return invocation_print_json(in, o, e);
    if (rc == 0 && !svg) {
        print_nodes(o);
        print_links(o);
    }
    json_decref(o);
    return rc;
}

static const struct command_option topo_options[] = {
    {"svg", "FILE", "draw it", 0},
    {"measure", NULL,
     "measure the links between all agents now (those where requests run keep what was measured "
     "before)",
     0},
    {"cluster", "C.json", "show this file instead of the live cluster", 0},
    {"context", "NAME", "of the cluster (default: the current one)", 0},
    {0},
};

const struct command topo_verbs[] = {
    {
        .path = "topo",
        .arguments = "",
        .summary = "show devices, networks and the measured links between agents",
        .details = "-o json or -o FILE gives hp-cluster/1, which the planners read. Links are "
                   "measured a second after an agent joins and every five "
                   "minutes while nothing runs; what was not measured yet is what the network "
                   "cards promise.",
        .examples = "  hpctl topo\n  hpctl topo --measure\n  hpctl topo -o cluster.json\n  hpctl "
                    "topo --svg cluster.svg\n  hpctl topo --cluster cluster.json --svg cluster.svg",
        .options = topo_options,
        .run = run_topo,
        .makes_file = true,
    },
    {0},
};
