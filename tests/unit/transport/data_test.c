/* All kinds of data endpoint, by the same claims. */
#include <dirent.h>

#include "data_fixture.h"
#include "transport/data_late.h"

static void frames_of_every_size_arrive_whole(void **state)
{
    open_fn open = *(open_fn *)*state;
    static const size_t sizes[] = {0, 1, 24, 4096, 8191, 70000, 1 << 20, (4 << 20) + 32};
    enum { N = sizeof sizes / sizeof *sizes };
    struct end a, b;
    open_end(&a, open, 0);
    open_end(&b, open, 0);
    data_allow(b.d, 77, NULL, NULL);
    struct data_link *link = link_to(&a, &b);
    uint64_t expected = 0, bytes = 0;
    for (int i = 0; i < N; i++) {
        post(&a, link, 77, sizes[i]);
        bytes += sizes[i];
        for (size_t k = 0; k < sizes[i]; k += 997)
            expected += (uint8_t)(k * 31 + sizes[i]);
    }
    assert_true(wait_for(&b, &b.frames, N));
    assert_true(wait_for(&a, &a.done, N));
    assert_int_equal(a.failed, 0);
    assert_int_equal(b.bytes, bytes);
    assert_int_equal(b.sum, expected);
    assert_int_equal(b.last.deployment, 9);
    data_disconnect(&link);
    data_close(&a.d);
    data_close(&b.d);
}

static void foreign_session_tokens_are_counted_and_dropped(void **state)
{
    open_fn open = *(open_fn *)*state;
    struct end a, b;
    open_end(&a, open, 0);
    open_end(&b, open, 0);
    data_allow(b.d, 77, NULL, NULL);
    struct data_link *link = link_to(&a, &b);
    post(&a, link, 78, 100);
    post(&a, link, 78, 1 << 20);
    post(&a, link, 77, 10);
    assert_true(wait_for(&b, &b.frames, 1));
    struct data_stats stats;
    for (int i = 0; i < 2000; i++) { /* the large one's header may come last */
        data_stats(b.d, &stats);
        if (stats.dropped_foreign == 2)
            break;
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    }
    assert_int_equal(stats.dropped_foreign, 2);
    assert_int_equal(look_at(&b, &b.frames), 1);
    data_revoke(b.d, 77);
    data_disconnect(&link);
    data_close(&a.d);
    data_close(&b.d);
}

static void a_peer_that_is_gone_breaks_the_link_and_nothing_else(void **state)
{
    open_fn open = *(open_fn *)*state;
    struct end a, b, c;
    open_end(&a, open, 0);
    open_end(&b, open, 0);
    open_end(&c, open, 0);
    data_allow(b.d, 1, NULL, NULL);
    data_allow(c.d, 1, NULL, NULL);
    struct data_link *to_b = link_to(&a, &b), *to_c = link_to(&a, &c);
    post(&a, to_b, 1, 1000);
    assert_true(wait_for(&b, &b.frames, 1));
    data_close(&b.d);
    for (int i = 0; i < 200 && look_at(&a, &a.downs) == 0; i++) {
        post(&a, to_b, 1, 1000);
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    }
    assert_true(wait_for(&a, &a.downs, 1));
    assert_int_equal(a.why.code, HP_ELINK);
    assert_string_not_equal(a.why.text, "");
    post(&a, to_c, 1, 500);
    assert_true(wait_for(&c, &c.frames, 1));
    data_disconnect(&to_b);
    data_disconnect(&to_c);
    data_close(&a.d);
    data_close(&c.d);
}

