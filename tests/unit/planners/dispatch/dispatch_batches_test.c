/* The scheduler on a small topology: when batches leave, what is dropped, what a late device
 * changes. */
#include <stddef.h>

#include "planners/dispatch/arrivals.h"
#include "planners/dispatch/dispatch.h"
#include "tests/test.h"

struct seen_batches {
    int sent, dropped, last_n;
    int64_t finish_ns;
    struct dispatch_path path;
    uint32_t batch;
};

static void see(void *ctx, const struct dispatch_action *a)
{
    struct seen_batches *s = ctx;
    if (a->drop) {
        s->dropped++;
        return;
    }
    s->sent++;
    s->last_n = a->n;
    s->finish_ns = a->path->finish_ns;
    s->path = *a->path;
    s->batch = a->batch;
}

/* One model, one pipeline of one stage on one device: 10 ms a batch of up to 4, whatever its size;
 * deadline 30 ms. */
static void tiny_topology(struct dispatch_topology *t, struct dispatch_model *m,
                          struct dispatch_pipeline *p, struct dispatch_share *share)
{
    static int64_t compute[5] = {0, 10000000, 10000000, 10000000, 10000000}, none[5];
    *m = (struct dispatch_model){.name = "tiny",
                                 .weight = 1,
                                 .rate = 400,
                                 .planned_rate = 400,
                                 .slo_ns = 30000000,
                                 .n_pipelines = 1};
    *p = (struct dispatch_pipeline){.batch = 4, .n_stages = 1, .rate = 400};
    p->stages[0] =
        (struct dispatch_stage){.n_shares = 1, .compute_ns = compute, .transfer_ns = none};
    *share = (struct dispatch_share){.part = 1};
    *t = (struct dispatch_topology){.models = m,
                                    .n_models = 1,
                                    .pipelines = p,
                                    .n_pipelines = 1,
                                    .shares = share,
                                    .n_shares = 1,
                                    .n_nodes = 1,
                                    .kinds = {"K"},
                                    .devices = {1},
                                    .n_kinds = 1};
}

TEST(a_batch_waits_until_it_is_full_or_the_last_moment)
{
    struct dispatch_topology t;
    struct dispatch_model m;
    struct dispatch_pipeline p;
    struct dispatch_share share;
    struct dispatch *d;
    struct seen_batches s = {0};
    tiny_topology(&t, &m, &p, &share);
    assert_int_equal(dispatch_create(&t, 0, &d, NULL), 0);
    dispatch_arrive(d, 0, 1, 0);
    assert_int_equal(dispatch_run(d, 0, 0, see, &s),
                     20000001); /* 30 ms less the 10 ms that it takes */
    dispatch_arrive(d, 0, 2, 5000000);
    dispatch_run(d, 0, 5000000, see, &s);
    assert_int_equal(s.sent, 0);
    dispatch_run(d, 0, 20000000, see, &s);
    assert_int_equal(s.sent, 0);
    assert_int_equal(dispatch_waiting(d, 0), 2);
    for (uint64_t tag = 3; tag <= 4; tag++)
        dispatch_arrive(d, 0, tag, 6000000);
    dispatch_run(d, 0, 20000000, see, &s);
    assert_int_equal(s.sent, 1);
    assert_int_equal(s.last_n, 4);
    dispatch_destroy(&d);
}

/* Arrivals every `gap_ns`, as those of one who asks again and again; each alone when it is looked
 * at. How many of them left at once. */
static int left_at_once(int64_t gap_ns)
{
    static int64_t quick[5] = {0, 1000000, 1000000, 1000000, 1000000};
    struct dispatch_topology t;
    struct dispatch_model m;
    struct dispatch_pipeline p;
    struct dispatch_share share;
    struct dispatch *d;
    struct seen_batches s = {0};
    int n = 0;
    tiny_topology(&t, &m, &p, &share);
    p.stages[0].compute_ns = quick;
    assert_int_equal(dispatch_create(&t, 0, &d, NULL), 0);
    dispatch_eager(d);
    for (int i = 0; i < 20; i++) {
        int before = s.sent;
        dispatch_arrive(d, 0, (uint64_t)i, (i + 1) * gap_ns);
        dispatch_run(d, 0, (i + 1) * gap_ns, see, &s);
        n += s.sent > before && s.last_n == 1;
    }
    dispatch_destroy(&d);
    return n;
}

