/* Shares of a small network over data endpoints of this process: the network's file and prepares,
 * and a coordinator that the test plays. */
#ifndef HP_TESTS_UNIT_AGENT_SHARE_FIXTURE_H
#define HP_TESTS_UNIT_AGENT_SHARE_FIXTURE_H

#include <pthread.h>
#include <time.h>

#include "agent/share_runner.h"
#include "agent/share_step.h"
#include "common/env.h"
#include "common/fs.h"
#include "tests/message_fixture.h"
#include "tests/unit/agent/engine/small_network.h"
#include "tests/unit/folder.h"

enum {
    SHARE_PLAN = 7,
    SHARE_GENERATION = 2,
    SHARE_SESSION = 900,
    SHARE_SIDE = 20,
    SHARE_BATCH = 3
};

/* What came to the coordinator, and what failed. */
struct share_told {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct frame_header headers[64];
    struct data_buffer *payloads[64];
    int n_results, n_failed, n_loaded, n_load_failed;
    uint32_t failed_share, failed_batch;
    int failed_code;
    char failed_text[512], load_text[512];
};

struct share_node { /* an agent's share with its endpoint */
    struct share_bench *bench;
    struct data_endpoint *data;
    struct delay_line *line;
    struct share_peers *peers;
    struct share_runner *runner;
    struct message_ref *prepare;
    struct network_memory *memory; /* NULL: nobody counts */
};

struct share_bench {
    char folder[256], path[300];
    struct data_endpoint *coordinator;
    struct share_node nodes[2];
    struct share_told told;
};

static inline void share_told_signal(struct share_told *t)
{
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

static inline void share_on_result(void *ctx, const struct frame_header *h, struct data_buffer *b)
{
    struct share_told *t = &((struct share_bench *)ctx)->told;
    pthread_mutex_lock(&t->lock);
    assert_true(t->n_results < 64);
    t->headers[t->n_results] = *h;
    t->payloads[t->n_results++] = b;
    share_told_signal(t);
}

static inline void share_on_frame(void *ctx, const struct frame_header *h, struct data_buffer *b)
{
    const struct share_node *n = ctx;
    assert_true(share_runner_is(n->runner, h));
    share_runner_batch(n->runner, h, b, env_now_ns(&env_real));
}

static inline void share_on_down(void *ctx, struct data_link *link, const struct err *why)
{
    (void)ctx;
    (void)link;
    (void)why;
}

static inline void share_on_loaded(void *ctx, const struct share_report *r)
{
    struct share_told *t = &((struct share_node *)ctx)->bench->told;
    pthread_mutex_lock(&t->lock);
    t->n_loaded += r->status == 0;
    t->n_load_failed += r->status < 0;
    if (r->error)
        snprintf(t->load_text, sizeof t->load_text, "%s", r->error->text);
    share_told_signal(t);
}

static inline void share_on_failed(void *ctx, const struct frame_header *h, uint32_t share,
                                   int code, const char *text)
{
    struct share_told *t = &((struct share_node *)ctx)->bench->told;
    pthread_mutex_lock(&t->lock);
    t->n_failed++;
    t->failed_share = share;
    t->failed_batch = h->batch;
    t->failed_code = code;
    snprintf(t->failed_text, sizeof t->failed_text, "%s", text);
    share_told_signal(t);
}

static inline void share_on_lost(void *ctx, const struct frame_header *h, uint32_t share,
                                 int status)
{
    share_on_failed(ctx, h, share, status, "lost");
}

/* Waits until a count is as large; fails after 20 s. */
static inline void share_wait(struct share_bench *b, const int *count, int wanted)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)(20 * env_time_scale());
    pthread_mutex_lock(&b->told.lock);
    int rc = 0;
    while (rc == 0 && *count < wanted)
        rc = pthread_cond_timedwait(&b->told.changed, &b->told.lock, &until);
    bool enough = *count >= wanted;
    pthread_mutex_unlock(&b->told.lock);
    if (!enough)
        fail_msg("waited in vain: failed %d (%s), load: %s", b->told.n_failed, b->told.failed_text,
                 b->told.load_text);
}