static void closing_a_link_breaks_no_other_to_the_same_peer(void **state)
{
    open_fn open = *(open_fn *)*state;
    enum { TURNS = 60 };
    struct end a, b;
    open_end(&a, open, 0);
    open_end(&b, open, 0);
    data_allow(a.d, 1, NULL, NULL);
    data_allow(b.d, 1, NULL, NULL);
    struct data_link *there = link_to(&a, &b), *back = link_to(&b, &a);
    for (int i = 0; i < TURNS; i++) {
        struct data_link *second = link_to(i % 2 ? &a : &b, i % 2 ? &b : &a);
        post(i % 2 ? &a : &b, second, 1, 300000);
        data_disconnect(&second);
        post(&a, there, 1, 500000);
        post(&b, back, 1, 100);
        assert_true(wait_for(&b, &b.frames, (i + 1) + (i + 1) / 2));
    }
    assert_true(wait_for(&a, &a.done, TURNS + TURNS / 2));
    assert_true(wait_for(&b, &b.done, TURNS + TURNS / 2));
    assert_int_equal(look_at(&a, &a.failed) + look_at(&b, &b.failed), 0);
    assert_int_equal(look_at(&a, &a.downs) + look_at(&b, &b.downs), 0);
    data_disconnect(&there);
    data_disconnect(&back);
    data_close(&a.d);
    data_close(&b.d);
}

static void a_spent_budget_gives_no_buffer_until_one_comes_back(void **state)
{
    open_fn open = *(open_fn *)*state;
    struct end a;
    open_end(&a, open, 4 << 20);
    struct data_buffer *whole =
        data_buffer_get(a.d, 1 << 20); /* frames to send may hold a quarter of the limit */
    assert_non_null(whole);
    assert_null(data_buffer_get(a.d, 100000));
    struct data_buffer *small = data_buffer_get(a.d, 10); /* never waits */
    assert_non_null(small);
    data_buffer_release(a.d, small);
    data_buffer_release(a.d, whole);
    assert_non_null(whole = data_buffer_get(a.d, 100000));
    data_buffer_release(a.d, whole);
    data_close(&a.d);
}

static void a_buffer_of_a_reserve_is_back_when_its_frame_is_done(void **state)
{
    open_fn open = *(open_fn *)*state;
    enum { SIZE = 200000, TURNS = 5 };
    struct end a, b;
    struct err e = {0};
    open_end(&a, open, 0);
    open_end(&b, open, 0);
    data_allow(b.d, 1, NULL, NULL);
    struct data_reserve *r;
    assert_int_equal(data_reserve_open(a.d, 1, SIZE, &r, &e), 0);
    struct data_link *link = link_to(&a, &b);
    for (int i = 0; i < TURNS; i++) {
        struct data_buffer *out = data_reserve_get(r, SIZE);
        assert_non_null(out);
        memset(out->bytes, i, SIZE);
        struct frame_header h = {.kind = FRAME_ACTIVATION, .session = 1};
        data_post(link, &h, out, on_done, &a);
        assert_true(wait_for(&a, &a.done, i + 1));
    }
    assert_true(wait_for(&b, &b.frames, TURNS));
    data_reserve_close(&r);
    data_disconnect(&link);
    data_close(&a.d);
    data_close(&b.d);
}

static void large_frames_wait_at_the_sender_while_the_receiver_is_full(void **state)
{
    open_fn open = *(open_fn *)*state;
    struct end a, b;
    open_end(&a, open, 0);
    open_end(&b, open, 4 << 20);
    b.keep = true;
    data_allow(b.d, 5, NULL, NULL);
    struct data_link *link = link_to(&a, &b);
    for (int i = 0; i < 6; i++)
        post(&a, link, 5, 2 << 20);
    assert_true(wait_for(&b, &b.frames, 2));
    for (int i = 0; i < 6; i++) { /* each release lets one more in */
        assert_true(wait_for(&b, &b.frames, i + 1));
        pthread_mutex_lock(&b.lock);
        struct data_buffer *kept = b.kept[i];
        pthread_mutex_unlock(&b.lock);
        data_buffer_release(b.d, kept);
    }
    assert_true(wait_for(&a, &a.done, 6));
    assert_int_equal(a.failed, 0);
    struct data_stats stats;
    data_stats(b.d, &stats);
    assert_int_equal(stats.dropped_full, 0);
    data_disconnect(&link);
    data_close(&a.d);
    data_close(&b.d);
}

