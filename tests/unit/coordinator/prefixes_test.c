/* Requests that begin alike, message by message: who shares with whom, from where the stages go on,
 * what is kept, and what goes first. */
#include <math.h>

#include "coordinator/api_keys.h"
#include "coordinator/model_slots.h"
#include "coordinator/prefix_costs.h"
#include "coordinator/prefixes.h"
#include "tests/unit/coordinator/stream_fixture.h"

static const uint32_t out[] = {11, 12, 13, 14};

static const struct message_sequence_open *opened(struct fixture *f)
{
    return &fixture_last(f, 11, MESSAGE_SEQUENCE_OPEN)->u.sequence_open;
}

static const struct message_sequence_close *closed(struct fixture *f)
{
    return &fixture_last(f, 11, MESSAGE_SEQUENCE_CLOSE)->u.sequence_close;
}

/* A request of somebody's, up to its end after three tokens. */
static uint64_t served(struct fixture *f, const char *client, size_t n)
{
    struct request_stream s;
    assert_int_equal(ask_stream(f, &s, client, n, 3), 0);
    uint64_t id = opened(f)->sequence;
    tokens(f, 0, 1, id, 0, out, 3, "length");
    assert_int_equal(s.finished, 1);
    return id;
}

TEST(a_request_goes_on_where_another_ended)
{
    struct fixture f;
    struct request_stream s;
    struct deployment *d = serving(&f);
    uint64_t first = served(&f, NULL, 100);
    assert_int_equal(opened(&f)->share, 0);
    assert_int_equal(closed(&f)->sequence, first);
    assert_int_equal(closed(&f)->keep, 102); /* the last of the three has not run */
    assert_int_equal(prefixes_kept(d), 1);
    assert_int_equal(d->kv.used_growing, 0);
    open_stream(&f, &s, 110, 3); /* other than the answer from token 100 on */
    for (uint64_t peer = 10; peer < 12; peer++) {
        const struct message_sequence_open *o =
            &fixture_last(&f, peer, MESSAGE_SEQUENCE_OPEN)->u.sequence_open;
        assert_int_equal(o->share, first);
        assert_int_equal(o->length, 100);
        assert_int_equal(o->prompt.count, 110);
    }
    uint32_t sum = 0;
    for (size_t i = 0; i < opened(&f)->slices.count; i++)
        sum += opened(&f)->slices.items[i];
    assert_int_equal(sum, 10);
    assert_int_equal(d->kv.used, 2 + 1); /* of 102 tokens, and of 113 without a page */
    tokens(&f, 0, 1, opened(&f)->sequence, 0, out, 3, "length");
    assert_int_equal(s.usage.cached_tokens, 100);
    /* The same prompt once more: its last token is computed again, for its logits. */
    open_stream(&f, &s, 100, 3);
    assert_int_equal(opened(&f)->length, 99);
    fixture_close(&f);
}

/* 110 tokens are what the rotation began with: who may grow longer rotates otherwise. */
TEST(a_long_sequence_shares_with_long_ones_alone)
{
    struct fixture f;
    struct request_stream s;
    struct deployment *d = serving(&f);
    d->model->facts.long_from = 110;
    uint64_t first = served(&f, NULL, 100);
    open_stream(&f, &s, 100, 11);
    assert_int_equal(opened(&f)->share, 0);
    tokens(&f, 0, 1, opened(&f)->sequence, 0, out, 3, "stop");
    uint64_t grown = opened(&f)->sequence;
    open_stream(&f, &s, 100, 10);
    assert_int_equal(opened(&f)->share, first);
    open_stream(&f, &s, 100, 20);
    assert_int_equal(opened(&f)->share, grown);
    fixture_close(&f);
}

TEST(a_request_waits_for_a_prompt_that_is_being_read)
{
    struct fixture f;
    struct request_stream a, b;
    struct deployment *d = serving(&f);
    open_stream(&f, &a, 100, 3);
    uint64_t first = opened(&f)->sequence;
    open_stream(&f, &b, 110, 3);
    assert_int_equal(d->n_waiting, 1);
    tokens(&f, 0, 1, first, 0, out, 1, "");
    assert_int_equal(d->n_waiting, 0);
    assert_int_equal(opened(&f)->share, first);
    assert_int_equal(opened(&f)->length, 100);
    fixture_close(&f);
}

