/* A deployment, message by message. */
#include "coordinator/copies.h"
#include "coordinator/deployment.h"
#include "coordinator/member.h"
#include "coordinator/planner_cluster.h"
#include "coordinator/record.h"
#include "tests/unit/coordinator/deployment_fixture.h"

TEST(a_model_whose_files_are_not_open_yet_is_there_but_does_not_serve)
{
    struct fixture f;
    struct err e = {0};
    struct request_model m, all[REQUEST_MAX_MODELS];
    serving(&f);
    f.facts = NULL; /* nobody opens it */
    fixture_restart(&f);
    struct requests r;
    coord_requests(f.core, &r);
    assert_int_equal(r.find(r.ctx, NULL, "d", &m, &e), 0);
    assert_false(m.serving);
    assert_int_equal(r.models(r.ctx, NULL, all, REQUEST_MAX_MODELS), 1);
    assert_int_equal(r.find(r.ctx, NULL, "e", &m, &e), HP_ENOENT);
    fixture_close(&f);
}

static int count_of(const struct fixture *f, uint64_t peer, enum message_type type)
{
    int n = 0;
    for (size_t i = 0; i < f->n_sent; i++)
        n += f->sent[i].peer == peer && f->sent[i].type == type;
    return n;
}

TEST(progress_is_told_until_it_serves)
{
    static const char *const phases[] = {"\"phase\":\"plan\"", "\"phase\":\"prepare\"",
                                         "\"phase\":\"serving\""};
    struct fixture f;
    serving(&f);
    int at = 0;
    for (size_t i = 0; i < f.n_sent && at < 3; i++)
        if (f.sent[i].peer == ADMIN && strstr(f.sent[i].m.u.answer.result, phases[at])) {
            assert_int_equal(f.sent[i].m.u.answer.more, at < 2);
            at++;
        }
    assert_int_equal(at, 3);
    fixture_close(&f);
}

TEST(neighbours_learn_each_others_addresses)
{
    struct fixture f;
    serving(&f);
    const struct message_stage_connect *first =
        &fixture_last(&f, 11, MESSAGE_STAGE_CONNECT)->u.stage_connect;
    const struct message_stage_connect *last =
        &fixture_last(&f, 10, MESSAGE_STAGE_CONNECT)->u.stage_connect;
    assert_int_equal(first->next_address.size, 2);
    assert_memory_equal(first->next_address.data, "a0", 2);
    assert_int_equal(first->first_address.size, 0);
    assert_int_equal(last->next_address.size, 0);
    assert_memory_equal(last->first_address.data, "a1", 2);
    assert_null(fixture_last(&f, 12, MESSAGE_STAGE_CONNECT));
    fixture_close(&f);
}

TEST(every_hop_has_a_session_of_its_own_which_outlives_a_restart)
{
    struct fixture f;
    serving(&f); /* on a1, then a0 */
    uint8_t keys[2][KEY_BYTES];
    const struct message_stage_prepare *p[2] = {
        &fixture_last(&f, 11, MESSAGE_STAGE_PREPARE)->u.stage_prepare,
        &fixture_last(&f, 10, MESSAGE_STAGE_PREPARE)->u.stage_prepare};
    uint64_t sessions[] = {p[0]->input_session, p[1]->input_session};
    assert_true(sessions[0] && sessions[1] && sessions[0] != sessions[1] &&
                sessions[0] != p[0]->session && sessions[1] != p[1]->session);
    for (int i = 0; i < 2; i++)
        assert_int_equal(key_decode(fixture_key(i), keys[i], NULL), 0);
    assert_int_equal(p[0]->input_from.size, KEY_BYTES);
    assert_memory_equal(p[0]->input_from.data, keys[0],
                        KEY_BYTES); /* the tokens come from the last, which is a0 */
    assert_memory_equal(p[1]->input_from.data, keys[1], KEY_BYTES);
    for (int run = 0; run < 2; run++) {
        const struct message_stage_connect *first =
            &fixture_last(&f, 11, MESSAGE_STAGE_CONNECT)->u.stage_connect;
        const struct message_stage_connect *last =
            &fixture_last(&f, 10, MESSAGE_STAGE_CONNECT)->u.stage_connect;
        assert_true(first->next_session == sessions[1] && first->first_session == 0);
        assert_true(last->next_session == 0 && last->first_session == sessions[0]);
        fixture_restart(&f);
        assert_true(deployment_find(f.core, "d")->stages[0].input_session == sessions[0]);
        assert_true(deployment_find(f.core, "d")->stages[1].input_session == sessions[1]);
    }
    fixture_close(&f);
}

