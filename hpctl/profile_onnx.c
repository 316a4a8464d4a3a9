#include "hpctl/profile_onnx.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/engine/network/network_part.h"
#include "agent/engine/network/network_profile.h"
#include "common/host_limits.h"
#include "common/profile.h"
#include "hpctl/shown.h"
#include "hpctl/table.h"
#include "planners/pools/split.h"

enum { MOST_DIMS = 16, MOST_SIZE = 1 << 20 };

static const double SPREAD = 0.02;

struct onnx_profile {
    struct onnx_network *network;
    struct network_profile_ask ask;
    struct network_dim dims[MOST_DIMS];
    char symbols[MOST_DIMS][128];
    struct network_profile measured;
    const char *model, *kind;
    uint64_t blocks;
    int64_t lengths[NETWORK_PART_SIZES]; /* rising; n_lengths 0: it has one size */
    int n_lengths, n_said;               /* dims[n_said ..) are the length */
};

static int size_read(const char *option, const char *text, int64_t *size, const char **end,
                     struct err *e)
{
    char *stop = NULL;
    errno = 0;
    long long v = *text >= '0' && *text <= '9' ? strtoll(text, &stop, 10) : 0;
    if (v < 1 || v > MOST_SIZE || errno || (*stop != ',' && *stop != '\0'))
        return err_set(e, HP_EUSAGE, "--%s: \"%.20s\" is no size of 1 to %d", option, text,
                       MOST_SIZE);
    *size = v;
    *end = *stop == ',' ? stop + 1 : stop;
    return 0;
}

static int batches_read(const char *text, struct network_profile_ask *ask, struct err *e)
{
    do {
        int n = ask->n_batches;
        if (n == NETWORK_PROFILE_BATCHES)
            return err_set(e, HP_EUSAGE, "--batches: more than %d", NETWORK_PROFILE_BATCHES);
        int rc = size_read("batches", text, &ask->batches[n], &text, e);
        if (rc < 0)
            return rc;
        if (n > 0 && ask->batches[n] <= ask->batches[n - 1])
            return err_set(e, HP_EUSAGE, "--batches: %lld after %lld; they must rise",
                           (long long)ask->batches[n], (long long)ask->batches[n - 1]);
        ask->n_batches++;
    } while (*text);
    return 0;
}

/* "seq=128,width=64"; "=64" is for those that the file does not name. */
static int dims_read(const char *text, struct onnx_profile *p, struct err *e)
{
    while (text && *text) {
        const char *equals = strchr(text, '=');
        size_t n = equals ? (size_t)(equals - text) : 0;
        int at = p->ask.n_dims;
        if (!equals || n >= sizeof *p->symbols || at == MOST_DIMS)
            return err_set(e, HP_EUSAGE, "--dim: \"%.40s\" is not NAME=SIZE,.. of at most %d names",
                           text, MOST_DIMS);
        memcpy(p->symbols[at], text, n);
        p->dims[at].symbol = p->symbols[at];
        int rc = size_read("dim", equals + 1, &p->dims[at].size, &text, e);
        if (rc < 0)
            return rc;
        p->ask.n_dims++;
    }
    p->ask.dims = p->dims;
    return 0;
}

/* Without --batches: the model's own where it is fixed, else 1, 2, 4 and 8. */
static void batches_default(const struct onnx *o, struct network_profile_ask *ask)
{
    const struct onnx_value *v = o->n_inputs ? &o->values[o->inputs[0]] : NULL;
    if (v && v->n_dims > 0 && v->dims[0].size > 0) {
        ask->batches[ask->n_batches++] = v->dims[0].size;
        return;
    }
    for (int64_t b = 1; b <= 8; b *= 2)
        ask->batches[ask->n_batches++] = b;
}

