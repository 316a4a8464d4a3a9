/* What two batches under way are worth on a CPU, and what decode tokens and a slice in one batch
 * are.
 *
 *     build/bench/streams [MODEL [LAYERS]]        the demo model; all layers
 *
 * First the executor runs a greedy stream token by token, and prompts slice by slice with two
 * slices ordered ahead, on the cpu backend as it is (work is done when it is put on a stream) and
 * on the same with a thread for its streams, in turn: time, and how often a thread went to sleep.
 * Then one thread's processor time of a decode step and a slice, apart and together, in turn. */
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "agent/executor.h"
#include "common/doubles.h"
#include "common/log.h"
#include "model/model.h"
#include "tests/unit/agent/backend/async_backend.h"

enum {
    ROUNDS = 9,
    STEPS = 100,
    SLICES = 8,
    SLICE = 64,
    PROMPT = SLICES * SLICE,
    ROOM = 1024,
    SLOT = 1,
    STREAM = 1
};

static const char *path = "examples/demo-model/demo-q8_0.gguf";
static int layers, vocabulary;
static uint32_t ids[ROOM];

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double median(double *values, int n)
{
    doubles_sort(values, (size_t)n);
    return doubles_median(values, (size_t)n);
}

static void give_up(const char *what, const struct err *e)
{
    fprintf(stderr, "%s: %s\n", what, e->text);
    exit(1);
}

/* ---- the executor, with and without a thread for its streams ---- */

struct stream_served {
    struct data_endpoint *data;
    struct executor *x;
    sem_t told;
    uint32_t picked;
    uint64_t sequence;
};

static void frame_drop(void *ctx, const struct frame_header *h, struct data_buffer *payload)
{
    (void)h;
    data_buffer_release(((struct stream_served *)ctx)->data, payload);
}

static void report(void *ctx, const struct executor_report *r)
{
    struct stream_served *s = ctx;
    if (r->status == HP_PENDING)
        return;
    if (r->status < 0)
        give_up("executor", r->error);
    if (r->kind == EXECUTOR_RAN && r->picked)
        s->picked = r->picked[0];
    sem_post(&s->told);
}

static void serve(struct stream_served *s, bool threaded)
{
    struct err e = {0};
    struct device_config cpu = {.backend = "cpu", .n_threads = 1};
    struct data_config d = {.callbacks = {s, frame_drop, NULL}};
    struct executor_config c = {
        .device = threaded ? async_device_of(&cpu) : cpu, .report = report, .ctx = s};
    sem_init(&s->told, 0, 0);
    if (data_open_inproc(&d, &s->data, &e) < 0)
        give_up("data", &e);
    c.data = s->data;
    if (executor_create(&c, &s->x, &e) < 0)
        give_up("executor", &e);
    executor_load(s->x, &(struct executor_load){.slot = SLOT,
                                                .path = path,
                                                .end_layer = layers,
                                                .kv_tokens = 2 * ROOM,
                                                .max_sequences = 2,
                                                .max_batch_tokens = PROMPT,
                                                .n_stages = 1});
    sem_wait(&s->told);
}

static void sequence_begin(struct stream_served *s)
{
    struct sampler *sampler;
    struct err e = {0};
    if (sampler_create(&sampling_greedy, vocabulary, ids, 1, &sampler, &e) < 0)
        give_up("sampler", &e);
    executor_sequence_open(
        s->x, &(struct executor_opening){
                  .slot = SLOT, .sequence = ++s->sequence, .kv_tokens = ROOM, .sampler = sampler});
    sem_wait(&s->told);
}

/* Seconds a token; every step needs the token before. */
static double stream_run(struct stream_served *s)
{
    sequence_begin(s);
    uint32_t next = ids[0];
    double start = now(CLOCK_MONOTONIC);
    for (uint32_t i = 0; i < STEPS; i++) {
        struct batch_run run = {.sequence = s->sequence,
                                .first_position = i,
                                .n_tokens = 1,
                                .n_logits = 1,
                                .sample = true};
        struct batch b = {.runs = &run, .n_runs = 1, .n_tokens = 1, .n_logits = 1, .ids = &next};
        executor_run(s->x, &(struct executor_run){.slot = SLOT, .batch = &b});
        sem_wait(&s->told);
        next = s->picked;
    }
    double took = (now(CLOCK_MONOTONIC) - start) / STEPS;
    executor_sequence_close(s->x, SLOT, s->sequence, 0);
    return took;
}

/* Seconds of a prompt, every slice of which is sampled from, so that the host has something to do;
 * two slices are ordered ahead. */
static double prompt_run(struct stream_served *s)
{
    struct batch_run runs[SLICES];
    struct batch b[SLICES];
    sequence_begin(s);
    double start = now(CLOCK_MONOTONIC);
    for (uint32_t i = 0; i < SLICES; i++) {
        runs[i] = (struct batch_run){.sequence = s->sequence,
                                     .first_position = i * SLICE,
                                     .n_tokens = SLICE,
                                     .n_logits = 1,
                                     .sample = true};
        b[i] = (struct batch){.runs = &runs[i],
                              .n_runs = 1,
                              .n_tokens = SLICE,
                              .n_logits = 1,
                              .ids = ids + i * SLICE};
        executor_run(s->x, &(struct executor_run){.slot = SLOT, .batch = &b[i]});
        if (i > 0)
            sem_wait(&s->told);
    }
    sem_wait(&s->told);
    double took = now(CLOCK_MONOTONIC) - start;
    executor_sequence_close(s->x, SLOT, s->sequence, 0);
    return took;
}

static long sleeps(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_nvcsw;
}

