/* A disk that fails while there is no memory either: nothing is called written that is not. */
#include "common/log.h"
#include "coordinator/store/store_queue.h"
#include "tests/unit/faults.h"

/* A store whose first write fails, and takes the thread's memory away until the queue has told of
 * it. */
struct poor {
    struct store base;
    struct store *inner;
    struct store_queue *queue;
    pthread_mutex_t lock;
    pthread_cond_t change;
    int attempts, wakes;
    bool heard; /* the test has been told that the disk is full */
};

static void record_put(struct poor *p, uint64_t number, const char *key)
{
    struct err e = {0};
    struct store_change c = {"deployment", key, "x", 1};
    assert_int_equal(store_queue_put(p->queue, number, &c, 1, &e), 0);
}

static void poor_close(struct store *s)
{
    (void)s;
}

static int poor_apply(struct store *s, const struct store_change *changes, int n, struct err *e)
{
    struct poor *p = (struct poor *)s;
    pthread_mutex_lock(&p->lock); /* until the test has put all that it means to */
    while (p->attempts > 0 && !p->heard)
        pthread_cond_wait(&p->change, &p->lock);
    pthread_mutex_unlock(&p->lock);
    if (++p->attempts > 1)
        return store_apply(p->inner, changes, n, e);
    faults.count = 0;
    faults.fail_at = 1;
    faults.then_on = faults.armed = true;
    return err_set(e, HP_ENOSPACE, "the disk is full");
}

static int poor_each(struct store *s, const char *kind, store_each_fn each, void *ctx,
                     struct err *e)
{
    return store_each(((struct poor *)s)->inner, kind, each, ctx, e);
}

static void on_wake(void *ctx)
{
    struct poor *p = ctx;
    faults.armed = false;
    pthread_mutex_lock(&p->lock);
    p->wakes++;
    pthread_cond_broadcast(&p->change);
    pthread_mutex_unlock(&p->lock);
}

/* The next news: the code of the failure, 0 for a number that is written. */
static int news(struct poor *p, uint64_t *number)
{
    struct err why = {0};
    pthread_mutex_lock(&p->lock);
    while (!store_queue_next(p->queue, number, &why))
        pthread_cond_wait(&p->change, &p->lock);
    p->heard = true;
    pthread_cond_broadcast(&p->change);
    pthread_mutex_unlock(&p->lock);
    return why.code;
}

static int record_count(void *ctx, const char *key, const void *bytes, size_t size, struct err *e)
{
    (void)key, (void)bytes, (void)size, (void)e;
    ++*(int *)ctx;
    return 0;
}

TEST(what_a_full_disk_gives_back_waits_without_memory)
{
    static const struct store_api api = {poor_close, poor_apply, poor_each};
    for (int newer = 0; newer < 2; newer++) {
        struct poor p = {.base.api = &api};
        struct err e = {0};
        uint64_t number = 0;
        int records = 0;
        log_set_level(LOG_ERROR + 1);
        pthread_mutex_init(&p.lock, NULL);
        pthread_cond_init(&p.change, NULL);
        assert_int_equal(store_open_memory(&p.inner, &e), 0);
        struct store_queue_config config = {.ctx = &p, .wake = on_wake, .retry_ms = 5};
        assert_int_equal(store_queue_start(&p.base, &config, &p.queue, &e), 0);
        pthread_mutex_lock(&p.lock);
        record_put(&p, 1, "a");
        if (newer)
            record_put(&p, 2, "b");
        pthread_mutex_unlock(&p.lock);
        assert_int_equal(news(&p, &number), HP_ENOSPACE);
        assert_int_equal(news(&p, &number), 0);
        assert_int_equal(number, 1 + newer);
        assert_int_equal(store_each(p.inner, "deployment", record_count, &records, &e), 0);
        assert_int_equal(records, 1 + newer);
        store_queue_stop(&p.queue);
        store_close(&p.inner);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_full_disk_gives_back_waits_without_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