TEST(an_eager_batch_waits_for_others_only_where_its_shares_would_have_too_much_to_do)
{
    assert_int_equal(left_at_once(5000000), 20); /* a fifth of the time is all that they take */
    assert_int_equal(left_at_once(1200000), 1);  /* ... here most of it; the first knows no gap */
}

TEST(an_eager_batch_stays_open_to_others_until_its_share_is_free)
{
    struct dispatch_topology t;
    struct dispatch_model m;
    struct dispatch_pipeline p;
    struct dispatch_share share;
    struct dispatch *d;
    struct seen_batches s = {0};
    tiny_topology(&t, &m, &p, &share);
    assert_int_equal(dispatch_create(&t, 0, &d, NULL), 0);
    dispatch_eager(d);
    dispatch_arrive(d, 0, 1, 0);
    dispatch_run(d, 0, 0, see, &s);
    assert_int_equal(s.sent, 1);
    dispatch_arrive(d, 0, 2, 2000000);
    /* The share is free at 10 ms, and a millisecond before that it has to leave. */
    assert_int_equal(dispatch_run(d, 0, 2000000, see, &s), 9000000);
    dispatch_arrive(d, 0, 3, 7000000);
    dispatch_run(d, 0, 7000000, see, &s);
    assert_int_equal(s.sent, 1);
    dispatch_run(d, 0, 9000000, see, &s);
    assert_int_equal(s.sent, 1); /* so many come that others are expected */
    dispatch_run(d, 0, 21500000, see, &s);
    assert_int_equal(s.sent, 2);
    assert_int_equal(s.last_n, 2);
    dispatch_destroy(&d);
}

TEST(what_cannot_be_in_time_is_dropped_and_the_next_is_tried)
{
    struct dispatch_topology t;
    struct dispatch_model m;
    struct dispatch_pipeline p;
    struct dispatch_share share;
    struct dispatch *d;
    struct seen_batches s = {0};
    tiny_topology(&t, &m, &p, &share);
    p.batch = 1;
    assert_int_equal(dispatch_create(&t, 0, &d, NULL), 0);
    for (int i = 0; i < 5; i++)
        dispatch_arrive(d, 0, (uint64_t)i, 0);
    assert_int_equal(dispatch_run(d, 0, 0, see, &s), INT64_MAX);
    assert_int_equal(s.sent, 3); /* at 0, 10 and 20 ms */
    assert_int_equal(s.dropped, 2);
    assert_int_equal(s.finish_ns, 30000000);
    dispatch_destroy(&d);
}

TEST(a_report_of_a_late_end_moves_later_work)
{
    struct dispatch_topology t;
    struct dispatch_model m;
    struct dispatch_pipeline p;
    struct dispatch_share share;
    struct dispatch *d;
    struct seen_batches s = {0};
    tiny_topology(&t, &m, &p, &share);
    p.batch = 1;
    assert_int_equal(dispatch_create(&t, 0, &d, NULL), 0);
    dispatch_arrive(d, 0, 1, 0);
    dispatch_run(d, 0, 0, see, &s);
    struct dispatch_report r = {.batch = s.batch,
                                .share = 0,
                                .from_share = -1,
                                .planned_start_ns = 0,
                                .start_ns = 0,
                                .end_ns = 17000000};
    assert_int_equal(dispatch_correct(d, &r), 0);
    dispatch_arrive(d, 0, 2, 5000000);
    dispatch_run(d, 0, 5000000, see, &s);
    assert_int_equal(s.path.legs[0].start_ns, 17000000);
    r.batch = 77;
    assert_int_equal(dispatch_correct(d, &r), HP_ENOENT);
    dispatch_destroy(&d);
}