static void chunks_that_wait_for_room_hold_up_no_batch(void **state)
{
    open_fn open = *(open_fn *)*state;
    struct end a, b;
    open_end(&a, open, 0);
    open_end(&b, open, 4 << 20);
    b.keep = true;
    data_allow(b.d, 5, NULL, NULL);
    struct data_link *link = link_to(&a, &b);
    for (int i = 0; i < 4; i++) { /* room for one */
        struct frame_header h = {.kind = FRAME_CHUNK, .session = 5, .dtype = FRAME_BYTES};
        data_post(link, &h, filled(&a, 1 << 20), on_done, &a);
    }
    assert_true(wait_for(&b, &b.frames, 1));
    post(&a, link, 5, 1 << 20);
    post(&a, link, 5, 1000);
    assert_true(wait_for(&b, &b.frames, 3));
    for (int i = 0; i < 6; i++) {
        assert_true(wait_for(&b, &b.frames, i + 1));
        pthread_mutex_lock(&b.lock);
        struct data_buffer *kept = b.kept[i];
        pthread_mutex_unlock(&b.lock);
        data_buffer_release(b.d, kept);
    }
    data_disconnect(&link);
    data_close(&a.d);
    data_close(&b.d);
}

static void posts_beyond_the_queue_of_a_link_fail_at_once(void **state)
{
    open_fn open = *(open_fn *)*state;
    enum { POSTS = 4200, SIZE = 66000 };
    struct end a, b;
    open_end(&a, open, (uint64_t)2 << 30);
    open_end(&b, open, 100000); /* takes one, and does not give it back */
    b.keep = true;
    data_allow(b.d, 5, NULL, NULL);
    struct data_link *link = link_to(&a, &b);
    for (int i = 0; i < POSTS; i++) {
        struct frame_header h = {.kind = FRAME_KV, .session = 5, .dtype = FRAME_BYTES};
        data_post(link, &h, data_buffer_get(a.d, SIZE), on_done, &a);
    }
    assert_true(
        wait_for(&a, &a.failed, POSTS - 4096 - 65)); /* what is announced waits beside the queue */
    assert_true(wait_for(&b, &b.frames, 1));
    data_disconnect(&link);
    pthread_mutex_lock(&b.lock);
    b.keep = false; /* what comes into the room that this makes goes at once */
    pthread_mutex_unlock(&b.lock);
    data_buffer_release(b.d, b.kept[0]);
    data_close(&b.d);
    data_close(&a.d);
    assert_int_equal(a.done, POSTS); /* none is forgotten */
}

struct flood {
    pthread_t thread;
    struct end end;
    struct data_link *link;
    bool stop; /* under end.lock */
};