/* The stage of which an agent was told last to take a copy; -1: of none. */
static int copy_of(const struct fixture *f, int agent)
{
    for (size_t i = f->n_sent; i-- > 0;) {
        const struct message_stage_prepare *p = &f->sent[i].m.u.stage_prepare;
        if (f->sent[i].peer == 10 + (uint64_t)agent && f->sent[i].type == MESSAGE_STAGE_PREPARE)
            return p->copy ? (int)p->stage : -1;
    }
    return -1;
}

TEST(a_copy_that_an_agent_cannot_take_goes_to_another_and_holds_up_none)
{
    struct fixture f;
    fixture_open(&f);
    for (int i = 0; i < 3; i++)
        fixture_agent(&f, i, "k", 1e9);
    ask_deploy(&f, "{\"agents\": \"a1,a0\", \"max_context\": 128, \"copies\": 2}");
    stage_says(&f, 1, 1, 0, "ready", NULL, 0);
    stage_says(&f, 0, 1, 1, "ready", NULL, 0);
    fixture_pass_ms(&f, COPIES_AFTER_MS + 2 * COORD_TICK_MS);
    assert_int_equal(copy_of(&f, 0), 0); /* of the first stage, which a1 runs */
    assert_int_equal(copy_of(&f, 1), -1);
    stage_says(&f, 0, 1, 0, "uncopied", NULL, 0);
    fixture_pass_ms(&f, 2 * COORD_TICK_MS);
    assert_int_equal(copy_of(&f, 1), 1); /* that of the other goes on */
    stage_says(&f, 1, 1, 1, "copied", NULL, 0);
    for (int s = 0; s < COPIES_AGAIN_MS / 1000 + 1; s++) {
        beat_with(&f, 0, deployment_find(f.core, "d")->id, 1, 1, "ready");
        beat_with(&f, 1, deployment_find(f.core, "d")->id, 1, 0, "ready");
        fixture_say(&f, 12, fixture_key(2), &(struct message){.type = MESSAGE_HEARTBEAT});
        fixture_pass_ms(&f, 1000);
    }
    assert_int_equal(copy_of(&f, 2), 0); /* another one is asked */
    fixture_close(&f);
}

TEST(a_stage_that_fails_ends_a_first_deployment_in_its_agents_words)
{
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 1e9);
    ask_deploy(&f, "{}");
    stage_says(&f, 0, 1, 0, "failed", NULL, 0);
    const struct message_answer *a = &fixture_last(&f, ADMIN, MESSAGE_ANSWER)->u.answer;
    assert_string_equal(a->code, "no_space");
    assert_string_equal(a->hint, "free some space");
    assert_non_null(strstr(a->text, "the disk is full"));
    assert_non_null(strstr(a->text, "a0"));
    assert_non_null(fixture_last(&f, 10, MESSAGE_STAGE_UNLOAD));
    assert_string_equal(state_of(&f), "gone");
    fixture_close(&f);
}

TEST(a_failure_is_one_whatever_its_agent_calls_it)
{
    static const char *const codes[] = {"ok", "pending"};
    for (size_t i = 0; i < 2; i++) {
        struct fixture f;
        fixture_open(&f);
        fixture_agent(&f, 0, "k", 1e9);
        ask_deploy(&f, "{}");
        struct message m = {.type = MESSAGE_STAGE_STATE};
        m.u.stage_state = (struct message_stage_state){.deployment = 1,
                                                       .generation = 1,
                                                       .state = "failed",
                                                       .code = codes[i],
                                                       .text = "all is well"};
        fixture_say(&f, 10, fixture_key(0), &m);
        assert_string_equal(fixture_last(&f, ADMIN, MESSAGE_ANSWER)->u.answer.code, "protocol");
        assert_string_equal(state_of(&f), "gone");
        fixture_close(&f);
    }
}

