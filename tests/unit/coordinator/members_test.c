/* Who is here, and how well. */
#include "coordinator/membership.h"
#include "tests/unit/coordinator/member_fixture.h"

TEST(silence_makes_suspect_and_then_lost_to_the_millisecond)
{
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 1e9);
    fixture_pass_ms(&f, COORD_SUSPECT_MS - 1);
    assert_string_equal(state_of(&f, "a0"), "ready");
    fixture_pass_ms(&f, 1);
    assert_string_equal(state_of(&f, "a0"), "suspect");
    fixture_beat(&f, 10, fixture_key(0));
    assert_string_equal(state_of(&f, "a0"), "ready");
    fixture_pass_ms(&f, COORD_LOST_MS - 1);
    assert_string_equal(state_of(&f, "a0"), "suspect");
    fixture_pass_ms(&f, 1);
    assert_string_equal(state_of(&f, "a0"), "lost");
    fixture_beat(&f, 10, fixture_key(0)); /* too late: it must join again */
    assert_non_null(strstr(refusal(&f, 10), "join first"));
    fixture_join(&f, 12, fixture_key(0), "a0", "", fixture_node("k", 1e9));
    fixture_beat(&f, 12, fixture_key(0));
    assert_string_equal(state_of(&f, "a0"), "ready");
    fixture_beat(&f, 10, fixture_key(0)); /* the old connection counts no more */
    assert_non_null(strstr(refusal(&f, 10), "has not joined over this connection"));
    fixture_close(&f);
}

TEST(a_pause_of_the_coordinator_is_nobodys_silence)
{
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 1e9);
    fixture_pass_ms(&f, 400);
    f.clock.now_ns += UINT64_C(3600000000000); /* nothing was called meanwhile */
    coord_tick(f.core);
    fixture_settle(&f);
    assert_string_equal(state_of(&f, "a0"), "ready");
    fixture_pass_ms(&f, COORD_LOST_MS); /* but now it is silent */
    assert_string_equal(state_of(&f, "a0"), "lost");
    fixture_close(&f);
}

TEST(an_agent_is_removed_only_when_it_is_gone)
{
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 1e9);
    assert_string_equal(fixture_ask(&f, "node.rm", "{\"name\": \"a0\"}", NULL)->code, "busy");
    fixture_pass_ms(&f, COORD_LOST_MS);
    assert_string_equal(fixture_ask(&f, "node.rm", "{\"name\": \"a0\"}", NULL)->code, "ok");
    assert_string_equal(state_of(&f, "a0"), "nobody");
    fixture_restart(&f);
    assert_int_equal(coord_view(f.core).members, 0);
    fixture_join(&f, 10, fixture_key(0), "a0", "", fixture_node("k", 1e9));
    assert_non_null(strstr(refusal(&f, 10), "brought no join token"));
    fixture_close(&f);
}

TEST(a_removed_agent_is_told_and_can_come_back_with_a_token)
{
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 1e9);
    assert_string_equal(fixture_ask(&f, "node.drain", "{\"name\": \"a0\"}", NULL)->code, "ok");
    assert_string_equal(fixture_ask(&f, "node.rm", "{\"name\": \"a0\"}", NULL)->code, "ok");
    assert_non_null(strstr(refusal(&f, 10), "agent \"a0\" was removed from this cluster"));
    fixture_beat(&f, 10, fixture_key(0));
    fixture_join(&f, 10, fixture_key(0), "a0", "", fixture_node("k", 1e9));
    const struct message *m = fixture_last(&f, 10, MESSAGE_REFUSED);
    assert_string_equal(m->u.refused.code, "denied");
    assert_non_null(strstr(m->u.refused.text, "was removed"));
    assert_non_null(strstr(m->u.refused.hint, "hpctl node token create"));
    fixture_agent(&f, 0, "k", 1e9); /* with a new token */
    assert_string_equal(state_of(&f, "a0"), "ready");
    fixture_close(&f);
}

TEST(draining_survives_both_restarts)
{
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 1e9);
    fixture_ask(&f, "node.drain", "{\"name\": \"a0\"}", NULL);
    assert_string_equal(state_of(&f, "a0"), "draining");
    fixture_restart(&f);
    fixture_join(&f, 10, fixture_key(0), "a0", "", fixture_node("k", 1e9));
    fixture_beat(&f, 10, fixture_key(0));
    assert_string_equal(state_of(&f, "a0"), "draining");
    fixture_close(&f);
}

TEST(a_sender_is_looked_at_before_its_message)
{
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 1e9);
    char *node = malloc(200001);
    memset(node, '[', 200000);
    node[200000] = 0;
    fixture_join(&f, 11, fixture_key(1), "big", "00112233445566778899aabbccddeeff", node);
    assert_non_null(strstr(refusal(&f, 11), "65536 are the limit for this sender"));
    node[60000] = 0;
    fixture_join(&f, 11, fixture_key(1), "big", "00112233445566778899aabbccddeeff", node);
    assert_non_null(strstr(refusal(&f, 11), "not one of this cluster")); /* not: about its node */
    node[60000] = '[';
    fixture_join(&f, 10, fixture_key(0), "a0", "", node);
    assert_non_null(strstr(refusal(&f, 10), "at most 65536 bytes"));
    free(node);
    fixture_close(&f);
}

struct counted_work {
    struct coord_work work;
    int ran, done, dropped;
};

static void counted_run(struct coord_work *w)
{
    ((struct counted_work *)w)->ran++;
}

