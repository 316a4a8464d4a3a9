/* Deployments that are planned anew beside themselves: what is said, what is done, and what is not.
 */
#include "coordinator/links.h"
#include "coordinator/model_slots.h"
#include "coordinator/paces.h"
#include "coordinator/rebalance.h"
#include "coordinator/rebalance_watch.h"
#include "coordinator/successors.h"
#include "tests/unit/coordinator/stream_fixture.h"

static const uint32_t kv_before[][MODEL_KV_GROUPS] = {{0}, {0}, {1}, {1}, {2}, {2}, {2}};

static int agent_of(const struct deployment *d, int stage)
{
    return d->stages[stage].agent->name[1] - '0';
}

static void stages_say(struct fixture *f, const struct deployment *d, const char *state)
{
    struct message m = {.type = MESSAGE_STAGE_STATE};
    bool failed = strcmp(state, "failed") == 0;
    for (int i = 0, n = d->n_stages; i < n; i++) { /* the last word may be its end */
        int agent = agent_of(d, i);
        m.u.stage_state = (struct message_stage_state){.deployment = d->id,
                                                       .generation = d->generation,
                                                       .stage = (uint64_t)i,
                                                       .state = state,
                                                       .code = failed ? "no_space" : "",
                                                       .text = failed ? "the disk is full" : ""};
        fixture_say(f, 10 + (uint64_t)agent, fixture_key(agent), &m);
    }
}

/* Serves on a1 alone, since a0 was not there; short answers would be done sooner over both. */
static struct deployment *misplaced(struct fixture *f, const char *options, double memory)
{
    fixture_open(f);
    for (int i = 0; i < 2; i++)
        fixture_agent(f, i, "k", memory);
    fixture_ask(f, "node.drain", "{\"name\": \"a0\"}", NULL);
    ask_deploy(f, options);
    struct deployment *d = deployment_find(f->core, "d");
    d->model->facts.kv_before = kv_before;
    stages_say(f, d, "ready");
    assert_string_equal(state_of(f), "serving");
    assert_int_equal(d->n_stages, 1);
    assert_int_equal(agent_of(d, 0), 1);
    d->answer_tokens = 1;
    fixture_pass_ms(f, COORD_TICK_MS);
    fixture_ask(f, "node.undrain", "{\"name\": \"a0\"}", NULL);
    return d;
}

static json_t *rebalance(struct fixture *f, const char *arguments, bool *more)
{
    const struct message_answer *a = fixture_ask(f, "rebalance", arguments, NULL);
    for (int i = 0; !a && i < 10; i++) {
        fixture_pass_ms(f, COORD_TICK_MS);
        const struct message *m = fixture_last(f, ADMIN, MESSAGE_ANSWER);
        a = m ? &m->u.answer : NULL;
    }
    assert_non_null(a);
    if (more)
        *more = a->more;
    if (strcmp(a->code, "ok") != 0)
        return json_pack("{s:s, s:s}", "code", a->code, "text", a->text);
    return json_loads(a->result, 0, NULL);
}

