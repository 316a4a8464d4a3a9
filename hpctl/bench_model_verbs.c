/* `hpctl bench MODEL`: how fast this box reads prompts and writes answers, without a cluster. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/backend/backend.h"
#include "agent/engine/stage.h"
#include "common/doubles.h"
#include "common/env.h"
#include "hpctl/own_devices.h"
#include "hpctl/progress.h"
#include "hpctl/shown.h"
#include "hpctl/table.h"
#include "hpctl/verbs.h"
#include "model/model.h"

enum {
    SLICE = 512, /* of a prompt, at most */
    MOST_BATCH = 64,
    MOST_BATCHES = 8,
    MOST_REPEATS = 99,
    MOST_ROWS = 1 + MOST_BATCHES,
    FIRST_PLAIN_ID = 3
};

struct model_bench_row {
    bool prompt;
    uint32_t tokens, batch;
    double seconds[MOST_REPEATS]; /* sorted in the end */
};

struct model_bench {
    struct model *model;
    struct device *device;
    struct stage *stage;
    struct progress_bar bar;
    uint64_t prompt, answer, depth, threads, repeats;
    uint32_t batches[MOST_BATCHES];
    int n_batches, n_rows;
    uint32_t *ids; /* [prompt + depth or MOST_BATCH] */
    float *logits; /* [largest batch, vocabulary] */
    double load_s;
    struct model_bench_row rows[MOST_ROWS];
};

/* ---- reading the command line ---- */

static int read_batches(const char *text, struct model_bench *b, struct err *e)
{
    for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        char *end;
        unsigned long n = strtoul(at, &end, 10);
        if (end == at || (*end && *end != ',') || n < 1 || n > MOST_BATCH ||
            b->n_batches == MOST_BATCHES)
            return err_set(e, HP_EUSAGE,
                           "--batch: \"%.40s\" is not up to %d numbers from 1 to %d such as 1,4,8",
                           text, MOST_BATCHES, MOST_BATCH);
        b->batches[b->n_batches++] = (uint32_t)n;
    }
    return 0;
}

static int read_options(const struct invocation *in, struct model_bench *b, struct err *e)
{
    int rc = invocation_range(in, "prompt", 512, 0, 1 << 20, &b->prompt, e);
    if (rc < 0 || (rc = invocation_range(in, "answer", 128, 0, 1 << 20, &b->answer, e)) < 0 ||
        (rc = invocation_range(in, "depth", 0, 0, 1 << 20, &b->depth, e)) < 0 ||
        (rc = invocation_range(in, "threads", 0, 0, 256, &b->threads, e)) < 0 ||
        (rc = invocation_range(in, "repeat", 5, 1, MOST_REPEATS, &b->repeats, e)) < 0 ||
        (rc = read_batches(invocation_option_or(in, "batch", "1"), b, e)) < 0)
        return rc;
    return b->prompt || b->answer ? 0
                                  : err_set(e, HP_EUSAGE,
                                            "--prompt 0 and --answer 0: nothing is "
                                            "left to measure");
}

/* ---- the model ---- */

static uint32_t largest_batch(const struct model_bench *b)
{
    uint32_t most = 1;
    for (int i = 0; b->answer && i < b->n_batches; i++)
        most = b->batches[i] > most ? b->batches[i] : most;
    return most;
}

/* Of the row that has most of them at once: one prompt, or the answers of the largest batch. */
static uint64_t most_tokens(const struct model_bench *b)
{
    uint64_t pages = 2 * KV_PAGE_TOKENS, prompt = b->depth + b->prompt + pages,
             answers = largest_batch(b) * (b->depth + 1 + b->answer + pages);
    return prompt > answers ? prompt : answers;
}

static int lengths_check(const struct model_bench *b, const char *file, struct err *e)
{
    const struct model_config *c = model_config(b->model);
    uint64_t longest = b->depth + 1 + (b->prompt > b->answer ? b->prompt : b->answer);
    if (c->pooling != POOLING_NONE) {
        err_set(e, HP_EUNSUPPORTED, "%s: a model of embeddings, which writes no answers", file);
        return err_hint(e, "`hpctl model embed %s` makes embeddings with it", file);
    }
    if (c->context > 0 && longest > (uint64_t)c->context)
        return err_set(e, HP_EINVAL, "%llu tokens are more than the model's context of %d",
                       (unsigned long long)longest, c->context);
    return 0;
}

