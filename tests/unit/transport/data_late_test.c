/* Frames that are late for a while: by how much, in which order, and what becomes of them at its
 * end. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "eventually.h"
#include "tests/test.h"
#include "transport/data_late.h"

enum { SESSION = 7, MOST = 20000 };
#define MS UINT64_C(1000000)
#define HOUR (3600 * 1000 * MS)

struct late_end {
    struct data_endpoint *d;
    pthread_mutex_t lock; /* guards what follows */
    int n;
    uint32_t batches[MOST];
    uint64_t came_ns[MOST];
    atomic_int done, failed, busy;
};

static void on_frame(void *ctx, const struct frame_header *h, struct data_buffer *payload)
{
    struct late_end *e = ctx;
    pthread_mutex_lock(&e->lock);
    e->batches[e->n] = h->batch;
    e->came_ns[e->n++] = env_now_ns(&env_real);
    pthread_mutex_unlock(&e->lock);
    data_buffer_release(e->d, payload);
}

static void on_down(void *ctx, struct data_link *link, const struct err *why)
{
    (void)ctx;
    (void)link;
    (void)why;
}

static void on_done(void *ctx, int status)
{
    struct late_end *e = ctx;
    atomic_fetch_add(&e->done, 1);
    atomic_fetch_add(&e->failed, status != 0);
    atomic_fetch_add(&e->busy, status == HP_EBUSY);
}

static struct late_end *end_open(void)
{
    struct late_end *e = calloc(1, sizeof *e);
    assert_non_null(e);
    pthread_mutex_init(&e->lock, NULL);
    struct data_config c = {.callbacks = {e, on_frame, on_down}};
    assert_int_equal(data_open_inproc(&c, &e->d, NULL), 0);
    assert_int_equal(data_late_open(e->d, NULL), 0);
    assert_int_equal(data_allow(e->d, SESSION, NULL, NULL), 0);
    return e;
}

