#include "hpctl/profile_onnx.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/backend/cpu/threads.h"
#include "agent/engine/network/network_part.h"
#include "agent/engine/network/network_profile_json.h"
#include "common/host_limits.h"
#include "hpctl/shown.h"
#include "hpctl/table.h"
#include "model/text_network.h"
#include "planners/pools/split.h"

enum { MOST_SIZE = 1 << 20 };

static const double SPREAD = 0.02;

struct onnx_profile {
    struct onnx_network *network;
    struct onnx_wishes wishes;
    struct network_profile measured;
    const char *model, *kind;
};

/* ---- what is wished ---- */

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

/* "1,2,4". */
static int sizes_read(const char *option, const char *text, int64_t *sizes, int most, int *count,
                      struct err *e)
{
    do {
        int n = *count;
        if (n == most)
            return err_set(e, HP_EUSAGE, "--%s: more than %d", option, most);
        int rc = size_read(option, text, &sizes[n], &text, e);
        if (rc < 0)
            return rc;
        if (n > 0 && sizes[n] <= sizes[n - 1])
            return err_set(e, HP_EUSAGE, "--%s: %lld after %lld; they must rise", option,
                           (long long)sizes[n], (long long)sizes[n - 1]);
        ++*count;
    } while (*text);
    return 0;
}

/* The whole device is measured, too: blocks are balanced by it. */
static int shares_read(const char *text, struct onnx_wishes *w, struct err *e)
{
    int rc = sizes_read("shares", text, w->shares, ONNX_WISHES_SHARES, &w->n_shares, e);
    if (rc == 0 && w->shares[0] != 1)
        return err_set(e, HP_EUSAGE, "--shares: begin with 1, the whole device");
    return rc;
}

