#include "hpctl/profile_network.h"

#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/host.h"
#include "common/host_limits.h"
#include "common/json.h"
#include "common/manifest.h"
#include "hpctl/client.h"
#include "hpctl/model_manifest.h"
#include "hpctl/profile_onnx.h"
#include "hpctl/progress.h"
#include "hpctl/shown.h"
#include "hpctl/table.h"
#include "hpctl/upload.h"
#include "model/text_network.h"

enum { PATIENCE_MS = 600000 };

/* Kept to this part of a time; more is said. */
static const double SPREAD = 0.02;

struct network_profiling {
    char path[PATH_MAX]; /* absolute */
    struct onnx_wishes wishes;
    struct arena arena;
    struct buffer encoded;
    struct manifest manifest; /* points into both */
    struct progress_bar bar;
    const struct key_pair *keys;
    struct upload *upload; /* NULL until one is asked for */
};

/* ---- what is asked ---- */

static int sizes_check(const struct onnx *o, struct onnx_wishes *w, struct err *e)
{
    int64_t fixed = network_sizes_batch(o);
    int found = onnx_wishes_check(o, w, e);
    found = found < 0 ? found : onnx_wishes_find(o, w, e);
    if (found < 0)
        return found;
    if (w->n_lengths)
        onnx_wishes_length(w, w->lengths[w->n_lengths - 1]);
    for (int i = 0; i < o->n_inputs; i++) {
        struct ndarray unused;
        int rc = network_sizes_choose(&o->values[o->inputs[i]], fixed ? fixed : 1, w->dims,
                                      w->ask.n_dims, &unused, e);
        if (rc < 0)
            return err_hint(e, "--dim NAME=SIZE,.. says the sizes that a model leaves free");
    }
    return 0;
}

/* What cannot be run here cannot be run there: that is said before anything is sent. */
static int file_check(struct network_profiling *p, const char *file, struct err *e)
{
    struct onnx_network *network = NULL;
    uint64_t memory;
    if (!realpath(file, p->path))
        return err_set(e, HP_ENOENT, "there is no file %s", file);
    if (!host_memory_free("", &memory))
        memory = host_memory_default();
    int rc = text_network_open(p->path, memory, &network, e);
    if (rc < 0)
        return rc;
    rc = sizes_check(network_onnx(network), &p->wishes, e);
    network_close(&network);
    return rc;
}

static json_t *sizes_json(const int64_t *sizes, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_integer(sizes[i]));
    return list;
}

static json_t *names_json(const char *names)
{
    json_t *list = json_array();
    while (*names) {
        size_t n = strcspn(names, ",");
        if (n)
            json_array_append_new(list, json_stringn(names, n));
        names += n + (names[n] == ',');
    }
    return list;
}

static json_t *network_json(const struct network_profiling *p)
{
    const char *slash = strrchr(p->path, '/');
    char *hex = malloc(2 * p->encoded.size + 1);
    json_t *dims = json_object();
    if (!hex)
        return NULL;
    sodium_bin2hex(hex, 2 * p->encoded.size + 1, p->encoded.data, p->encoded.size);
    for (int i = 0; i < p->wishes.ask.n_dims; i++)
        json_object_set_new(dims, p->wishes.dims[i].symbol, json_integer(p->wishes.dims[i].size));
    json_t *network = json_pack("{s:s, s:s, s:s, s:o}", "name", slash ? slash + 1 : p->path,
                                "manifest", hex, "source_path", p->path, "dims", dims);
    free(hex);
    return network;
}

/* `bounds` of blocks that are to be those of another length; NULL: any. */
static json_t *document_json(const struct invocation *in, const struct network_profiling *p,
                             const json_t *bounds)
{
    const char *agents = invocation_option(in, "agents"), *nodes = invocation_option(in, "nodes");
    char machine[HOST_ID];
    host_id(machine);
    json_t *network = network_json(p);
    json_t *document =
        network ? json_pack("{s:o, s:s, s:f, s:I, s:b, s:b}", "network", network, "source_machine",
                            machine, "budget_s", p->wishes.ask.budget_s, "blocks",
                            (json_int_t)p->wishes.blocks, "every", agents != NULL, "upload_only",
                            (int)invocation_flag(in, "upload"))
                : NULL;
    if (bounds)
        json_object_set(document, "bounds", (json_t *)(uintptr_t)bounds);
    if (p->wishes.ask.n_batches)
        json_object_set_new(document, "batches",
                            sizes_json(p->wishes.ask.batches, p->wishes.ask.n_batches));
    if (p->wishes.n_shares)
        json_object_set_new(document, "shares", sizes_json(p->wishes.shares, p->wishes.n_shares));
    if (nodes || (agents && strcmp(agents, "all") != 0))
        json_object_set_new(document, "agents", names_json(nodes ? nodes : agents));
    return document;
}