static const char *word(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

TEST(a_dry_run_says_what_a_move_gains_and_costs_and_changes_nothing)
{
    struct fixture f;
    struct deployment *d = misplaced(&f, "{\"max_context\": 128}", 1e9);
    uint64_t kv = d->kv_tokens;
    json_t *r = rebalance(&f, "{\"name\": \"d\", \"dry_run\": true}", NULL);
    assert_string_equal(word(r, "verdict"), "would_move");
    const json_t *move = json_object_get(r, "move"),
                 *agent = json_array_get(json_object_get(move, "agents"), 0);
    assert_string_equal(word(agent, "on"), "a0");
    assert_true(json_number_value(json_object_get(agent, "fetch_bytes")) == 3000);
    assert_true(json_number_value(json_object_get(move, "fetch_bytes")) == 3000);
    const json_t *before = json_object_get(r, "before"), *after = json_object_get(r, "after");
    assert_true(json_number_value(json_object_get(before, "ttft_s")) > 0);
    assert_true(json_number_value(json_object_get(after, "requests_per_s")) > 0);
    assert_true(json_number_value(json_object_get(r, "gain")) > REBALANCE_MARGIN);
    json_decref(r);
    fixture_pass_ms(&f, 1000);
    assert_null(successor_of(f.core, d));
    assert_null(d->rebalance);
    assert_null(d->rebalanced);
    assert_false(d->beside);
    assert_int_equal(d->kv_tokens, kv);
    fixture_close(&f);
}

/* A long answer would cross the link between both for each token. */
TEST(what_is_sooner_done_on_fewer_devices_does_not_go_to_more)
{
    struct fixture f;
    struct deployment *d = misplaced(&f, "{\"max_context\": 128}", 1e9);
    d->answer_tokens = 100;
    json_t *r = rebalance(&f, "{\"name\": \"d\", \"dry_run\": true}", NULL);
    assert_string_equal(word(r, "verdict"), "stays");
    assert_int_equal(json_array_size(json_object_get(json_object_get(r, "after"), "stages")), 1);
    json_decref(r);
    fixture_close(&f);
}

TEST(below_the_margin_all_stays_with_the_reason)
{
    struct fixture f;
    struct deployment *d = misplaced(&f, "{\"max_context\": 128}", 1e9);
    json_t *r = rebalance(&f, "{\"name\": \"d\", \"margin\": 0.5}", NULL);
    assert_string_equal(word(r, "verdict"), "stays");
    assert_non_null(strstr(word(r, "why"), "from 1.5 times on"));
    json_decref(r);
    assert_null(successor_of(f.core, d));
    assert_string_equal(word(d->rebalanced, "verdict"), "stays");
    fixture_close(&f);
}

TEST(the_better_place_is_taken_and_told)
{
    struct fixture f;
    bool more;
    struct deployment *d = misplaced(&f, "{\"max_context\": 128}", 1e9);
    uint64_t context = d->context, kv = d->kv_tokens;
    json_t *r = rebalance(&f, "{\"name\": \"d\", \"margin\": 0}", &more);
    assert_true(more);
    assert_string_equal(word(r, "verdict"), "moving");
    json_decref(r);
    struct deployment *next = successor_of(f.core, d);
    assert_non_null(next);
    fixture_pass_ms(&f, COORD_TICK_MS);
    assert_int_equal(next->n_stages, 2);
    assert_int_equal(agent_of(next, 0) + agent_of(next, 1), 1);
    assert_int_equal(next->context, context);
    assert_int_equal(next->kv_tokens, kv);
    assert_string_equal(state_of(&f), "serving"); /* where it was */
    stages_say(&f, next, "ready");
    fixture_pass_ms(&f, COORD_TICK_MS);
    assert_ptr_equal(deployment_find(f.core, "d"), next);
    stages_say(&f, d, "unloaded");
    fixture_pass_ms(&f, 2 * COORD_TICK_MS);
    const struct message *m = fixture_last(&f, ADMIN, MESSAGE_ANSWER);
    assert_false(m->u.answer.more);
    assert_non_null(strstr(m->u.answer.result, "\"moved\""));
    const struct message_answer *a =
        fixture_ask(&f, "deployment.describe", "{\"name\": \"d\"}", NULL);
    assert_non_null(strstr(a->result, "\"took_s\""));
    r = rebalance(&f, "{\"name\": \"d\", \"margin\": 0}", NULL);
    assert_string_equal(word(r, "verdict"), "stays");
    json_decref(r);
    fixture_close(&f);
}

TEST(a_successor_that_fails_leaves_all_as_it_was)
{
    struct fixture f;
    struct deployment *d = misplaced(&f, "{\"max_context\": 128}", 1e9);
    for (int i = 0; i < 2; i++) { /* it may be tried again */
        json_decref(rebalance(&f, "{\"name\": \"d\", \"margin\": 0}", NULL));
        struct deployment *next = successor_of(f.core, d);
        assert_non_null(next);
        fixture_pass_ms(&f, COORD_TICK_MS);
        assert_string_equal(fixture_ask(&f, "node.drain", "{\"name\": \"a1\"}", NULL)->code,
                            "busy");
        json_t *again = rebalance(&f, "{\"name\": \"d\"}", NULL);
        assert_string_equal(word(again, "code"), "busy");
        json_decref(again);
        stages_say(&f, next, "failed");
        const struct message *m = fixture_last(&f, ADMIN, MESSAGE_ANSWER);
        assert_non_null(strstr(m->u.answer.text, "the disk is full"));
        assert_string_equal(word(d->rebalanced, "verdict"), "failed");
        stages_say(&f, next, "unloaded");
        fixture_pass_ms(&f, 2 * COORD_TICK_MS);
        assert_null(successor_of(f.core, d));
        assert_string_equal(state_of(&f), "serving");
        assert_null(d->rebalance);
        assert_int_equal(agent_of(d, 0), 1);
    }
    fixture_close(&f);
}

TEST(what_cannot_move_is_refused_with_the_reason)
{
    static const struct {
        const char *options, *arguments, *code, *text;
        double memory;
    } cases[] = {
        {"{\"layers\": \"0-5:a1\", \"max_context\": 128}", "{\"name\": \"d\"}", "infeasible",
         "by hand", 1e9},
        {"{\"agents\": \"a1\", \"max_context\": 128}", "{\"name\": \"d\", \"margin\": 0}",
         "infeasible", "beside its stages there is no room", 3e5}, /* 212208 of these are taken */
        {"{\"max_context\": 128}", "{\"name\": \"d\", \"margin\": 101}", "invalid", "out of range",
         1e9},
        {"{\"max_context\": 128}", "{\"name\": \"e\"}", "not_found", "no deployment", 1e9},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        struct deployment *d = misplaced(&f, cases[i].options, cases[i].memory);
        json_t *r = rebalance(&f, cases[i].arguments, NULL);
        assert_string_equal(word(r, "code"), cases[i].code);
        assert_non_null(strstr(word(r, "text"), cases[i].text));
        json_decref(r);
        assert_null(d->rebalance);
        assert_false(d->beside);
        assert_string_equal(state_of(&f), "serving");
        fixture_close(&f);
    }
}

TEST(what_keeps_nothing_that_could_be_handed_over_stays)
{
    struct fixture f;
    struct deployment *d = misplaced(&f, "{\"max_context\": 128}", 1e9);
    d->model->facts.kv_before = NULL;
    json_t *r = rebalance(&f, "{\"name\": \"d\", \"margin\": 0}", NULL);
    assert_string_equal(word(r, "code"), "infeasible");
    json_decref(r);
    fixture_close(&f);
}

TEST(an_undeployed_one_ends_with_its_successor)
{
    struct fixture f;
    struct deployment *d = misplaced(&f, "{\"max_context\": 128}", 1e9);
    json_decref(rebalance(&f, "{\"name\": \"d\", \"margin\": 0}", NULL));
    assert_non_null(successor_of(f.core, d));
    fixture_ask(&f, "undeploy", "{\"name\": \"d\"}", NULL);
    fixture_pass_ms(&f, 2 * DEPLOYMENT_STOP_MS);
    assert_int_equal(f.core->n_deployments, 0);
    fixture_close(&f);
}

/* Both agents are heard meanwhile. */
static void pass_alive(struct fixture *f, const struct deployment *d, uint64_t ms)
{
    for (uint64_t t = 0; t < ms; t += COORD_HEARTBEAT_MS) {
        fixture_pass_ms(f, COORD_HEARTBEAT_MS);
        fixture_beat(f, 10, fixture_key(0));
        beat_with(f, 1, d->id, d->generation, 0, "ready");
    }
}

/* The same with a stage on each. */
static void pass_both_alive(struct fixture *f, const struct deployment *d, uint64_t ms)
{
    for (uint64_t t = 0; t < ms; t += COORD_HEARTBEAT_MS) {
        fixture_pass_ms(f, COORD_HEARTBEAT_MS);
        for (int i = 0; i < 2; i++)
            beat_with(f, i, d->id, d->generation, (uint64_t)i, "ready");
    }
}

TEST(by_itself_it_moves_when_two_plans_say_so_and_all_has_been_still)
{
    struct fixture f;
    struct deployment *d = misplaced(&f, "{\"max_context\": 128, \"rebalance\": \"auto\"}", 1e9);
    d->answer_tokens = 0.1; /* so that it is a quarter faster */
    pass_alive(&f, d, REBALANCE_SETTLE_MS - 1000);
    assert_null(d->rebalanced);
    pass_alive(&f, d, 2000);
    assert_string_equal(word(d->rebalanced, "verdict"), "would_move");
    assert_null(successor_of(f.core, d));
    pass_alive(&f, d, REBALANCE_SETTLE_MS + 1000);
    assert_non_null(successor_of(f.core, d));
    fixture_close(&f);
}

/* Both agents are twice as slow as their kind, and one of them then ten times: that one is left. */
TEST(by_itself_it_leaves_a_device_that_becomes_far_slower_still_within_half_a_minute)
{
    struct fixture f;
    struct deployment *d = misplaced(&f, "{\"max_context\": 128, \"rebalance\": \"auto\"}", 1e9);
    d->answer_tokens = 100;
    for (int i = 0; i < 2; i++)
        pace_change(f.core, d, f.core->members[i], 0, 2.2);
    pass_alive(&f, d, 3 * REBALANCE_SETTLE_MS);
    assert_string_equal(word(d->rebalanced, "verdict"), "stays");
    assert_int_equal(d->watch.due_ns, 0);
    pace_change(f.core, d, d->stages[0].agent, 0, 1.2); /* no more than it was */
    pass_alive(&f, d, COORD_HEARTBEAT_MS);
    assert_int_equal(d->watch.due_ns, 0);
    pace_change(f.core, d, d->stages[0].agent, 0, 4);
    pass_alive(&f, d, 2 * REBALANCE_SETTLE_MS + 2000);
    struct deployment *next = successor_of(f.core, d);
    assert_non_null(next);
    assert_int_equal(agent_of(next, 0), 0);
    fixture_close(&f);
}

TEST(unless_it_was_put_somewhere_by_name_it_leaves_what_has_become_several_times_slower)
{
    static const struct {
        const char *options;
        bool leaves;
    } cases[] = {
        {"{\"max_context\": 128}", true},
        {"{\"max_context\": 128, \"rebalance\": \"degraded\"}", true},
        {"{\"max_context\": 128, \"rebalance\": \"auto\"}", true},
        {"{\"max_context\": 128, \"rebalance\": \"off\"}", false},
        {"{\"max_context\": 128, \"agents\": \"a1\"}", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        struct deployment *d = misplaced(&f, cases[i].options, 1e9);
        d->answer_tokens = 100; /* else over both */
        pass_alive(&f, d, 3 * REBALANCE_SETTLE_MS);
        assert_null(successor_of(f.core, d));
        pace_change(f.core, d, d->stages[0].agent, 0, 10);
        pass_alive(&f, d, REBALANCE_DEGRADED_MS - 500);
        assert_null(successor_of(f.core, d));
        pass_alive(&f, d, 5 * REBALANCE_DEGRADED_MS); /* half a minute in all, at most */
        struct deployment *next = successor_of(f.core, d);
        assert_int_equal(next != NULL, cases[i].leaves);
        if (next)
            assert_int_equal(agent_of(next, 0), 0);
        else
            assert_null(d->rebalanced); /* nor has anybody looked */
        fixture_close(&f);
    }
}

TEST(a_slowness_that_passes_or_is_small_is_not_left)
{
    struct fixture f;
    struct deployment *d = misplaced(&f, "{\"max_context\": 128}", 1e9);
    struct member *m = d->stages[0].agent;
    d->answer_tokens = 100;
    pass_alive(&f, d, COORD_HEARTBEAT_MS);
    pace_change(f.core, d, m, 0, 2.5); /* it is named, no more */
    pass_alive(&f, d, 4 * REBALANCE_DEGRADED_MS);
    assert_null(d->rebalanced);
    pace_change(f.core, d, m, 0, 4);
    pass_alive(&f, d, REBALANCE_DEGRADED_MS + 1000);
    assert_string_equal(word(d->rebalanced, "verdict"), "would_move");
    pace_change(f.core, d, m, 0, 0.1); /* before a second plan has said so */
    pass_alive(&f, d, 20 * REBALANCE_DEGRADED_MS);
    assert_null(successor_of(f.core, d));
    assert_int_equal(d->watch.due_ns, 0);
    fixture_close(&f);
}

/* Who is slow is heard late, too. */
TEST(an_agent_that_is_not_heard_for_a_moment_puts_no_plan_off)
{
    struct fixture f;
    struct deployment *d = misplaced(&f, "{\"max_context\": 128}", 1e9);
    const struct member *m = d->stages[0].agent;
    d->answer_tokens = 100;
    pass_alive(&f, d, COORD_HEARTBEAT_MS);
    pace_change(f.core, d, d->stages[0].agent, 0, 10);
    for (int i = 0; i < 4; i++) {
        int suspect = 0;
        for (int k = 0; k < 20 && !suspect; k++) {
            fixture_pass_ms(&f, COORD_TICK_MS);
            fixture_beat(&f, 10, fixture_key(0));
            suspect += m->state == MEMBER_SUSPECT;
        }
        assert_int_equal(suspect, 1);
        pass_alive(&f, d, 1000);
        assert_true(member_available(m));
    }
    pass_alive(&f, d, REBALANCE_DEGRADED_MS);
    assert_non_null(successor_of(f.core, d));
    fixture_close(&f);
}

TEST(a_plan_that_is_due_while_an_agent_is_heard_late_is_made_right_after)
{
    struct fixture f;
    struct deployment *d = misplaced(&f, "{\"max_context\": 128}", 1e9);
    d->answer_tokens = 100;
    pass_alive(&f, d, COORD_HEARTBEAT_MS);
    pace_change(f.core, d, d->stages[0].agent, 0, 10);
    pass_alive(&f, d, REBALANCE_DEGRADED_MS - 1500);
    for (int k = 0; k < 100 && !d->rebalanced; k++) {
        fixture_pass_ms(&f, COORD_TICK_MS);
        fixture_beat(&f, 10, fixture_key(0));
    }
    assert_string_equal(word(d->rebalanced, "verdict"), "failed");
    assert_non_null(strstr(word(d->rebalanced, "why"), "suspect"));
    pass_alive(&f, d, 2 * REBALANCE_DEGRADED_MS + 1000);
    assert_non_null(successor_of(f.core, d));
    fixture_close(&f);
}

/* Prompts on a busy box make devices slow for a moment, here and there. */
TEST(what_stays_bad_is_left_whatever_comes_and_goes_beside_it)
{
    static const char *const modes[] = {"degraded", "auto"};
    for (size_t i = 0; i < 2; i++) {
        struct fixture f;
        char options[80];
        snprintf(options, sizeof options, "{\"max_context\": 128, \"rebalance\": \"%s\"}",
                 modes[i]);
        struct deployment *d = misplaced(&f, options, 1e9);
        d->answer_tokens = 100;
        pass_alive(&f, d, 3 * REBALANCE_SETTLE_MS);
        pace_change(f.core, d, d->stages[0].agent, 0, 30);
        for (int k = 0; k < 25; k++) {
            pace_change(f.core, d, f.core->members[0], 0, k % 2 ? 0.25 : 4);
            pace_change(f.core, d, d->stages[0].agent, 0, k % 2 ? 3 : 1 / 3.0);
            pass_alive(&f, d, 1000);
        }
        assert_non_null(successor_of(f.core, d));
        fixture_close(&f);
    }
}

TEST(it_stays_where_others_are_no_better_and_looks_again_later)
{
    struct fixture f;
    struct deployment *d = misplaced(&f, "{\"max_context\": 128}", 1e9);
    d->answer_tokens = 100;
    for (int i = 0; i < 2; i++)
        pace_change(f.core, d, f.core->members[i], 0, i ? 10 : 7.5);
    pass_alive(&f, d, 8 * REBALANCE_DEGRADED_MS);
    assert_string_equal(word(d->rebalanced, "verdict"), "stays");
    pace_change(f.core, d, f.core->members[0], 0, 1 / 7.5); /* well again, where nobody looks */
    pass_alive(&f, d, REBALANCE_DEGRADED_MS);
    assert_null(successor_of(f.core, d));
    pass_alive(&f, d, REBALANCE_AGAIN_MS - 6 * REBALANCE_DEGRADED_MS);
    assert_non_null(successor_of(f.core, d));
    fixture_close(&f);
}

/* Else it would plan every minute without end beside an agent that is busy by turns. */
TEST(it_looks_again_later_each_time_also_where_others_were_better_for_a_moment)
{
    struct fixture f;
    struct deployment *d = misplaced(&f, "{\"max_context\": 128}", 1e9);
    d->answer_tokens = 100;
    for (int i = 0; i < 2; i++)
        pace_change(f.core, d, f.core->members[i], 0, i ? 10 : 7.5);
    pass_alive(&f, d, REBALANCE_AGAIN_MS);
    pace_change(f.core, d, f.core->members[0], 0, 1 / 7.5);
    pass_alive(&f, d, 2 * REBALANCE_DEGRADED_MS);
    assert_string_equal(word(d->rebalanced, "verdict"), "would_move");
    pace_change(f.core, d, f.core->members[0], 0, 7.5);
    pass_alive(&f, d, REBALANCE_DEGRADED_MS);
    assert_string_equal(word(d->rebalanced, "verdict"), "stays");
    assert_true(d->watch.due_ns > f.core->now_ns + coord_ms(REBALANCE_AGAIN_MS));
    fixture_close(&f);
}

/* However long it would have waited for. */
TEST(it_looks_again_soon_where_what_is_bad_becomes_worse_while_it_waits)
{
    struct fixture f;
    struct deployment *d = misplaced(&f, "{\"max_context\": 128}", 1e9);
    d->answer_tokens = 100;
    for (int i = 0; i < 2; i++)
        pace_change(f.core, d, f.core->members[i], 0, i ? 10 : 7.5);
    pass_alive(&f, d, 3 * REBALANCE_AGAIN_MS / 2);
    assert_true(d->watch.due_ns > f.core->now_ns + coord_ms(REBALANCE_AGAIN_MS));
    pace_change(f.core, d, d->stages[0].agent, 0, 4);
    pass_alive(&f, d, 3 * REBALANCE_DEGRADED_MS);
    assert_non_null(successor_of(f.core, d));
    fixture_close(&f);
}

TEST(a_device_that_is_slow_by_turns_is_held_off_for_longer_each_time)
{
    struct fixture f;
    struct deployment *d = misplaced(&f, "{\"max_context\": 128}", 1e9);
    uint64_t waits_ms = REBALANCE_DEGRADED_MS;
    d->answer_tokens = 100;
    pass_alive(&f, d, COORD_HEARTBEAT_MS);
    for (int i = 0; i < 6; i++) {
        pace_change(f.core, d, d->stages[0].agent, 0, 10);
        pass_alive(&f, d, COORD_HEARTBEAT_MS);
        assert_int_equal((d->watch.due_ns - d->watch.changed_ns) / 1000000, waits_ms);
        waits_ms *= i < 3 ? 4 : i == 3 ? 2 : 1;
        pace_change(f.core, d, d->stages[0].agent, 0, 0.1);
        pass_alive(&f, d, COORD_HEARTBEAT_MS);
        assert_int_equal(d->watch.due_ns, 0);
    }
    assert_null(d->rebalanced);
    fixture_close(&f);
}

/* a0 tells what it has sent to a1 in all. */
static void losses_tell(struct fixture *f, uint64_t segments, uint64_t lost)
{
    uint8_t key[KEY_BYTES];
    struct message m = {.type = MESSAGE_LOSSES};
    struct message_loss row = {{key, sizeof key}, segments, lost};
    assert_int_equal(key_decode(fixture_key(1), key, NULL), 0);
    m.u.losses.losses = (struct pack_list){&row, 1};
    fixture_say(f, 10, fixture_key(0), &m);
}

/* How many losses are told, each of so many of a hundred packets more. */
static void losses_go_on(struct fixture *f, uint64_t *segments, uint64_t *lost, uint64_t of_100)
{
    for (int i = 0; i < 4; i++)
        losses_tell(f, *segments += 100, *lost += of_100);
}

/* What both agents send each other is lost, and that of one of them is known first. */
TEST(a_path_that_loses_packets_both_ways_is_one_change)
{
    struct fixture f;
    fixture_open(&f);
    for (int a = 0; a < 2; a++)
        fixture_agent(&f, a, "k", 1e9);
    ask_deploy(&f, "{\"max_context\": 128, \"agents\": \"a0,a1\", \"rebalance\": \"degraded\"}");
    struct deployment *d = deployment_find(f.core, "d");
    d->model->facts.kv_before = kv_before;
    stages_say(&f, d, "ready");
    pass_both_alive(&f, d, COORD_HEARTBEAT_MS);
    for (int i = 0; i < 2; i++) {
        links_make(f.core->members[i], f.core->members[!i])->loss = 0.02;
        links_make(f.core->members[i], f.core->members[!i])->lossy_told++;
        pass_both_alive(&f, d, REBALANCE_DEGRADED_MS / 2);
        assert_int_equal(d->watch.changes, 1);
        assert_int_equal((d->watch.due_ns - d->watch.changed_ns) / 1000000, REBALANCE_DEGRADED_MS);
    }
    fixture_close(&f);
}

static bool was_looked_at(struct deployment *d)
{
    bool was = d->rebalanced != NULL;
    json_decref(d->rebalanced);
    d->rebalanced = NULL;
    return was;
}

TEST(a_link_that_loses_more_than_it_was_planned_with_is_planned_with_again)
{
    static const char *const modes[] = {"degraded", "auto"};
    for (size_t i = 0; i < 2; i++) {
        struct fixture f;
        char options[128];
        uint64_t segments = 1000, lost = 0;
        fixture_open(&f);
        for (int a = 0; a < 2; a++)
            fixture_agent(&f, a, "k", 1e9);
        snprintf(options, sizeof options,
                 "{\"max_context\": 128, \"agents\": \"a0,a1\", \"rebalance\": \"%s\"}", modes[i]);
        ask_deploy(&f, options);
        struct deployment *d = deployment_find(f.core, "d");
        d->model->facts.kv_before = kv_before;
        stages_say(&f, d, "ready");
        assert_string_equal(state_of(&f), "serving");
        pass_both_alive(&f, d, 3 * REBALANCE_SETTLE_MS);
        assert_false(was_looked_at(d));
        losses_tell(&f, segments, lost);
        losses_go_on(&f, &segments, &lost, 2);
        pass_both_alive(&f, d, 3 * REBALANCE_SETTLE_MS);
        assert_true(was_looked_at(d));
        losses_go_on(&f, &segments, &lost, 3); /* no more than chance may do */
        pass_both_alive(&f, d, 3 * REBALANCE_SETTLE_MS);
        assert_false(was_looked_at(d));
        losses_go_on(&f, &segments, &lost, 5);
        pass_both_alive(&f, d, 3 * REBALANCE_SETTLE_MS);
        assert_true(was_looked_at(d));
        fixture_close(&f);
    }
}

TEST(unless_asked_for_it_stays_whoever_comes)
{
    static const char *const options[] = {"{\"max_context\": 128}",
                                          "{\"max_context\": 128, \"rebalance\": \"off\"}"};
    for (size_t i = 0; i < 2; i++) {
        struct fixture f;
        struct deployment *d = misplaced(&f, options[i], 1e9);
        pass_alive(&f, d, 3 * REBALANCE_SETTLE_MS);
        assert_null(d->rebalanced);
        assert_int_equal(d->watch.due_ns, 0);
        fixture_close(&f);
    }
}

TEST(an_agent_that_comes_and_goes_is_held_off_for_longer_each_time)
{
    struct fixture f;
    struct deployment *d = misplaced(&f, "{\"max_context\": 128, \"rebalance\": \"auto\"}", 1e9);
    uint64_t waits_ms = REBALANCE_SETTLE_MS;
    pass_alive(&f, d, COORD_HEARTBEAT_MS);
    for (int i = 0; i < 12; i++) {
        fixture_ask(&f, i % 2 ? "node.undrain" : "node.drain", "{\"name\": \"a0\"}", NULL);
        pass_alive(&f, d, 1000);
        uint64_t due_ms = (d->watch.due_ns - d->watch.changed_ns) / 1000000;
        assert_true(due_ms == 2 * waits_ms || due_ms == (uint64_t)REBALANCE_SETTLE_MS
                                                            << REBALANCE_MOST_DOUBLINGS);
        waits_ms = due_ms;
    }
    assert_int_equal(waits_ms, (uint64_t)REBALANCE_SETTLE_MS << REBALANCE_MOST_DOUBLINGS);
    assert_null(d->rebalanced);
    pass_alive(&f, d, REBALANCE_CALM_MS);
    assert_non_null(d->rebalanced);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dry_run_says_what_a_move_gains_and_costs_and_changes_nothing),
        cmocka_unit_test(what_is_sooner_done_on_fewer_devices_does_not_go_to_more),
        cmocka_unit_test(below_the_margin_all_stays_with_the_reason),
        cmocka_unit_test(the_better_place_is_taken_and_told),
        cmocka_unit_test(a_successor_that_fails_leaves_all_as_it_was),
        cmocka_unit_test(what_cannot_move_is_refused_with_the_reason),
        cmocka_unit_test(what_keeps_nothing_that_could_be_handed_over_stays),
        cmocka_unit_test(an_undeployed_one_ends_with_its_successor),
        cmocka_unit_test(by_itself_it_moves_when_two_plans_say_so_and_all_has_been_still),
        cmocka_unit_test(
            by_itself_it_leaves_a_device_that_becomes_far_slower_still_within_half_a_minute),
        cmocka_unit_test(
            unless_it_was_put_somewhere_by_name_it_leaves_what_has_become_several_times_slower),
        cmocka_unit_test(a_slowness_that_passes_or_is_small_is_not_left),
        cmocka_unit_test(an_agent_that_is_not_heard_for_a_moment_puts_no_plan_off),
        cmocka_unit_test(a_plan_that_is_due_while_an_agent_is_heard_late_is_made_right_after),
        cmocka_unit_test(what_stays_bad_is_left_whatever_comes_and_goes_beside_it),
        cmocka_unit_test(it_stays_where_others_are_no_better_and_looks_again_later),
        cmocka_unit_test(it_looks_again_later_each_time_also_where_others_were_better_for_a_moment),
        cmocka_unit_test(it_looks_again_soon_where_what_is_bad_becomes_worse_while_it_waits),
        cmocka_unit_test(a_device_that_is_slow_by_turns_is_held_off_for_longer_each_time),
        cmocka_unit_test(a_path_that_loses_packets_both_ways_is_one_change),
        cmocka_unit_test(a_link_that_loses_more_than_it_was_planned_with_is_planned_with_again),
        cmocka_unit_test(unless_asked_for_it_stays_whoever_comes),
        cmocka_unit_test(an_agent_that_comes_and_goes_is_held_off_for_longer_each_time),
    };
    return cmocka_run_group_tests_name("rebalance", tests, NULL, NULL);
}
