#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "agent/link_probe_io.h"
#include "tests/test.h"

enum { SESSION = 77 };

/* One agent's part: an endpoint, and its prober. */
struct prober_side {
    struct data_endpoint *data;
    struct link_probe_io *prober;
    pthread_mutex_t gate; /* closed once the prober is gone, as the agent's */
    pthread_mutex_t lock;
    pthread_cond_t told;
    bool done;
    uint64_t id;
    int status;
    double latency_s, bandwidth;
};

static void on_frame(void *ctx, const struct frame_header *h, struct data_buffer *payload)
{
    struct prober_side *s = ctx;
    pthread_mutex_lock(&s->gate);
    if (s->prober)
        link_probe_io_frame(s->prober, h, payload);
    else
        data_buffer_release(s->data, payload);
    pthread_mutex_unlock(&s->gate);
}

static void on_link_down(void *ctx, struct data_link *link, const struct err *why)
{
    struct prober_side *s = ctx;
    (void)why;
    pthread_mutex_lock(&s->gate);
    if (s->prober)
        link_probe_io_link_down(s->prober, link);
    pthread_mutex_unlock(&s->gate);
}

static void on_done(void *ctx, uint64_t id, int status, const struct err *why, double latency_s,
                    double bandwidth)
{
    struct prober_side *s = ctx;
    assert_true(status == 0 || why->text[0]);
    pthread_mutex_lock(&s->lock);
    s->done = true;
    s->id = id;
    s->status = status;
    s->latency_s = latency_s;
    s->bandwidth = bandwidth;
    pthread_cond_signal(&s->told);
    pthread_mutex_unlock(&s->lock);
}

static void side_open(struct prober_side *s)
{
    struct err e = {0};
    *s = (struct prober_side){.gate = PTHREAD_MUTEX_INITIALIZER,
                              .lock = PTHREAD_MUTEX_INITIALIZER,
                              .told = PTHREAD_COND_INITIALIZER};
    struct data_config c = {.callbacks = {s, on_frame, on_link_down}};
    assert_int_equal(data_open_inproc(&c, &s->data, &e), 0);
    assert_int_equal(link_probe_io_create(s->data, on_done, s, &s->prober, &e), 0);
}

static void side_close(struct prober_side *s)
{
    pthread_mutex_lock(&s->gate);
    link_probe_io_destroy(&s->prober);
    pthread_mutex_unlock(&s->gate);
    data_close(&s->data);
}

static void wait_done(struct prober_side *s)
{
    pthread_mutex_lock(&s->lock);
    while (!s->done)
        pthread_cond_wait(&s->told, &s->lock);
    s->done = false;
    pthread_mutex_unlock(&s->lock);
}

TEST(two_endpoints_measure_each_other_both_ways)
{
    struct prober_side sides[2];
    struct err e = {0};
    for (int i = 0; i < 2; i++)
        side_open(&sides[i]);
    for (uint64_t round = 0; round < 2; round++) {
        struct prober_side *near = &sides[round], *far = &sides[1 - round];
        size_t near_size, far_size;
        const uint8_t *near_at = data_address(near->data, &near_size),
                      *far_at = data_address(far->data, &far_size);
        assert_int_equal(link_probe_io_echo(far->prober, SESSION + round, near_at, near_size, &e),
                         0);
        assert_int_equal(
            link_probe_io_measure(near->prober, 5 + round, SESSION + round, far_at, far_size, &e),
            0);
        wait_done(near);
        assert_int_equal(near->status, 0);
        assert_int_equal(near->id, 5 + round);
        assert_true(near->latency_s > 0 && near->latency_s < 1);
        assert_true(near->bandwidth > 1e6);
        link_probe_io_end(near->prober, SESSION + round);
        link_probe_io_end(far->prober, SESSION + round);
    }
    for (int i = 0; i < 2; i++)
        side_close(&sides[i]);
}

TEST(a_peer_that_is_gone_is_an_error)
{
    struct prober_side near, far;
    struct err e = {0};
    uint8_t address[64];
    size_t size;
    side_open(&near);
    side_open(&far);
    const uint8_t *at = data_address(far.data, &size);
    assert_true(size <= sizeof address);
    memcpy(address, at, size);
    side_close(&far);
    assert_int_equal(link_probe_io_measure(near.prober, 9, SESSION, address, size, &e), 0);
    wait_done(&near);
    assert_int_equal(near.status, HP_ELINK);
    assert_true(link_probe_io_echo(near.prober, SESSION, NULL, 0, &e) < 0);
    assert_true(link_probe_io_measure(near.prober, 9, 0, address, size, &e) < 0);
    side_close(&near);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_endpoints_measure_each_other_both_ways),
        cmocka_unit_test(a_peer_that_is_gone_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
