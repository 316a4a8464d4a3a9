/* Copies of what long sequences have, kept by another deployment, under virtual time: a sequence
 * whose agent is lost goes on from its copy, and whatever breaks while one is made or fetched, each
 * request has the tokens of an undisturbed run. */
#include <stdio.h>
#include <string.h>

#include "coordinator/deployment.h"
#include "coordinator/member.h"
#include "coordinator/model_slots.h"
#include "coordinator/prefixes.h"
#include "tests/sim/failures.h"

static bool both_serve(struct sim *s)
{
    return sim_serves(s) && sim_serves_name(s, "second");
}

static uint64_t copies_figure(struct sim *s, const char *name)
{
    return sim_described(s, "replicas", name);
}

static bool one_is_copied(struct sim *s)
{
    const struct deployment *d = deployment_find(s->core, "toy");
    return d && d->replicas.copied > 0;
}

/* "toy" on a0 and a1, whose long sequences are copied to "second" on the others. */
static void begin(struct sim *s, uint64_t seed, const char *keepers, uint64_t from_tokens)
{
    sim_open(s, seed, 4);
    s->replicate_kv = from_tokens;
    s->as_profiled = true;
    deploy(s, "a0,a1");
    sim_deploy_as(s, "second", keepers);
    assert_true(sim_run_until(s, both_serve, 30000));
    sim_run_ms(s, 60000); /* meanwhile links are measured */
}

/* Positions that stages computed for a stream whose agent was lost, from then on. */
static uint64_t computed_after_loss(uint64_t seed, uint64_t from_tokens, uint64_t *used)
{
    struct sim s;
    begin(&s, seed, "a2,a3", from_tokens);
    struct sim_client *c = stream(&s, 20);
    if (from_tokens)
        assert_true(sim_run_until(&s, one_is_copied, 30000));
    assert_true(c->open);
    uint64_t before = s.computed;
    sim_agent_kill(&s, 1);
    sim_run_ms(&s, 100);
    sim_agent_start(&s, 1);
    all_finished(&s, 60000);
    *used = from_tokens ? copies_figure(&s, "used") : 0;
    uint64_t computed = s.computed - before;
    serves_and_is_clean(&s, 1000);
    sim_close(&s);
    return computed;
}

TEST(a_lost_sequence_goes_on_from_its_copy_instead_of_computing_anew)
{
    for (uint64_t seed = 0; seed < 6; seed++) {
        uint64_t used, none, with = computed_after_loss(900 + seed, 64, &used),
                             without = computed_after_loss(900 + seed, 0, &none);
        assert_int_equal(used, 1);
        assert_true(with + 100 < without); /* a prompt of 100 on two stages, less what was said */
    }
}

TEST(a_copy_goes_when_its_sequence_ends_and_short_ones_have_none)
{
    struct sim s;
    begin(&s, 920, "a2,a3", 90);
    const struct deployment *keeper = deployment_find(s.core, "second");
    request(&s, 20, 30);
    all_finished(&s, 30000);
    assert_int_equal(copies_figure(&s, "copied"), 0);
    struct sim_client *c = stream(&s, 5);
    assert_true(sim_run_until(&s, one_is_copied, 30000));
    assert_true(c->open);
    assert_int_equal(prefixes_kept(keeper), 1);
    assert_int_equal(copies_figure(&s, "sequences"), 1);
    all_finished(&s, 30000);
    sim_run_ms(&s, 100);
    assert_int_equal(prefixes_kept(keeper), 0);
    serves_and_is_clean(&s, 1000);
    sim_close(&s);
}

TEST(a_keeper_that_hangs_or_is_lost_costs_nobody_anything)
{
    for (int lost = 0; lost < 2; lost++) {
        struct sim s;
        begin(&s, 930 + (uint64_t)lost, "a3", 64);
        if (!lost)
            sim_executor_hang(&s, 3, true);
        struct sim_client *c = stream(&s, 10);
        if (lost)
            sim_agent_kill(&s, 3);
        uint64_t from_ns = s.clock.now_ns;
        all_finished(&s, 30000);
        assert_true(s.clock.now_ns - from_ns < UINT64_C(5000000000));
        assert_true(c->finished);
        sim_executor_hang(&s, 3, false);
        if (lost)
            sim_agent_start(&s, 3);
        assert_true(sim_run_until(&s, both_serve, 60000));
        sim_run_ms(&s, 30000);
        is_clean_of(&s, "toy", 1000);
        is_clean_of(&s, "second", 1000);
        sim_close(&s);
    }
}

