/* What the cluster does when something breaks. Whatever it is: no client ever sees a token that an
 * undisturbed run would not have given, streams end cleanly, the deployment serves again, and
 * nobody keeps anything of a sequence that has ended. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/cluster.h"
#include "tests/test.h"

static void deploy(struct sim *s, const char *agents)
{
    int rc = sim_deploy(s, agents, NULL, 8);
    if (rc < 0)
        fail_msg("%s", s->answer_error.text);
}

static struct sim_client *request(struct sim *s, size_t n, size_t max)
{
    struct err e = {0};
    struct sim_client *c = sim_request(s, n, max, &e);
    if (!c)
        fail_msg("%s", e.text);
    return c;
}

/* A stream that is still going on after so long; prompts whose answer ends earlier by their own are
 * not meant. */
static struct sim_client *stream(struct sim *s, uint64_t after_ms)
{
    for (int i = 0; i < 50; i++) {
        struct sim_client *c = request(s, 100, 60);
        sim_run_ms(s, after_ms);
        if (c->open)
            return c;
    }
    fail_msg("no prompt has a long answer");
    return NULL;
}

static bool second_serves(struct sim *s)
{
    return sim_serves_name(s, "second");
}

static void serves_and_is_clean_of(struct sim *s, const char *name, bool (*serves)(struct sim *s),
                                   uint64_t limit_ms)
{
    struct err e = {0};
    if (!sim_run_until(s, serves, limit_ms))
        fail_msg("seed %llu: %s does not serve again after %llu s", (unsigned long long)s->seed,
                 name, (unsigned long long)limit_ms / 1000);
    struct sim_client *c = sim_request_of(s, name, 60, 20, &e);
    if (!c)
        fail_msg("seed %llu: %s", (unsigned long long)s->seed, e.text);
    if (!sim_run_until(s, sim_quiet, 30000) || !c->finished)
        fail_msg("seed %llu: a request after the faults did not finish: %s",
                 (unsigned long long)s->seed, c->why.text);
    sim_run_ms(s, 1000);
    if (sim_leftovers(s))
        fail_msg("seed %llu: %llu things are left over", (unsigned long long)s->seed,
                 (unsigned long long)sim_leftovers(s));
    if (s->wrong)
        fail_msg("seed %llu: %llu things went wrong", (unsigned long long)s->seed,
                 (unsigned long long)s->wrong);
}

static void serves_and_is_clean(struct sim *s, uint64_t limit_ms)
{
    serves_and_is_clean_of(s, "toy", sim_serves, limit_ms);
}

/* ---- one fault at a time ---- */

static void a_killed_agent_ends_its_streams_cleanly_and_serves_after_its_return(void **state)
{
    (void)state;
    for (int victim = 0; victim < 3; victim++) {
        struct sim s;
        sim_open(&s, 10 + (uint64_t)victim, 3);
        deploy(&s, "a0,a1,a2");
        struct sim_client *c = stream(&s, 25 + (uint64_t)victim * 10);
        sim_agent_kill(&s, victim);
        assert_true(sim_run_until(&s, sim_quiet, 5000));
        assert_true(c->failed);
        sim_run_ms(&s, 4000);
        assert_false(sim_serves(&s));
        sim_agent_start(&s, victim);
        serves_and_is_clean(&s, 5000);
        sim_close(&s);
    }
}

static void the_remaining_agents_take_over_where_the_plan_is_free(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s, 20, 3);
    deploy(&s, NULL);
    assert_int_equal(
        sim_ask_wait(&s, "deployment.describe", json_pack("{s:s}", "name", "toy"), NULL), 0);
    const char *used = json_string_value(
        json_object_get(json_array_get(json_object_get(s.answer, "stages"), 0), "agent"));
    int victim = used[1] - '0';
    /* The weights are with somebody else too, so that nobody has to upload them again. */
    struct buffer manifest = {0};
    toy_manifest("toy", &manifest);
    int other = (victim + 1) % 3, rc;
    char agents[8];
    snprintf(agents, sizeof agents, "a%d", other);
    rc = sim_ask_wait(&s, "deploy",
                      json_pack("{s:s, s:{s:s}}", "name", "second", "options", "agents", agents),
                      &manifest);
    buffer_free(&manifest);
    assert_int_equal(rc, 0);
    sim_agent_kill(&s, victim);
    sim_run_ms(&s, 3000);
    serves_and_is_clean(&s, 2000);
    sim_close(&s);
}

