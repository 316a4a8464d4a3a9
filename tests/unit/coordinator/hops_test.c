/* Whether stages hear each other, message by message. */
#include "coordinator/broken_links.h"
#include "coordinator/hops.h"
#include "coordinator/links.h"
#include "tests/unit/coordinator/deployment_fixture.h"

TEST(nothing_serves_before_every_hop_was_heard)
{
    struct fixture f;
    ready_and_deaf(&f);
    hop_says(&f, 0, 1, 1, true);
    hop_says(&f, 2, 1, 0, true); /* it has no stage */
    hop_says(&f, 1, 0, 0, true); /* another generation */
    hop_says(&f, 1, 1, 7, true); /* no such stage */
    assert_string_equal(state_of(&f), "ready");
    hop_says(&f, 1, 1, 0, true);
    assert_string_equal(state_of(&f), "serving");
    fixture_close(&f);
}

TEST(agents_that_cannot_reach_each_other_are_named)
{
    struct fixture f;
    ready_and_deaf(&f);
    hop_says(&f, 0, 1, 1, true);
    size_t before = f.n_sent;
    for (int i = 0; i < HOPS_TRY_MS / 500; i++) {
        for (int a = 0; a < 3; a++)
            a < 2 ? beat_with(&f, a, 1, 1, (uint64_t)(1 - a), "ready")
                  : fixture_beat(&f, 12, fixture_key(2));
        fixture_pass_ms(&f, 500);
    }
    assert_string_equal(state_of(&f),
                        "gone"); /* a first deployment that does not come to serve is removed */
    const char *text = NULL;
    for (size_t i = before; i < f.n_sent; i++)
        if (f.sent[i].peer == ADMIN && f.sent[i].type == MESSAGE_ANSWER &&
            f.sent[i].m.u.answer.code[0])
            text = f.sent[i].m.u.answer.text;
    assert_non_null(text);
    assert_non_null(strstr(text, "\"a0\" cannot reach \"a1\""));
    assert_null(strstr(text, "\"a1\" cannot reach"));
    fixture_close(&f);
}

TEST(a_hop_that_falls_silent_breaks_what_serves_over_it)
{
    struct fixture f;
    struct deployment *d = serving(&f);
    hop_says(&f, 0, 1, 1, false);
    assert_string_not_equal(state_of(&f), "serving");
    assert_non_null(strstr(d->why.text, "\"a1\" cannot reach \"a0\""));
    fixture_close(&f);
}

TEST(hops_that_are_heard_again_end_the_wait_for_the_next_try)
{
    struct fixture f;
    serving(&f);
    f.deaf = true;
    hop_says(&f, 0, 1, 1, false); /* a cable is pulled */
    stage_says(&f, 1, 2, 0, "ready", NULL, 0);
    stage_says(&f, 0, 2, 1, "ready", NULL, 0);
    assert_string_equal(state_of(&f), "ready");
    for (int i = 0; i < HOPS_TRY_MS / 500 && strcmp(state_of(&f), "ready") == 0; i++) {
        for (int a = 0; a < 3; a++)
            a < 2 ? beat_with(&f, a, 1, 2, (uint64_t)(1 - a), "ready")
                  : fixture_beat(&f, 12, fixture_key(2));
        fixture_pass_ms(&f, 500);
    }
    assert_string_equal(state_of(&f), "broken");
    hop_says(&f, 0, 2, 1, true); /* and put in again */
    assert_string_equal(state_of(&f), "broken");
    hop_says(&f, 1, 2, 0, true);
    assert_string_equal(state_of(&f), "preparing");
    fixture_close(&f);
}

static bool broken(struct fixture *f, const char *from, const char *to)
{
    const struct member_link *l = links_cell(member_find(f->core, from), member_find(f->core, to));
    return l && coord_now(f->core) < l->broken_until_ns;
}

TEST(a_path_between_two_that_live_is_broken_and_one_to_a_silent_agent_is_not)
{
    struct fixture f;
    serving(&f);
    hop_says(&f, 0, 1, 1, false);
    assert_true(broken(&f, "a1", "a0"));
    fixture_close(&f);
    serving(&f);
    fixture_pass_ms(&f, BROKEN_LINK_HEARD_MS + 100);
    beat_with(&f, 0, 1, 1, 1, "ready");
    hop_says(&f, 0, 1, 1, false); /* a1 has said nothing for as long */
    assert_string_not_equal(state_of(&f), "serving");
    assert_false(broken(&f, "a1", "a0"));
    fixture_close(&f);
}

TEST(a_path_that_breaks_again_is_left_alone_for_longer)
{
    struct fixture f;
    struct deployment *d = serving(&f);
    uint64_t left_ms[4];
    for (int i = 0; i < 4; i++) {
        const struct member_link *l =
            links_cell(member_find(f.core, "a1"), member_find(f.core, "a0"));
        if (l)
            f.core->now_ns = l->broken_until_ns + (i == 3 ? 2 : 0) * coord_ms(400000);
        member_find(f.core, "a0")->heard_ns = member_find(f.core, "a1")->heard_ns =
            coord_now(f.core);
        broken_links_hop(f.core, d, 1);
        l = links_cell(member_find(f.core, "a1"), member_find(f.core, "a0"));
        left_ms[i] = (l->broken_until_ns - coord_now(f.core)) / coord_ms(1);
    }
    assert_int_equal(left_ms[0], BROKEN_LINK_MS);
    assert_int_equal(left_ms[1], 2 * BROKEN_LINK_MS);
    assert_int_equal(left_ms[2], 4 * BROKEN_LINK_MS);
    assert_int_equal(left_ms[3], BROKEN_LINK_MS); /* it was good for long */
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_serves_before_every_hop_was_heard),
        cmocka_unit_test(agents_that_cannot_reach_each_other_are_named),
        cmocka_unit_test(a_hop_that_falls_silent_breaks_what_serves_over_it),
        cmocka_unit_test(hops_that_are_heard_again_end_the_wait_for_the_next_try),
        cmocka_unit_test(a_path_between_two_that_live_is_broken_and_one_to_a_silent_agent_is_not),
        cmocka_unit_test(a_path_that_breaks_again_is_left_alone_for_longer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
