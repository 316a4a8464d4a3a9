/* Shares that run a cut network over endpoints of this process, with a coordinator that the test
 * plays: what comes back is to the bit what the whole gives, at the times that were reserved, and
 * whatever is wrong is told of its batch. */
#include "agent/engine/network/network_memory.h"
#include "agent/share_queue.h"
#include "tests/unit/agent/share_fixture.h"

static const uint64_t at_once[2] = {0, 0};

/* What the whole network gives. */
static void whole_check(const struct share_bench *b, int result, const struct ndarray *x)
{
    const struct network_dim side = {"", SHARE_SIDE};
    const struct network_part_ask ask = {&side, 1, 1, NULL, 0, 1, SHARE_BATCH, 1, NULL, NULL, NULL};
    struct onnx_network *n;
    struct network_part *whole;
    struct err e = {0};
    if (network_open(b->path, UINT32_MAX, &n, &e) < 0 ||
        network_part_open(&n, &ask, &whole, &e) < 0 ||
        network_part_run(whole, (int)x->dims[0], x, 1, &e) < 0)
        fail_msg("%s", e.text);
    struct frame_leg legs[FRAME_MAX_LEGS];
    struct frame_tensor got[8];
    int n_got, n_wanted;
    const struct frame_header *h = &b->told.headers[result];
    assert_int_equal(
        frame_tensors_decode(h, b->told.payloads[result]->bytes, legs, got, 8, &n_got, &e), 0);
    const struct ndarray *wanted = network_part_leaves(whole, (int)x->dims[0], &n_wanted);
    assert_int_equal(n_got, n_wanted);
    for (int i = 0; i < n_got; i++) {
        assert_int_equal(got[i].type, wanted[i].type);
        assert_int_equal(got[i].bytes, ndarray_bytes(&wanted[i]));
        assert_memory_equal(got[i].dims, wanted[i].dims,
                            (size_t)wanted[i].n_dims * sizeof *wanted[i].dims);
        assert_memory_equal(got[i].data, wanted[i].data, got[i].bytes);
    }
    network_part_close(&whole);
}

static void legs_of(const struct share_bench *b, int result, struct frame_leg legs[FRAME_MAX_LEGS])
{
    struct frame_tensor got[8];
    int n;
    assert_int_equal(frame_tensors_decode(&b->told.headers[result], b->told.payloads[result]->bytes,
                                          legs, got, 8, &n, NULL),
                     0);
}

TEST(two_shares_give_what_the_whole_network_gives)
{
    struct share_bench *b = share_bench_open(NULL);
    share_wait(b, &b->told.n_loaded, 2);
    for (int64_t samples = 1; samples <= SHARE_BATCH; samples++) {
        struct ndarray x = random_picture(samples, SHARE_SIDE, SHARE_SIDE);
        share_batch_send(b, 40 + (uint32_t)samples, &x, at_once);
        share_wait(b, &b->told.n_results, (int)samples);
        const struct frame_header *h = &b->told.headers[samples - 1];
        assert_int_equal(h->batch, 40 + samples);
        assert_int_equal(h->first_position, 2);
        assert_int_equal(h->n_runs, 2);
        assert_int_equal(h->deployment, SHARE_PLAN);
        whole_check(b, (int)samples - 1, &x);
        ndarray_free(&x);
    }
    struct frame_leg legs[FRAME_MAX_LEGS];
    legs_of(b, 0, legs);
    for (int i = 0; i < 2; i++) {
        assert_true(legs[i].arrived_ns > 0);
        assert_true(legs[i].arrived_ns <= legs[i].began_ns);
        assert_true(legs[i].began_ns < legs[i].ended_ns);
    }
    assert_true(legs[0].ended_ns <= legs[1].arrived_ns);
    share_wait_done(b, 1, SHARE_BATCH);
    struct share_runner_view v = share_runner_view(b->nodes[1].runner);
    assert_true(v.ready);
    assert_true(v.busy_s > 0);
    assert_int_equal(v.queued, 0);
    assert_int_equal(b->told.n_failed, 0);
    share_bench_close(&b);
}

/* Two batches, of which the second one is due first. False: this machine took longer to hand them
 * over than there was time. */