static void counted_done(struct coord_work *w, bool dropped)
{
    *(dropped ? &((struct counted_work *)w)->dropped : &((struct counted_work *)w)->done) += 1;
}

TEST(work_comes_back_once_and_what_is_out_at_the_end_is_dropped)
{
    struct fixture f;
    struct requests r;
    struct err e = {0};
    static struct counted_work w[COORD_MAX_WORK + 1];
    fixture_open(&f);
    f.holds_work = true;
    coord_requests(f.core, &r);
    for (int i = 0; i <= COORD_MAX_WORK; i++)
        w[i] = (struct counted_work){.work = {.run = counted_run, .done = counted_done}};
    assert_int_equal(r.work(r.ctx, NULL, &w[0].work, &e), 0);
    assert_int_equal(r.work(r.ctx, (const struct model *)&w[1], &w[1].work, &e),
                     HP_ENOENT); /* a model that nobody has */
    fixture_settle(&f);
    assert_int_equal(w[0].ran, 0);
    fixture_work(&f);
    assert_int_equal(w[0].ran + w[0].done, 2);
    for (int i = 1; i <= COORD_MAX_WORK; i++)
        assert_int_equal(r.work(r.ctx, NULL, &w[i].work, &e), 0);
    assert_int_equal(r.work(r.ctx, NULL, &w[0].work, &e), HP_EBUSY);
    coord_works_cancel(f.core);
    assert_true(atomic_load(&w[7].work.canceled));
    fixture_close(&f);
    for (int i = 1; i <= COORD_MAX_WORK; i++)
        assert_true(w[i].dropped == 1 && w[i].done == 0 && w[i].ran == 0);
    assert_int_equal(w[0].dropped, 0);
}

static int count_records(void *ctx, const char *key, const void *bytes, size_t size, struct err *e)
{
    (void)bytes, (void)size, (void)e;
    snprintf(ctx, 100, "%s", key);
    return 0;
}

TEST(a_record_that_cannot_be_read_keeps_nobody_from_starting)
{
    static const struct {
        const char *kind, *key, *bytes, *aside;
    } cases[] = {
        {"agent", "a7", "{\"key\": \"short\"}", "agent/a7"},
        {"agent", "a8", "not json", "agent/a8"},
        {"link", "a0", "{}", ""},
        {"link", "a0", "[{\"to\": \"a0\", \"bandwidth_bytes_per_s\": -1}]", ""},
        {"model", "00ff", "garbage", "model/00ff"},
        {"deployment", "d", "{\"model\": \"00ff\"}", "deployment/d"},
        {"meta", "boot", "\"x\"", "meta/boot"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        struct err e = {0};
        char aside[100] = "", left[100] = "";
        fixture_open(&f);
        fixture_agent(&f, 0, "k", 1e9);
        uint64_t boot = coord_view(f.core).boot;
        struct store_change change = {cases[i].kind, cases[i].key, cases[i].bytes,
                                      strlen(cases[i].bytes)};
        assert_int_equal(store_apply(f.store, &change, 1, &e), 0);
        fixture_restart(&f);
        assert_int_equal(coord_view(f.core).members, 1);
        assert_int_equal(coord_view(f.core).deployments, 0);
        assert_true(coord_view(f.core).boot > boot);
        assert_int_equal(store_each(f.store, "bad", count_records, aside, &e), 0);
        assert_string_equal(aside, cases[i].aside);
        if (strcmp(cases[i].kind, "deployment") == 0) {
            assert_int_equal(store_each(f.store, "deployment", count_records, left, &e), 0);
            assert_string_equal(left, "");
        }
        fixture_restart(&f);
        fixture_close(&f);
    }
}

/* Sequence numbers of before may be open on agents that the store does not know to have them. */
TEST(a_run_after_an_older_state_was_put_back_has_a_higher_number_than_any_before)
{
    struct fixture f;
    struct err e = {0};
    fixture_open(&f);
    f.unix_s = 1800000000;
    struct store_change old = {"meta", "boot", "1", 1};
    uint64_t before = 0;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(store_apply(f.store, &old, 1, &e), 0);
        fixture_restart(&f);
        uint64_t boot = coord_view(f.core).boot;
        assert_true(boot > before && boot <= INT32_MAX);
        before = boot;
        f.unix_s++;
    }
    f.unix_s = UINT64_C(1) << 40; /* no clock says that */
    fixture_restart(&f);
    assert_int_equal(coord_view(f.core).boot, before + 1);
    f.unix_s = 1000; /* it was set back */
    fixture_restart(&f);
    assert_int_equal(coord_view(f.core).boot, before + 2);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silence_makes_suspect_and_then_lost_to_the_millisecond),
        cmocka_unit_test(work_comes_back_once_and_what_is_out_at_the_end_is_dropped),
        cmocka_unit_test(a_pause_of_the_coordinator_is_nobodys_silence),
        cmocka_unit_test(an_agent_is_removed_only_when_it_is_gone),
        cmocka_unit_test(a_removed_agent_is_told_and_can_come_back_with_a_token),
        cmocka_unit_test(draining_survives_both_restarts),
        cmocka_unit_test(a_sender_is_looked_at_before_its_message),
        cmocka_unit_test(a_record_that_cannot_be_read_keeps_nobody_from_starting),
        cmocka_unit_test(
            a_run_after_an_older_state_was_put_back_has_a_higher_number_than_any_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