/* Its cores are this process's. */
static int cores_keep(const struct discover_share *s, const struct discover_device *d,
                      struct err *e)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < d->n_cores; i++)
        CPU_SET((size_t)s->cores[d->first_core + i], &set);
    return sched_setaffinity(0, sizeof set, &set) == 0
               ? 0
               : err_set(e, HP_EDEVICE, "the cores of --device: %s", strerror(errno));
}

/* What was asked for, or a GPU that all of the model fits on, as `hpctl run` chooses it, or the
 * CPU. */
static int device_find(const struct invocation *in, struct model_bench *b,
                       struct device_config *out, struct err *e)
{
    const char *spec = invocation_option(in, "device");
    struct own_devices found;
    const struct own_devices_ask ask = {.path = in->arguments[0],
                                        .devices = &spec,
                                        .n_devices = spec != NULL,
                                        .max_context = most_tokens(b),
                                        .max_sequences = 1};
    *out = (struct device_config){.backend = "cpu",
                                  .n_threads = (int)b->threads,
                                  .kernels = invocation_option(in, "kernels")};
    if (spec && b->threads)
        return err_set(e, HP_EUSAGE, "--threads is without --device: say %s,threads=%llu", spec,
                       (unsigned long long)b->threads);
    if (!spec && (b->threads || out->kernels))
        return 0;
    int rc = own_devices_find(&ask, &found, e);
    const struct discover_device d = discover_device_at(&found.share, 0);
    if (rc < 0 || (!spec && (!d.backend || discover_device_count(&found.share) > 1)))
        return rc;
    out->of = d.backend;
    out->ordinal = d.ordinal;
    out->part = d.part;
    out->memory_bytes = d.memory_bytes;
    out->host_bytes = d.host_bytes;
    out->small_bytes = d.small_bytes;
    out->n_threads = d.n_threads;
    return d.backend ? 0 : cores_keep(&found.share, &d, e);
}

static int model_file_open(const char *path, struct model **out, struct err *e)
{
    int rc = model_open(path, out, e);
    if (rc == HP_ENOENT && !*e->hint)
        err_hint(e, "it is a GGUF file or a Hugging Face folder on this box; `hpctl load` measures "
                    "a deployment");
    return rc;
}

static int bench_open(const struct invocation *in, struct model_bench *b, struct err *e)
{
    static const char *const computes[] = {"auto", "f32", NULL};
    static const char *const kvs[] = {"auto", "f16", "f32", "q8_0", NULL};
    int compute, kv, rc = invocation_choice(in, "compute", computes, 0, &compute, e);
    if (rc < 0 || (rc = invocation_choice(in, "kv", kvs, 0, &kv, e)) < 0 ||
        (rc = model_file_open(in->arguments[0], &b->model, e)) < 0 ||
        (rc = lengths_check(b, in->arguments[0], e)) < 0)
        return rc;
    struct device_config device;
    uint32_t vocabulary = (uint32_t)model_config(b->model)->vocabulary, most = largest_batch(b);
    size_t n_ids = (size_t)(b->depth + b->prompt) + MOST_BATCH + 1;
    b->ids = calloc(n_ids, sizeof *b->ids);
    b->logits = calloc((size_t)most * vocabulary, sizeof *b->logits);
    if (!b->ids || !b->logits)
        return err_no_memory(e, "%zu tokens", n_ids);
    for (size_t i = 0; i < n_ids; i++)
        b->ids[i] = vocabulary > FIRST_PLAIN_ID + 1
                        ? FIRST_PLAIN_ID + (uint32_t)(i * 7919 % (vocabulary - FIRST_PLAIN_ID))
                        : 0;
    if ((rc = device_find(in, b, &device, e)) < 0 || (rc = device_open(&device, &b->device, e)) < 0)
        return rc;
    struct stage_config s = {.model = b->model,
                             .end_layer = model_graph(b->model)->n_layers,
                             .device = b->device,
                             .compute = compute == 1 ? COMPUTE_F32 : COMPUTE_AUTO,
                             .kv_given = true,
                             .kv_tokens = most_tokens(b),
                             .max_sequences = most,
                             .max_batch_tokens = SLICE};
    kv_format_of_word(kvs[kv], compute == 1, &s.kv);
    uint64_t from = env_now_ns(&env_real);
    rc = stage_load(&s, &b->stage, e);
    b->load_s = (double)(env_now_ns(&env_real) - from) * 1e-9;
    return rc;
}

static void bench_close(struct model_bench *b)
{
    if (b->stage)
        stage_unload(&b->stage);
    device_close(&b->device);
    model_close(&b->model);
    free(b->ids);
    free(b->logits);
}

