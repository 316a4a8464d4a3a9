/* The way to the disk: in order, together, never in the loop's way, and not lost where the disk
 * fails. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "common/log.h"
#include "coordinator/store/store_queue.h"
#include "tests/test.h"

/* A store that does what the test wants: fails with a code, or does not come back before it is let
 * go. */
struct faulty {
    struct store base;
    struct store *inner;
    pthread_mutex_t lock;
    pthread_cond_t change;
    int code; /* of the next writes; 0: they work */
    bool stuck, closed;
    int applied, attempts, entered;
};

static void faulty_close(struct store *s)
{
    struct faulty *f = (struct faulty *)s;
    f->closed = true;
}

static int faulty_apply(struct store *s, const struct store_change *changes, int n, struct err *e)
{
    struct faulty *f = (struct faulty *)s;
    pthread_mutex_lock(&f->lock);
    f->entered++;
    pthread_cond_broadcast(&f->change);
    while (f->stuck)
        pthread_cond_wait(&f->change, &f->lock);
    int code = f->code;
    f->attempts++;
    f->applied += code ? 0 : 1;
    pthread_cond_broadcast(&f->change);
    pthread_mutex_unlock(&f->lock);
    return code ? err_set(e, code, "the disk is full") : store_apply(f->inner, changes, n, e);
}

static int faulty_each(struct store *s, const char *kind, store_each_fn each, void *ctx,
                       struct err *e)
{
    return store_each(((struct faulty *)s)->inner, kind, each, ctx, e);
}

static void faulty_set(struct faulty *f, int code, bool stuck)
{
    pthread_mutex_lock(&f->lock);
    f->code = code;
    f->stuck = stuck;
    pthread_cond_broadcast(&f->change);
    pthread_mutex_unlock(&f->lock);
}

struct bed {
    struct faulty store;
    struct store_queue *queue;
    pthread_mutex_t lock;
    pthread_cond_t woken;
    int wakes;
};

static void on_wake(void *ctx)
{
    struct bed *b = ctx;
    pthread_mutex_lock(&b->lock);
    b->wakes++;
    pthread_cond_broadcast(&b->woken);
    pthread_mutex_unlock(&b->lock);
}

static void bed_open(struct bed *b)
{
    static const struct store_api api = {faulty_close, faulty_apply, faulty_each};
    struct err e = {0};
    *b = (struct bed){.store.base.api = &api};
    log_set_level(LOG_ERROR + 1);
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->woken, NULL);
    pthread_mutex_init(&b->store.lock, NULL);
    pthread_cond_init(&b->store.change, NULL);
    assert_int_equal(store_open_memory(&b->store.inner, &e), 0);
    struct store_queue_config config = {.ctx = b, .wake = on_wake, .retry_ms = 5};
    assert_int_equal(store_queue_start(&b->store.base, &config, &b->queue, &e), 0);
}

static void bed_close(struct bed *b)
{
    store_queue_stop(&b->queue);
    assert_true(b->store.closed);
    store_close(&b->store.inner);
}

static void put(struct bed *b, uint64_t number, const char *kind, const char *key, const char *text)
{
    struct err e = {0};
    struct store_change c = {kind, key, text, text ? strlen(text) : 0};
    assert_int_equal(store_queue_put(b->queue, number, &c, 1, &e), 0);
}

/* What the queue says next; 0 for a number that is written, else the code of the failure. */
static int next(struct bed *b, uint64_t *number)
{
    struct err why;
    pthread_mutex_lock(&b->lock);
    while (!store_queue_next(b->queue, number, &why))
        pthread_cond_wait(&b->woken, &b->lock);
    pthread_mutex_unlock(&b->lock);
    return why.code;
}

static void written(struct bed *b, uint64_t number)
{
    uint64_t got = 0;
    while (got < number)
        assert_int_equal(next(b, &got), 0);
    assert_int_equal(got, number);
}

static int list_one(void *ctx, const char *key, const void *bytes, size_t size, struct err *e)
{
    (void)e;
    size_t n = strlen(ctx);
    snprintf((char *)ctx + n, 200 - n, "%s=%.*s;", key, (int)size, (const char *)bytes);
    return 0;
}

static void expect(struct bed *b, const char *kind, const char *text)
{
    char got[200] = "";
    struct err e = {0};
    assert_int_equal(store_each(b->store.inner, kind, list_one, got, &e), 0);
    assert_string_equal(got, text);
}