static int fork_stream(struct fixture *f, struct request_stream *s, size_t n, uint64_t of,
                       uint32_t n_forks)
{
    struct requests r;
    struct err e = {0};
    uint32_t prompt[128];
    for (size_t i = 0; i < n; i++)
        prompt[i] = (uint32_t)i % 90 + 5;
    *s = (struct request_stream){0};
    coord_requests(f->core, &r);
    struct request_spec rq = {.model = "d",
                              .prompt = prompt,
                              .n_prompt = n,
                              .max_tokens = 3,
                              .fork_of = of,
                              .n_forks = n_forks,
                              .callbacks = {s, on_tokens, on_finished, on_failed, NULL, NULL}};
    int rc = r.open(r.ctx, &rq, &s->id, &e);
    settle(f);
    return rc;
}

/* Too short to be found by others, and as long as it takes. */
TEST(forks_wait_for_their_prompt_and_begin_with_all_of_it)
{
    struct fixture f;
    struct request_stream a, b[2];
    struct deployment *d = serving(&f);
    assert_int_equal(fork_stream(&f, &a, 20, 0, 2), 0);
    uint64_t first = opened(&f)->sequence;
    for (int i = 0; i < 2; i++)
        assert_int_equal(fork_stream(&f, &b[i], 20, a.id, 0), 0);
    assert_int_equal(d->n_waiting, 2);
    fixture_jump_ms(&f, 10001);
    assert_int_equal(d->n_waiting, 2);
    tokens(&f, 0, 1, first, 0, out, 1, "");
    assert_int_equal(d->n_waiting, 0);
    assert_int_equal(opened(&f)->share, first);
    assert_int_equal(opened(&f)->length, 19);
    assert_int_equal(d->kv.used, 3); /* of 23 tokens each, which fill no page */
    uint64_t last = opened(&f)->sequence;
    tokens(&f, 0, 1, first, 1, out + 1, 2, "length");
    tokens(&f, 0, 1, last - 1, 0, out, 3, "length");
    tokens(&f, 0, 1, last, 0, out, 3, "length");
    assert_int_equal(a.finished + b[0].finished + b[1].finished, 3);
    assert_int_equal(b[0].usage.cached_tokens, 19);
    assert_int_equal(closed(&f)->keep, 0);
    assert_int_equal(prefixes_kept(d), 0);
    fixture_close(&f);
}

/* The queue has room for all of them, or none comes in. */
TEST(forks_count_in_the_queue_before_they_come)
{
    struct fixture f;
    struct request_stream s, busy[COORD_MAX_WAITING_OF_CLIENT];
    struct deployment *d = serving(&f);
    assert_int_equal(fork_stream(&f, &s, 20, 0, COORD_MAX_WAITING), HP_EBUSY);
    assert_int_equal(d->n_waiting + d->n_active, 0);
    size_t n = 0;
    while (d->n_waiting < 2)
        assert_int_equal(fork_stream(&f, &busy[n++], 120, 0, 0), 0);
    assert_int_equal(fork_stream(&f, &s, 20, 0, COORD_MAX_WAITING_OF_CLIENT - 2), HP_EBUSY);
    assert_int_equal(fork_stream(&f, &s, 20, 0, COORD_MAX_WAITING_OF_CLIENT - 3), 0);
    fixture_close(&f);
}

TEST(nobody_waits_for_a_prompt_for_ever)
{
    struct fixture f;
    struct request_stream a, b;
    struct deployment *d = serving(&f);
    open_stream(&f, &a, 100, 3);
    open_stream(&f, &b, 110, 3);
    assert_int_equal(d->n_waiting, 1);
    struct requests r;
    coord_requests(f.core, &r);
    r.cancel(r.ctx, a.id, false, NULL); /* whose prompt is not read to its end */
    settle(&f);
    assert_int_equal(closed(&f)->keep, 0);
    assert_int_equal(d->n_waiting, 0);
    assert_int_equal(opened(&f)->share, 0);
    open_stream(&f, &a, 100, 3);
    assert_int_equal(d->n_waiting, 1);
    fixture_jump_ms(&f, 10001);
    struct request_stream other;
    open_stream(&f, &other, 20, 3); /* anything that happens */
    assert_int_equal(d->n_waiting, 0);
    fixture_close(&f);
}