static void a_stopped_agent_is_noticed_within_three_seconds(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s, 30, 3);
    deploy(&s, "a0,a1,a2");
    struct sim_client *c = request(&s, 20, 60);
    sim_run_ms(&s, 20);
    sim_agent_stop(&s, 1);
    uint64_t from = s.clock.now_ns;
    assert_true(sim_run_until(&s, sim_quiet, 5000));
    assert_true(c->failed);
    assert_true(s.clock.now_ns - from <= 3000000000u);
    sim_agent_continue(&s, 1);
    serves_and_is_clean(&s, 5000);
    sim_close(&s);
}

static json_int_t generation_now(struct sim *s)
{
    assert_int_equal(
        sim_ask_wait(s, "deployment.describe", json_pack("{s:s}", "name", "toy"), NULL), 0);
    return json_integer_value(json_object_get(s->answer, "generation"));
}

static void a_stopped_coordinator_takes_nobody_for_dead_and_the_stream_goes_on(void **state)
{
    (void)state;
    static const uint64_t pauses_ms[] = {500, 1500, 3000, 10000, 50000};
    for (size_t i = 0; i < sizeof pauses_ms / sizeof *pauses_ms; i++) {
        struct sim s;
        sim_open(&s, 31 + i, 3);
        deploy(&s, "a0,a1,a2");
        json_int_t generation = generation_now(&s);
        struct sim_client *c = request(&s, 20, 60);
        sim_run_ms(&s, 30);
        size_t before = c->n_got;
        assert_true(before > 0 && c->open);
        sim_coordinator_stop(&s);
        sim_run_ms(&s, pauses_ms[i]);
        assert_int_equal(c->n_got, before);
        sim_coordinator_continue(&s);
        assert_true(sim_run_until(&s, sim_quiet, 5000));
        if (!c->finished)
            fail_msg("a pause of %llu ms: %s", (unsigned long long)pauses_ms[i], c->why.text);
        sim_run_ms(&s, 3000);
        assert_int_equal(generation_now(&s), generation);
        serves_and_is_clean(&s, 100);
        sim_close(&s);
    }
}

/* Stopped and continued again and again: an agent that dies meanwhile is still found, by what the
 * coordinator has seen of it while it ran. */
static void an_agent_that_dies_in_a_pause_is_lost_after_it(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s, 39, 3);
    deploy(&s, "a0,a1,a2");
    struct sim_client *c = request(&s, 20, 60);
    sim_run_ms(&s, 20);
    sim_coordinator_stop(&s);
    sim_agent_stop(&s, 1); /* its connection stays */
    sim_run_ms(&s, 8000);
    sim_coordinator_continue(&s);
    assert_true(sim_run_until(&s, sim_quiet, 3000));
    assert_true(c->failed); /* its neighbours heard nothing of it, or the coordinator did not */
    sim_run_ms(&s, 3000);
    assert_true(generation_now(&s) > 1);
    sim_agent_continue(&s, 1);
    serves_and_is_clean(&s, 10000);
    sim_close(&s);
}

static void a_slow_disk_holds_up_what_is_stored_and_no_token(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s, 38, 3);
    deploy(&s, "a0,a1,a2");
    json_int_t generation = generation_now(&s);
    s.disk_ns = UINT64_C(20000000000);
    uint64_t from = s.clock.now_ns;
    sim_ask(&s, "token.create", json_pack("{s:i}", "ttl_s", 60), NULL);
    uint64_t answered = s.answered;
    for (int i = 0; i < 5; i++) {
        struct sim_client *c = request(&s, 40, 40);
        assert_true(sim_run_until(&s, sim_quiet, 1000));
        assert_true(c->finished);
        assert_int_equal(s.answered, answered);
    }
    sim_run_ms(&s, 25000);
    assert_int_equal(s.answered, answered + 1);
    assert_true(s.clock.now_ns - from > s.disk_ns / 2);
    s.disk_ns = 0;
    assert_int_equal(generation_now(&s), generation);
    serves_and_is_clean(&s, 100);
    sim_close(&s);
}

static void a_restarted_coordinator_finds_its_deployments_without_loading_anything(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s, 40, 3);
    deploy(&s, "a2,a0,a1");
    request(&s, 100, 60);
    sim_run_ms(&s, 30);
    uint64_t loads = s.loads;
    sim_coordinator_kill(&s);
    sim_run_ms(&s, 700);
    sim_coordinator_start(&s);
    assert_int_equal(coord_view(s.core).boot, 2);
    serves_and_is_clean(&s, 3000);
    assert_int_equal(s.loads, loads);
    sim_close(&s);
}