/* A size for what the model does not leave free is a slip of the pen. */
static int dims_check(const struct onnx *o, const struct network_profile_ask *ask, struct err *e)
{
    for (int a = 0; a < ask->n_dims; a++) {
        bool known = false;
        for (int i = 0; i < o->n_inputs && !known; i++) {
            const struct onnx_value *v = &o->values[o->inputs[i]];
            for (int d = 1; d < v->n_dims && !known; d++)
                known = v->dims[d].size < 0 && strcmp(v->dims[d].symbol, ask->dims[a].symbol) == 0;
        }
        if (!known) {
            err_set(e, HP_EUSAGE, "--dim: \"%s\" is no size that an input leaves free",
                    ask->dims[a].symbol);
            return err_hint(e, "`hpctl model describe` lists them; --batches says the first");
        }
    }
    return 0;
}

static int lengths_read(const char *text, struct onnx_profile *p, struct err *e)
{
    while (text && *text) {
        int n = p->n_lengths;
        if (n == NETWORK_PART_SIZES)
            return err_set(e, HP_EUSAGE, "--lengths: more than %d", NETWORK_PART_SIZES);
        int rc = size_read("lengths", text, &p->lengths[n], &text, e);
        if (rc < 0)
            return rc;
        if (n > 0 && p->lengths[n] <= p->lengths[n - 1])
            return err_set(e, HP_EUSAGE, "--lengths: %lld after %lld; they must rise",
                           (long long)p->lengths[n], (long long)p->lengths[n - 1]);
        p->n_lengths++;
    }
    return 0;
}

static bool dim_is_said(const struct onnx_profile *p, const char *symbol)
{
    for (int i = 0; i < p->ask.n_dims; i++)
        if (strcmp(p->dims[i].symbol, symbol) == 0)
            return true;
    return false;
}

/* Whatever inputs leave free beside the batch and what --dim says is the length. */
static int lengths_find(struct onnx_profile *p, struct err *e)
{
    const struct onnx *o = network_onnx(p->network);
    p->n_said = p->ask.n_dims;
    for (int i = 0; p->n_lengths && i < o->n_inputs; i++) {
        const struct onnx_value *v = &o->values[o->inputs[i]];
        for (int d = 1; d < v->n_dims; d++) {
            if (v->dims[d].size >= 0 || dim_is_said(p, v->dims[d].symbol))
                continue;
            if (p->ask.n_dims == MOST_DIMS)
                return err_set(e, HP_EUSAGE, "more than %d dimensions are free", MOST_DIMS);
            p->dims[p->ask.n_dims++] = (struct network_dim){v->dims[d].symbol, 0};
        }
    }
    return p->n_lengths == 0 || p->ask.n_dims > p->n_said
               ? 0
               : err_set(e, HP_EUSAGE, "--lengths: no input leaves a dimension free");
}

static void length_set(struct onnx_profile *p, int64_t length)
{
    for (int i = p->n_said; i < p->ask.n_dims; i++)
        p->dims[i].size = length;
}

static int options_read(const struct invocation *in, struct onnx_profile *p, struct err *e)
{
    const char *batches = invocation_option(in, "batches");
    int rc = invocation_above_zero(in, "budget", 20, 3600, &p->ask.budget_s, e);
    rc = rc < 0 ? rc : invocation_range(in, "blocks", 10, 1, SPLIT_MAX_BLOCKS, &p->blocks, e);
    rc = rc < 0 || !batches ? rc : batches_read(batches, &p->ask, e);
    rc = rc < 0 ? rc : dims_read(invocation_option(in, "dim"), p, e);
    rc = rc < 0 ? rc : lengths_read(invocation_option(in, "lengths"), p, e);
    p->ask.budget_s /= p->n_lengths ? p->n_lengths : 1;
    const char *path = in->arguments[0], *slash = strrchr(path, '/');
    p->model = slash ? slash + 1 : path;
    p->kind = invocation_option_or(in, "kind", "cpu-core");
    p->ask.env = &env_real;
    p->ask.spread = SPREAD;
    return rc;
}

/* ---- hp-profile/1 ---- */

static json_t *layers_json(const struct onnx_profile *p)
{
    json_t *layers = json_array();
    char name[200];
    for (int i = 0; i < p->measured.n_layers; i++) {
        const struct network_profile_layer *l = &p->measured.layers[i];
        double samples = (double)p->ask.batches[0];
        snprintf(name, sizeof name, "%d.%.180s", i, l->name[0] ? l->name : l->op);
        json_array_append_new(layers, json_pack("{s:s, s:s, s:f, s:f}", "name", name, "class", name,
                                                "param_bytes", (double)l->param_bytes,
                                                "output_bytes", (double)l->output_bytes / samples));
    }
    return layers;
}