static bool batches_come_when_due(struct share_bench *b, const struct ndarray *x, uint64_t ahead_ns)
{
    struct frame_leg first[FRAME_MAX_LEGS], last[FRAME_MAX_LEGS];
    int n = b->told.n_results;
    uint64_t sooner = env_now_ns(&env_real) + 2 * ahead_ns, later = sooner + ahead_ns;
    const uint64_t starts[2][2] = {{later, 0}, {sooner, sooner + ahead_ns / 2}};
    for (uint32_t i = 0; i < 2; i++)
        share_batch_send(b, i, x, starts[i]);
    share_wait(b, &b->told.n_results, n + 2);
    legs_of(b, n, first);
    legs_of(b, n + 1, last);
    if (first[0].arrived_ns >= sooner || last[0].arrived_ns >= sooner)
        return false;
    assert_int_equal(b->told.headers[n].batch, 1);
    assert_int_equal(b->told.headers[n + 1].batch, 0);
    assert_true(first[0].began_ns >= starts[1][0]);
    assert_true(first[1].began_ns >= starts[1][1]);
    assert_true(last[0].began_ns >= later);
    return true;
}

TEST(batches_begin_when_they_are_due_and_in_that_order)
{
    struct share_bench *b = share_bench_open(NULL);
    struct ndarray x = random_picture(1, SHARE_SIDE, SHARE_SIDE);
    uint64_t ahead_ns = 50000000;
    share_wait(b, &b->told.n_loaded, 2);
    while (!batches_come_when_due(b, &x, ahead_ns)) {
        ahead_ns *= 2;
        assert_true(ahead_ns < UINT64_C(5000000000));
    }
    ndarray_free(&x);
    share_bench_close(&b);
}

TEST(a_batch_leaves_for_the_next_share_when_its_link_is_reserved)
{
    struct share_bench *b = share_bench_open(NULL);
    share_wait(b, &b->told.n_loaded, 2);
    struct ndarray x = random_picture(1, SHARE_SIDE, SHARE_SIDE);
    uint64_t leaves = env_now_ns(&env_real) + 200000000;
    struct frame_leg legs[FRAME_MAX_LEGS] = {{.share = 0, .peer = 1},
                                             {.share = 1, .peer = 2, .send_ns = leaves}};
    share_batch_send_over(b, 3, &x, legs);
    share_wait(b, &b->told.n_results, 1);
    legs_of(b, 0, legs);
    assert_true(legs[1].arrived_ns >= leaves);
    whole_check(b, 0, &x);
    ndarray_free(&x);
    share_bench_close(&b);
}

static void fails_with(struct share_bench *b, int n, uint32_t share, int code, const char *said)
{
    share_wait(b, &b->told.n_failed, n);
    pthread_mutex_lock(&b->told.lock);
    assert_int_equal(b->told.failed_share, share);
    if (b->told.failed_code != code || !strstr(b->told.failed_text, said))
        fail_msg("%d: \"%s\" does not say \"%s\"", b->told.failed_code, b->told.failed_text, said);
    pthread_mutex_unlock(&b->told.lock);
}

/* A batch at share 0 of a payload of so many bytes of nothing. */
static void noise_send(struct share_bench *b, uint32_t batch, size_t bytes)
{
    struct data_buffer *buffer = data_buffer_get(b->nodes[0].data, bytes);
    memset(buffer->bytes, 0xee, bytes);
    buffer->size = bytes;
    struct frame_header h = {.kind = FRAME_TENSORS,
                             .n_runs = 2,
                             .deployment = SHARE_PLAN,
                             .generation = SHARE_GENERATION,
                             .batch = batch,
                             .n_tokens = 1,
                             .payload_bytes = bytes};
    share_runner_batch(b->nodes[0].runner, &h, buffer, env_now_ns(&env_real));
}

TEST(what_cannot_be_run_is_told_of_its_batch_and_the_next_one_runs)
{
    struct share_bench *b = share_bench_open(NULL);
    share_wait(b, &b->told.n_loaded, 2);
    struct ndarray x = random_picture(1, SHARE_SIDE + 4, SHARE_SIDE);
    share_batch_send(b, 11, &x, at_once);
    fails_with(b, 1, 0, HP_EINVAL, "array 0 (x) is float32 1x3x24x20");
    assert_int_equal(b->told.failed_batch, 11);
    ndarray_free(&x);
    x = random_picture(SHARE_BATCH + 1, SHARE_SIDE, SHARE_SIDE);
    share_batch_send(b, 12, &x, at_once);
    fails_with(b, 2, 0, HP_EINVAL, "a batch of 4");
    ndarray_free(&x);
    noise_send(b, 13, 4096);
    fails_with(b, 3, 0, HP_EPROTO, "");
    noise_send(b, 14, 8);
    fails_with(b, 4, 0, HP_EPROTO, "");
    x = random_picture(1, SHARE_SIDE, SHARE_SIDE);
    share_batch_send(b, 15, &x, at_once);
    share_wait(b, &b->told.n_results, 1);
    whole_check(b, 0, &x);
    ndarray_free(&x);
    share_bench_close(&b);
}

