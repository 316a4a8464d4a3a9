/* Our side of bench/peers.py: a whole model as one stage on some threads, which does what its
 * standard input says and answers with seconds.
 *
 *     peers MODEL THREADS CONTEXT     prints one line of facts, then for each line that it reads:
 *     prefill N [SLICE]               N tokens in slices of so many (512), to the first logits
 *     decode N                        N steps of one token each, after 16 tokens
 *
 * HP_BENCH_KERNELS names the kernels (`hp-agent --kernels`); else the best that the CPU has.
 * `peers machine THREADS` prints what so many cores read from memory and what one computes. */
#include <pthread.h>
#include <stdio.h>

#include "agent/backend/backend.h"
#include "agent/engine/stage.h"
#include "bench/machine.h"
#include "common/env.h"

enum { SLICE_MOST = 512, PROMPT = 16, THREADS = 64 };

struct whole_model {
    struct model *model;
    struct device *device;
    struct stage *stage;
    uint32_t *ids, context;
    float *logits;
};

static double now_s(void)
{
    return (double)env_now_ns(&env_real) * 1e-9;
}

static int peer_open(struct whole_model *p, const char *path, int threads, uint32_t context,
                     struct err *e)
{
    struct device_config c = {
        .backend = "cpu", .n_threads = threads, .kernels = getenv("HP_BENCH_KERNELS")};
    int rc = model_open(path, &p->model, e);
    rc = rc < 0 ? rc : device_open(&c, &p->device, e);
    if (rc < 0)
        return rc;
    uint32_t vocabulary = (uint32_t)model_config(p->model)->vocabulary;
    p->context = context;
    p->ids = calloc(context, sizeof *p->ids);
    p->logits = calloc(vocabulary, sizeof *p->logits);
    if (!p->ids || !p->logits)
        return err_set(e, HP_ENOMEM, "no memory for %u tokens", context);
    for (uint32_t i = 0; i < context; i++)
        p->ids[i] = 3 + i * 7919 % (vocabulary - 3);
    struct stage_config s = {.model = p->model,
                             .end_layer = model_graph(p->model)->n_layers,
                             .device = p->device,
                             .kv_tokens = context,
                             .max_sequences = 1,
                             .max_batch_tokens = SLICE_MOST};
    return stage_load(&s, &p->stage, e);
}

static void peer_close(struct whole_model *p)
{
    if (p->stage)
        stage_unload(&p->stage);
    device_close(&p->device);
    if (p->model)
        model_close(&p->model);
    free(p->ids);
    free(p->logits);
}

/* Multiplications and additions of a prompt of n tokens, and bytes of weights that a step of one
 * token reads. */
static void facts_print(const struct whole_model *p, double load_s)
{
    const struct graph *g = model_graph(p->model);
    uint64_t bytes = 0;
    double flops[2] = {0};
    for (int i = 0; i < g->n_ops; i++) {
        const uint64_t one[GRAPH_SEQUENCE_SYMBOLS] = {1, 1};
        bool table = g->ops[i].n_weights && graph_op_weight_use(&g->ops[i], 0) == WEIGHT_ROWS;
        bytes += table ? 0 : graph_op_weight_bytes(g, &g->ops[i], one);
        for (int k = 0; k < 2; k++) {
            const uint64_t many[GRAPH_SEQUENCE_SYMBOLS] = {k ? 2048 : 512, 1};
            flops[k] += graph_op_flops(g, &g->ops[i], many);
        }
    }
    printf("{\"load_s\": %.3f, \"bytes\": %llu, \"flops_512\": %.4g, \"flops_2048\": %.4g, "
           "\"device\": \"%s\"}\n",
           load_s, (unsigned long long)bytes, flops[0], flops[1],
           p->device->backend->device_describe(p->device));
    fflush(stdout);
}

/* Tokens [first, first + n) of the sequence. */
static int tokens_run(struct whole_model *p, uint32_t first, uint32_t n, bool last, struct err *e)
{
    struct batch_run run = {
        .sequence = 1, .first_position = first, .n_tokens = n, .n_logits = last ? 1 : 0};
    return stage_run(p->stage, &run, 1, p->ids + first, p->logits, e);
}