static json_t *table_json(const struct onnx_profile *p, int layer)
{
    json_t *batches = json_array(), *seconds = json_array();
    for (int b = 0; b < p->ask.n_batches; b++) {
        json_array_append_new(batches, json_integer(p->ask.batches[b]));
        json_array_append_new(seconds,
                              json_real(p->measured.seconds[layer * p->measured.n_batches + b]));
    }
    return json_pack("{s:[i], s:o, s:[o]}", "share", 1, "batch", batches, "seconds", seconds);
}

static json_t *fine_json(const struct onnx_profile *p)
{
    json_t *layers = layers_json(p), *classes = json_object();
    for (int i = 0; i < p->measured.n_layers; i++)
        json_object_set_new(classes, string_member(json_array_get(layers, (size_t)i), "class"),
                            table_json(p, i));
    return json_pack("{s:s, s:s, s:o, s:{s:o}}", "format", "hp-profile/1", "model", p->model,
                     "layers", layers, "latency", p->kind, classes);
}

/* How far the layers' sum is from the whole, batch by batch. */
static json_t *runs_json(const struct onnx_profile *p)
{
    json_t *list = json_array();
    for (int b = 0; b < p->ask.n_batches; b++) {
        const struct network_profile_runs *r = &p->measured.runs[b];
        json_array_append_new(list,
                              json_pack("{s:I, s:f, s:f, s:f, s:f, s:i}", "batch",
                                        (json_int_t)p->ask.batches[b], "whole_s", r->whole_s,
                                        "sum_s", r->sum_s, "sum_error", r->sum_s / r->whole_s - 1,
                                        "spread", r->spread, "runs", r->n_runs));
    }
    return list;
}

/* Where blocks begin and the last ends, in layers of the network: who serves it cuts there. */
static json_t *bounds_json(const struct split *s)
{
    json_t *bounds = json_pack("[i]", 0);
    for (int i = 0; i < s->n_blocks; i++)
        json_array_append_new(bounds, json_integer(s->end[i]));
    return bounds;
}

/* The profile of the blocks; `fine` is released. *known: as they were found before. */
static int blocks_make(const struct onnx_profile *p, json_t *fine, struct split *split, bool known,
                       json_t **blocks, struct err *e)
{
    struct profile read = {0};
    struct split s = known ? *split : (struct split){0};
    int n = p->measured.n_layers;
    struct json_at at = {.value = fine, .file = p->model};
    int rc = profile_from_json(&at, &read, e);
    if (rc == 0 && !known)
        rc = pools_split(&read, n < (int)p->blocks ? n : (int)p->blocks, 0.5, NULL, &s, e);
    if (rc == 0 && s.end[s.n_blocks - 1] != n)
        rc = err_set(e, HP_EUNSUPPORTED, "%d layers in one length, %d in another",
                     s.end[s.n_blocks - 1], n);
    *split = s;
    if (rc == 0) {
        *blocks = pools_split_profile(&read, &s);
        rc = *blocks ? 0 : err_no_memory(e, "a profile");
    }
    if (rc == 0) {
        json_object_set_new(*blocks, "measured", runs_json(p));
        json_object_set_new(*blocks, "bounds", bounds_json(&s));
    }
    profile_free(&read);
    json_decref(fine);
    return rc;
}

/* ---- what a person sees ---- */

static void runs_print(const json_t *blocks)
{
    const json_t *run;
    size_t i;
    double length = number_member(blocks, "length");
    json_array_foreach(json_object_get(blocks, "measured"), i, run)
    {
        double spread = number_member(run, "spread");
        if (length > 0)
            printf("length %.0f, ", length);
        printf("batch %.0f: %s whole, the blocks' sum is %+.1f %% off; known to %.1f %% after %.0f "
               "runs%s\n",
               number_member(run, "batch"), shown_seconds(number_member(run, "whole_s")).s,
               100 * number_member(run, "sum_error"), 100 * spread, number_member(run, "runs"),
               spread > SPREAD ? ": others use this machine, or --budget is short" : "");
    }
}

