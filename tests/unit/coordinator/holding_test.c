/* What waits for the disk, what passes, and what a disk that is full refuses. */
#include "coordinator/profiles.h"
#include "tests/unit/coordinator/core_fixture.h"

static size_t sent_to(const struct fixture *f, uint64_t peer, enum message_type type)
{
    size_t n = 0;
    for (size_t i = 0; i < f->n_sent; i++)
        n += f->sent[i].peer == peer && f->sent[i].type == type;
    return n;
}

static void stored(struct fixture *f)
{
    coord_stored(f->core, f->asked_number, NULL);
    fixture_settle(f);
}

TEST(an_answer_waits_until_what_it_says_is_stored)
{
    struct fixture f;
    fixture_open(&f);
    f.disk_is_slow = true;
    assert_null(fixture_ask(&f, "token.create", "{\"ttl_s\": 60}", NULL));
    const struct message_answer *a =
        fixture_ask(&f, "token.ls", "{}", NULL); /* behind it: answers keep their order */
    assert_null(a);
    stored(&f);
    assert_int_equal(sent_to(&f, ADMIN, MESSAGE_ANSWER), 2);
    assert_non_null(fixture_ask(&f, "token.ls", "{}", NULL)); /* nothing waits any more */
    fixture_close(&f);
}

TEST(each_batch_releases_its_own)
{
    struct fixture f;
    fixture_open(&f);
    f.disk_is_slow = true;
    fixture_ask(&f, "token.create", "{\"ttl_s\": 60}", NULL);
    uint64_t first = f.asked_number;
    fixture_ask(&f, "token.create", "{\"ttl_s\": 60}", NULL);
    assert_true(f.asked_number > first);
    coord_stored(f.core, first, NULL);
    fixture_settle(&f);
    assert_int_equal(sent_to(&f, ADMIN, MESSAGE_ANSWER), 1);
    stored(&f);
    assert_int_equal(sent_to(&f, ADMIN, MESSAGE_ANSWER), 2);
    fixture_close(&f);
}

TEST(heartbeats_are_acknowledged_while_the_disk_is_slow)
{
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 1e9);
    fixture_invite(&f, 60);
    f.disk_is_slow = true;
    fixture_join(&f, 11, fixture_key(1), "a1", f.token, fixture_node("k", 1e9));
    assert_null(fixture_last(&f, 11, MESSAGE_WELCOME)); /* its token must be used up for good */
    size_t acks = sent_to(&f, 10, MESSAGE_HEARTBEAT_ACK);
    fixture_beat(&f, 10, fixture_key(0));
    assert_int_equal(sent_to(&f, 10, MESSAGE_HEARTBEAT_ACK), acks + 1);
    stored(&f);
    assert_non_null(fixture_last(&f, 11, MESSAGE_WELCOME));
    fixture_close(&f);
}

static void full(struct fixture *f)
{
    err_set(&f->disk, HP_ENOSPACE,
            "the store cannot be written while committing a change: the disk is full");
}

TEST(a_full_disk_refuses_changes_by_name_and_the_rest_goes_on)
{
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 1e9);
    full(&f);
    const struct message_answer *a =
        fixture_ask(&f, "token.create", "{\"ttl_s\": 60}", NULL); /* the first finds out */
    assert_string_equal(a->code, "no_space");
    assert_non_null(strstr(a->text, "not stored"));
    static const char *const changes[] = {"token.create", "key.create", "node.drain", "node.rm",
                                          "undeploy"};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        a = fixture_ask(&f, changes[i], "{\"name\": \"a0\", \"ttl_s\": 60}", NULL);
        assert_string_equal(a->code, "no_space");
        assert_string_equal(a->text, "read only: no space left on the coordinator's disk");
    }
    assert_string_equal(fixture_ask(&f, "node.ls", "{}", NULL)->code, "ok");
    /* A known agent comes back; a new one does not. */
    fixture_join(&f, 20, fixture_key(0), "a0", "", fixture_node("k", 1e9));
    assert_non_null(fixture_last(&f, 20, MESSAGE_WELCOME));
    fixture_join(&f, 21, fixture_key(1), "a1", f.token, fixture_node("k", 1e9));
    assert_null(fixture_last(&f, 21, MESSAGE_WELCOME));
    f.disk = (struct err){0};
    coord_stored(f.core, f.asked_number, NULL);
    assert_string_equal(fixture_ask(&f, "token.create", "{\"ttl_s\": 60}", NULL)->code, "ok");
    fixture_close(&f);
}