/* Keys of a sequence that may become long are rotated otherwise, and are none of a short one's. */
TEST(what_is_rotated_as_a_long_sequence_is_not_copied_while_it_is_short)
{
    struct sim s;
    begin(&s, 925, "a2,a3", 64);
    struct deployment *d = deployment_find(s.core, "toy");
    d->model->facts.long_from = 130;
    struct sim_client *c = stream(&s, 20);
    assert_true(sim_run_until(&s, one_is_copied, 30000));
    assert_true(c->open && d->replicas.tokens > 130);
    all_finished(&s, 30000);
    sim_close(&s);
}

/* ---- a keeper without weights ---- */

static bool keeper_serves(struct sim *s)
{
    const struct deployment *k = s->core ? deployment_find(s->core, "toy/copy") : NULL;
    return k && k->state == DEPLOYMENT_SERVING;
}

/* "toy" on a0 and a1, and nowhere else; its copies go to whom `to` names. */
static void begin_kept(struct sim *s, uint64_t seed, const char *to)
{
    sim_open(s, seed, 4);
    s->replicate_kv = 64;
    s->replicate_to = to;
    s->as_profiled = true;
    deploy(s, "a0,a1");
    assert_true(sim_run_until(s, sim_serves, 30000));
    assert_true(sim_run_until(s, keeper_serves, 30000));
    sim_run_ms(s, 60000); /* meanwhile links are measured */
}

static bool keeper_is_gone(struct sim *s)
{
    return !keeper_serves(s);
}

static const char *keeper_agent(struct sim *s)
{
    return deployment_find(s->core, "toy/copy")->stages[0].agent->name;
}

TEST(an_agent_without_weights_keeps_copies_and_lost_sequences_go_on_from_there)
{
    for (uint64_t seed = 0; seed < 6; seed++) {
        struct sim s;
        begin_kept(&s, 1000 + seed, seed % 2 ? "auto" : "a3");
        assert_true(seed % 2 ? keeper_agent(&s)[1] >= '2' : keeper_agent(&s)[1] == '3');
        struct sim_client *c = stream(&s, 20);
        assert_true(sim_run_until(&s, one_is_copied, 30000));
        assert_true(c->open);
        uint64_t before = s.computed;
        sim_agent_kill(&s, 1);
        sim_run_ms(&s, 100);
        sim_agent_start(&s, 1);
        all_finished(&s, 60000);
        assert_int_equal(copies_figure(&s, "used"), 1);
        uint64_t used, without = computed_after_loss(1000 + seed, 0, &used);
        assert_true(s.computed - before + 100 < without);
        serves_and_is_clean(&s, 1000);
        sim_run_ms(&s, 100);
        assert_int_equal(prefixes_kept(deployment_find(s.core, "toy/copy")), 0);
        sim_close(&s);
    }
}

TEST(a_keeper_that_dies_is_found_another_place_and_ends_with_what_it_keeps_for)
{
    struct sim s;
    begin_kept(&s, 1010, "auto");
    int first = keeper_agent(&s)[1] - '0';
    sim_agent_kill(&s, first);
    assert_true(sim_run_until(&s, keeper_is_gone, 30000));
    assert_true(sim_run_until(&s, keeper_serves, 60000));
    assert_int_not_equal(keeper_agent(&s)[1] - '0', first);
    request(&s, 80, 30);
    all_finished(&s, 30000);
    assert_true(copies_figure(&s, "copied") + copies_figure(&s, "failed") < 3);
    assert_int_equal(sim_ask_wait(&s, "undeploy", json_pack("{s:s}", "name", "toy/copy"), NULL),
                     HP_EINVAL);
    assert_int_equal(sim_ask_wait(&s, "undeploy", json_pack("{s:s}", "name", "toy"), NULL), 0);
    sim_run_ms(&s, 10000);
    assert_null(deployment_find(s.core, "toy/copy"));
    sim_close(&s);
}

/* Lost for the third time in a row: it is held off. */
static const struct member *come_and_go(struct sim *s, int agent)
{
    char name[] = {'a', (char)('0' + agent), 0};
    for (int i = 0; i < 3; i++) {
        sim_agent_kill(s, agent);
        sim_run_ms(s, 5000);
        sim_agent_start(s, agent);
        sim_run_ms(s, 3000);
    }
    assert_true(coord_now(s->core) < member_find(s->core, name)->held_off_until_ns);
    return member_find(s->core, name);
}