TEST(batches_that_are_here_before_the_share_is_connected_wait_for_it)
{
    struct share_bench *b = share_bench_open(NULL);
    share_wait(b, &b->told.n_loaded, 2);
    struct share_peers *peers = share_peers_hold(b->nodes[0].peers);
    share_runner_connect(b->nodes[0].runner, NULL);
    struct ndarray x = random_picture(1, SHARE_SIDE, SHARE_SIDE);
    share_batch_send(b, 20, &x, at_once);
    while (share_runner_view(b->nodes[0].runner).queued == 0)
        ;
    share_runner_connect(b->nodes[0].runner, peers);
    share_peers_release(peers);
    share_wait(b, &b->told.n_results, 1);
    assert_int_equal(b->told.n_failed, 0);
    whole_check(b, 0, &x);
    ndarray_free(&x);
    share_bench_close(&b);
}

TEST(batches_of_a_share_that_is_never_connected_are_told)
{
    struct share_bench *b = share_bench_open(NULL);
    share_wait(b, &b->told.n_loaded, 2);
    share_runner_connect(b->nodes[0].runner, NULL);
    struct ndarray x = random_picture(1, SHARE_SIDE, SHARE_SIDE);
    share_batch_send(b, 21, &x, at_once);
    fails_with(b, 1, 0, HP_ENOENT, "was not told where its results go");
    ndarray_free(&x);
    share_bench_close(&b);
}

TEST(a_share_that_is_gone_fails_what_is_sent_to_it)
{
    struct share_bench *b = share_bench_open(NULL);
    share_wait(b, &b->told.n_loaded, 2);
    share_node_close(&b->nodes[1]);
    struct ndarray x = random_picture(1, SHARE_SIDE, SHARE_SIDE);
    for (uint32_t i = 1; i <= 3; i++) { /* each time: the link is made anew */
        share_batch_send(b, 30 + i, &x, at_once);
        fails_with(b, (int)i, 0, HP_ELINK, "");
        assert_int_equal(b->told.failed_batch, 30 + i);
    }
    ndarray_free(&x);
    share_bench_close(&b);
}

TEST(a_network_that_is_none_fails_to_load_and_its_batches_fail)
{
    struct share_bench *b = share_bench_open(NULL);
    share_wait(b, &b->told.n_loaded, 2);
    assert_int_equal(fs_file_write(b->path, "nothing", 7, 0644, NULL), 0);
    share_runner_destroy(&b->nodes[0].runner);
    share_runner_begin(&b->nodes[0]);
    share_wait(b, &b->told.n_load_failed, 1);
    assert_non_null(strstr(b->told.load_text, "net.onnx"));
    struct ndarray x = random_picture(1, SHARE_SIDE, SHARE_SIDE);
    share_batch_send(b, 41, &x, at_once);
    fails_with(b, 1, 0, HP_EBUSY, "could not be loaded");
    ndarray_free(&x);
    share_bench_close(&b);
}

/* The first that the device has no room for, beside others, says how much is missing. */
TEST(a_share_that_its_device_does_not_hold_beside_others_fails_to_load)
{
    const struct device_config c = {.backend = "cpu", .memory_bytes = 1000};
    struct share_bench *b = share_bench_open(NULL);
    struct device *device = NULL;
    struct err e = {0};
    share_wait(b, &b->told.n_loaded, 2);
    assert_int_equal(device_open(&c, &device, &e), 0);
    assert_int_equal(network_memory_create(device, &b->nodes[0].memory, &e), 0);
    share_runner_destroy(&b->nodes[0].runner);
    share_runner_begin(&b->nodes[0]);
    share_wait(b, &b->told.n_load_failed, 1);
    if (!strstr(b->told.load_text, "of the limit of 1000 are left: "))
        fail_msg("%s", b->told.load_text);
    share_runner_destroy(&b->nodes[0].runner);
    assert_int_equal(network_memory_bytes(b->nodes[0].memory), 0);
    network_memory_destroy(&b->nodes[0].memory);
    device_close(&device);
    share_bench_close(&b);
}