static void a_coordinator_that_is_killed_while_it_prepares_goes_on_after_its_restart(void **state)
{
    (void)state;
    for (uint64_t k = 0; k < 10; k++) {
        struct sim s;
        sim_open(&s, 50 + k, 3);
        struct buffer manifest = {0};
        toy_manifest("toy", &manifest);
        deploy(&s, "a0,a1,a2"); /* the weights are on their agents */
        assert_int_equal(sim_ask_wait(&s, "undeploy", json_pack("{s:s}", "name", "toy"), NULL), 0);
        sim_ask(&s, "deploy",
                json_pack("{s:s, s:{s:s}}", "name", "toy", "options", "agents", "a0,a1,a2"),
                &manifest);
        sim_run_ms(
            &s,
            30 +
                12 *
                    k); /* what is not on the disk by then is forgotten, and was not acknowledged */
        sim_coordinator_kill(&s);
        sim_run_ms(&s, 500);
        sim_coordinator_start(&s);
        buffer_free(&manifest);
        serves_and_is_clean(&s, 20000);
        sim_close(&s);
    }
}

static void a_broken_connection_ends_streams_and_keeps_weights(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s, 60, 3);
    deploy(&s, "a0,a1,a2");
    request(&s, 40, 60);
    sim_run_ms(&s, 20);
    uint64_t loads = s.loads;
    sim_connection_break(&s, 2);
    assert_true(sim_run_until(&s, sim_quiet, 5000));
    serves_and_is_clean(&s, 3000);
    assert_int_equal(s.loads, loads);
    sim_close(&s);
}

static void broken_data_links_end_streams_and_are_made_anew(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s, 65, 3);
    deploy(&s, "a0,a1,a2");
    for (int agent = 0; agent < 3; agent++) {
        request(&s, 60, 60);
        sim_run_ms(&s, 15);
        sim_links_break(&s, agent);
        assert_true(sim_run_until(&s, sim_quiet, 12000));
        assert_true(sim_serves(&s));
    }
    serves_and_is_clean(&s, 1000);
    sim_close(&s);
}

/* A frame vanishes and nobody is told: of the prompt, of a step, of the last stage's tokens. */
static void a_frame_that_is_lost_ends_its_request_and_no_other(void **state)
{
    (void)state;
    for (int from = 0; from < 3; from++)
        for (int late = 0; late < 2; late++) {
            struct sim s;
            sim_open(&s, 70 + (uint64_t)(2 * from + late), 3);
            deploy(&s, "a0,a1,a2");
            struct sim_client *c = request(&s, late ? 8 : 40, 60);
            sim_run_ms(&s, late ? 30 : 0);
            s.network.lose_from = 1 + from;
            if (!sim_run_until(&s, sim_quiet, 60000))
                fail_msg("seed %llu: a request waits for ever", (unsigned long long)s.seed);
            assert_true(c->failed);
            assert_int_equal(s.network.lose_from, 0);
            char hop[120];
            snprintf(hop, sizeof hop, "lost on the way from stage %d of 3 ", from + 1);
            if (!strstr(c->why.text, hop))
                fail_msg("seed %llu: %s", (unsigned long long)s.seed, c->why.text);
            serves_and_is_clean(&s, 100);
            sim_close(&s);
        }
}

static void a_stage_that_hangs_is_named(void **state)
{
    (void)state;
    for (int victim = 0; victim < 3; victim++) {
        struct sim s;
        char name[8];
        sim_open(&s, 80 + (uint64_t)victim, 3);
        deploy(&s, "a0,a1,a2");
        struct sim_client *c = request(&s, 20, 60);
        sim_run_ms(&s, 40);
        assert_true(c->open);
        sim_executor_hang(&s, victim, true);
        assert_true(sim_run_until(&s, sim_quiet, 60000));
        assert_true(c->failed);
        snprintf(name, sizeof name, "a%d", victim);
        if (!strstr(c->why.text, name))
            fail_msg("a%d hangs, and the request is told: %s", victim, c->why.text);
        sim_close(&s);
    }
}

static void weights_that_nobody_has_are_asked_of_whoever_deploys_again(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s, 70, 3);
    deploy(&s, "a0,a1,a2");
    sim_agent_kill(&s, 1);
    sim_run_ms(&s, 3000);
    sim_agent_forget_weights(&s, 1);
    sim_agent_start(&s, 1);
    sim_run_ms(&s, 3000);
    assert_false(sim_serves(&s));
    assert_int_equal(
        sim_ask_wait(&s, "deployment.describe", json_pack("{s:s}", "name", "toy"), NULL), 0);
    assert_non_null(
        strstr(json_string_value(json_object_get(s.answer, "text")), "no agent has all weights"));
    deploy(&s, "a0,a1,a2");
    serves_and_is_clean(&s, 1000);
    sim_close(&s);
}