/* ---- one run ---- */

/* Tokens [first, first + n) of a sequence, in slices; the logits of the last one. */
static int tokens_read(struct model_bench *b, uint64_t sequence, uint32_t first, uint32_t n,
                       struct err *e)
{
    int rc = 0;
    for (uint32_t at = 0, take; rc == 0 && at < n; at += take) {
        take = n - at < SLICE ? n - at : SLICE;
        struct batch_run run = {.sequence = sequence,
                                .first_position = first + at,
                                .n_tokens = take,
                                .n_logits = at + take == n};
        rc = stage_run(b->stage, &run, 1, b->ids + first + at, b->logits, e);
    }
    return rc;
}

/* So many tokens for each of `batch` sequences, a step at a time. */
static int answers_write(struct model_bench *b, uint32_t first, uint32_t n, uint32_t batch,
                         struct err *e)
{
    struct batch_run runs[MOST_BATCH];
    int rc = 0;
    for (uint32_t t = 0; rc == 0 && t < n; t++) {
        for (uint32_t i = 0; i < batch; i++)
            runs[i] = (struct batch_run){
                .sequence = i + 1, .first_position = first + t, .n_tokens = 1, .n_logits = 1};
        rc = stage_run(b->stage, runs, (int)batch, b->ids, b->logits, e);
    }
    return rc;
}

/* A prompt behind `depth` tokens, or answers behind as many and one. */
static int row_run(struct model_bench *b, const struct model_bench_row *r, double *seconds,
                   struct err *e)
{
    uint32_t before = (uint32_t)b->depth + !r->prompt, opened = 0;
    int rc = 0;
    for (; rc == 0 && opened < r->batch; opened += rc == 0) {
        rc = stage_sequence_open(b->stage, opened + 1, before + r->tokens, e);
        if (rc == 0)
            rc = tokens_read(b, opened + 1, 0, before, e);
    }
    uint64_t from = env_now_ns(&env_real);
    if (rc == 0)
        rc = r->prompt ? tokens_read(b, 1, before, r->tokens, e)
                       : answers_write(b, before, r->tokens, r->batch, e);
    *seconds = (double)(env_now_ns(&env_real) - from) * 1e-9;
    for (uint32_t i = 0; i < r->batch; i++)
        stage_sequence_close(b->stage, i + 1);
    return rc;
}

/* Rows take turns, so that what else the box does meets all of them; the first turn warms up. */
static int rows_run(struct model_bench *b, struct err *e)
{
    int rc = 0, done = 0, all = b->n_rows * ((int)b->repeats + 1);
    for (uint64_t k = 0; rc == 0 && k <= b->repeats; k++)
        for (int i = 0; rc == 0 && i < b->n_rows; i++) {
            double seconds;
            progress_show(&b->bar, "measuring", done++, all);
            rc = row_run(b, &b->rows[i], &seconds, e);
            if (k)
                b->rows[i].seconds[k - 1] = seconds;
        }
    progress_end(&b->bar);
    for (int i = 0; i < b->n_rows; i++)
        doubles_sort(b->rows[i].seconds, b->repeats);
    return rc;
}

/* ---- what it says ---- */

/* Of the file's weights. */
static uint64_t weights_bytes(const struct model_bench *b)
{
    const struct graph *g = model_graph(b->model);
    uint64_t bytes = 0;
    for (int i = 0; i < g->n_layers; i++)
        bytes += g->layers[i].param_bytes;
    return bytes;
}

static json_t *row_json(const struct model_bench *b, const struct model_bench_row *r)
{
    double tokens = (double)r->tokens * r->batch;
    return json_pack("{s:s, s:I, s:I, s:I, s:f, s:f, s:f}", "test", r->prompt ? "prompt" : "answer",
                     "tokens", (json_int_t)r->tokens, "batch", (json_int_t)r->batch, "depth",
                     (json_int_t)b->depth, "tokens_per_s",
                     tokens / doubles_median(r->seconds, b->repeats), "least",
                     tokens / r->seconds[b->repeats - 1], "most", tokens / r->seconds[0]);
}

static json_t *bench_json(const struct model_bench *b, const char *file)
{
    json_t *rows = json_array();
    for (int i = 0; i < b->n_rows; i++)
        json_array_append_new(rows, row_json(b, &b->rows[i]));
    return json_pack("{s:s, s:I, s:s, s:f, s:I, s:o}", "model", file, "bytes",
                     (json_int_t)weights_bytes(b), "device",
                     b->device->backend->device_describe(b->device), "load_s", b->load_s, "repeats",
                     (json_int_t)b->repeats, "rows", rows);
}