TEST(what_older_generations_and_strangers_say_changes_nothing)
{
    struct fixture f;
    fixture_open(&f);
    for (int i = 0; i < 3; i++)
        fixture_agent(&f, i, "k", 1e9);
    ask_deploy(&f, "{\"agents\": \"a1,a0\"}");
    stage_says(&f, 1, 1, 0, "ready", NULL, 0);
    stage_says(&f, 0, 0, 1, "ready", NULL, 0); /* generation */
    stage_says(&f, 0, 2, 1, "ready", NULL, 0);
    stage_says(&f, 2, 1, 1, "ready", NULL, 0);  /* agent */
    stage_says(&f, 0, 1, 0, "failed", NULL, 0); /* stage */
    assert_string_equal(state_of(&f), "preparing");
    stage_says(&f, 0, 1, 1, "ready", NULL, 0);
    assert_string_equal(state_of(&f), "serving");
    fixture_close(&f);
}

/* The stages' agents come back with a newer generation than the store knows of. */
TEST(orders_go_on_above_what_agents_have_had_where_the_store_has_an_older_state)
{
    struct fixture f;
    struct deployment *d = serving(&f);
    fixture_restart(&f);
    d = deployment_find(f.core, "d");
    assert_int_equal(d->generation, 1);
    for (int i = 0; i < 3; i++)
        fixture_join(&f, 10 + (uint64_t)i, fixture_key(i), "", "", fixture_node("k", 1e9));
    beat_with(&f, 0, d->id, 1 + (UINT64_C(1) << 40), 0, "ready"); /* no count comes to that */
    assert_string_equal(state_of(&f), "recovering");
    beat_with(&f, 2, d->id, 9, 0, "ready"); /* an agent that it does not use */
    assert_string_equal(state_of(&f), "recovering");
    beat_with(&f, 1, d->id, 4, 0, "ready");
    assert_string_equal(state_of(&f), "preparing");
    assert_int_equal(d->generation, 10);
    assert_int_equal(fixture_last(&f, 11, MESSAGE_STAGE_PREPARE)->u.stage_prepare.generation, 10);
    stage_says(&f, 1, 10, 0, "ready", NULL, 0);
    stage_says(&f, 0, 10, 1, "ready", NULL, 0);
    assert_string_equal(state_of(&f), "serving");
    beat_with(&f, 2, d->id, 12, 0, "ready"); /* what is not of the place that serves goes */
    assert_int_equal(fixture_last(&f, 12, MESSAGE_STAGE_UNLOAD)->u.stage_unload.generation, 12);
    fixture_close(&f);
}

static void stage_refuses(struct fixture *f, uint64_t generation)
{
    struct message m = {.type = MESSAGE_STAGE_STATE};
    m.u.stage_state = (struct message_stage_state){.deployment = 1,
                                                   .generation = generation,
                                                   .state = "failed",
                                                   .code = "stale",
                                                   .text = "it has had newer orders"};
    fixture_say(f, 10, fixture_key(0), &m);
}

static double memory_counted_on(struct fixture *f, int agent)
{
    const struct deployment *d = deployment_find(f->core, "d");
    char name[] = {'a', (char)('0' + agent), 0};
    const struct member *m = member_find(f->core, name);
    return planner_free_bytes(f->core, d, m, 0);
}