static void an_hpctl_that_is_interrupted_while_it_uploads_can_be_run_again(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s, 75, 3);
    struct buffer manifest = {0};
    toy_manifest("toy", &manifest);
    s.uploader = false;
    sim_ask(&s, "deploy",
            json_pack("{s:s, s:{s:s}}", "name", "toy", "options", "agents", "a0,a1,a2"), &manifest);
    sim_run_ms(&s, 500);
    s.admin_gone = true;
    sim_run_ms(&s, 20000); /* until something was to be said to it */
    s.admin_gone = false;
    assert_int_equal(
        sim_ask_wait(&s, "deployment.describe", json_pack("{s:s}", "name", "toy"), NULL), 0);
    assert_string_equal(json_string_value(json_object_get(s.answer, "state")), "broken");
    s.uploader = true;
    deploy(&s, "a0,a1,a2");
    serves_and_is_clean(&s, 1000);
    buffer_free(&manifest);
    sim_close(&s);
}

static void old_keys_and_replayed_tokens_open_nothing(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s, 80, 2);
    struct message join = {.type = MESSAGE_JOIN, .id = 9};
    join.u.join.name = "thief";
    join.u.join.token = s.token; /* used already, by a1 */
    join.u.join.node = "{\"name\": \"n\", \"devices\": [{\"name\": \"cpu\", \"kind\": \"toy\", "
                       "\"memory_bytes\": 1}]}";
    join.u.join.program = join.u.join.machine = join.u.join.hostname = "";
    struct buffer bytes = {0};
    message_encode(&join, &bytes);
    uint64_t refused = coord_view(s.core).refused;
    coord_message(s.core, 77, "another-key-of-forty-characters-01234567", bytes.data, bytes.size);
    assert_int_equal(coord_view(s.core).refused, refused + 1);
    assert_int_equal(coord_view(s.core).members, 2);
    struct message ask = {.type = MESSAGE_ASK, .id = 9};
    ask.u.ask.verb = "token.create";
    ask.u.ask.arguments = "{}";
    bytes.size = 0;
    message_encode(&ask, &bytes);
    coord_message(s.core, 77, "another-key-of-forty-characters-01234567", bytes.data, bytes.size);
    assert_int_equal(coord_view(s.core).refused, refused + 2);
    buffer_free(&bytes);
    sim_close(&s);
}

/* ---- many at random ---- */

struct plague {
    uint64_t start_ns[SIM_AGENTS], continue_ns[SIM_AGENTS],
        coordinator_ns; /* when what is down comes back; 0: it is up */
};

static void strike(struct sim *s, struct plague *p)
{
    uint64_t now = s->clock.now_ns, later = now + (100 + sim_random(s, 6000)) * 1000000;
    int agent = (int)sim_random(s, (uint64_t)s->n_agents);
    struct err e;
    switch (sim_random(s, 14)) {
    case 0:
        sim_agent_kill(s, agent);
        p->start_ns[agent] = later;
        p->continue_ns[agent] = 0;
        break;
    case 1:
        sim_agent_stop(s, agent);
        p->continue_ns[agent] = later;
        break;
    case 2: sim_connection_break(s, agent); break;
    case 3:
        if (sim_random(s, 2) == 0) {
            sim_coordinator_kill(s);
            p->coordinator_ns = later;
        }
        break;
    case 4:
        if (s->n_clients)
            sim_cancel(s, &s->clients[sim_random(s, (uint64_t)s->n_clients)]);
        break;
    case 5: sim_links_break(s, agent); break;
    case 6:
        if (s->core && sim_random(s, 2))
            sim_ask(s, "undeploy", json_pack("{s:s}", "name", "second"), NULL);
        else if (s->core)
            sim_deploy_as(s, "second", NULL);
        break;
    default: /* refused where nothing serves */
        sim_request_of(s, sim_random(s, 3) ? "toy" : "second", 1 + sim_random(s, TOY_CONTEXT - 70),
                       1 + sim_random(s, 60), &e);
        break;
    }
}

static void heal(struct sim *s, struct plague *p, uint64_t now)
{
    for (int i = 0; i < s->n_agents; i++) {
        if (p->start_ns[i] && p->start_ns[i] <= now) {
            sim_agent_start(s, i);
            p->start_ns[i] = 0;
        }
        if (p->continue_ns[i] && p->continue_ns[i] <= now) {
            sim_agent_continue(s, i);
            p->continue_ns[i] = 0;
        }
    }
    if (p->coordinator_ns && p->coordinator_ns <= now) {
        sim_coordinator_start(s);
        p->coordinator_ns = 0;
    }
}