TEST(batches_are_written_in_their_order_and_told_by_number)
{
    struct bed b;
    bed_open(&b);
    put(&b, 1, "agent", "a", "1");
    put(&b, 2, "agent", "b", "2");
    put(&b, 3, "agent", "a", NULL);
    put(&b, 7, "agent", "c", "3");
    written(&b, 7);
    expect(&b, "agent", "b=2;c=3;");
    bed_close(&b);
}

TEST(whoever_puts_never_waits_for_the_disk)
{
    struct bed b;
    bed_open(&b);
    faulty_set(&b.store, 0, true);
    for (uint64_t i = 1; i <= 500; i++) {
        char text[16];
        snprintf(text, sizeof text, "%d", (int)i);
        put(&b, i, "agent", "a", text); /* returns, or the test hangs */
    }
    faulty_set(&b.store, 0, false);
    written(&b, 500);
    expect(&b, "agent", "a=500;");
    assert_true(b.store.applied <= 2); /* what had waited together went together */
    bed_close(&b);
}

TEST(a_full_disk_is_told_and_what_waits_is_written_when_there_is_room)
{
    struct bed b;
    uint64_t number;
    bed_open(&b);
    faulty_set(&b.store, HP_ENOSPACE, false);
    put(&b, 1, "agent", "a", "1");
    assert_int_equal(next(&b, &number), HP_ENOSPACE);
    assert_int_equal(number, 1);
    put(&b, 2, "agent", "b", "2");
    put(&b, 3, "agent", "a", "newer");
    do /* it tries again by itself */
        assert_int_equal(next(&b, &number), HP_ENOSPACE);
    while (number < 3);
    faulty_set(&b.store, 0, false);
    while (next(&b, &number) != 0)
        ;
    assert_int_equal(number, 3);
    expect(&b, "agent", "a=newer;b=2;");
    bed_close(&b);
}

TEST(caches_are_given_up_on_a_full_disk_and_nobody_is_told_of_a_failure)
{
    struct bed b;
    bed_open(&b);
    faulty_set(&b.store, HP_ENOSPACE, false);
    put(&b, 1, "profile", "m/k/auto", "{}");
    put(&b, 2, "link", "a", "[]");
    put(&b, 3, "layout", "m", "[]");
    written(&b, 3);
    faulty_set(&b.store, 0, false);
    put(&b, 4, "link", "a", "[1]");
    written(&b, 4);
    expect(&b, "profile", "");
    expect(&b, "layout", "");
    expect(&b, "link", "a=[1];");
    bed_close(&b);
}

TEST(a_cache_that_comes_while_another_fails_makes_no_failure_of_it)
{
    struct bed b;
    bed_open(&b);
    faulty_set(&b.store, HP_ENOSPACE, true);
    put(&b, 1, "profile", "m/k/auto", "{}");
    pthread_mutex_lock(&b.store.lock);
    while (b.store.entered == 0)
        pthread_cond_wait(&b.store.change, &b.store.lock);
    pthread_mutex_unlock(&b.store.lock);
    put(&b, 2, "link", "a", "[]");
    faulty_set(&b.store, HP_ENOSPACE, false);
    written(&b, 2);
    bed_close(&b);
}

TEST(a_record_that_can_never_be_stored_keeps_no_other_back)
{
    struct bed b;
    struct err e = {0};
    bed_open(&b);
    struct store_change c[] = {
        {"agent", "a", "1", 1}, {"agent", "", "x", 1}, {"agent", "b", "2", 1}};
    assert_int_equal(store_queue_put(b.queue, 1, c, 3, &e), 0);
    written(&b, 1);
    expect(&b, "agent", "a=1;b=2;");
    bed_close(&b);
}

TEST(what_waits_at_the_end_is_written_once_more)
{
    struct bed b;
    bed_open(&b);
    faulty_set(&b.store, 0, true);
    put(&b, 1, "agent", "a", "1");
    put(&b, 2, "agent", "b", "2");
    faulty_set(&b.store, 0, false);
    store_queue_stop(&b.queue);
    expect(&b, "agent", "a=1;b=2;");
    store_close(&b.store.inner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_are_written_in_their_order_and_told_by_number),
        cmocka_unit_test(whoever_puts_never_waits_for_the_disk),
        cmocka_unit_test(a_full_disk_is_told_and_what_waits_is_written_when_there_is_room),
        cmocka_unit_test(caches_are_given_up_on_a_full_disk_and_nobody_is_told_of_a_failure),
        cmocka_unit_test(a_cache_that_comes_while_another_fails_makes_no_failure_of_it),
        cmocka_unit_test(a_record_that_can_never_be_stored_keeps_no_other_back),
        cmocka_unit_test(what_waits_at_the_end_is_written_once_more),
    };
    return cmocka_run_group_tests_name("store queue", tests, NULL, NULL);
}