/* Keeps eight large frames under way. */
static void *flood_run(void *ctx)
{
    struct flood *f = ctx;
    int posted = 0;
    pthread_mutex_lock(&f->end.lock);
    while (!f->stop) {
        while (!f->stop && posted - f->end.done >= 8)
            pthread_cond_wait(&f->end.changed, &f->end.lock);
        pthread_mutex_unlock(&f->end.lock);
        post(&f->end, f->link, 1, 4 << 20);
        posted++;
        pthread_mutex_lock(&f->end.lock);
    }
    pthread_mutex_unlock(&f->end.lock);
    assert_true(wait_for(&f->end, &f->end.done, posted));
    return NULL;
}

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void frames_leave_while_two_others_flood(void **state)
{
    open_fn open = *(open_fn *)*state;
    enum { SMALL = 100 };
    struct end flooded, friend;
    static struct flood floods[2];
    open_end(&flooded, open, 0);
    open_end(&friend, open, 0);
    data_allow(flooded.d, 1, NULL, NULL);
    data_allow(friend.d, 1, NULL, NULL);
    for (int i = 0; i < 2; i++) {
        open_end(&floods[i].end, open, 0);
        floods[i].link = link_to(&floods[i].end, &flooded);
        floods[i].stop = false;
    }
    uint8_t keys[3][KEY_BYTES];
    key_decode(floods[0].end.keys.public_key, keys[0], NULL);
    key_decode(floods[1].end.keys.public_key, keys[1], NULL);
    key_decode(friend.keys.public_key, keys[2], NULL);
    struct data_link *link = link_to(&flooded, &friend);
    assert_int_equal(data_peers_allow(flooded.d, keys, 3, NULL), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&floods[i].thread, NULL, flood_run, &floods[i]), 0);
    assert_true(wait_for(&flooded, &flooded.frames, 20));
    double started = seconds_now();
    for (int i = 0; i < SMALL; i++) {
        post(&flooded, link, 1, 64);
        assert_true(wait_for(&friend, &friend.frames, i + 1));
    }
    double mean_ms = (seconds_now() - started) / SMALL * 1e3;
    for (int i = 0; i < 2; i++) {
        pthread_mutex_lock(&floods[i].end.lock);
        floods[i].stop = true;
        pthread_cond_broadcast(&floods[i].end.changed);
        pthread_mutex_unlock(&floods[i].end.lock);
        pthread_join(floods[i].thread, NULL);
    }
    if (mean_ms > 40 * env_time_scale()) /* 60 ms and more when what comes in is never interrupted;
                                            below 1 ms when it is */
        fail_msg("a small frame took %.1f ms on the mean", mean_ms);
    data_disconnect(&link);
    for (int i = 0; i < 2; i++) {
        data_disconnect(&floods[i].link);
        data_close(&floods[i].end.d);
    }
    data_close(&flooded.d);
    data_close(&friend.d);
}

static int open_descriptors(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n;
}

static struct data_link *link_to_itself(struct end *a)
{
    size_t size;
    struct data_link *link;
    const uint8_t *address = data_address(a->d, &size);
    assert_int_equal(data_connect(a->d, address, size, &link, NULL), 0);
    return link;
}

static void frames_to_oneself_arrive_over_no_socket(void **state)
{
    struct end a;
    open_end(&a, *(open_fn *)*state, 0);
    data_allow(a.d, 77, NULL, NULL);
    int before = open_descriptors();
    struct data_link *link = link_to_itself(&a);
    post(&a, link, 77, 0);
    post(&a, link, 77, 100);
    post(&a, link, 77, 1 << 20);
    post(&a, link, 78, 100); /* nobody's */
    assert_true(wait_for(&a, &a.frames, 3));
    assert_true(wait_for(&a, &a.done, 4));
    assert_int_equal(a.failed, 0);
    assert_int_equal(a.bytes, 100 + (1 << 20));
    assert_int_equal(open_descriptors(), before);
    data_disconnect(&link);
    data_close(&a.d);
}

static void frames_to_oneself_wait_while_there_is_no_room_and_small_ones_pass(void **state)
{
    enum { N = 4 };
    struct end a;
    open_end(&a, *(open_fn *)*state, 3 << 20);
    data_allow(a.d, 77, NULL, NULL);
    struct data_link *link = link_to_itself(&a);
    struct data_reserve *own;
    assert_int_equal(data_reserve_open(a.d, N, 2 << 20, &own, NULL), 0);
    a.keep = true;
    for (int i = 0; i < N; i++) {
        struct frame_header h = {.kind = FRAME_ACTIVATION, .session = 77};
        struct data_buffer *b = data_reserve_get(own, 2 << 20);
        assert_non_null(b);
        b->size = 2 << 20;
        data_post(link, &h, b, on_done, &a);
    }
    assert_true(wait_for(&a, &a.frames, 1)); /* room for one */
    post(&a, link, 77, 100);
    assert_true(wait_for(&a, &a.frames, 2));
    assert_true(wait_for(&a, &a.done, 2));
    assert_int_equal(look_at(&a, &a.done), 2); /* the others have not left */
    pthread_mutex_lock(&a.lock);
    a.keep = false;
    pthread_mutex_unlock(&a.lock);
    for (int i = 0; i < 2; i++)
        data_buffer_release(a.d, a.kept[i]);
    assert_true(wait_for(&a, &a.frames, N + 1));
    assert_true(wait_for(&a, &a.done, N + 1));
    assert_int_equal(a.failed, 0);
    data_disconnect(&link);
    data_reserve_close(&own);
    data_close(&a.d);
}