static int prefill(struct whole_model *p, uint32_t n, uint32_t slice, double *took, struct err *e)
{
    int rc = 0;
    double start = now_s();
    for (uint32_t at = 0; rc == 0 && at < n; at += slice)
        rc = tokens_run(p, at, n - at < slice ? n - at : slice, n - at <= slice, e);
    *took = now_s() - start;
    return rc;
}

static int decode(struct whole_model *p, uint32_t n, double *took, struct err *e)
{
    int rc = tokens_run(p, 0, PROMPT, true, e);
    double start = now_s();
    for (uint32_t i = 0; rc == 0 && i < n; i++)
        rc = tokens_run(p, PROMPT + i, 1, true, e);
    *took = now_s() - start;
    return rc;
}

static int orders_do(struct whole_model *p, struct err *e)
{
    char line[64];
    int rc = 0;
    while (rc == 0 && fgets(line, sizeof line, stdin)) {
        unsigned n = 0, slice = SLICE_MOST;
        double took = 0;
        bool is_decode = strncmp(line, "decode ", 7) == 0;
        if (sscanf(line, is_decode ? "decode %u" : "prefill %u %u", &n, &slice) < 1 || n < 1 ||
            n + PROMPT > p->context || slice < 1 || slice > SLICE_MOST)
            return err_set(e, HP_EUSAGE, "\"%s\" is no order", line);
        rc = stage_sequence_open(p->stage, 1, p->context, e);
        if (rc == 0)
            rc = is_decode ? decode(p, n, &took, e) : prefill(p, n, slice, &took, e);
        stage_sequence_close(p->stage, 1);
        printf("%.6f\n", took);
        fflush(stdout);
    }
    return rc;
}

/* ---- the machine ---- */

/* What cores read at once: all begin a round together, since what one reads while another clears
 * its pages, or is done, is not what they share. */
struct memory_reader {
    pthread_t thread;
    pthread_barrier_t *begin;
    double took_s[ROUNDS];
};

static void *reader_run(void *ctx)
{
    struct memory_reader *r = ctx;
    void *room = memory_room();
    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(r->begin);
        r->took_s[i] = memory_read_s(room);
    }
    free(room);
    return NULL;
}

/* The median of the rounds; each took as long as its slowest reader. */
static double read_together_bytes_per_s(int threads)
{
    struct memory_reader readers[THREADS];
    pthread_barrier_t begin;
    double speeds[ROUNDS];
    pthread_barrier_init(&begin, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++) {
        readers[i].begin = &begin;
        if (pthread_create(&readers[i].thread, NULL, reader_run, &readers[i]) != 0) {
            fprintf(stderr, "peers: no thread for core %d\n", i);
            exit(1);
        }
    }
    for (int i = 0; i < threads; i++)
        pthread_join(readers[i].thread, NULL);
    for (int k = 0; k < ROUNDS; k++) {
        double longest = 0;
        for (int i = 0; i < threads; i++)
            longest = readers[i].took_s[k] > longest ? readers[i].took_s[k] : longest;
        speeds[k] = threads * (double)MEMORY_READ_BYTES / longest;
    }
    return memory_speed_of(speeds).median;
}

static void machine_print(int threads)
{
    const char *of = "float32", *kernels = getenv("HP_BENCH_KERNELS");
    double peak =
        kernels && strncmp(kernels, "avx512", 6) != 0 ? best_of(peak_avx2) : peak_flops_per_s(&of);
    printf("{\"peak_flops_per_s\": %.4g, \"peak_of\": \"%s\", \"read_bytes_per_s\": %.4g}\n", peak,
           of, read_together_bytes_per_s(threads));
}

int main(int argc, char **argv)
{
    struct whole_model p = {0};
    struct err e = {0};
    int threads = argc > 2 ? atoi(argv[2]) : 0;
    if (threads < 1 || threads > THREADS || argc < 3) {
        fprintf(stderr, "usage: peers MODEL THREADS CONTEXT | peers machine THREADS\n");
        return 2;
    }
    if (strcmp(argv[1], "machine") == 0) {
        machine_print(threads);
        return 0;
    }
    double start = now_s();
    int rc = peer_open(&p, argv[1], threads, argc > 3 ? (uint32_t)atoi(argv[3]) : 4096, &e);
    if (rc == 0) {
        facts_print(&p, now_s() - start);
        rc = orders_do(&p, &e);
    }
    peer_close(&p);
    if (rc < 0)
        fprintf(stderr, "peers: %s\n", e.text);
    return rc < 0;
}
