/* Streams and events of the cuda backend: the host goes on while work is under way, hears of its
 * end, and finds results where they belong once it has waited. */
#include <pthread.h>

#include "tests/unit/agent/backend/cuda_fixture.h"

enum { N = 5000, MANY = 40 };

/* What a thread of the device's tells. */
struct stream_told {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int times;
};

static void told_count(void *ctx)
{
    struct stream_told *t = ctx;
    pthread_mutex_lock(&t->lock);
    t->times++;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

static void told_await(struct stream_told *t, int times)
{
    pthread_mutex_lock(&t->lock);
    while (t->times < times)
        pthread_cond_wait(&t->changed, &t->lock);
    pthread_mutex_unlock(&t->lock);
}

static bool is_stand_in(const struct device *d)
{
    return strstr(d->backend->device_describe(d), "stand-in") != NULL;
}

struct streams_bench {
    struct device *device;
    const struct backend *backend;
    struct stream *stream;
    struct event *events[2];
    struct memory memory;
    float *in, *out[2], *sent[MANY]; /* sent: stays until it is waited for */
    int n_sent;
};

static void bench_init(struct streams_bench *s)
{
    struct err e = {0};
    s->device = cuda_open(0);
    s->backend = s->device->backend;
    assert_int_equal(s->backend->stream_create(s->device, &s->stream, &e), 0);
    assert_int_equal(s->backend->memory_alloc(s->device, N * sizeof(float), &s->memory, &e), 0);
    s->in = op_random(N, 3, 1);
    s->n_sent = 0;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(s->backend->event_create(s->device, &s->events[i], &e), 0);
        s->out[i] = calloc(N, sizeof(float));
    }
}

static void bench_fini(struct streams_bench *s)
{
    for (int i = 0; i < 2; i++) {
        if (s->events[i])
            s->backend->event_destroy(&s->events[i]);
        free(s->out[i]);
    }
    s->backend->memory_release(s->device, &s->memory);
    s->backend->stream_destroy(&s->stream);
    device_close(&s->device);
    free(s->in);
    for (int i = 0; i < s->n_sent; i++)
        free(s->sent[i]);
}

/* `times` the numbers that came in, to the GPU and back. */
static void batch_put(struct streams_bench *s, float times, float *out)
{
    float *from = s->sent[s->n_sent++] = malloc(N * sizeof *from);
    struct tensor there = tensor_rows(s->memory, DTYPE_F32, 1, N),
                  here = tensor_on_host(from, DTYPE_F32, 1, N),
                  back = tensor_on_host(out, DTYPE_F32, 1, N);
    for (int i = 0; i < N; i++)
        from[i] = s->in[i] * times;
    s->backend->copy(s->stream, &there, &here);
    s->backend->copy(s->stream, &back, &there);
}

static bool batch_is(const struct streams_bench *s, float times, const float *out)
{
    for (int i = 0; i < N; i++)
        if (out[i] != s->in[i] * times)
            return false;
    return true;
}

TEST(two_batches_are_under_way_and_each_is_told_when_it_is_over)
{
    static struct stream_told told = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
    struct streams_bench s;
    struct err e = {0};
    int asked = 0;
    bench_init(&s);
    for (int i = 0; i < 2; i++) {
        batch_put(&s, (float)(i + 2), s.out[i]);
        s.backend->event_record(s.events[i], s.stream);
        bool pending = s.backend->event_pending(s.events[i], told_count, &told);
        assert_true(pending || !is_stand_in(s.device));
        asked += pending;
    }
    told_await(&told, asked);
    for (int i = 0; i < 2; i++)
        assert_true(!s.backend->event_pending(s.events[i], told_count, &told));
    for (int i = 0; i < 2; i++) {
        if (s.backend->event_wait(s.events[i], &e) < 0)
            fail_msg("%s", e.text);
        assert_true(batch_is(&s, (float)(i + 2), s.out[i]));
    }
    assert_int_equal(told.times, asked);
    bench_fini(&s);
}

TEST(results_are_there_when_their_event_has_been_waited_for)
{
    struct streams_bench s;
    struct err e = {0};
    bench_init(&s);
    for (int i = 0; i < 2; i++) {
        batch_put(&s, (float)(i + 2), s.out[i]);
        s.backend->event_record(s.events[i], s.stream);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(s.backend->event_wait(s.events[i], &e), 0);
        assert_true(batch_is(&s, (float)(i + 2), s.out[i]));
    }
    /* into one place: the last one stays, however many there are */
    for (int i = s.n_sent; i < MANY; i++)
        batch_put(&s, (float)i, s.out[0]);
    assert_int_equal(s.backend->stream_wait(s.stream, &e), 0);
    assert_true(batch_is(&s, MANY - 1, s.out[0]));
    bench_fini(&s);
}

TEST(a_device_that_is_closed_has_told_everybody)
{
    static struct stream_told told = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
    struct streams_bench s;
    bench_init(&s);
    batch_put(&s, 1, s.out[0]);
    s.backend->event_record(s.events[0], s.stream);
    bool pending = s.backend->event_pending(s.events[0], told_count, &told);
    bench_fini(&s);
    assert_int_equal(told.times, pending);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_batches_are_under_way_and_each_is_told_when_it_is_over),
        cmocka_unit_test(results_are_there_when_their_event_has_been_waited_for),
        cmocka_unit_test(a_device_that_is_closed_has_told_everybody),
    };
    return cmocka_run_group_tests_name("cuda_streams", tests, NULL, NULL);
}