/* ---- whose frames are late ---- */

static int late_from_now(struct data_endpoint **out, struct err *e)
{
    const uint64_t hour_ns = UINT64_C(3600000000000);
    int rc = data_late_open(*out, e);
    rc = rc < 0 ? rc
                : data_late_set(*out,
                                &(struct data_lateness){.delay_ns = 2000000, .for_ns = hour_ns}, e);
    if (rc < 0)
        data_close(out);
    return rc;
}

static int open_ucx_late(const struct data_config *c, struct data_endpoint **out, struct err *e)
{
    int rc = data_open_ucx(c, out, e);
    return rc < 0 ? rc : late_from_now(out, e);
}

static int open_tcp_late(const struct data_config *c, struct data_endpoint **out, struct err *e)
{
    int rc = data_open_tcp(c, out, e);
    return rc < 0 ? rc : late_from_now(out, e);
}

int main(void)
{
    static open_fn kinds[] = {data_open_inproc, data_open_ucx, data_open_tcp, open_ucx_late,
                              open_tcp_late};
    static const char *const kind_names[] = {"in process", "ucx", "tcp", "ucx, late", "tcp, late"};
    struct CMUnitTest tests[64];
    static const struct {
        const char *name;
        CMUnitTestFunction run;
    } claims[] = {
        {"frames_of_every_size_arrive_whole", frames_of_every_size_arrive_whole},
        {"foreign_session_tokens_are_counted_and_dropped",
         foreign_session_tokens_are_counted_and_dropped},
        {"a_peer_that_is_gone_breaks_the_link_and_nothing_else",
         a_peer_that_is_gone_breaks_the_link_and_nothing_else},
        {"closing_a_link_breaks_no_other_to_the_same_peer",
         closing_a_link_breaks_no_other_to_the_same_peer},
        {"a_spent_budget_gives_no_buffer_until_one_comes_back",
         a_spent_budget_gives_no_buffer_until_one_comes_back},
        {"a_buffer_of_a_reserve_is_back_when_its_frame_is_done",
         a_buffer_of_a_reserve_is_back_when_its_frame_is_done},
        {"frames_to_oneself_arrive_over_no_socket", frames_to_oneself_arrive_over_no_socket},
        {"large_frames_wait_at_the_sender_while_the_receiver_is_full",
         large_frames_wait_at_the_sender_while_the_receiver_is_full},
        {"chunks_that_wait_for_room_hold_up_no_batch", chunks_that_wait_for_room_hold_up_no_batch},
        {"frames_to_oneself_wait_while_there_is_no_room_and_small_ones_pass",
         frames_to_oneself_wait_while_there_is_no_room_and_small_ones_pass},
        {"posts_beyond_the_queue_of_a_link_fail_at_once",
         posts_beyond_the_queue_of_a_link_fail_at_once},
        {"frames_leave_while_two_others_flood", frames_leave_while_two_others_flood},
    };
    enum {
        CLAIMS = sizeof claims / sizeof *claims,
        OF_NETWORKS = 5, /* the twin has no sender to wait at */
        ON_TIME = 2      /* of what is late, another queue is full first, and small frames wait */
    };
    static const size_t n_claims[] = {CLAIMS - OF_NETWORKS, CLAIMS, CLAIMS, CLAIMS - ON_TIME,
                                      CLAIMS - ON_TIME};
    static char names[64][112];
    int n = 0;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t i = 0; i < n_claims[k]; i++) {
            snprintf(names[n], sizeof names[n], "%s (%s)", claims[i].name, kind_names[k]);
            tests[n] = (struct CMUnitTest){names[n], claims[i].run, NULL, NULL, &kinds[k]};
            n++;
        }
    return _cmocka_run_group_tests("data", tests, (size_t)n, NULL, NULL);
}
