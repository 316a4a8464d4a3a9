#include "hpctl/node_view.h"

#include <stdio.h>
#include <string.h>

#include "hpctl/shown.h"
#include "hpctl/table.h"

static void head_row(struct buffer *out, const char *label, const char *text)
{
    buffer_printf(out, "%-10s %s\n", label, text);
}

static void head_write(const json_t *node, struct buffer *out)
{
    head_row(out, "name", string_member(node, "name"));
    head_row(out, "state", string_member(node, "state"));
    head_row(out, "host", string_member(node, "hostname"));
    head_row(out, "machine", string_member(node, "machine"));
    head_row(out, "version", string_member(node, "program"));
    head_row(out, "memory",
             shown_of("%s, %s free", shown_bytes(number_member(node, "memory_bytes")).s,
                      shown_bytes(number_member(node, "memory_free_bytes")).s)
                 .s);
    if (json_object_get(node, "heard_s"))
        head_row(out, "heard",
                 shown_of("%s ago", shown_seconds(number_member(node, "heard_s")).s).s);
    if (json_object_get(node, "held_off_s"))
        head_row(out, "held off",
                 shown_of("for %s, lost %s times lately",
                          shown_seconds(number_member(node, "held_off_s")).s,
                          shown_member(node, "flaps").s)
                     .s);
    head_row(out, "data",
             shown_of("%s sent, %s received", shown_bytes(number_member(node, "data_sent_bytes")).s,
                      shown_bytes(number_member(node, "data_received_bytes")).s)
                 .s);
    const json_t *spill = json_object_get(node, "kv_spill");
    if (spill)
        head_row(out, "kv_spill",
                 shown_of("%s of %s in memory, %s of %s on disk",
                          shown_bytes(number_member(spill, "memory_bytes")).s,
                          shown_bytes(number_member(spill, "memory_limit_bytes")).s,
                          shown_bytes(number_member(spill, "disk_bytes")).s,
                          shown_bytes(number_member(spill, "disk_limit_bytes")).s)
                     .s);
    head_row(out, "dropped",
             shown_of("%s late and %s foreign frames, since it joined",
                      shown_member(node, "dropped_stale").s,
                      shown_member(node, "dropped_foreign").s)
                 .s);
}

/* "0-3,6" of [0, 1, 2, 3, 6]; of a GPU its multiprocessors: "132 SMs", or "32 of 132 SMs". */
static void cell_cores(struct buffer *cell, const json_t *device)
{
    const json_t *cores = json_object_get(device, "cores");
    size_t n = json_array_size(cores);
    if (json_object_get(device, "all_multiprocessors"))
        buffer_printf(cell, "%s of %s SMs", shown_member(device, "multiprocessors").s,
                      shown_member(device, "all_multiprocessors").s);
    else if (json_object_get(device, "multiprocessors"))
        buffer_printf(cell, "%s SMs", shown_member(device, "multiprocessors").s);
    else if (n == 0)
        buffer_printf(cell, "-");
    for (size_t i = 0, last; i < n; i = last + 1) {
        json_int_t from = json_integer_value(json_array_get(cores, i));
        for (last = i; last + 1 < n && json_integer_value(json_array_get(cores, last + 1)) ==
                                           from + (json_int_t)(last + 1 - i);)
            last++;
        buffer_printf(cell, "%s%lld", i ? "," : "", (long long)from);
        if (last > i)
            buffer_printf(cell, "-%lld", (long long)from + (long long)(last - i));
    }
}

static void cell_layers(struct buffer *cell, const json_t *stage)
{
    buffer_printf(cell, "%s-%s", shown_member(stage, "first_layer").s,
                  shown_member(stage, "last_layer").s);
}

/* A blank line and a table; nothing where there are no rows and nothing to say of that. */
static int list_write(const struct table_column *columns, const json_t *rows,
                      const char *when_empty, struct buffer *out, struct err *e)
{
    struct table *t = table_create(columns);
    json_t *row;
    size_t i;
    if (json_array_size(rows) == 0 && !when_empty) {
        table_discard(&t);
        return 0;
    }
    buffer_printf(out, "\n");
    json_array_foreach(rows, i, row) table_row(t, row);
    int rc = table_write(t, when_empty, out, e);
    table_discard(&t);
    return rc;
}

int node_view_write(const json_t *node, struct buffer *out, struct err *e)
{
    static const struct table_column devices[] = {{"DEVICE", "id", NULL},
                                                  {"KIND", "kind", NULL},
                                                  {">THREADS", "threads", NULL},
                                                  {"CORES", NULL, cell_cores},
                                                  {">MEMORY", "memory_bytes", cell_bytes},
                                                  {">FREE", "memory_free_bytes", cell_bytes},
                                                  {0}};
    static const struct table_column stages[] = {{"DEPLOYMENT", "deployment", NULL},
                                                 {">STAGE", "stage", NULL},
                                                 {"DEVICE", "device", NULL},
                                                 {"LAYERS", NULL, cell_layers},
                                                 {0}};
    static const struct table_column models[] = {{"WEIGHTS OF", "name", NULL},
                                                 {"MODEL", "model", cell_id},
                                                 {">HELD", "bytes", cell_bytes},
                                                 {0}};
    static const struct table_column kernels[] = {
        {"KERNELS FOR", "what", NULL}, {"HOW", "how", NULL}, {"WHY", "why", NULL}, {0}};
    head_write(node, out);
    int rc = list_write(devices, json_object_get(node, "devices"), NULL, out, e);
    rc = rc < 0 ? rc : list_write(stages, json_object_get(node, "stages"), "no stages", out, e);
    rc = rc < 0 ? rc : list_write(models, json_object_get(node, "models"), "no weights", out, e);
    rc = rc < 0 ? rc
                : list_write(kernels, json_object_get(json_object_get(node, "node"), "kernels"),
                             NULL, out, e);
    return rc == 0 && out->failed ? err_no_memory(e, "what an agent is") : rc;
}
