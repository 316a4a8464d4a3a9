/* The queue of long pieces: lanes, limits, and closing while some run. */
#include "coordinator/gateway/work.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>

#include <cmocka.h>

enum { PIECES = 40 };

struct piece {
    struct work work;
    bool large;
};

static struct piece pieces[PIECES];
static atomic_int running_large, most_large, ran;
static int done_ran, done_not;

static void run(struct work *w)
{
    struct piece *p = (struct piece *)w; /* its first member */
    if (p->large) {
        int now = atomic_fetch_add(&running_large, 1) + 1;
        if (now > atomic_load(&most_large))
            atomic_store(&most_large, now);
    }
    atomic_fetch_add(&ran, 1);
    if (p->large)
        atomic_fetch_sub(&running_large, 1);
}

static void done(struct work *w, bool did)
{
    (void)w;
    done_ran += did;
    done_not += !did;
}

static void submit(struct work_queue *q, int i, bool large)
{
    struct err e = {0};
    pieces[i] = (struct piece){.work = {.run = run, .done = done}, .large = large};
    assert_int_equal(work_submit(q, &pieces[i].work, large ? WORK_LARGE_BYTES : 100, &e), 0);
}

static int reset(void **state)
{
    (void)state;
    atomic_store(&most_large, 0);
    atomic_store(&ran, 0);
    done_ran = done_not = 0;
    return 0;
}

static void large_pieces_run_one_at_a_time_and_small_ones_beside_them(void **state)
{
    (void)state;
    uv_loop_t loop;
    uv_loop_init(&loop);
    struct work_queue *q = work_queue_create(&loop);
    for (int i = 0; i < PIECES; i++)
        submit(q, i, i < PIECES / 2);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(done_ran, PIECES);
    assert_int_equal(atomic_load(&most_large), 1);
    work_queue_close(&q);
    assert_int_equal(uv_loop_close(&loop), 0);
}

static void too_many_pieces_or_bytes_are_refused(void **state)
{
    (void)state;
    static struct piece many[WORK_MAX_WAITING + 8];
    uv_loop_t loop;
    struct err e = {0};
    uv_loop_init(&loop);
    struct work_queue *q = work_queue_create(&loop);
    struct work big = {.run = run, .done = done};
    assert_int_equal(work_submit(q, &big, (size_t)WORK_MAX_BYTES + 1, &e), HP_EBUSY);
    int rc = 0, n = 0;
    for (; n < WORK_MAX_WAITING + 8 && rc == 0; n++) {
        many[n] = (struct piece){.work = {.run = run, .done = done}};
        rc = work_submit(q, &many[n].work, 1, &e);
    }
    assert_int_equal(rc, HP_EBUSY);
    assert_true(n > WORK_MAX_WAITING);
    work_queue_close(&q);
    assert_true(done_not >= WORK_MAX_WAITING);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

static void closing_gives_back_what_waits_and_lets_run_what_runs(void **state)
{
    (void)state;
    uv_loop_t loop;
    uv_loop_init(&loop);
    struct work_queue *q = work_queue_create(&loop);
    for (int i = 0; i < PIECES; i++)
        submit(q, i, true);
    work_queue_close(&q);
    assert_int_equal(done_not, PIECES - 1);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(done_ran, 1);
    assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(large_pieces_run_one_at_a_time_and_small_ones_beside_them, reset),
        cmocka_unit_test_setup(too_many_pieces_or_bytes_are_refused, reset),
        cmocka_unit_test_setup(closing_gives_back_what_waits_and_lets_run_what_runs, reset),
    };
    return cmocka_run_group_tests_name("work", tests, NULL, NULL);
}