static void cell_speed(struct buffer *cell, const json_t *value)
{
    buffer_printf(cell, "%.1f", json_number_value(value));
}

static int print_bench(const json_t *bench, struct err *e)
{
    static const struct table_column columns[] = {{"TEST", "test", NULL},
                                                  {">TOKENS", "tokens", NULL},
                                                  {">BATCH", "batch", NULL},
                                                  {">DEPTH", "depth", NULL},
                                                  {">TOKENS/S", "tokens_per_s", cell_speed},
                                                  {">LEAST", "least", cell_speed},
                                                  {">MOST", "most", cell_speed},
                                                  {0}};
    printf("%s: %s of weights, loaded in %s; %s\n\n", string_member(bench, "model"),
           shown_bytes(number_member(bench, "bytes")).s,
           shown_seconds(number_member(bench, "load_s")).s, string_member(bench, "device"));
    int rc = table_print_list(columns, json_object_get(bench, "rows"), NULL, e);
    printf("\nmedians of %s, all sequences of a batch together\n",
           shown_member(bench, "repeats").s);
    return rc;
}

/* ---- the verb ---- */

static int bench_model(struct invocation *in, struct err *e)
{
    struct model_bench *b = calloc(1, sizeof *b);
    if (!b)
        return err_no_memory(e, "a benchmark");
    progress_init(&b->bar, in->json);
    int rc = read_options(in, b, e);
    if (rc == 0 && b->prompt)
        b->rows[b->n_rows++] =
            (struct model_bench_row){.prompt = true, .tokens = (uint32_t)b->prompt, .batch = 1};
    for (int i = 0; rc == 0 && b->answer && i < b->n_batches; i++)
        b->rows[b->n_rows++] =
            (struct model_bench_row){.tokens = (uint32_t)b->answer, .batch = b->batches[i]};
    if (rc == 0)
        progress_show(&b->bar, "loading", 0, 0);
    if (rc == 0)
        rc = bench_open(in, b, e);
    if (rc == 0)
        rc = rows_run(b, e);
    progress_end(&b->bar);
    if (rc == 0) {
        json_t *bench = bench_json(b, in->arguments[0]);
        if (in->json || in->output) {
            rc = invocation_print_json(in, bench, e);
        } else {
            rc = print_bench(bench, e);
            json_decref(bench);
        }
    }
    bench_close(b);
    free(b);
    return rc;
}

static const struct command_option bench_model_options[] = {
    {"prompt", "N", "tokens of the prompt that is read (default 512; 0: none)", 0},
    {"answer", "N", "tokens of each answer that is written (default 128; 0: none)", 0},
    {"batch", "A,B", "answers side by side, a row each (default 1)", 0},
    {"depth", "N", "tokens that stand before what is measured (default 0)", 0},
    {"threads", "N", "of the CPU (default: the cores of this box)", 0},
    {"device", "SPEC",
     "what computes, as hp-agent --device says it: cpu[:CORES], cuda:N, ... (default: a GPU that "
     "all of the model fits on, else the CPU; with --threads or --kernels the CPU)",
     0},
    {"repeat", "N", "runs of each row; the median counts (default 5)", 0},
    {"compute", "auto|f32", "as what products are computed (default auto)", 0},
    {"kv", "auto|f16|f32|q8_0", "as what keys and values are kept (default auto)", 0},
    {"kernels", "NAME",
     "amx, avx512_bf16, avx512, avx_vnni, avx2, or plain (default: the CPU's best)", 0},
    {0},
};

const struct command bench_model_verbs[] = {
    {
        .path = "bench",
        .arguments = "MODEL",
        .min_arguments = 1,
        .max_arguments = 1,
        .summary = "how fast this box reads prompts and writes answers with a model",
        .details =
            "All layers on this box's GPU or cores, without a cluster. Rows take turns, after one "
            "turn that warms up. What a whole cluster does says\n"
            "`hpctl load`.",
        .examples = "  hpctl bench model.gguf\n"
                    "  hpctl bench model.gguf --prompt 2048 --answer 64 --batch 1,4,8 --threads 4\n"
                    "  hpctl bench model.gguf --prompt 0 --depth 4096 -o json\n"
                    "  hpctl bench model.gguf --device cuda:0",
        .options = bench_model_options,
        .run = bench_model,
    },
    {0},
};