static int blocks_print(const struct onnx_profile *p, const json_t *blocks, struct err *e)
{
    static const struct table_column columns[] = {{"BLOCK", NULL, NULL},
                                                  {">HANDS ON, A SAMPLE", NULL, NULL},
                                                  {">SMALLEST BATCH", NULL, NULL},
                                                  {">LARGEST BATCH", NULL, NULL},
                                                  {0}};
    struct table *t = table_create(columns);
    const json_t *classes = json_object_get(json_object_get(blocks, "latency"), p->kind), *layer;
    size_t i;
    json_array_foreach(json_object_get(blocks, "layers"), i, layer)
    {
        const json_t *row = json_array_get(
            json_object_get(json_object_get(classes, string_member(layer, "class")), "seconds"), 0);
        table_cell(t, "%s", string_member(layer, "name"));
        table_cell(t, "%.3g MB", number_member(layer, "output_bytes") / 1e6);
        table_cell(t, "%s", shown_seconds(json_number_value(json_array_get(row, 0))).s);
        table_cell(
            t, "%s",
            shown_seconds(json_number_value(json_array_get(row, json_array_size(row) - 1))).s);
    }
    int rc = table_print(&t, "nothing was measured", e);
    const json_t *shorter;
    const char *length;
    runs_print(blocks);
    json_object_foreach(json_object_get(blocks, "lengths"), length, shorter)
    {
        runs_print(shorter);
    }
    return rc;
}

/* One length, of the longest's blocks; what was measured stays in `p`. */
static int length_measure(struct onnx_profile *p, int64_t length, struct split *split, bool known,
                          json_t **blocks, struct err *e)
{
    network_profile_free(&p->measured);
    length_set(p, length);
    int rc = network_profile_measure(p->network, &p->ask, &p->measured, e);
    rc = rc < 0 ? rc : blocks_make(p, fine_json(p), split, known, blocks, e);
    if (rc == 0 && length)
        json_object_set_new(*blocks, "length", json_integer(length));
    return rc;
}

/* The longest length, with the shorter ones beside it. */
static int lengths_measure(struct onnx_profile *p, json_t **blocks, struct err *e)
{
    struct split split;
    json_t *shorter = json_object(), *one = NULL;
    int last = p->n_lengths - 1,
        rc = length_measure(p, last < 0 ? 0 : p->lengths[last], &split, false, blocks, e);
    for (int i = 0; rc == 0 && i < last; i++) {
        rc = length_measure(p, p->lengths[i], &split, true, &one, e);
        if (rc == 0)
            json_object_set_new(shorter, shown_of("%lld", (long long)p->lengths[i]).s, one);
    }
    if (rc == 0 && last > 0)
        json_object_set(*blocks, "lengths", shorter);
    json_decref(shorter);
    return rc;
}

int profile_onnx(struct invocation *in, struct err *e)
{
    struct onnx_profile p = {0};
    json_t *blocks = NULL;
    uint64_t memory;
    int rc = options_read(in, &p, e);
    if (rc < 0)
        return rc;
    if (!host_memory_free("", &memory))
        memory = host_memory_default();
    rc = network_open(in->arguments[0], memory, &p.network, e);
    if (rc < 0)
        return rc;
    if (p.ask.n_batches == 0)
        batches_default(network_onnx(p.network), &p.ask);
    rc = dims_check(network_onnx(p.network), &p.ask, e);
    rc = rc < 0 ? rc : lengths_find(&p, e);
    rc = rc < 0 ? rc : lengths_measure(&p, &blocks, e);
    if (rc < 0)
        err_at(e, "%s", in->arguments[0]);
    if (rc == 0 && !in->json)
        rc = blocks_print(&p, blocks, e);
    if (rc == 0 && (in->json || in->output))
        rc = invocation_print_json(in, json_incref(blocks), e);
    json_decref(blocks);
    network_profile_free(&p.measured);
    network_close(&p.network);
    return rc;
}