TEST(an_agent_that_comes_and_goes_keeps_copies_where_no_other_can)
{
    struct sim s;
    begin_kept(&s, 1072, "a3");
    const struct member *named = come_and_go(&s, 3);
    assert_true(keeper_serves(&s));
    struct sim_client *c = stream(&s, 20);
    assert_true(sim_run_until(&s, one_is_copied, 10000));
    assert_true(c->open && coord_now(s.core) < named->held_off_until_ns);
    all_finished(&s, 30000);
    serves_and_is_clean(&s, 1000);
    sim_close(&s);
}

TEST(copies_go_beside_a_stage_before_they_go_to_an_agent_that_comes_and_goes)
{
    struct sim s;
    begin_kept(&s, 1073, "auto");
    int first = keeper_agent(&s)[1] - '0', second = 5 - first;
    const struct member *flaps = come_and_go(&s, first);
    assert_int_equal(keeper_agent(&s)[1] - '0', second);
    sim_agent_kill(&s, second);
    assert_true(sim_run_until(&s, keeper_is_gone, 10000));
    assert_true(sim_run_until(&s, keeper_serves, 10000));
    assert_true(coord_now(s.core) < flaps->held_off_until_ns && keeper_agent(&s)[1] <= '1');
    serves_and_is_clean(&s, 1000);
    sim_close(&s);
}

/* The same, with a keeper on the agents of the stages, as nobody else is there. */
static void begin_crowded(struct sim *s, uint64_t seed)
{
    sim_open(s, seed, 4);
    sim_agent_kill(s, 2);
    sim_agent_kill(s, 3);
    s->replicate_kv = 64;
    s->replicate_to = "auto";
    s->as_profiled = true;
    deploy(s, "a0,a1");
    assert_true(sim_run_until(s, keeper_serves, 30000));
    assert_true(keeper_agent(s)[1] <= '1');
}

static bool keeper_is_apart(struct sim *s)
{
    return keeper_serves(s) && keeper_agent(s)[1] >= '2';
}

TEST(a_keeper_beside_a_stage_goes_to_an_agent_that_comes_even_under_load)
{
    for (int busy = 0; busy < 2; busy++) {
        struct sim s;
        begin_crowded(&s, 1060 + (uint64_t)busy);
        sim_run_ms(&s, 10000);
        assert_true(!keeper_is_apart(&s));
        struct sim_client *c = busy ? stream(&s, 20) : NULL;
        sim_agent_start(&s, 2);
        sim_run_ms(&s, 1000);
        assert_true(keeper_serves(&s) && !keeper_is_apart(&s)); /* it may be gone in a moment */
        for (int i = 0; c && i < 40; i++) {
            c = c->open ? c : request(&s, 100, 60);
            sim_run_ms(&s, 500);
        }
        assert_true(sim_run_until(&s, keeper_is_apart, 20000));
        uint64_t id = deployment_find(s.core, "toy/copy")->id;
        all_finished(&s, 30000);
        sim_agent_start(&s, 3); /* no better than where it is */
        sim_run_ms(&s, 60000);
        assert_int_equal(deployment_find(s.core, "toy/copy")->id, id);
        serves_and_is_clean(&s, 1000);
        sim_close(&s);
    }
}

static void memory_set(struct sim *s, const char *agent, double bytes)
{
    member_find(s->core, agent)->node->cluster.devices[0].memory_bytes = bytes;
}

/* The keeper, which serves, is no better off than that, and keeps what it is sent. */
static void copies_are_kept_beside_a_stage(struct sim *s)
{
    assert_true(!keeper_is_apart(s));
    stream(s, 20);
    assert_true(sim_run_until(s, one_is_copied, 30000));
    all_finished(s, 30000);
    serves_and_is_clean(s, 1000);
}

TEST(a_keeper_is_made_where_there_is_room_even_beside_a_stage)
{
    struct sim s;
    sim_open(&s, 1065, 4);
    s.replicate_kv = 64;
    s.replicate_to = "auto";
    s.as_profiled = true;
    sim_run_ms(&s, 2000);
    memory_set(&s, "a2", 100);
    memory_set(&s, "a3", 100);
    deploy(&s, "a0,a1");
    assert_true(sim_run_until(&s, keeper_serves, 30000));
    copies_are_kept_beside_a_stage(&s);
    sim_close(&s);
}