/* "seq=128,width=64"; "=64" is for those that the file does not name. */
static int dims_read(const char *text, struct onnx_wishes *p, struct err *e)
{
    while (text && *text) {
        const char *equals = strchr(text, '=');
        size_t n = equals ? (size_t)(equals - text) : 0;
        int at = p->ask.n_dims;
        if (!equals || n >= sizeof *p->symbols || at == ONNX_WISHES_DIMS)
            return err_set(e, HP_EUSAGE, "--dim: \"%.40s\" is not NAME=SIZE,.. of at most %d names",
                           text, ONNX_WISHES_DIMS);
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

int onnx_wishes_check(const struct onnx *o, const struct onnx_wishes *w, struct err *e)
{
    const struct network_profile_ask *ask = &w->ask;
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

int onnx_wishes_read(const struct invocation *in, struct onnx_wishes *w, struct err *e)
{
    const char *batches = invocation_option(in, "batches"),
               *shares = invocation_option(in, "shares"),
               *lengths = invocation_option(in, "lengths");
    *w = (struct onnx_wishes){.ask = {.env = &env_real, .spread = SPREAD}};
    int rc = invocation_above_zero(in, "budget", 20, 3600, &w->ask.budget_s, e);
    rc = rc < 0 ? rc : invocation_range(in, "blocks", 10, 1, SPLIT_MAX_BLOCKS, &w->blocks, e);
    if (rc == 0 && batches)
        rc = sizes_read("batches", batches, w->ask.batches, NETWORK_PROFILE_BATCHES,
                        &w->ask.n_batches, e);
    rc = rc < 0 || !shares ? rc : shares_read(shares, w, e);
    if (rc == 0 && lengths)
        rc = sizes_read("lengths", lengths, w->lengths, NETWORK_PART_SIZES, &w->n_lengths, e);
    w->ask.budget_s /= w->n_lengths ? w->n_lengths : 1;
    return rc < 0 ? rc : dims_read(invocation_option(in, "dim"), w, e);
}

static bool dim_is_said(const struct onnx_wishes *w, const char *symbol)
{
    for (int i = 0; i < w->ask.n_dims; i++)
        if (strcmp(w->dims[i].symbol, symbol) == 0)
            return true;
    return false;
}

static int free_add(struct onnx_wishes *w, const char *symbol, struct err *e)
{
    int at = w->ask.n_dims;
    if (at == ONNX_WISHES_DIMS || strlen(symbol) >= sizeof *w->symbols)
        return err_set(e, HP_EUSAGE, "more than %d dimensions are free, or one has a long name",
                       ONNX_WISHES_DIMS);
    snprintf(w->symbols[at], sizeof *w->symbols, "%s", symbol);
    w->dims[at] = (struct network_dim){w->symbols[at], 0};
    w->ask.n_dims++;
    return 0;
}

int onnx_wishes_find(const struct onnx *o, struct onnx_wishes *w, struct err *e)
{
    int rc = 0;
    w->n_said = w->ask.n_dims;
    for (int i = 0; w->n_lengths && i < o->n_inputs; i++) {
        const struct onnx_value *v = &o->values[o->inputs[i]];
        for (int d = 1; d < v->n_dims && rc == 0; d++)
            if (v->dims[d].size < 0 && !dim_is_said(w, v->dims[d].symbol))
                rc = free_add(w, v->dims[d].symbol, e);
    }
    if (rc == 0 && w->n_lengths && w->ask.n_dims == w->n_said)
        return err_set(e, HP_EUSAGE, "--lengths: no input leaves a dimension free");
    return rc;
}

void onnx_wishes_length(struct onnx_wishes *w, int64_t length)
{
    for (int i = w->n_said; i < w->ask.n_dims; i++)
        w->dims[i].size = length;
}

/* ---- here ---- */

/* The profile of the blocks, which `split` has where they were found before. */
static int blocks_make(const struct onnx_profile *p, struct split *split, json_t **blocks,
                       struct err *e)
{
    static const int whole = 1;
    json_t *fine = network_profile_json(&(struct network_profile_document){
        .model = p->model,
        .kind = p->kind,
        .ask = &p->wishes.ask,
        .shares = &p->measured,
        .parts = &whole,
        .n_shares = 1,
    });
    int rc = fine ? pools_split_document(fine, (int)p->wishes.blocks, split, blocks, e)
                  : err_no_memory(e, "a profile");
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
static int length_measure(struct onnx_profile *p, int64_t length, struct split *split,
                          json_t **blocks, struct err *e)
{
    network_profile_free(&p->measured);
    onnx_wishes_length(&p->wishes, length);
    int rc = network_profile_measure(p->network, &p->wishes.ask, &p->measured, e);
    rc = rc < 0 ? rc : blocks_make(p, split, blocks, e);
    if (rc == 0 && length)
        json_object_set_new(*blocks, "length", json_integer(length));
    return rc;
}

/* The longest length, with the shorter ones beside it. */
static int lengths_measure(struct onnx_profile *p, json_t **blocks, struct err *e)
{
    struct split split = {0};
    json_t *shorter = json_object(), *one = NULL;
    const int64_t *lengths = p->wishes.lengths;
    int last = p->wishes.n_lengths - 1,
        rc = length_measure(p, last < 0 ? 0 : lengths[last], &split, blocks, e);
    for (int i = 0; rc == 0 && i < last; i++) {
        rc = length_measure(p, lengths[i], &split, &one, e);
        if (rc == 0)
            json_object_set_new(shorter, shown_of("%lld", (long long)lengths[i]).s, one);
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
    uint64_t memory, threads;
    const char *path = in->arguments[0], *slash = strrchr(path, '/');
    int rc = onnx_wishes_read(in, &p.wishes, e);
    rc = rc < 0 ? rc : invocation_range(in, "threads", 1, 1, THREADS_MAX, &threads, e);
    if (rc < 0)
        return rc;
    p.model = slash ? slash + 1 : path;
    p.kind = invocation_option_or(in, "kind", "cpu-core");
    if (!host_memory_free("", &memory))
        memory = host_memory_default();
    rc = text_network_open(path, memory, &p.network, e);
    if (rc < 0)
        return rc;
    if (p.wishes.ask.n_batches == 0)
        network_profile_batches(network_onnx(p.network), &p.wishes.ask);
    rc = onnx_wishes_check(network_onnx(p.network), &p.wishes, e);
    rc = rc < 0 ? rc : onnx_wishes_find(network_onnx(p.network), &p.wishes, e);
    rc = rc < 0 ? rc : threads_create((int)threads, NULL, 0, &p.wishes.ask.threads, e);
    rc = rc < 0 ? rc : lengths_measure(&p, &blocks, e);
    if (rc < 0)
        err_at(e, "%s", path);
    if (rc == 0 && !in->json)
        rc = blocks_print(&p, blocks, e);
    if (rc == 0 && (in->json || in->output))
        rc = invocation_print_json(in, json_incref(blocks), e);
    json_decref(blocks);
    network_profile_free(&p.measured);
    network_close(&p.network);
    threads_destroy(&p.wishes.ask.threads);
    return rc;
}