/* The same of the batches that a share counts as done, which is behind the post of their results.
 */
static inline void share_wait_done(struct share_bench *b, int node, uint64_t wanted)
{
    const struct timespec pause = {0, 1000000};
    uint64_t until_ns = env_now_ns(&env_real) + (uint64_t)(20e9 * env_time_scale());
    while (share_runner_view(b->nodes[node].runner).done < wanted) {
        assert_true(env_now_ns(&env_real) < until_ns);
        nanosleep(&pause, NULL);
    }
}

/* The order to prepare one of two shares, each half of the network. */
static inline struct message_ref *share_prepare_of(uint64_t stage, const struct pack_list *seconds)
{
    static struct message_dim side = {"", SHARE_SIDE};
    struct message m = {.type = MESSAGE_STAGE_PREPARE};
    struct message_share share = {
        .parts = 1, .n_blocks = 2, .batch = SHARE_BATCH, .dims = {&side, 1}};
    if (seconds)
        share.seconds = *seconds;
    m.u.stage_prepare = (struct message_stage_prepare){.deployment = SHARE_PLAN,
                                                       .generation = SHARE_GENERATION,
                                                       .stage = stage,
                                                       .n_stages = 2,
                                                       .session = 1,
                                                       .input_session = SHARE_SESSION + stage,
                                                       .first_layer = stage,
                                                       .end_layer = stage + 1,
                                                       .share = {&share, 1}};
    return message_of_test(&m);
}

/* The node's share begins to load. */
static inline void share_runner_begin(struct share_node *n)
{
    struct err e = {0};
    const struct message_stage_prepare *p = &n->prepare->message.u.stage_prepare;
    struct share_runner_config c = {.slot = p->stage + 1,
                                    .ticket = 5,
                                    .prepare = n->prepare,
                                    .path = n->bench->path,
                                    .memory_bytes = UINT32_MAX,
                                    .memory = n->memory,
                                    .queue_bytes = 64 << 20,
                                    .data = n->data,
                                    .loaded = share_on_loaded,
                                    .failed = share_on_failed,
                                    .ctx = n};
    if (share_runner_create(&c, &n->runner, &e) < 0)
        fail_msg("%s", e.text);
}

static inline void share_node_open(struct share_bench *b, int i, const struct pack_list *seconds)
{
    struct share_node *n = &b->nodes[i];
    struct err e = {0};
    struct data_config d = {.callbacks = {n, share_on_frame, share_on_down}};
    n->bench = b;
    n->prepare = share_prepare_of((uint64_t)i, seconds);
    if (data_open_inproc(&d, &n->data, &e) < 0 || delay_line_create(n->data, &n->line, &e) < 0)
        fail_msg("%s", e.text);
    share_runner_begin(n);
}

static inline void share_node_connect(struct share_node *n)
{
    struct share_bench *b = n->bench;
    struct message_share_peer rows[3] = {{.name = "coordinator", .session = SHARE_SESSION + 9}};
    struct data_endpoint *to[] = {b->coordinator, b->nodes[0].data, b->nodes[1].data};
    struct err e = {0};
    for (int i = 0; i < 3; i++) {
        size_t size = 0;
        const uint8_t *address = to[i] ? data_address(to[i], &size) : NULL;
        rows[i].data_address = (struct pack_span){address, size};
        if (i)
            rows[i].session = SHARE_SESSION + (uint64_t)i - 1;
        rows[i].name = i ? "agent" : "coordinator";
        rows[i].device = "";
    }
    struct share_peers_config c = {
        .data = n->data, .line = n->line, .lost = share_on_lost, .ctx = n};
    const struct pack_list list = {rows, 3};
    if (share_peers_create(&c, &list, &n->peers, &e) < 0)
        fail_msg("%s", e.text);
    share_runner_connect(n->runner, n->peers);
}