/* What its kernels hold no plan knows: the same plan would fail as often as it is made. */
TEST(a_stage_that_finds_no_memory_is_planned_once_more_with_less)
{
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 1e9);
    ask_deploy(&f, "{}");
    double before = memory_counted_on(&f, 0);
    struct message m = {.type = MESSAGE_STAGE_STATE};
    m.u.stage_state = (struct message_stage_state){
        .deployment = 1, .generation = 1, .state = "failed", .code = "no_memory", .text = "full"};
    fixture_say(&f, 10, fixture_key(0), &m);
    assert_string_equal(state_of(&f), "broken");
    double less = memory_counted_on(&f, 0);
    assert_true(less < before && less > 0.99 * before);
    fixture_pass_ms(&f, DEPLOYMENT_ROOM_MS + 100);
    fixture_beat(&f, 10, fixture_key(0));
    assert_string_equal(state_of(&f), "preparing");
    m.u.stage_state.generation = 2;
    fixture_say(&f, 10, fixture_key(0), &m);
    assert_string_equal(fixture_last(&f, ADMIN, MESSAGE_ANSWER)->u.answer.code, "no_memory");
    assert_string_equal(state_of(&f), "gone");
    for (int i = 0; i < 100; i++)
        member_device_shorten(member_find(f.core, "a0"), 0);
    ask_deploy(&f, "{}"); /* it is not shortened away */
    assert_string_equal(state_of(&f), "preparing");
    assert_true(memory_counted_on(&f, 0) > 0.8 * before);
    fixture_close(&f);
}

/* An agent that holds nothing of it any more says no number. */
TEST(a_generation_that_an_agent_calls_old_becomes_the_time_once)
{
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 1e9);
    ask_deploy(&f, "{}");
    stage_refuses(&f, 1);
    assert_string_equal(state_of(&f), "preparing");
    const struct message_stage_prepare *p =
        &fixture_last(&f, 10, MESSAGE_STAGE_PREPARE)->u.stage_prepare;
    assert_int_equal(p->generation, 1001); /* the fixture's clock, and one more */
    stage_refuses(&f, 1001);
    assert_string_equal(fixture_last(&f, ADMIN, MESSAGE_ANSWER)->u.answer.code, "stale");
    assert_string_equal(state_of(&f), "gone");
    fixture_close(&f);
}

static int uploads_asked(const struct fixture *f)
{
    int n = 0;
    for (size_t i = 0; i < f->n_sent; i++)
        n += f->sent[i].peer == ADMIN &&
             strstr(f->sent[i].m.u.answer.result, "\"phase\":\"upload\"") != NULL;
    return n;
}

TEST(missing_chunks_are_asked_for_once_and_again_after_silence)
{
    struct fixture f;
    static const uint32_t wanted[] = {7, 3};
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 1e9);
    ask_deploy(&f, "{}");
    stage_says(&f, 0, 1, 0, "fetching", wanted, 2);
    assert_int_equal(uploads_asked(&f), 1);
    const char *asked = NULL;
    for (size_t i = 0; i < f.n_sent; i++)
        if (f.sent[i].peer == ADMIN && strstr(f.sent[i].m.u.answer.result, "upload"))
            asked = f.sent[i].m.u.answer.result;
    assert_non_null(strstr(asked, "\"chunks\":[3,7]"));
    assert_non_null(strstr(asked, "\"address\":\"6130\""));
    assert_false(fixture_last(&f, 10, MESSAGE_CHUNK_GRANT)->u.chunk_grant.revoke);
    stage_says(&f, 0, 1, 0, "fetching", wanted, 1);
    assert_int_equal(uploads_asked(&f), 1);
    for (int i = 0; i < 20; i++) {
        fixture_pass_ms(&f, 1000);
        beat_with(&f, 0, 1, 1, 0, "fetching");
    }
    assert_int_equal(uploads_asked(&f), 2);
    stage_says(&f, 0, 1, 0, "ready", NULL, 0);
    assert_true(fixture_last(&f, 10, MESSAGE_CHUNK_GRANT)->u.chunk_grant.revoke);
    fixture_close(&f);
}

TEST(an_order_that_does_not_show_is_given_again)
{
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 1e9);
    ask_deploy(&f, "{}");
    assert_int_equal(count_of(&f, 10, MESSAGE_STAGE_PREPARE), 1);
    fixture_pass_ms(&f, 1000);
    fixture_beat(&f, 10, fixture_key(0));
    assert_int_equal(count_of(&f, 10, MESSAGE_STAGE_PREPARE), 1);
    fixture_pass_ms(&f, 1200);
    fixture_beat(&f, 10, fixture_key(0));
    assert_int_equal(count_of(&f, 10, MESSAGE_STAGE_PREPARE), 2);
    beat_with(&f, 0, 1, 1, 0, "ready"); /* and its answer may be lost too */
    assert_string_equal(state_of(&f), "serving");
    fixture_close(&f);
}