static bool second_waits_for_room(struct sim *s)
{
    const struct deployment *d = deployment_find(s->core, "second");
    return d && d->state == DEPLOYMENT_BROKEN;
}

/* Plans do not know of it: its first stage fails, and not the one that asked for it. That is no
 * failure of the plan, after which it would be made over links and agents that it avoids. */
TEST(a_stage_that_finds_no_memory_beside_copies_gets_theirs_and_other_keepers_stay)
{
    struct sim s;
    begin_kept(&s, 1066, "auto");
    int first = keeper_agent(&s)[1] - '0', other = 5 - first;
    struct deployment *k = deployment_find(s.core, "toy/copy");
    uint64_t id = k->id;
    s.full = 1u << other;
    char name[] = {'a', (char)('0' + other), 0};
    uint64_t answered = s.answered;
    sim_deploy_as(&s, "second", name);
    sim_run_ms(&s, 10000);
    assert_true(s.answered == answered + 1 && s.answer_error.code == HP_ENOMEM);
    assert_int_equal(deployment_find(s.core, "toy/copy")->id, id); /* it keeps elsewhere */
    s.tight = 1u << first;
    name[1] = (char)('0' + first);
    sim_deploy_as(&s, "second", name);
    assert_true(sim_run_until(&s, second_waits_for_room, 30000));
    assert_int_equal(deployment_find(s.core, "second")->failures, 0);
    assert_true(sim_run_until(&s, both_serve, 30000));
    assert_null(deployment_of_id(s.core, id));
    serves_and_is_clean(&s, 1000);
    sim_close(&s);
}

TEST(copies_go_where_they_can_be_made_however_many_agents_cannot)
{
    struct sim s;
    sim_open(&s, 1070, 4);
    s.replicate_kv = 64;
    s.replicate_to = "auto";
    s.as_profiled = true;
    s.bare = 1u << 2 | 1u << 3; /* both have no stage, and would be better */
    deploy(&s, "a0,a1");
    assert_true(sim_run_until(&s, keeper_serves, 60000));
    copies_are_kept_beside_a_stage(&s);
    sim_close(&s);
}

static bool has_moved(struct sim *s)
{
    const struct deployment *last = deployment_find(s->core, "toy/last");
    return last && last->heir;
}

TEST(a_copy_that_is_made_while_its_deployment_moves_is_counted_where_it_went)
{
    uint64_t copied = 0;
    for (uint64_t seed = 0; seed < 8; seed++) {
        struct sim s;
        sim_open(&s, 1080 + seed, 4);
        s.replicate_kv = 64;
        s.replicate_to = "a3";
        s.as_profiled = true;
        s.network.slow_ns = UINT64_C(200000000); /* a copy is under way for longer than that */
        for (int i = 0; i < 4; i++)
            sim_agent_have_weights(&s, i);
        deploy(&s, NULL);
        assert_true(sim_run_until(&s, keeper_serves, 30000));
        for (int i = 0; i < 3; i++)
            request(&s, 80, 60);
        const struct deployment *d = deployment_find(s.core, "toy");
        sim_drain(&s, d->stages[0].agent->name[1] - '0', false);
        assert_true(sim_run_until(&s, has_moved, 30000));
        all_finished(&s, 60000);
        sim_run_ms(&s, 60000);
        copied += copies_figure(&s, "copied");
        assert_int_equal(copies_figure(&s, "failed"), 0);
        sim_close(&s);
    }
    assert_true(copied > 0);
}

static bool keeper_prepares(struct sim *s)
{
    const struct deployment *k = deployment_find(s->core, "toy/copy");
    return k && k->state == DEPLOYMENT_PREPARING;
}

TEST(a_keeper_on_its_way_is_not_called_back_to_where_its_copies_were)
{
    struct sim s;
    begin_kept(&s, 1071, "auto");
    int first = keeper_agent(&s)[1] - '0';
    for (int i = 0; i < 4; i++)
        sim_executor_hang(&s, i, i != first);
    sim_agent_kill(&s, first);
    assert_true(sim_run_until(&s, keeper_prepares, 30000));
    uint64_t generation = deployment_find(s.core, "toy/copy")->generation;
    sim_agent_start(&s, first);
    sim_run_ms(&s, 1000);
    for (int i = 0; i < 4; i++)
        sim_executor_hang(&s, i, false);
    assert_true(sim_run_until(&s, keeper_serves, 30000));
    assert_int_equal(deployment_find(s.core, "toy/copy")->generation, generation);
    sim_close(&s);
}

