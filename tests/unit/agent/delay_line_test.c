/* Frames leave when they are due, and not at all when their link is gone. */
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "agent/delay_line.h"
#include "common/env.h"
#include "tests/test.h"

enum { SESSION = 7, FRAMES = 6 };

struct wire_end {
    struct data_endpoint *d;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int n;
    uint32_t batches[FRAMES + 2];
    uint64_t came_ns[FRAMES + 2];
};

static void on_frame(void *ctx, const struct frame_header *h, struct data_buffer *payload)
{
    struct wire_end *e = ctx;
    pthread_mutex_lock(&e->lock);
    e->batches[e->n] = h->batch;
    e->came_ns[e->n++] = env_now_ns(&env_real);
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
    if (payload)
        data_buffer_release(e->d, payload);
}

static void on_down(void *ctx, struct data_link *link, const struct err *why)
{
    (void)ctx;
    (void)link;
    (void)why;
}

static void end_open(struct wire_end *e)
{
    struct err why = {0};
    *e = (struct wire_end){0};
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, NULL);
    struct data_config c = {.callbacks = {e, on_frame, on_down}};
    assert_int_equal(data_open_inproc(&c, &e->d, &why), 0);
    assert_int_equal(data_allow(e->d, SESSION, NULL, &why), 0);
}

static void end_close(struct wire_end *e)
{
    data_close(&e->d);
    pthread_cond_destroy(&e->changed);
    pthread_mutex_destroy(&e->lock);
}

static void wait_frames(struct wire_end *e, int n)
{
    struct timespec until;
    int rc = 0;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    pthread_mutex_lock(&e->lock);
    while (e->n < n && rc == 0)
        rc = pthread_cond_timedwait(&e->changed, &e->lock, &until);
    if (e->n < n)
        fail_msg("%d of %d frames came within 20 s", e->n, n);
    pthread_mutex_unlock(&e->lock);
}

static struct data_link *link_to(struct wire_end *from, struct wire_end *to)
{
    struct data_link *link = NULL;
    struct err e = {0};
    size_t size;
    const uint8_t *address = data_address(to->d, &size);
    assert_int_equal(data_connect(from->d, address, size, &link, &e), 0);
    return link;
}

static void post(struct delay_line *w, struct wire_end *from, struct data_link *link,
                 uint32_t batch, uint64_t due_ns)
{
    struct frame_header h = {.kind = FRAME_ACTIVATION, .session = SESSION, .batch = batch};
    struct data_buffer *b = data_buffer_get(from->d, 64);
    assert_non_null(b);
    b->size = 64;
    memset(b->bytes, 0, 64);
    delay_line_post(w, link, &h, b, due_ns, NULL, NULL);
}

TEST(frames_leave_when_they_are_due_and_in_that_order)
{
    struct wire_end a, b;
    struct delay_line *w = NULL;
    struct err e = {0};
    end_open(&a);
    end_open(&b);
    struct data_link *link = link_to(&a, &b);
    assert_int_equal(delay_line_create(a.d, &w, &e), 0);
    uint64_t now = env_now_ns(&env_real), due[FRAMES];
    static const int order[FRAMES] = {3, 0, 5, 1, 4, 2};
    for (int i = 0; i < FRAMES; i++) {
        due[order[i]] = now + (uint64_t)(order[i] + 1) * 5000000;
        post(w, &a, link, (uint32_t)order[i], due[order[i]]);
    }
    wait_frames(&b, FRAMES);
    for (int i = 0; i < FRAMES; i++) {
        assert_int_equal(b.batches[i], i);
        assert_true(b.came_ns[i] >= due[i]);
    }
    delay_line_destroy(&w);
    data_disconnect(&link);
    end_close(&a);
    end_close(&b);
}

TEST(frames_of_a_link_that_goes_are_dropped_and_those_of_others_are_not)
{
    struct wire_end a, b;
    struct delay_line *w = NULL;
    struct err e = {0};
    end_open(&a);
    end_open(&b);
    struct data_link *gone = link_to(&a, &b), *stays = link_to(&a, &b);
    assert_int_equal(delay_line_create(a.d, &w, &e), 0);
    uint64_t now = env_now_ns(&env_real);
    for (uint32_t i = 0; i < 3; i++)
        post(w, &a, gone, i, now + 10000000);
    post(w, &a, stays, 9, now + 20000000);
    post(w, &a, stays, 10,
         now + 3600000000000u); /* still on its way when the wire goes: its buffer is given back */
    delay_line_forget(w, gone);
    data_disconnect(&gone);
    wait_frames(&b, 1);
    assert_int_equal(b.batches[0], 9);
    delay_line_destroy(&w);
    struct data_stats stats;
    data_stats(a.d, &stats);
    assert_int_equal(stats.buffers_bytes, 0);
    data_disconnect(&stays);
    end_close(&a);
    end_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_leave_when_they_are_due_and_in_that_order),
        cmocka_unit_test(frames_of_a_link_that_goes_are_dropped_and_those_of_others_are_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