static inline struct share_bench *share_bench_open(const struct pack_list *seconds)
{
    struct share_bench *b = calloc(1, sizeof *b);
    struct buffer file = small_network_file();
    struct err e = {0};
    pthread_mutex_init(&b->told.lock, NULL);
    pthread_cond_init(&b->told.changed, NULL);
    test_folder_make(b->folder);
    snprintf(b->path, sizeof b->path, "%s/net.onnx", b->folder);
    if (fs_file_write(b->path, file.data, file.size, 0644, &e) < 0)
        fail_msg("%s", e.text);
    buffer_free(&file);
    struct data_config d = {.callbacks = {b, share_on_result, share_on_down}};
    assert_int_equal(data_open_inproc(&d, &b->coordinator, &e), 0);
    for (int i = 0; i < 2; i++)
        share_node_open(b, i, seconds);
    assert_int_equal(data_allow(b->coordinator, SHARE_SESSION + 9, NULL, &e), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(data_allow(b->nodes[i].data, SHARE_SESSION + (uint64_t)i, NULL, &e), 0);
        share_node_connect(&b->nodes[i]);
    }
    return b;
}

static inline void share_node_close(struct share_node *n)
{
    if (!n->data)
        return;
    data_revoke(n->data, SHARE_SESSION);
    data_revoke(n->data, SHARE_SESSION + 1);
    share_runner_destroy(&n->runner);
    share_peers_release(n->peers);
    delay_line_destroy(&n->line);
    message_ref_release(n->prepare);
    data_close(&n->data);
}

static inline void share_bench_close(struct share_bench **pb)
{
    struct share_bench *b = *pb;
    for (int i = 0; i < 2; i++)
        share_node_close(&b->nodes[i]);
    for (int i = 0; i < b->told.n_results; i++)
        data_buffer_release(b->coordinator, b->told.payloads[i]);
    data_close(&b->coordinator);
    test_folder_remove(b->folder);
    pthread_mutex_destroy(&b->told.lock);
    pthread_cond_destroy(&b->told.changed);
    free(b);
    *pb = NULL;
}

/* A picture of each sample, over these legs. */
static inline void share_batch_send_over(struct share_bench *b, uint32_t number,
                                         const struct ndarray *x, const struct frame_leg legs[2])
{
    struct frame_tensor t = {
        .type = x->type, .n_dims = (uint32_t)x->n_dims, .data = x->data, .bytes = ndarray_bytes(x)};
    struct frame_header h = {.kind = FRAME_TENSORS,
                             .dtype = FRAME_BYTES,
                             .n_runs = 2,
                             .session = SHARE_SESSION,
                             .deployment = SHARE_PLAN,
                             .generation = SHARE_GENERATION,
                             .batch = number,
                             .n_tokens = (uint32_t)x->dims[0]};
    struct err e = {0};
    struct data_link *link;
    size_t size;
    const uint8_t *address = data_address(b->nodes[0].data, &size);
    memcpy(t.dims, x->dims, (size_t)x->n_dims * sizeof *x->dims);
    uint64_t bytes = frame_tensors_size(2, &t, 1);
    struct data_buffer *buffer = data_buffer_get(b->coordinator, bytes);
    assert_non_null(buffer);
    frame_tensors_encode(legs, 2, &t, 1, buffer->bytes);
    buffer->size = bytes;
    if (data_connect(b->coordinator, address, size, &link, &e) < 0)
        fail_msg("%s", e.text);
    data_post(link, &h, buffer, NULL, NULL);
    data_disconnect(&link);
}

/* To share 0 and then share 1, not computed before `start_ns` there. */
static inline void share_batch_send(struct share_bench *b, uint32_t number, const struct ndarray *x,
                                    const uint64_t start_ns[2])
{
    const struct frame_leg legs[2] = {{.share = 0, .peer = 1, .start_ns = start_ns[0]},
                                      {.share = 1, .peer = 2, .start_ns = start_ns[1]}};
    share_batch_send_over(b, number, x, legs);
}

#endif