TEST(what_waits_is_bounded_and_a_share_that_stops_drops_it)
{
    struct share_bench *b = share_bench_open(NULL);
    share_wait(b, &b->told.n_loaded, 2);
    struct ndarray x = random_picture(1, SHARE_SIDE, SHARE_SIDE);
    const uint64_t never[2] = {UINT64_MAX - 1, 0};
    for (uint32_t i = 0; i <= SHARE_QUEUE_BATCHES; i++)
        share_batch_send(b, 100 + i, &x, never);
    fails_with(b, 1, 0, HP_EBUSY, "256 batches wait for this share already");
    assert_int_equal(b->told.failed_batch, 100 + SHARE_QUEUE_BATCHES);
    assert_int_equal(share_runner_view(b->nodes[0].runner).queued, SHARE_QUEUE_BATCHES);
    ndarray_free(&x);
    share_bench_close(&b);
}

struct measured_told {
    struct share_told *told;
    uint64_t id;
    char profile[64];
    int count, code;
};

static void on_measures(void *ctx, uint64_t id, const struct share_measuring *how)
{
    (void)ctx;
    (void)id;
    (void)how;
}

static void on_measured(void *ctx, uint64_t id, const char *profile, const struct err *e)
{
    struct measured_told *t = ctx;
    pthread_mutex_lock(&t->told->lock);
    t->id = id;
    t->code = e ? e->code : 0;
    snprintf(t->profile, sizeof t->profile, "%s", profile);
    t->count++;
    pthread_cond_broadcast(&t->told->changed);
    pthread_mutex_unlock(&t->told->lock);
}

TEST(a_share_that_is_to_be_measured_answers_with_its_id_and_takes_no_batches)
{
    struct share_bench *b = share_bench_open(NULL);
    struct measured_told t = {.told = &b->told};
    share_wait(b, &b->told.n_loaded, 2);
    static struct message_dim side = {"", SHARE_SIDE};
    struct message_measure measure = {.id = 77, .budget_ms = 20};
    struct message_share share = {
        .parts = 1, .n_blocks = 1, .batch = 1, .dims = {&side, 1}, .measure = {&measure, 1}};
    struct message m = {.type = MESSAGE_STAGE_PREPARE};
    m.u.stage_prepare = (struct message_stage_prepare){
        .deployment = 9, .generation = 1, .end_layer = 1, .share = {&share, 1}};
    struct message_ref *order = message_of_test(&m);
    struct share_runner *r = NULL;
    struct share_runner_config c = {.prepare = order,
                                    .path = b->path,
                                    .memory_bytes = UINT32_MAX,
                                    .data = b->nodes[0].data,
                                    .measures = on_measures,
                                    .measured = on_measured,
                                    .kind = "K",
                                    .ctx = &t};
    assert_int_equal(share_runner_create(&c, &r, NULL), 0);
    share_wait(b, &t.count, 1);
    assert_int_equal(t.id, 77);
    assert_int_equal(t.code, 0);
    assert_non_null(strstr(t.profile, "hp-profile/1"));
    share_runner_destroy(&r);
    message_ref_release(order);
    share_bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_shares_give_what_the_whole_network_gives),
        cmocka_unit_test(batches_begin_when_they_are_due_and_in_that_order),
        cmocka_unit_test(a_batch_leaves_for_the_next_share_when_its_link_is_reserved),
        cmocka_unit_test(what_cannot_be_run_is_told_of_its_batch_and_the_next_one_runs),
        cmocka_unit_test(batches_that_are_here_before_the_share_is_connected_wait_for_it),
        cmocka_unit_test(batches_of_a_share_that_is_never_connected_are_told),
        cmocka_unit_test(a_share_that_is_gone_fails_what_is_sent_to_it),
        cmocka_unit_test(a_network_that_is_none_fails_to_load_and_its_batches_fail),
        cmocka_unit_test(a_share_that_its_device_does_not_hold_beside_others_fails_to_load),
        cmocka_unit_test(a_share_that_is_to_be_measured_answers_with_its_id_and_takes_no_batches),
        cmocka_unit_test(what_waits_is_bounded_and_a_share_that_stops_drops_it),
    };
    return cmocka_run_group_tests_name("share_runner", tests, NULL, NULL);
}