TEST(keys_share_with_themselves_unless_all_shall)
{
    struct fixture f;
    char key[API_KEY_TEXT];
    struct err e = {0};
    struct deployment *d = serving(&f);
    assert_int_equal(api_keys_create(f.core, "one", NULL, key, &e), 0);
    assert_int_equal(api_keys_create(f.core, "two", NULL, key, &e), 0);
    uint64_t first = served(&f, "key one", 100);
    served(&f, "key two", 100);
    assert_int_equal(opened(&f)->share, 0);
    served(&f, "address 127.0.0.1", 100);
    assert_int_equal(opened(&f)->share, 0);
    served(&f, "key one", 100);
    assert_int_equal(opened(&f)->share, first);
    /* A key that is made anew under an old name is another. */
    assert_int_equal(api_keys_remove(f.core, "one", &e), 0);
    served(&f, "key one", 100);
    assert_int_equal(opened(&f)->share, 0);
    assert_int_equal(closed(&f)->keep, 0);
    assert_int_equal(api_keys_create(f.core, "one", NULL, key, &e), 0);
    served(&f, "key one", 100);
    assert_int_equal(opened(&f)->share, 0);
    d->spec.prefix_cache = PREFIX_CACHE_SHARED;
    served(&f, "key two", 105);
    served(&f, "key one", 110);
    assert_true(opened(&f)->share != 0);
    d->spec.prefix_cache = PREFIX_CACHE_OFF;
    served(&f, "key one", 110);
    assert_int_equal(opened(&f)->share, 0);
    assert_int_equal(closed(&f)->keep, 0);
    fixture_close(&f);
}

TEST(what_a_window_has_left_is_not_shared)
{
    struct fixture f;
    struct deployment *d = serving(&f);
    d->model->facts.windows[0] = 30; /* of 102 tokens those before 72 are gone: their page is */
    uint64_t first = served(&f, NULL, 100);
    assert_int_equal(closed(&f)->keep, 102);
    served(&f, NULL, 90); /* sees 60 and after */
    assert_int_equal(opened(&f)->share, 0);
    served(&f, NULL, 98);
    assert_int_equal(opened(&f)->share, first);
    assert_int_equal(opened(&f)->length, 97);
    /* Places count, too: a window's pool has room for those that run. */
    while (d->n_active < d->max_sequences) {
        static struct request_stream s[64];
        open_stream(&f, &s[d->n_active], 20, 3);
        assert_true(d->n_active + prefixes_kept(d) <= d->max_sequences);
    }
    assert_int_equal(prefixes_kept(d), 0);
    fixture_close(&f);
}

static void stage_lacks(struct fixture *f, uint64_t sequence)
{
    struct message m = {.type = MESSAGE_SEQUENCE_FAILED};
    struct buffer bytes = {0};
    m.u.sequence_failed =
        (struct message_sequence_failed){1, 1, sequence, "not_found", "it is not open"};
    message_encode(&m, &bytes);
    coord_message(f->core, 10, fixture_key(0), bytes.data, bytes.size);
    buffer_free(&bytes);
    settle(f);
}

TEST(a_stage_that_lacks_the_beginning_costs_a_request_nothing)
{
    struct fixture f;
    struct request_stream s;
    struct deployment *d = serving(&f);
    uint64_t first = served(&f, NULL, 100);
    open_stream(&f, &s, 110, 3);
    uint64_t second = opened(&f)->sequence;
    assert_int_equal(opened(&f)->share, first);
    stage_lacks(&f, second);
    assert_int_equal(s.failed, 0);
    assert_true(opened(&f)->sequence > second);
    assert_int_equal(opened(&f)->share, 0);
    assert_int_equal(prefixes_kept(d), 0);
    assert_int_equal(d->n_active, 1);
    /* Whatever fails then is the request's own. */
    stage_lacks(&f, opened(&f)->sequence);
    assert_int_equal(s.failed, 1);
    fixture_close(&f);
}

TEST(what_failed_at_a_stage_before_it_heard_of_the_end_is_not_kept)
{
    struct fixture f;
    struct deployment *d = serving(&f);
    uint64_t first = served(&f, NULL, 100);
    assert_int_equal(prefixes_kept(d), 1);
    stage_lacks(&f, first + 1); /* nobody */
    assert_int_equal(prefixes_kept(d), 1);
    stage_lacks(&f, first);
    assert_int_equal(prefixes_kept(d), 0);
    assert_int_equal(closed(&f)->sequence, first);
    assert_int_equal(closed(&f)->keep, 0);
    assert_int_equal(d->kv.used, 0);
    served(&f, NULL, 110);
    assert_int_equal(opened(&f)->share, 0);
    fixture_close(&f);
}