static void end_close(struct late_end *e)
{
    data_close(&e->d);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

static struct data_link *link_between(struct late_end *from, struct late_end *to)
{
    struct data_link *link = NULL;
    size_t size;
    const uint8_t *address = data_address(to->d, &size);
    assert_int_equal(data_connect(from->d, address, size, &link, NULL), 0);
    return link;
}

static uint64_t frame_post(struct late_end *from, struct data_link *link, uint32_t batch)
{
    struct frame_header h = {.kind = FRAME_ACTIVATION, .session = SESSION, .batch = batch};
    struct data_buffer *b = batch % 2 ? data_buffer_get(from->d, 64) : NULL;
    uint64_t now = env_now_ns(&env_real);
    if (b)
        memset(b->bytes, 0, b->size);
    data_post(link, &h, b, on_done, from);
    return now;
}

static int frames_of(struct late_end *e)
{
    pthread_mutex_lock(&e->lock);
    int n = e->n;
    pthread_mutex_unlock(&e->lock);
    return n;
}

static void late_for(struct late_end *e, uint64_t delay_ns, uint64_t for_ns)
{
    const struct data_lateness how = {.delay_ns = delay_ns, .for_ns = for_ns};
    assert_int_equal(data_late_set(e->d, &how, NULL), 0);
}

/* So many came, numbered from 0 in their order. */
static void frames_are(struct late_end *e, int n)
{
    assert_true(EVENTUALLY(frames_of(e) >= n));
    assert_int_equal(frames_of(e), n);
    for (int i = 0; i < n; i++)
        assert_int_equal(e->batches[i], i);
}

TEST(a_frame_comes_later_by_the_delay_and_none_overtakes_another)
{
    enum { N = 40 };
    struct late_end *a = end_open(), *b = end_open();
    struct data_link *link = link_between(a, b);
    uint64_t posted[N];
    late_for(a, 30 * MS, HOUR);
    for (uint32_t i = 0; i < N; i++)
        posted[i] = frame_post(a, link, i);
    frames_are(b, N);
    for (int i = 0; i < N; i++)
        assert_true(b->came_ns[i] - posted[i] >= 30 * MS);
    assert_true(EVENTUALLY(atomic_load(&a->done) == N));
    assert_int_equal(atomic_load(&a->failed), 0);
    data_disconnect(&link);
    end_close(a);
    end_close(b);
}

TEST(what_is_held_leaves_when_the_while_is_over_and_before_what_is_posted_then)
{
    struct late_end *a = end_open(), *b = end_open();
    struct data_link *link = link_between(a, b);
    uint64_t began = env_now_ns(&env_real);
    late_for(a, HOUR, 60 * MS);
    for (uint32_t i = 0; i < 5; i++)
        frame_post(a, link, i);
    assert_int_equal(atomic_load(&a->done), 0);
    while (env_now_ns(&env_real) < began + 60 * MS)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    frame_post(a, link, 5);
    frames_are(b, 6);
    assert_true(b->came_ns[0] - began >= 60 * MS);
    uint64_t posted = frame_post(a, link, 6);
    frames_are(b, 7);
    assert_true(b->came_ns[6] - posted < HOUR);
    data_disconnect(&link);
    end_close(a);
    end_close(b);
}

TEST(a_while_that_is_over_delays_nothing_of_the_next)
{
    struct late_end *a = end_open(), *b = end_open();
    struct data_link *link = link_between(a, b);
    late_for(a, HOUR, 20 * MS); /* it hangs */
    frame_post(a, link, 0);
    frames_are(b, 1);
    late_for(a, MS, HOUR);
    frame_post(a, link, 1);
    frames_are(b, 2);
    data_disconnect(&link);
    end_close(a);
    end_close(b);
}

TEST(a_while_that_is_ended_early_is_over_at_once_and_one_that_is_shortened_sooner)
{
    struct late_end *a = end_open(), *b = end_open();
    struct data_link *link = link_between(a, b);
    late_for(a, 0, 0); /* nothing lasts */
    late_for(a, HOUR, HOUR);
    for (uint32_t i = 0; i < 3; i++)
        frame_post(a, link, i);
    assert_int_equal(frames_of(b), 0);
    late_for(a, 0, 0);
    frames_are(b, 3);
    late_for(a, HOUR, HOUR);
    frame_post(a, link, 3);
    late_for(a, MS, 20 * MS);
    frame_post(a, link, 4);
    frames_are(b, 5);
    data_disconnect(&link);
    end_close(a);
    end_close(b);
}

TEST(a_link_that_is_closed_behind_held_frames_loses_none)
{
    struct late_end *a = end_open(), *b = end_open();
    struct data_link *link = link_between(a, b), *other = link_between(a, b);
    late_for(a, HOUR, HOUR);
    for (uint32_t i = 0; i < 4; i++)
        frame_post(a, i % 2 ? other : link, i);
    data_disconnect(&link);
    late_for(a, 0, 0);
    frames_are(b, 4);
    data_disconnect(&other);
    end_close(a);
    end_close(b);
}

TEST(frames_to_oneself_are_on_time)
{
    struct late_end *a = end_open();
    struct data_link *link = link_between(a, a);
    late_for(a, HOUR, HOUR);
    for (uint32_t i = 0; i < 4; i++)
        frame_post(a, link, i);
    frames_are(a, 4);
    data_disconnect(&link);
    end_close(a);
}

TEST(an_endpoint_that_is_closed_tells_of_each_frame_that_it_held)
{
    struct late_end *a = end_open(), *b = end_open();
    struct data_link *stays = link_between(a, b), *gone = link_between(a, b);
    late_for(a, HOUR, HOUR);
    for (uint32_t i = 0; i < 6; i++)
        frame_post(a, i % 2 ? gone : stays, i);
    data_disconnect(&gone);
    data_disconnect(&stays);
    data_close(&a->d);
    assert_int_equal(atomic_load(&a->done), 6);
    assert_int_equal(atomic_load(&a->failed), 6);
    assert_int_equal(frames_of(b), 0);
    end_close(a);
    end_close(b);
}

TEST(so_many_are_held_and_no_more)
{
    struct late_end *a = end_open(), *b = end_open();
    struct data_link *link = link_between(a, b);
    late_for(a, HOUR, HOUR);
    for (uint32_t i = 0; i < DATA_LATE_FRAMES + 3; i++)
        frame_post(a, link, i);
    assert_int_equal(atomic_load(&a->done), 3);
    assert_int_equal(atomic_load(&a->busy), 3);
    late_for(a, 0, 0);
    frames_are(b, DATA_LATE_FRAMES);
    data_disconnect(&link);
    end_close(a);
    end_close(b);
}

/* Of two links in turns: what is lost comes late, and what is behind it on its own link, no other.
 */
TEST(a_frame_that_is_lost_comes_again_and_holds_up_its_own_link_alone)
{
    enum { N = 60 };
    struct late_end *a = end_open(), *b = end_open();
    struct data_link *links[2] = {link_between(a, b), link_between(a, b)};
    const struct data_lateness how = {.lost = 0.05, .for_ns = HOUR};
    uint64_t posted[N];
    uint32_t next[2] = {0, 1};
    int late = 0, overtook = 0;
    assert_int_equal(data_late_set(a->d, &how, NULL), 0);
    for (uint32_t i = 0; i < N; i++)
        posted[i] = frame_post(a, links[i % 2], i);
    assert_true(EVENTUALLY(frames_of(b) == N));
    for (int i = 0; i < N; i++) {
        uint32_t k = b->batches[i];
        assert_int_equal(k, next[k % 2]);
        next[k % 2] += 2;
        late += b->came_ns[i] - posted[k] >= DATA_LATE_AGAIN_MS * MS;
        overtook += i && k < b->batches[i - 1];
    }
    assert_true(late > 0 && late < N && overtook > 0);
    assert_int_equal(atomic_load(&a->failed), 0);
    data_disconnect(&links[0]);
    data_disconnect(&links[1]);
    end_close(a);
    end_close(b);
}

TEST(an_endpoint_that_was_not_made_for_it_is_never_late)
{
    struct data_endpoint *d;
    struct data_config c = {.callbacks = {NULL, on_frame, on_down}};
    struct err e = {0};
    assert_int_equal(data_open_inproc(&c, &d, NULL), 0);
    const struct data_lateness how = {.delay_ns = MS, .for_ns = MS};
    assert_int_equal(data_late_set(d, &how, &e), HP_EINVAL);
    assert_non_null(strstr(e.text, "never late"));
    data_close(&d);
}

enum { THREADS = 3, EACH = 3000, UNDER_WAY = 600 };

struct poster {
    pthread_t thread;
    struct late_end *from, *to;
    struct data_link *link;
    uint32_t number;
    atomic_int *posted; /* by all of them */
};

static void *poster_run(void *ctx)
{
    struct poster *p = ctx;
    for (uint32_t i = 0; i < EACH; i++) {
        frame_post(p->from, p->link, p->number * EACH + i);
        atomic_fetch_add(p->posted, 1);
        if (!EVENTUALLY(atomic_load(p->posted) - frames_of(p->to) <= UNDER_WAY))
            break;
    }
    return NULL;
}

TEST(each_links_order_stays_while_delays_come_and_go_under_threads_that_post)
{
    struct late_end *a = end_open(), *b = end_open();
    struct poster posters[THREADS];
    uint32_t next[THREADS] = {0};
    atomic_int posted = 0;
    for (uint32_t t = 0; t < THREADS; t++) {
        posters[t] = (struct poster){
            .from = a, .to = b, .link = link_between(a, b), .number = t, .posted = &posted};
        assert_int_equal(pthread_create(&posters[t].thread, NULL, poster_run, &posters[t]), 0);
    }
    for (uint64_t turn = 0; frames_of(b) < THREADS * EACH / 2 && turn < 2000; turn++) {
        late_for(a, turn % 3 * MS / 4, turn % 4 * MS / 2);
        nanosleep(&(struct timespec){0, 300000}, NULL);
    }
    for (int t = 0; t < THREADS; t++)
        pthread_join(posters[t].thread, NULL);
    late_for(a, 0, 0);
    assert_true(EVENTUALLY(frames_of(b) == THREADS * EACH));
    assert_int_equal(atomic_load(&a->failed), 0);
    for (int i = 0; i < THREADS * EACH; i++)
        assert_int_equal(b->batches[i] % EACH, next[b->batches[i] / EACH]++);
    for (int t = 0; t < THREADS; t++)
        data_disconnect(&posters[t].link);
    end_close(a);
    end_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_frame_comes_later_by_the_delay_and_none_overtakes_another),
        cmocka_unit_test(what_is_held_leaves_when_the_while_is_over_and_before_what_is_posted_then),
        cmocka_unit_test(a_while_that_is_over_delays_nothing_of_the_next),
        cmocka_unit_test(
            a_while_that_is_ended_early_is_over_at_once_and_one_that_is_shortened_sooner),
        cmocka_unit_test(a_link_that_is_closed_behind_held_frames_loses_none),
        cmocka_unit_test(frames_to_oneself_are_on_time),
        cmocka_unit_test(an_endpoint_that_is_closed_tells_of_each_frame_that_it_held),
        cmocka_unit_test(so_many_are_held_and_no_more),
        cmocka_unit_test(a_frame_that_is_lost_comes_again_and_holds_up_its_own_link_alone),
        cmocka_unit_test(an_endpoint_that_was_not_made_for_it_is_never_late),
        cmocka_unit_test(each_links_order_stays_while_delays_come_and_go_under_threads_that_post),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