TEST(a_stage_that_is_gone_makes_the_next_generation)
{
    struct fixture f;
    struct deployment *d = serving(&f);
    for (int i = 0; i < 5; i++) {
        fixture_pass_ms(&f, 500);
        beat_with(&f, 1, d->id, 1, 0, "ready");
        beat_with(&f, 0, d->id, 1, 1, i < 4 ? "ready" : "failed");
        fixture_beat(&f, 12, fixture_key(2));
    }
    assert_int_equal(d->generation, 2);
    assert_string_equal(state_of(&f), "preparing");
    const struct message_stage_prepare *p =
        &fixture_last(&f, 10, MESSAGE_STAGE_PREPARE)->u.stage_prepare;
    assert_int_equal(p->generation, 2);
    assert_int_equal(p->stage, 1);
    fixture_close(&f);
}

TEST(stages_that_nobody_needs_are_unloaded)
{
    struct fixture f;
    serving(&f);
    beat_with(&f, 2, 77, 3, 0, "ready");
    const struct message_stage_unload *u =
        &fixture_last(&f, 12, MESSAGE_STAGE_UNLOAD)->u.stage_unload;
    assert_int_equal(u->deployment, 77);
    assert_int_equal(u->generation, 3);
    fixture_close(&f);
}

/* A heartbeat of the first stage, which shows a sequence. */
static void beat_with_sequence(struct fixture *f, uint64_t generation)
{
    struct message_held_stage held = {
        .deployment = 1, .generation = generation, .state = "ready", .sequences = 1};
    struct message m = {.type = MESSAGE_HEARTBEAT};
    m.u.heartbeat.held = (struct pack_list){&held, 1};
    fixture_say(f, 11, fixture_key(1), &m);
}

TEST(sequences_of_a_stage_whose_deployment_does_not_serve_are_closed)
{
    struct fixture f;
    const struct deployment *d = serving(&f);
    beat_with_sequence(&f, 1);
    assert_null(fixture_last(&f, 11, MESSAGE_SEQUENCE_CLOSE));
    stage_says(&f, 0, 1, 1, "failed", NULL, 0);
    assert_false(deployment_serves(d));
    beat_with_sequence(&f, 1);
    const struct message_sequence_close *close =
        &fixture_last(&f, 11, MESSAGE_SEQUENCE_CLOSE)->u.sequence_close;
    assert_int_equal(close->deployment, 1);
    assert_int_equal(close->generation, 1);
    assert_int_equal(close->stage, 0);
    assert_int_equal(close->sequence, 0);
    fixture_close(&f);
}

TEST(deploying_again_is_told_that_it_serves_or_why_not)
{
    struct fixture f;
    serving(&f);
    ask_deploy(&f, "{\"agents\": \"a1,a0\", \"max_context\": 128}");
    assert_non_null(
        strstr(fixture_last(&f, ADMIN, MESSAGE_ANSWER)->u.answer.result, "\"phase\":\"serving\""));
    ask_deploy(&f, "{\"agents\": \"a2\"}");
    const struct message_answer *a = &fixture_last(&f, ADMIN, MESSAGE_ANSWER)->u.answer;
    assert_string_equal(a->code, "exists");
    assert_non_null(strstr(a->text, "--agents a1,a0 there, a2 here; --max-context 128 there, not "
                                    "given here"));
    ask_deploy(&f, "{\"agents\": \"a2\", \"prefill\": \"a1\", \"max_context\": 128, "
                   "\"ttft\": 2000.0}");
    a = &fixture_last(&f, ADMIN, MESSAGE_ANSWER)->u.answer;
    assert_non_null(strstr(a->text, "options: --agents a1,a0 there, --decode a2 here; --prefill "
                                    "not given there, a1 here; --ttft not given there, 2000ms "
                                    "here"));
    /* The same bytes, read elsewhere. */
    ask_deploy(&f, "{\"agents\": \"a1,a0\", \"max_context\": 128, \"source_machine\": \"box\", "
                   "\"source_path\": \"/moved\"}");
    assert_non_null(
        strstr(fixture_last(&f, ADMIN, MESSAGE_ANSWER)->u.answer.result, "\"phase\":\"serving\""));
    assert_string_equal(deployment_find(f.core, "d")->spec.source_path, "/moved");
    assert_string_equal(state_of(&f), "serving");
    fixture_close(&f);
}