struct toll {
    unsigned finished, failed, cancelled, lost, generations;
};

static void count(struct sim *s, struct toll *t)
{
    for (int i = 0; i < s->n_clients; i++) {
        t->finished += s->clients[i].finished;
        t->failed += s->clients[i].failed;
        t->cancelled += s->clients[i].cancelled;
        t->lost += s->clients[i].lost;
    }
    sim_ask(s, "deployment.describe", json_pack("{s:s}", "name", "toy"), NULL);
    t->generations += (unsigned)json_integer_value(json_object_get(s->answer, "generation"));
}

static void one_run(uint64_t seed, struct toll *toll)
{
    static const char *const agents[] = {NULL, "a0,a1,a2", "a2,a0", "a1"};
    struct sim s;
    struct plague p = {0};
    sim_open(&s, seed, 3);
    s.network.slow_ns = 1000000 * (1 + sim_random(&s, 20));
    s.network.repeat = 0.02;
    deploy(&s, agents[sim_random(&s, 4)]);
    uint64_t end = s.clock.now_ns + 15000000000u;
    while (s.clock.now_ns < end) {
        sim_run_ms(&s, 1 + sim_random(&s, sim_random(&s, 4) ? 60 : 1500));
        heal(&s, &p, s.clock.now_ns);
        if (s.n_clients < SIM_CLIENTS - 2)
            strike(&s, &p);
    }
    heal(&s, &p, UINT64_MAX);
    sim_run_ms(&s, 4000); /* until what was down a moment ago has been noticed */
    if (!sim_run_until(&s, sim_quiet, 70000))
        fail_msg("seed %llu: a stream never ended", (unsigned long long)seed);
    serves_and_is_clean(&s, 60000);
    sim_deploy_as(&s, "second", NULL);
    serves_and_is_clean_of(&s, "second", second_serves, 60000);
    count(&s, toll);
    sim_close(&s);
}

static void tokens_are_those_of_an_undisturbed_run_whatever_breaks(void **state)
{
    (void)state;
    const char *one = getenv("HP_SEED"), *runs = getenv("HP_RUNS"), *from = getenv("HP_FIRST_SEED");
    uint64_t first = one    ? strtoull(one, NULL, 10)
                     : from ? strtoull(from, NULL, 10)
                            : 1000,
             n = one    ? 1
                 : runs ? strtoull(runs, NULL, 10)
                        : 200;
    struct toll t = {0};
    for (uint64_t seed = first; seed < first + n; seed++)
        one_run(seed, &t);
    printf("# seeds %llu to %llu (HP_SEED=N replays one, HP_RUNS=N makes more): %u streams "
           "finished, %u failed cleanly, %u were cancelled, %u died with their "
           "coordinator; %u generations\n",
           (unsigned long long)first, (unsigned long long)(first + n - 1), t.finished, t.failed,
           t.cancelled, t.lost, t.generations);
    assert_true(n < 100 ||
                (t.finished > 5 * n && t.failed > n && t.cancelled > n / 4 && t.lost > n / 4));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_agent_ends_its_streams_cleanly_and_serves_after_its_return),
        cmocka_unit_test(the_remaining_agents_take_over_where_the_plan_is_free),
        cmocka_unit_test(a_stopped_agent_is_noticed_within_three_seconds),
        cmocka_unit_test(a_stopped_coordinator_takes_nobody_for_dead_and_the_stream_goes_on),
        cmocka_unit_test(a_slow_disk_holds_up_what_is_stored_and_no_token),
        cmocka_unit_test(an_agent_that_dies_in_a_pause_is_lost_after_it),
        cmocka_unit_test(a_restarted_coordinator_finds_its_deployments_without_loading_anything),
        cmocka_unit_test(a_coordinator_that_is_killed_while_it_prepares_goes_on_after_its_restart),
        cmocka_unit_test(a_broken_connection_ends_streams_and_keeps_weights),
        cmocka_unit_test(broken_data_links_end_streams_and_are_made_anew),
        cmocka_unit_test(a_frame_that_is_lost_ends_its_request_and_no_other),
        cmocka_unit_test(a_stage_that_hangs_is_named),
        cmocka_unit_test(weights_that_nobody_has_are_asked_of_whoever_deploys_again),
        cmocka_unit_test(an_hpctl_that_is_interrupted_while_it_uploads_can_be_run_again),
        cmocka_unit_test(old_keys_and_replayed_tokens_open_nothing),
        cmocka_unit_test(tokens_are_those_of_an_undisturbed_run_whatever_breaks),
    };
    return cmocka_run_group_tests_name("failures", tests, NULL, NULL);
}
