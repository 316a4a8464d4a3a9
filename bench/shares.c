/* What a share costs beside the network that it runs, and how late it begins. `shares MODEL.onnx
 * SAMPLES N [SYMBOL=SIZE ..]`: N batches go one after the other through one share that holds the
 * whole model, over a data endpoint of this process, each reserved for 2 ms after it was sent.
 * Prints processor time a batch of the share and of the network alone, in microseconds, and by how
 * much batches began after their time. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/share_load.h"
#include "agent/share_runner.h"
#include "agent/share_step.h"
#include "common/bytes.h"
#include "common/doubles.h"
#include "common/env.h"

enum { PLAN = 1, SESSION = 2, MOST_DIMS = 8 };

struct bench_share {
    struct data_endpoint *data, *coordinator;
    struct delay_line *line;
    struct share_peers *peers;
    struct share_runner *runner;
    struct message_ref *prepare;
    struct network_part *part;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int n_results, n_loaded;
    double late_us; /* of the last */
};

static double clock_us(clockid_t which)
{
    struct timespec t;
    clock_gettime(which, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void count_up(struct bench_share *b, int *count)
{
    pthread_mutex_lock(&b->lock);
    ++*count;
    pthread_cond_signal(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

static void on_loaded(void *ctx, const struct share_report *r)
{
    struct bench_share *b = ctx;
    if (r->status < 0) {
        fprintf(stderr, "shares: %s\n", r->error->text);
        exit(1);
    }
    if (r->status == 0)
        count_up(b, &b->n_loaded);
}

static void on_failed(void *ctx, const struct frame_header *h, uint32_t share, int code,
                      const char *text)
{
    (void)ctx;
    (void)share;
    fprintf(stderr, "shares: batch %u: %s: %s\n", h->batch, status_word(code), text);
    exit(1);
}

static void on_lost(void *ctx, const struct frame_header *h, uint32_t share, int status)
{
    on_failed(ctx, h, share, status, "lost");
}

static void on_batch(void *ctx, const struct frame_header *h, struct data_buffer *payload)
{
    struct bench_share *b = ctx;
    share_runner_batch(b->runner, h, payload, env_now_ns(&env_real));
}

static void on_result(void *ctx, const struct frame_header *h, struct data_buffer *payload)
{
    struct bench_share *b = ctx;
    struct frame_leg legs[FRAME_MAX_LEGS];
    struct frame_tensor tensors[64];
    int n;
    if (frame_tensors_decode(h, payload->bytes, legs, tensors, 64, &n, NULL) == 0)
        b->late_us = (double)(int64_t)(legs[0].began_ns - legs[0].start_ns) / 1e3;
    data_buffer_release(b->coordinator, payload);
    count_up(b, &b->n_results);
}

static void on_down(void *ctx, struct data_link *link, const struct err *why)
{
    (void)ctx;
    (void)link;
    fprintf(stderr, "shares: %s\n", why->text);
}

static void count_await(struct bench_share *b, const int *count, int wanted)
{
    pthread_mutex_lock(&b->lock);
    while (*count < wanted)
        pthread_cond_wait(&b->changed, &b->lock);
    pthread_mutex_unlock(&b->lock);
}

static int prepare_make(struct bench_share *b, int samples, char **dims, int n_dims, struct err *e)
{
    struct message_dim own[MOST_DIMS];
    struct message_share share = {.parts = 1, .n_blocks = 1, .batch = (uint64_t)samples};
    struct message m = {.type = MESSAGE_STAGE_PREPARE};
    struct buffer bytes = {0};
    for (int i = 0; i < n_dims; i++) {
        char *equals = strchr(dims[i], '=');
        if (!equals || i == MOST_DIMS)
            return err_set(e, HP_EUSAGE, "%s is not SYMBOL=SIZE", dims[i]);
        *equals = '\0';
        own[i] = (struct message_dim){dims[i], strtoull(equals + 1, NULL, 10)};
    }
    share.dims = (struct pack_list){own, (size_t)n_dims};
    m.u.stage_prepare = (struct message_stage_prepare){.deployment = PLAN,
                                                       .generation = 1,
                                                       .session = SESSION,
                                                       .end_layer = 1,
                                                       .share = {&share, 1}};
    message_encode(&m, &bytes);
    int rc = message_ref_decode(bytes.data, bytes.size, &b->prepare, e);
    buffer_free(&bytes);
    return rc;
}

static int bench_open(struct bench_share *b, const char *path, struct err *e)
{
    struct data_config own = {.callbacks = {b, on_batch, on_down}},
                       coordinator = {.callbacks = {b, on_result, on_down}};
    size_t size;
    int rc = data_open_inproc(&own, &b->data, e);
    rc = rc < 0 ? rc : data_open_inproc(&coordinator, &b->coordinator, e);
    rc = rc < 0 ? rc : delay_line_create(b->data, &b->line, e);
    rc = rc < 0 ? rc : data_allow(b->data, SESSION, NULL, e);
    rc = rc < 0 ? rc : data_allow(b->coordinator, SESSION, NULL, e);
    if (rc < 0)
        return rc;
    const uint8_t *address = data_address(b->coordinator, &size);
    struct message_share_peer row = {"coordinator", {address, size}, SESSION, ""};
    const struct pack_list rows = {&row, 1};
    const struct share_peers_config p = {
        .data = b->data, .line = b->line, .lost = on_lost, .ctx = b};
    const struct share_runner_config c = {.prepare = b->prepare,
                                          .path = path,
                                          .memory_bytes = UINT64_C(1) << 36,
                                          .queue_bytes = 1 << 30,
                                          .data = b->data,
                                          .loaded = on_loaded,
                                          .failed = on_failed,
                                          .ctx = b};
    const struct message_stage_prepare *order = &b->prepare->message.u.stage_prepare;
    static atomic_bool stop;
    rc = share_peers_create(&p, &rows, &b->peers, e);
    rc = rc < 0 ? rc
                : share_part_open(order, order->share.items, path, UINT64_C(1) << 36, &stop, NULL,
                                  NULL, NULL, &b->part, e);
    rc = rc < 0 ? rc : share_runner_create(&c, &b->runner, e);
    if (rc == 0)
        share_runner_connect(b->runner, b->peers);
    return rc;
}

static void batch_send(struct bench_share *b, struct data_link *link, int samples, uint32_t number)
{
    int n;
    const struct ndarray *in = network_part_enters(b->part, samples, &n);
    struct frame_tensor tensors[64];
    for (int i = 0; i < n && i < 64; i++) {
        tensors[i] = (struct frame_tensor){.type = in[i].type,
                                           .n_dims = (uint32_t)in[i].n_dims,
                                           .data = in[i].data,
                                           .bytes = ndarray_bytes(&in[i])};
        memcpy(tensors[i].dims, in[i].dims, sizeof in[i].dims);
    }
    const struct frame_leg leg = {.start_ns = env_now_ns(&env_real) + 2000000};
    struct frame_header h = {.kind = FRAME_TENSORS,
                             .dtype = FRAME_BYTES,
                             .n_runs = 1,
                             .session = SESSION,
                             .deployment = PLAN,
                             .generation = 1,
                             .batch = number,
                             .n_tokens = (uint32_t)samples};
    uint64_t bytes = frame_tensors_size(1, tensors, n);
    struct data_buffer *buffer = data_buffer_get(b->coordinator, bytes);
    frame_tensors_encode(&leg, 1, tensors, n, buffer->bytes);
    buffer->size = bytes;
    data_post(link, &h, buffer, NULL, NULL);
}

/* Of the network alone, on this thread. */
static double alone_us(struct bench_share *b, int samples, int n)
{
    int n_in;
    const struct ndarray *in = network_part_enters(b->part, samples, &n_in);
    double from = clock_us(CLOCK_THREAD_CPUTIME_ID);
    struct err e = {0};
    struct ndarray *copies = calloc((size_t)n_in + 1, sizeof *copies);
    for (int i = 0; i < n_in; i++) {
        copies[i] = in[i];
        copies[i].data = calloc(1, ndarray_bytes(&in[i]));
    }
    for (int i = 0; i < n; i++)
        if (network_part_run(b->part, samples, copies, n_in, &e) < 0) {
            fprintf(stderr, "shares: %s\n", e.text);
            exit(1);
        }
    double us = (clock_us(CLOCK_THREAD_CPUTIME_ID) - from) / n;
    for (int i = 0; i < n_in; i++)
        free(copies[i].data);
    free(copies);
    return us;
}

static void measure(struct bench_share *b, int samples, int n)
{
    size_t size;
    struct err e = {0};
    struct data_link *link;
    const uint8_t *address = data_address(b->data, &size);
    double *late = calloc((size_t)n, sizeof *late);
    if (!late || data_connect(b->coordinator, address, size, &link, &e) < 0)
        exit(1);
    double alone = alone_us(b, samples, n), from = clock_us(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < n; i++) {
        batch_send(b, link, samples, (uint32_t)i);
        count_await(b, &b->n_results, i + 1);
        late[i] = b->late_us;
    }
    double whole = (clock_us(CLOCK_PROCESS_CPUTIME_ID) - from) / n;
    doubles_sort(late, (size_t)n);
    printf("%d batches of %d: %.1f us a batch, of the network %.1f, beside it %.1f; began late by "
           "%.1f us (median), %.1f (99 %%)\n",
           n, samples, whole, alone, whole - alone, late[n / 2], late[n - 1 - n / 100]);
    data_disconnect(&link);
    free(late);
}

int main(int argc, char **argv)
{
    struct bench_share b = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    struct err e = {0};
    int samples = argc > 3 ? atoi(argv[2]) : 0, n = argc > 3 ? atoi(argv[3]) : 0;
    if (samples < 1 || n < 1) {
        fprintf(stderr, "usage: shares MODEL.onnx SAMPLES N [SYMBOL=SIZE ..]\n");
        return 2;
    }
    if (prepare_make(&b, samples, argv + 4, argc - 4, &e) < 0 || bench_open(&b, argv[1], &e) < 0) {
        fprintf(stderr, "shares: %s\n", e.text);
        return 1;
    }
    count_await(&b, &b.n_loaded, 1);
    measure(&b, samples, n);
    data_revoke(b.data, SESSION);
    share_runner_destroy(&b.runner);
    share_peers_release(b.peers);
    network_part_close(&b.part);
    delay_line_destroy(&b.line);
    message_ref_release(b.prepare);
    data_close(&b.data);
    data_close(&b.coordinator);
    return 0;
}