TEST(what_only_the_coordinator_asks_for_and_readers_that_are_not_there_are_refused_at_once)
{
    static const char *const cases[][3] = {
        {"{\"prefill_of\": \"e\"}", "invalid", "coordinator's own"},
        {"{\"copy_of\": \"e\"}", "invalid", "coordinator's own"},
        {"{\"replicate_to\": \"auto\"}", "invalid", "--replicate-kv TOKENS says of what"},
        {"{\"succeeds\": \"e\"}", "invalid", "coordinator's own"},
        {"{\"prefill\": \"a1,a7\"}", "not_found", "no agent \"a7\""},
        {"{\"prefill\": \"a1,,a2\"}", "invalid", "\"\" is not the name of an agent"},
        {"{\"prefill\": \"a1,\"}", "invalid", "\"\" is not the name of an agent"},
        {"{\"prefill\": \",\"}", "invalid", "\"\" is not the name of an agent"},
        {"{\"prefill\": \"a1/cpu9\"}", "not_found", "no device \"a1/cpu9\""},
    };
    struct fixture f;
    fixture_open(&f);
    for (int i = 0; i < 3; i++)
        fixture_agent(&f, i, "k", 1e9);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ask_deploy(&f, cases[i][0]);
        const struct message_answer *a = &fixture_last(&f, ADMIN, MESSAGE_ANSWER)->u.answer;
        assert_string_equal(a->code, cases[i][1]);
        assert_non_null(strstr(a->text, cases[i][2]));
        assert_null(deployment_find(f.core, "d"));
    }
    ask_deploy(&f, "{\"agents\": \"a0\", \"prefill\": \"a1,a2\"}");
    assert_non_null(deployment_find(f.core, "d"));
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_whose_files_are_not_open_yet_is_there_but_does_not_serve),
        cmocka_unit_test(progress_is_told_until_it_serves),
        cmocka_unit_test(neighbours_learn_each_others_addresses),
        cmocka_unit_test(every_hop_has_a_session_of_its_own_which_outlives_a_restart),
        cmocka_unit_test(a_copy_that_an_agent_cannot_take_goes_to_another_and_holds_up_none),
        cmocka_unit_test(a_stage_that_fails_ends_a_first_deployment_in_its_agents_words),
        cmocka_unit_test(a_failure_is_one_whatever_its_agent_calls_it),
        cmocka_unit_test(what_older_generations_and_strangers_say_changes_nothing),
        cmocka_unit_test(
            orders_go_on_above_what_agents_have_had_where_the_store_has_an_older_state),
        cmocka_unit_test(a_stage_that_finds_no_memory_is_planned_once_more_with_less),
        cmocka_unit_test(a_generation_that_an_agent_calls_old_becomes_the_time_once),
        cmocka_unit_test(missing_chunks_are_asked_for_once_and_again_after_silence),
        cmocka_unit_test(an_order_that_does_not_show_is_given_again),
        cmocka_unit_test(a_stage_that_is_gone_makes_the_next_generation),
        cmocka_unit_test(stages_that_nobody_needs_are_unloaded),
        cmocka_unit_test(sequences_of_a_stage_whose_deployment_does_not_serve_are_closed),
        cmocka_unit_test(deploying_again_is_told_that_it_serves_or_why_not),
        cmocka_unit_test(
            what_only_the_coordinator_asks_for_and_readers_that_are_not_there_are_refused_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