struct seen {
    double read_only, pauses;
};

static void see(void *out, const char *name, const char *type, const char *help, const char *labels,
                double value)
{
    struct seen *s = out;
    (void)type, (void)help, (void)labels;
    if (strcmp(name, "hp_read_only") == 0)
        s->read_only = value;
    if (strcmp(name, "hp_pauses_total") == 0)
        s->pauses = value;
}

TEST(metrics_tell_of_a_disk_that_is_full_and_of_pauses)
{
    struct fixture f;
    struct requests r;
    struct seen before = {0}, after = {0};
    fixture_open(&f);
    coord_requests(f.core, &r);
    r.metrics(r.ctx, see, &before);
    full(&f);
    fixture_ask(&f, "token.create", "{\"ttl_s\": 60}", NULL);
    f.clock.now_ns += UINT64_C(5000000000);
    coord_tick(f.core);
    fixture_settle(&f);
    r.metrics(r.ctx, see, &after);
    assert_true(before.read_only < 0.5 && after.read_only > 0.5);
    assert_true(before.pauses < 0.5 && after.pauses > 0.5);
    fixture_close(&f);
}

TEST(measurements_wait_for_nobody_and_nobody_for_them)
{
    struct fixture f;
    fixture_open(&f);
    f.disk_is_slow = true;
    struct err e = {0};
    assert_int_equal(profiles_set(f.core, "m", "k", "auto", json_object(), &e), 0);
    assert_non_null(fixture_ask(&f, "node.ls", "{}", NULL));
    fixture_close(&f);
}

TEST(a_coordinator_starts_with_a_full_disk)
{
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 1e9);
    full(&f);
    fixture_restart(&f);                             /* its boot number cannot be stored */
    assert_int_equal(coord_view(f.core).boot, 1000); /* the time: the fixture's clock */
    fixture_join(&f, 20, fixture_key(0), "a0", "", fixture_node("k", 1e9));
    fixture_beat(&f, 20, fixture_key(0));
    assert_int_equal(coord_view(f.core).members_ready, 1);
    assert_string_equal(fixture_ask(&f, "key.create", "{\"name\": \"k\"}", NULL)->code, "no_space");
    fixture_close(&f);
}

/* What agents have open has the numbers of runs that no store knows. */
TEST(a_run_after_some_whose_numbers_could_not_be_stored_has_a_higher_one)
{
    static const uint64_t numbers[] = {1, 1795000000 /* a record was put aside in 2026 */,
                                       1800000001 - 1704067200 /* in the same second */,
                                       1800000003 - 1704067200 /* two starts ahead of the clock */};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct fixture f;
        struct err e = {0};
        char text[24];
        fixture_open(&f);
        snprintf(text, sizeof text, "%llu", (unsigned long long)numbers[i]);
        struct store_change old = {"meta", "boot", text, strlen(text)};
        assert_int_equal(store_apply(f.store, &old, 1, &e), 0);
        f.unix_s = 1800000000;
        uint64_t before = numbers[i], wait_s = 1;
        for (int run = 0; run < 6; run++) {
            f.unix_s += wait_s;
            if (run == 1)
                full(&f);
            if (run == 4)
                f.disk = (struct err){0};
            fixture_restart(&f);
            uint64_t boot = coord_view(f.core).boot;
            assert_true(boot > before && boot <= INT32_MAX);
            before = boot;
            uint64_t ahead_s = boot - (boot < 1704067200 ? f.unix_s - 1704067200 : f.unix_s);
            wait_s = 1 + (f.disk.code ? ahead_s : 0); /* as who cannot store it waits */
            assert_true(wait_s <= 1 + COORD_BOOT_AHEAD_S);
        }
        fixture_close(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_waits_until_what_it_says_is_stored),
        cmocka_unit_test(each_batch_releases_its_own),
        cmocka_unit_test(heartbeats_are_acknowledged_while_the_disk_is_slow),
        cmocka_unit_test(a_full_disk_refuses_changes_by_name_and_the_rest_goes_on),
        cmocka_unit_test(metrics_tell_of_a_disk_that_is_full_and_of_pauses),
        cmocka_unit_test(measurements_wait_for_nobody_and_nobody_for_them),
        cmocka_unit_test(a_coordinator_starts_with_a_full_disk),
        cmocka_unit_test(a_run_after_some_whose_numbers_could_not_be_stored_has_a_higher_one),
    };
    return cmocka_run_group_tests_name("holding", tests, NULL, NULL);
}