TEST(what_is_long_and_was_used_lately_stays_longest)
{
    struct fixture f;
    char key[API_KEY_TEXT];
    struct err e = {0};
    struct deployment *d = serving(&f);
    static const char *const names[] = {"old", "lately", "long"};
    uint64_t ids[3];
    for (int i = 0; i < 3; i++) {
        char client[32];
        assert_int_equal(api_keys_create(f.core, names[i], NULL, key, &e), 0);
        snprintf(client, sizeof client, "key %s", names[i]);
        ids[i] = served(&f, client, i == 2 ? 110 : 70);
        f.clock.now_ns += 1000000;
        coord_tick(f.core);
    }
    assert_int_equal(prefixes_victim(f.core, d, NULL)->sequence, ids[0]);
    served(&f, "key old", 70);
    const struct prefix *again = prefixes_victim(f.core, d, NULL);
    assert_int_equal(again->sequence, ids[1]);
    assert_true(prefixes_victim(f.core, d, again) != again);
    fixture_close(&f);
}

/* Asked for thrice and then left for a while, against asked for once and just now. */
TEST(what_is_asked_for_often_stays_longer)
{
    struct fixture f;
    char key[API_KEY_TEXT];
    struct err e = {0};
    struct deployment *d = serving(&f);
    static const char *const names[] = {"often", "once"};
    uint64_t ids[2];
    for (int i = 0; i < 2; i++) {
        char client[32];
        assert_int_equal(api_keys_create(f.core, names[i], NULL, key, &e), 0);
        snprintf(client, sizeof client, "key %s", names[i]);
        ids[i] = served(&f, client, 70);
        for (int k = 0; i == 0 && k < 2; k++)
            served(&f, client, 70);
        f.clock.now_ns += 1000000;
        coord_tick(f.core);
    }
    const struct prefix *often = prefixes_kept_of(d, ids[0]);
    assert_non_null(often);
    assert_true(often->uses >= 2);
    assert_int_equal(prefixes_victim(f.core, d, NULL)->sequence, ids[1]);
    f.clock.now_ns += 1000000000; /* idle for as long as makes no difference */
    assert_int_equal(prefixes_victim(f.core, d, NULL)->sequence, ids[1]);
    fixture_close(&f);
}

/* As the planner says, and otherwise by length alone; later tokens are never cheaper. */
TEST(what_is_far_behind_costs_more_to_compute_anew)
{
    struct fixture f;
    struct deployment *d = serving(&f);
    struct prefix_curve curve = {0};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(curve.known, i);
        double before = 0;
        for (uint32_t at = 0; at + 16 <= d->context; at += 16) {
            double own = prefix_curve_between(&curve, at, at + 16);
            assert_true(own > 0 && own >= before * 0.999999);
            before = own;
        }
        assert_true(fabs(prefix_curve_between(&curve, 0, 32) - prefix_curve_between(&curve, 0, 16) -
                         prefix_curve_between(&curve, 16, 32)) < 1e-9);
        prefix_curve_update(f.core, d, &curve);
    }
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_goes_on_where_another_ended),
        cmocka_unit_test(a_long_sequence_shares_with_long_ones_alone),
        cmocka_unit_test(a_request_waits_for_a_prompt_that_is_being_read),
        cmocka_unit_test(forks_wait_for_their_prompt_and_begin_with_all_of_it),
        cmocka_unit_test(forks_count_in_the_queue_before_they_come),
        cmocka_unit_test(nobody_waits_for_a_prompt_for_ever),
        cmocka_unit_test(keys_share_with_themselves_unless_all_shall),
        cmocka_unit_test(what_a_window_has_left_is_not_shared),
        cmocka_unit_test(a_stage_that_lacks_the_beginning_costs_a_request_nothing),
        cmocka_unit_test(what_failed_at_a_stage_before_it_heard_of_the_end_is_not_kept),
        cmocka_unit_test(what_is_long_and_was_used_lately_stays_longest),
        cmocka_unit_test(what_is_asked_for_often_stays_longer),
        cmocka_unit_test(what_is_far_behind_costs_more_to_compute_anew),
    };
    return cmocka_run_group_tests_name("prefixes", tests, NULL, NULL);
}