/* ---- what comes back meanwhile ---- */

static int on_progress(void *ctx, const json_t *part, struct err *e)
{
    struct network_profiling *p = ctx;
    const char *phase = string_member(part, "phase");
    uint64_t bytes = 0;
    if (strcmp(phase, "upload") == 0) {
        int rc = p->upload ? 0 : upload_open(p->path, &p->manifest, p->keys, &p->upload, e);
        return rc < 0 ? rc : upload_send(p->upload, part, &p->bar, &bytes, e);
    }
    if (strcmp(phase, "profile") == 0)
        progress_show(&p->bar,
                      shown_of("%s measures %s: run %s, known to %.1f %%",
                               string_member(part, "agent"), string_member(part, "what"),
                               shown_member(part, "points").s, 100 * number_member(part, "error"))
                          .s,
                      number_member(part, "elapsed_s"), number_member(part, "budget_s"));
    else
        progress_show(&p->bar, "bringing the network to the agents", 0, 0);
    return 0;
}

static int profile_ask(struct invocation *in, struct network_profiling *p, const json_t *bounds,
                       json_t **profile, struct err *e)
{
    struct client *client = NULL;
    int rc = client_open(invocation_option(in, "context"), &client, e);
    if (rc < 0)
        return rc;
    p->keys = &client_context(client)->admin;
    json_t *document = document_json(in, p, bounds);
    struct client_ask ask = {.verb = "profile.network",
                             .arguments =
                                 document ? json_pack("{s:o}", "document", document) : NULL,
                             .patience_ms = PATIENCE_MS,
                             .progress = on_progress,
                             .ctx = p};
    rc = ask.arguments ? client_ask(client, &ask, profile, NULL, e)
                       : err_no_memory(e, "a measurement");
    client_close(&client);
    return rc;
}

/* The k-th length, in the blocks of the longest. */
static int length_ask(struct invocation *in, struct network_profiling *p, int k,
                      const json_t *longest, json_t **profile, struct err *e)
{
    onnx_wishes_length(&p->wishes, p->wishes.lengths[k]);
    int rc = profile_ask(in, p, json_object_get(longest, "bounds"), profile, e);
    upload_close(&p->upload);
    if (rc == 0)
        json_object_set_new(*profile, "length", json_integer(p->wishes.lengths[k]));
    return rc;
}

/* All lengths: the longest, and the others beside it. */
static int lengths_ask(struct invocation *in, struct network_profiling *p, json_t **profile,
                       struct err *e)
{
    int last = p->wishes.n_lengths - 1;
    if (last < 0)
        return profile_ask(in, p, NULL, profile, e);
    json_t *shorter = json_object();
    int rc = length_ask(in, p, last, NULL, profile, e);
    for (int k = 0; k < last && rc == 0; k++) {
        json_t *one = NULL;
        rc = length_ask(in, p, k, *profile, &one, e);
        json_object_set_new(shorter, shown_of("%lld", (long long)p->wishes.lengths[k]).s, one);
    }
    if (rc == 0 && last > 0)
        json_object_set(*profile, "lengths", shorter);
    json_decref(shorter);
    return rc;
}

/* ---- what a person sees ---- */

static double table_corner(const json_t *table, bool last)
{
    const json_t *row = json_array_get(json_object_get(table, "seconds"), 0);
    size_t n = json_array_size(row);
    return json_number_value(json_array_get(row, last && n ? n - 1 : 0));
}