/* Requests of 10 ms each come every 10 ms to a share that stands still for 25 ms before the first.
 */
TEST(a_share_that_is_late_is_not_taken_to_be_free_where_batches_are_reported)
{
    struct dispatch_topology t;
    struct dispatch_model m;
    struct dispatch_pipeline p;
    struct dispatch_share share;
    struct dispatch *d;
    struct seen_batches s = {0};
    tiny_topology(&t, &m, &p, &share);
    m.slo_ns = 60000000;
    p.batch = 1;
    assert_int_equal(dispatch_create(&t, 0, &d, NULL), 0);
    dispatch_reported(d);
    struct dispatch_report r = {.share = 0, .from_share = -1, .start_ns = 25000000};
    for (int i = 0; i < 4; i++) {
        int64_t now_ns = i * 10000000;
        dispatch_arrive(d, 0, (uint64_t)i, now_ns);
        dispatch_run(d, 0, now_ns, see, &s);
        assert_int_equal(s.path.legs[0].start_ns, now_ns);
        if (i == 0)
            r.batch = s.batch;
    }
    r.end_ns = 35000000;
    assert_int_equal(dispatch_correct(d, &r), 0);
    dispatch_arrive(d, 0, 4, 40000000);
    dispatch_run(d, 0, 40000000, see, &s);
    assert_int_equal(s.path.legs[0].start_ns, 65000000); /* behind the three that wait there */
    dispatch_destroy(&d);
}

TEST(a_full_queue_turns_requests_away)
{
    struct dispatch_topology t;
    struct dispatch_model m;
    struct dispatch_pipeline p;
    struct dispatch_share share;
    struct dispatch *d;
    tiny_topology(&t, &m, &p, &share);
    assert_int_equal(dispatch_create(&t, 3, &d, NULL), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(dispatch_arrive(d, 0, 0, 0), 0);
    assert_int_equal(dispatch_arrive(d, 0, 0, 0), HP_EBUSY);
    dispatch_destroy(&d);
}

TEST(one_alone_goes_at_once_behind_what_is_reserved_and_not_where_it_would_be_late)
{
    struct dispatch_topology t;
    struct dispatch_model m;
    struct dispatch_pipeline p;
    struct dispatch_share share;
    struct dispatch *d;
    struct seen_batches s = {0};
    struct dispatch_request one = {1, 0, 30000000};
    tiny_topology(&t, &m, &p, &share);
    assert_int_equal(dispatch_create(&t, 0, &d, NULL), 0);
    for (int i = 1; i <= 3; i++) {
        assert_true(dispatch_alone(d, 0, &one, 0, see, &s));
        assert_true(s.sent == i && s.last_n == 1 && s.finish_ns == i * 10000000);
    }
    assert_false(dispatch_alone(d, 0, &one, 0, see, &s));
    assert_true(s.sent == 3 && s.dropped == 0 && dispatch_waiting(d, 0) == 0);
    dispatch_destroy(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_waits_until_it_is_full_or_the_last_moment),
        cmocka_unit_test(
            an_eager_batch_waits_for_others_only_where_its_shares_would_have_too_much_to_do),
        cmocka_unit_test(an_eager_batch_stays_open_to_others_until_its_share_is_free),
        cmocka_unit_test(what_cannot_be_in_time_is_dropped_and_the_next_is_tried),
        cmocka_unit_test(
            one_alone_goes_at_once_behind_what_is_reserved_and_not_where_it_would_be_late),
        cmocka_unit_test(a_report_of_a_late_end_moves_later_work),
        cmocka_unit_test(a_share_that_is_late_is_not_taken_to_be_free_where_batches_are_reported),
        cmocka_unit_test(a_full_queue_turns_requests_away),
    };
    return cmocka_run_group_tests_name("dispatch batches", tests, NULL, NULL);
}