static void two_ways(const char *what, const char *unit, double (*run)(struct stream_served *s),
                     struct stream_served both[2], double count)
{
    double took[2][ROUNDS], ratios[ROUNDS];
    long slept[2] = {0};
    for (int round = -1; round < ROUNDS; round++)
        for (int k = 0; k < 2; k++) {
            int way = round % 2 ? k : 1 - k;
            long before = sleeps();
            double seconds = run(&both[way]);
            if (round >= 0) {
                took[way][round] = seconds;
                slept[way] += sleeps() - before;
            }
        }
    for (int i = 0; i < ROUNDS; i++)
        ratios[i] = took[1][i] / took[0][i];
    double ratio = median(ratios, ROUNDS);
    printf("%s: inline %.3f ms, with a thread %.3f ms %s; ratio %.3f (%.3f to %.3f); sleeps %.1f "
           "and %.1f\n",
           what, median(took[0], ROUNDS) * 1e3, median(took[1], ROUNDS) * 1e3, unit, ratio,
           ratios[0], ratios[ROUNDS - 1], (double)slept[0] / ROUNDS / count,
           (double)slept[1] / ROUNDS / count);
}

static void executor_compare(void)
{
    struct stream_served both[2] = {0};
    serve(&both[0], false);
    serve(&both[1], true);
    two_ways("a stream", "a token", stream_run, both, STEPS);
    two_ways("a prompt in 8 slices of 64", "in all", prompt_run, both, SLICES);
    for (int i = 0; i < 2; i++) {
        executor_destroy(&both[i].x);
        data_close(&both[i].data);
    }
}

/* ---- a decode step and a slice, apart and together ---- */

struct mixed {
    struct stage *stage;
    float *output;
    uint32_t decoding, slice;
};

static void stage_batch(struct mixed *m, const struct batch_run *runs, uint32_t n)
{
    struct err e = {0};
    if (stage_run(m->stage, runs, (int)n, ids, m->output, &e) < 0)
        give_up("stage", &e);
}

static double mixed_run(struct mixed *m, bool together)
{
    enum { CACHED = 32, MOST = 9 };
    struct batch_run runs[MOST];
    uint32_t n = m->decoding;
    for (uint32_t i = 0; i <= n; i++) {
        stage_sequence_open(m->stage, i + 1, ROOM, NULL);
        runs[i] = (struct batch_run){.sequence = i + 1, .n_tokens = CACHED};
        if (i < n)
            stage_batch(m, &runs[i], 1);
        runs[i] = (struct batch_run){.sequence = i + 1,
                                     .first_position = i < n ? CACHED : 0,
                                     .n_tokens = i < n ? 1 : m->slice,
                                     .n_logits = i < n};
    }
    double start = now(CLOCK_THREAD_CPUTIME_ID);
    stage_batch(m, runs, together ? n + 1 : n);
    if (!together)
        stage_batch(m, &runs[n], 1);
    double took = now(CLOCK_THREAD_CPUTIME_ID) - start;
    for (uint32_t i = 0; i <= n; i++)
        stage_sequence_close(m->stage, i + 1);
    return took;
}

static void mixed_compare(struct model *model)
{
    static const uint32_t slices[] = {16, 64, 128, 256, 512}, decoding[] = {1, 8};
    struct device_config cpu = {.backend = "cpu", .n_threads = 1};
    struct device *d = NULL;
    struct err e = {0};
    bool last = layers == model_graph(model)->n_layers;
    size_t rows = last ? 0 : (size_t)(ROOM * graph_border_width(model_graph(model), layers - 1));
    struct mixed m = {.output = calloc(rows + (size_t)vocabulary * 10, sizeof(float))};
    if (!m.output || device_open(&cpu, &d, &e) < 0)
        give_up("device", &e);
    struct stage_config c = {.model = model,
                             .end_layer = layers,
                             .device = d,
                             .kv_tokens = 10 * ROOM,
                             .max_sequences = 10,
                             .max_batch_tokens = ROOM};
    if (stage_load(&c, &m.stage, &e) < 0)
        give_up("stage", &e);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 5; i++) {
            double apart[ROUNDS], together[ROUNDS], ratios[ROUNDS];
            m.decoding = decoding[k];
            m.slice = slices[i];
            mixed_run(&m, true);
            for (int round = 0; round < ROUNDS; round++) {
                apart[round] = mixed_run(&m, false);
                together[round] = mixed_run(&m, true);
                ratios[round] = together[round] / apart[round];
            }
            double ratio = median(ratios, ROUNDS);
            printf("%u decode tokens and a slice of %3u: apart %.1f ms, together %.1f ms; ratio "
                   "%.3f (%.3f to %.3f)\n",
                   m.decoding, m.slice, median(apart, ROUNDS) * 1e3, median(together, ROUNDS) * 1e3,
                   ratio, ratios[0], ratios[ROUNDS - 1]);
        }
    stage_unload(&m.stage);
    device_close(&d);
    free(m.output);
}

int main(int argc, char **argv)
{
    struct model *model;
    struct err e = {0};
    path = argc > 1 ? argv[1] : path;
    log_set_level(LOG_ERROR);
    if (model_open(path, &model, &e) < 0)
        give_up("model", &e);
    layers = argc > 2 ? atoi(argv[2]) : model_graph(model)->n_layers;
    vocabulary = model_config(model)->vocabulary;
    for (uint32_t i = 0; i < ROOM; i++)
        ids[i] = 3 + 7 * i % 200;
    if (layers == model_graph(model)->n_layers)
        executor_compare();
    mixed_compare(model);
    model_close(&model);
    return 0;
}