TEST(what_keeps_copies_is_asked_for_nothing_else)
{
    static const char *const verbs[] = {"logits", "greedy", "prefill"};
    struct sim s;
    begin_kept(&s, 1067, "a3");
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        json_t *q =
            json_pack("{s:s, s:[i,i], s:i}", "deployment", "toy/copy", "ids", 3, 4, "tokens", 1);
        assert_int_equal(sim_ask_wait(&s, verbs[i], q, NULL), HP_EINVAL);
        assert_non_null(strstr(s.answer_error.text, "computes nothing"));
    }
    sim_close(&s);
}

TEST(a_name_that_leaves_its_keeper_none_is_refused)
{
    static const char name[] = "a234567890b234567890c234567890d234567890e234567890f23456789";
    struct sim s;
    sim_open(&s, 1069, 4);
    sim_run_ms(&s, 2000);
    for (int longer = 0; longer < 2; longer++) {
        json_t *options = json_pack("{s:i, s:s}", "replicate_kv", 64, "replicate_to", "auto");
        assert_int_equal(sim_deploy_with(&s, name + 1 - longer, options), longer ? HP_EINVAL : 0);
    }
    assert_non_null(strstr(s.answer_error.text, "at most 58 characters"));
    sim_close(&s);
}

TEST(a_model_with_windows_has_no_keeper_that_could_keep_nothing)
{
    struct sim s;
    sim_open(&s, 1068, 4);
    s.window = 16;
    s.replicate_kv = 64;
    s.replicate_to = "auto";
    deploy(&s, "a0,a1");
    sim_run_ms(&s, 20000);
    assert_null(deployment_find(s.core, "toy/copy"));
    sim_close(&s);
}

TEST(a_keeper_keeps_nobody_from_draining_its_agent)
{
    struct sim s;
    begin_kept(&s, 1012, "auto");
    int first = keeper_agent(&s)[1] - '0';
    struct sim_client *c = stream(&s, 20);
    assert_true(sim_run_until(&s, one_is_copied, 30000));
    assert_true(c->open);
    assert_int_equal(
        sim_ask_wait(&s, "node.drain", json_pack("{s:s}", "name", keeper_agent(&s)), NULL), 0);
    all_finished(&s, 30000);
    sim_run_ms(&s, 60000);
    assert_true(keeper_serves(&s));
    assert_int_not_equal(keeper_agent(&s)[1] - '0', first);
    serves_and_is_clean(&s, 1000);
    sim_close(&s);
}

TEST(a_keeper_gives_way_to_a_stage_that_needs_its_room)
{
    struct sim s;
    begin_kept(&s, 1015, "auto");
    int first = keeper_agent(&s)[1] - '0';
    const struct deployment_stage *kept = &deployment_find(s.core, "toy/copy")->stages[0];
    uint64_t id = deployment_find(s.core, "toy/copy")->id;
    kept->agent->node->cluster.devices[0].memory_bytes = kept->memory_bytes * 1.2;
    sim_deploy_as(&s, "second", kept->agent->name);
    assert_true(sim_run_until(&s, both_serve, 30000));
    assert_null(deployment_of_id(s.core, id));
    assert_true(sim_run_until(&s, keeper_serves, 60000));
    assert_int_not_equal(keeper_agent(&s)[1] - '0', first);
    serves_and_is_clean(&s, 1000);
    sim_close(&s);
}

struct storm {
    uint64_t copied, used;
};

/* Agents die and come back under requests, some of which are another deployment's. */
static void storm_rage(struct sim *s, uint64_t seed, const char *other)
{
    struct err e = {0};
    s->alike = seed % 4 ? 0.2 : 0.8;
    s->network.lose = seed % 5 ? 0 : 0.002;
    for (int i = 0; i < 30; i++) {
        const char *name = other && sim_random(s, 4) == 0 ? other : "toy";
        sim_request_of(s, name, 50 + sim_random(s, 70), 40, &e);
        sim_run_ms(s, sim_random(s, 120));
        if (i % 5 == 4) {
            int victim = (int)sim_random(s, 4);
            sim_agent_kill(s, victim);
            sim_run_ms(s, 50 + sim_random(s, 200));
            sim_agent_start(s, victim);
        }
        if (i % 9 == 8)
            sim_cancel(s, &s->clients[sim_random(s, (uint64_t)s->n_clients)]);
    }
}