static int blocks_print(const json_t *profile, struct err *e)
{
    static const struct table_column columns[] = {
        {"DEVICE KIND", NULL, NULL},         {"BLOCK", NULL, NULL},
        {">HANDS ON, A SAMPLE", NULL, NULL}, {">SMALLEST BATCH", NULL, NULL},
        {">LARGEST BATCH", NULL, NULL},      {0}};
    struct table *t = table_create(columns);
    const char *kind;
    json_t *classes, *layer;
    size_t i;
    json_object_foreach(json_object_get(profile, "latency"), kind, classes)
        json_array_foreach(json_object_get(profile, "layers"), i, layer)
    {
        const json_t *table = json_object_get(classes, string_member(layer, "class"));
        table_cell(t, "%s", kind);
        table_cell(t, "%s", string_member(layer, "name"));
        table_cell(t, "%.3g MB", number_member(layer, "output_bytes") / 1e6);
        table_cell(t, "%s", shown_seconds(table_corner(table, false)).s);
        table_cell(t, "%s", shown_seconds(table_corner(table, true)).s);
    }
    return table_print(&t, "nothing was measured", e);
}

/* The blocks' sum beside whole runs, batch by batch and share by share. */
static bool runs_put(struct table *t, const json_t *profile)
{
    const json_t *rows = json_object_get(profile, "measured"), *r;
    size_t i;
    bool loose = false;
    json_array_foreach(rows, i, r)
    {
        table_cell(t, "%s", string_member(r, "agent"));
        table_cell(t, "%s", shown_member(profile, "length").s);
        table_cell(t, "1/%s", shown_member(r, "share").s);
        table_cell(t, "%s", shown_member(r, "batch").s);
        table_cell(t, "%s", shown_seconds(number_member(r, "whole_s")).s);
        table_cell(t, "%+.1f %%", 100 * number_member(r, "sum_error"));
        table_cell(t, "%.1f %%", 100 * number_member(r, "spread"));
        table_cell(t, "%s", shown_member(r, "runs").s);
        loose = loose || number_member(r, "spread") > SPREAD;
    }
    return loose;
}

static int sums_print(const json_t *profile, struct err *e)
{
    static const struct table_column columns[] = {
        {"AGENT", "agent", NULL},  {">LENGTH", NULL, NULL}, {">SHARE", NULL, NULL},
        {">BATCH", NULL, NULL},    {">WHOLE", NULL, NULL},  {">BLOCKS' SUM", NULL, NULL},
        {">KNOWN TO", NULL, NULL}, {">RUNS", NULL, NULL},   {0}};
    struct table *t = table_create(columns);
    bool loose = runs_put(t, profile);
    const char *length;
    json_t *shorter;
    json_object_foreach(json_object_get(profile, "lengths"), length, shorter) loose =
        runs_put(t, shorter) || loose;
    printf("\n");
    int rc = table_print(&t, "the times are those of the profile that the agents are paced by", e);
    if (rc == 0 && loose)
        printf("not all is known to 2 %%: others use these machines, or --budget is short\n");
    return rc;
}

static void failed_print(const json_t *profile)
{
    const json_t *row;
    size_t i;
    json_array_foreach(json_object_get(profile, "failed"), i, row)
    {
        printf("%s was not measured: %s\n", string_member(row, "kind"),
               string_member(row, "message"));
    }
}

static int profile_print(const json_t *profile, struct err *e)
{
    int rc = blocks_print(profile, e);
    rc = rc < 0 ? rc : sums_print(profile, e);
    if (rc == 0)
        failed_print(profile);
    return rc;
}

int profile_network(struct invocation *in, struct err *e)
{
    struct network_profiling *p = calloc(1, sizeof *p);
    json_t *profile = NULL;
    if (!p)
        return err_no_memory(e, "a measurement");
    progress_init(&p->bar, in->json);
    int rc = onnx_wishes_read(in, &p->wishes, e);
    rc = rc < 0 ? rc : file_check(p, in->arguments[0], e);
    rc = rc < 0 ? rc : network_manifest_make(p->path, &p->bar, &p->encoded, e);
    rc =
        rc < 0 ? rc : manifest_decode(p->encoded.data, p->encoded.size, &p->arena, &p->manifest, e);
    rc = rc < 0 ? rc : lengths_ask(in, p, &profile, e);
    progress_end(&p->bar);
    upload_close(&p->upload);
    buffer_free(&p->encoded);
    arena_free(&p->arena);
    free(p);
    if (rc == 0 && !in->json)
        rc = profile_print(profile, e);
    if (rc == 0 && (in->json || in->output))
        rc = invocation_print_json(in, json_incref(profile), e);
    json_decref(profile);
    return rc;
}