static void storm_calm(struct sim *s, struct storm *x, bool (*all_serve)(struct sim *s))
{
    bool quiet = sim_run_until(s, sim_quiet, 600000); /* a lost frame costs half a minute */
    s->network.lose = 0;
    if (!quiet || !sim_run_until(s, all_serve, 120000))
        fail_msg("seed %llu: it does not come to rest", (unsigned long long)s->seed);
    const struct deployment *d = deployment_find(s->core, "toy");
    x->copied += d->replicas.copied;
    x->used += d->replicas.used;
    is_clean_of(s, "toy", 1000);
}

static void storm_run(uint64_t seed, struct storm *x)
{
    struct sim s;
    begin(&s, seed, seed % 2 ? "a2,a3" : "a1,a2", 70);
    storm_rage(&s, seed, "second");
    storm_calm(&s, x, both_serve);
    is_clean_of(&s, "second", 1000);
    sim_close(&s);
}

static bool kept_serves(struct sim *s)
{
    return sim_serves(s) && keeper_serves(s);
}

static void kept_storm_run(uint64_t seed, struct storm *x)
{
    struct sim s;
    begin_kept(&s, seed, seed % 3 ? "auto" : "a1");
    storm_rage(&s, seed, NULL);
    storm_calm(&s, x, kept_serves);
    sim_close(&s);
}

static void storms_run(uint64_t first, void (*run)(uint64_t seed, struct storm *x))
{
    struct seed_range seeds = seeds_of(first);
    struct storm x = {0};
    uint64_t n = getenv("HP_SEED") || getenv("HP_RUNS") ? seeds.n : 40;
    for (uint64_t i = 0; i < n; i++)
        run(seeds.first + i, &x);
    printf("# %llu copies, %llu sequences went on from theirs\n", (unsigned long long)x.copied,
           (unsigned long long)x.used);
    assert_true(n < 40 || (x.copied > n && x.used > 0));
}

TEST(streams_that_are_copied_and_lost_have_the_tokens_of_an_undisturbed_run)
{
    storms_run(940, storm_run);
}

TEST(whoever_dies_a_keeper_without_weights_costs_no_token)
{
    storms_run(1020, kept_storm_run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lost_sequence_goes_on_from_its_copy_instead_of_computing_anew),
        cmocka_unit_test(a_copy_goes_when_its_sequence_ends_and_short_ones_have_none),
        cmocka_unit_test(a_keeper_that_hangs_or_is_lost_costs_nobody_anything),
        cmocka_unit_test(what_is_rotated_as_a_long_sequence_is_not_copied_while_it_is_short),
        cmocka_unit_test(streams_that_are_copied_and_lost_have_the_tokens_of_an_undisturbed_run),
        cmocka_unit_test(an_agent_without_weights_keeps_copies_and_lost_sequences_go_on_from_there),
        cmocka_unit_test(a_keeper_that_dies_is_found_another_place_and_ends_with_what_it_keeps_for),
        cmocka_unit_test(an_agent_that_comes_and_goes_keeps_copies_where_no_other_can),
        cmocka_unit_test(copies_go_beside_a_stage_before_they_go_to_an_agent_that_comes_and_goes),
        cmocka_unit_test(a_keeper_keeps_nobody_from_draining_its_agent),
        cmocka_unit_test(a_keeper_gives_way_to_a_stage_that_needs_its_room),
        cmocka_unit_test(a_keeper_beside_a_stage_goes_to_an_agent_that_comes_even_under_load),
        cmocka_unit_test(a_keeper_is_made_where_there_is_room_even_beside_a_stage),
        cmocka_unit_test(
            a_stage_that_finds_no_memory_beside_copies_gets_theirs_and_other_keepers_stay),
        cmocka_unit_test(copies_go_where_they_can_be_made_however_many_agents_cannot),
        cmocka_unit_test(a_copy_that_is_made_while_its_deployment_moves_is_counted_where_it_went),
        cmocka_unit_test(a_keeper_on_its_way_is_not_called_back_to_where_its_copies_were),
        cmocka_unit_test(what_keeps_copies_is_asked_for_nothing_else),
        cmocka_unit_test(a_name_that_leaves_its_keeper_none_is_refused),
        cmocka_unit_test(a_model_with_windows_has_no_keeper_that_could_keep_nothing),
        cmocka_unit_test(whoever_dies_a_keeper_without_weights_costs_no_token),
    };
    return cmocka_run_group_tests_name("replication", tests, NULL, NULL);
}
