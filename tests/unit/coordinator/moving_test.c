/* Agents that are taken out of service, or lost and back, and what comes of the deployments on
 * them. */
#include "common/utf8.h"
#include "tests/unit/coordinator/core_fixture.h"

/* Ten layers of 200 MB each once packed, 1000 bytes of KV a token. */
enum { LAYERS = 10 };
static struct layer_facts layers[LAYERS];
static struct model_facts facts = {.architecture = "test",
                                   .layers = layers,
                                   .n_layers = LAYERS,
                                   .vocabulary = 1000,
                                   .width = 1024,
                                   .context = 4096};

static const double roomy = 4e9, half = 1.2e9;

static void deploy(struct fixture *f, const char *options)
{
    static const uint8_t head[4] = "head";
    struct manifest_file file = {"m.gguf", 4096};
    struct manifest_head first = {0, 0, {head, sizeof head}};
    struct manifest m = {.name = "m", .files = {&file, 1}, .heads = {&first, 1}};
    struct buffer blob = {0};
    char arguments[400];
    for (int i = 0; i < LAYERS; i++)
        layers[i] = (struct layer_facts){
            "layer", i % 2 ? "attn" : "mlp", 100000000, 100000000, 1000, 4096, 2e8, 0, 0, 0, 0, 0,
            0};
    manifest_encode(&m, &blob);
    f->facts = &facts;
    snprintf(arguments, sizeof arguments, "{\"name\": \"d\", \"options\": %s}", options);
    fixture_ask(f, "deploy", arguments, &blob);
    buffer_free(&blob);
}

static struct deployment *deployed(struct fixture *f)
{
    struct deployment *d = deployment_find(f->core, "d");
    assert_non_null(d);
    return d;
}

static const char *state_of(struct fixture *f)
{
    return deployment_states[deployed(f)->state].word;
}

static bool is_on(struct fixture *f, const char *name)
{
    return deployment_stage_of(deployed(f), member_find(f->core, name)) != NULL;
}

/* All agents of the plan have their stages. */
static void stages_ready(struct fixture *f)
{
    uint64_t generation = deployed(f)->generation;
    for (int i = 0; i < deployed(f)->n_stages; i++) {
        int agent = deployed(f)->stages[i].agent->name[1] - '0';
        struct message m = {.type = MESSAGE_STAGE_STATE};
        m.u.stage_state = (struct message_stage_state){.deployment = deployed(f)->id,
                                                       .generation = generation,
                                                       .stage = (uint64_t)i,
                                                       .state = "ready",
                                                       .code = "",
                                                       .text = ""};
        fixture_say(f, 10 + (uint64_t)agent, fixture_key(agent), &m);
    }
    assert_string_equal(state_of(f), "serving");
}

static void serving(struct fixture *f, int agents, double memory, const char *options)
{
    fixture_open(f);
    for (int i = 0; i < agents; i++)
        fixture_agent(f, i, "k", memory);
    deploy(f, options);
    stages_ready(f);
}

static const char *member_state_of(struct fixture *f, const char *name)
{
    return member_states[member_find(f->core, name)->state].word;
}

/* `verb` of the agent under the first stage; its last answer. */
static const struct message_answer *ask(struct fixture *f, const char *verb, const char *name,
                                        bool force)
{
    char arguments[100];
    snprintf(arguments, sizeof arguments, "{\"name\": \"%s\", \"force\": %s}", name,
             force ? "true" : "false");
    return fixture_ask(f, verb, arguments, NULL);
}

static void beat_all(struct fixture *f, int agents)
{
    for (int i = 0; i < agents; i++)
        fixture_beat(f, 10 + (uint64_t)i, fixture_key(i));
}

TEST(what_has_room_elsewhere_moves)
{
    struct fixture f;
    serving(&f, 2, roomy, "{}");
    char from[MEMBER_NAME];
    utf8_copy(from, sizeof from, deployed(&f)->stages[0].agent->name);
    const struct message_answer *a = ask(&f, "node.drain", from, false);
    assert_string_equal(a->code, "ok");
    assert_non_null(strstr(a->result, "\"state\":\"draining\""));
    assert_string_equal(state_of(&f), "preparing"); /* nothing ran on it */
    assert_false(is_on(&f, from));
    stages_ready(&f);
    fixture_close(&f);
}

TEST(what_cannot_move_is_refused_and_serves_on)
{
    static const struct {
        int agents;
        double memory;
        const char *options, *says;
    } cases[] = {
        {2, half, "{}", "cannot leave agent \"a0\": "},
        {2, roomy, "{\"agents\": \"a0,a1\"}", "deployed to agents by name"},
        {2, roomy, "{\"layers\": \"0-4:a0,5-9:a1\"}", "deployed to agents by name"},
        {2, roomy, "{\"agents\": \"a0/cpu,a1/cpu\"}", "deployed to agents by name"},
        {1, roomy, "{}", "no agent is ready"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        serving(&f, cases[i].agents, cases[i].memory, cases[i].options);
        uint64_t generation = deployed(&f)->generation;
        const struct message_answer *a = ask(&f, "node.drain", "a0", false);
        assert_string_equal(a->code, "infeasible");
        if (!strstr(a->text, cases[i].says) || !strstr(a->hint, "--force"))
            fail_msg("case %zu: \"%s\" \"%s\"", i, a->text, a->hint);
        assert_string_equal(state_of(&f), "serving");
        assert_int_equal(deployed(&f)->generation, generation);
        assert_string_equal(member_state_of(&f, "a0"), "ready");
        fixture_restart(&f); /* nothing of it was kept */
        assert_int_equal(member_find(f.core, "a0")->drain, MEMBER_STAYS);
        fixture_close(&f);
    }
}

TEST(a_smaller_context_is_no_way_to_move)
{
    struct fixture f;
    serving(&f, 2, roomy, "{}");
    const char *from = deployed(&f)->stages[0].agent->name, *to = from[1] == '0' ? "a1" : "a0";
    /* The weights, and KV of a smaller context. */
    member_find(f.core, to)->node->cluster.devices[0].memory_bytes = 2.6e9;
    json_object_set_new(
        json_array_get(json_object_get(member_find(f.core, to)->node->told, "devices"), 0),
        "memory_bytes", json_real(2.03e9 + 0.6e9));
    deployed(&f)->context = 1 << 20;
    const struct message_answer *a = ask(&f, "node.drain", from, false);
    assert_string_equal(a->code, "infeasible");
    assert_non_null(strstr(a->text, "and it has 1048576"));
    assert_string_equal(state_of(&f), "serving");
    fixture_close(&f);
}

TEST(force_moves_or_breaks)
{
    struct fixture f;
    serving(&f, 2, roomy, "{\"agents\": \"a0,a1\"}");
    assert_string_equal(ask(&f, "node.drain", "a0", true)->code, "ok");
    assert_string_equal(state_of(&f), "broken");
    assert_string_equal(ask(&f, "node.undrain", "a0", false)->code, "ok");
    fixture_pass_ms(&f, 100);
    assert_string_equal(state_of(&f), "preparing");
    stages_ready(&f);
    fixture_close(&f);
}

TEST(it_serves_on_while_the_plan_is_made)
{
    struct fixture f;
    serving(&f, 2, roomy, "{}");
    const char *from = deployed(&f)->stages[0].agent->name;
    f.holds_work = true;
    size_t before = f.n_sent;
    assert_null(ask(&f, "node.drain", from, false));
    assert_string_equal(ask(&f, "node.drain", from, false)->code, "busy");
    assert_string_equal(state_of(&f), "serving");
    f.holds_work = false;
    fixture_work(&f);
    const struct message *a = fixture_last(&f, ADMIN, MESSAGE_ANSWER);
    assert_true(f.n_sent > before);
    assert_string_equal(a->u.answer.code, "ok");
    assert_string_equal(state_of(&f), "preparing");
    fixture_close(&f);
}

TEST(an_agent_is_not_drained_under_a_deployment_that_moves_to_it)
{
    struct fixture f;
    serving(&f, 2, roomy, "{}");
    const char *from = deployed(&f)->stages[0].agent->name, *to = from[1] == '0' ? "a1" : "a0";
    /* Its open sequences hold it up: it serves on, and has the other agent alone to go to. */
    deployed(&f)->n_active = 1;
    assert_string_equal(ask(&f, "node.drain", from, false)->code, "ok");
    assert_string_equal(state_of(&f), "moving");
    if (!is_on(&f, to))
        assert_string_equal(ask(&f, "node.drain", to, false)->code, "infeasible");
    deployed(&f)->n_active = 0;
    fixture_pass_ms(&f, 100);
    assert_string_equal(state_of(&f), "preparing");
    assert_true(is_on(&f, to));
    uint64_t generation = deployed(&f)->generation;
    const struct message_answer *a = ask(&f, "node.drain", to, false);
    assert_string_equal(a->code, "busy");
    assert_non_null(strstr(a->text, "\"d\" is being moved"));
    assert_non_null(strstr(a->hint, "--force"));
    assert_string_equal(member_state_of(&f, to), "ready");
    assert_string_equal(state_of(&f), "preparing");
    assert_int_equal(deployed(&f)->generation, generation);
    stages_ready(&f);
    assert_string_equal(ask(&f, "node.drain", to, false)->code, "infeasible");
    assert_string_equal(state_of(&f), "serving");
    fixture_close(&f);
}

TEST(it_can_be_taken_back_at_any_time)
{
    struct fixture f;
    serving(&f, 2, roomy, "{}");
    const char *from = deployed(&f)->stages[0].agent->name;
    f.holds_work = true;
    ask(&f, "node.drain", from, false);
    assert_string_equal(ask(&f, "node.undrain", from, false)->code, "ok");
    assert_string_equal(member_state_of(&f, from), "ready");
    f.holds_work = false;
    fixture_work(&f);
    assert_string_equal(state_of(&f), "serving");
    assert_int_equal(deployed(&f)->generation, 1);
    /* While its open sequences hold it up. */
    deployed(&f)->n_active = 1;
    assert_string_equal(ask(&f, "node.drain", from, false)->code, "ok");
    assert_int_equal(deployed(&f)->state, DEPLOYMENT_MOVING);
    assert_string_equal(ask(&f, "node.undrain", from, false)->code, "ok");
    assert_int_equal(deployed(&f)->state, DEPLOYMENT_SERVING);
    deployed(&f)->n_active = 0;
    for (int i = 0; i < 10; i++) {
        fixture_pass_ms(&f, 100);
        beat_all(&f, 2);
    }
    assert_int_equal(deployed(&f)->generation, 1);
    fixture_close(&f);
}

TEST(a_restart_forgets_no_drain)
{
    struct fixture f;
    serving(&f, 2, roomy, "{}");
    char from[MEMBER_NAME];
    utf8_copy(from, sizeof from, deployed(&f)->stages[0].agent->name);
    deployed(&f)->n_active = 1; /* an open sequence */
    assert_string_equal(ask(&f, "node.drain", from, false)->code, "ok");
    assert_string_equal(state_of(&f), "moving");
    deployed(&f)->n_active = 0;
    fixture_restart(&f);
    for (int i = 0; i < 2; i++) {
        struct message m = {.type = MESSAGE_JOIN, .id = 3};
        char name[8];
        snprintf(name, sizeof name, "a%d", i);
        const struct deployment_stage *stage =
            deployment_stage_of(deployed(&f), member_find(f.core, name));
        struct message_held_stage held = {.deployment = deployed(&f)->id,
                                          .generation = deployed(&f)->generation,
                                          .stage =
                                              stage ? (uint64_t)(stage - deployed(&f)->stages) : 0,
                                          .state = "ready"};
        m.u.join = (struct message_join){.name = name,
                                         .node = fixture_node("k", roomy),
                                         .data_address = {(const uint8_t *)name, 2},
                                         .held = {&held, stage != NULL}};
        fixture_say(&f, 10 + (uint64_t)i, fixture_key(i), &m);
        fixture_beat(&f, 10 + (uint64_t)i, fixture_key(i));
    }
    assert_string_equal(member_state_of(&f, from), "draining");
    fixture_pass_ms(&f, 100);
    assert_string_equal(state_of(&f), "preparing");
    assert_false(is_on(&f, from));
    fixture_close(&f);
}

/* Ticks with heartbeats of the agents whose bit is set. */
static void pass_ms(struct fixture *f, int ms, unsigned agents)
{
    for (int t = 0; t < ms; t += 100) {
        fixture_pass_ms(f, 100);
        for (int i = 0; i < 8; i++)
            if (agents >> i & 1)
                fixture_beat(f, 10 + (uint64_t)i, fixture_key(i));
    }
}

/* A heartbeat that shows the agent's stage, so that nobody takes it for gone. */
static void pass_serving_ms(struct fixture *f, int ms, unsigned agents)
{
    for (int t = 0; t < ms && deployed(f)->state == DEPLOYMENT_SERVING; t += 100) {
        fixture_pass_ms(f, 100);
        for (int i = 0; i < 8; i++) {
            char name[8];
            snprintf(name, sizeof name, "a%d", i);
            const struct member *m = agents >> i & 1 ? member_find(f->core, name) : NULL;
            const struct deployment_stage *stage = m && deployed(f)->state == DEPLOYMENT_SERVING
                                                       ? deployment_stage_of(deployed(f), m)
                                                       : NULL;
            struct message_held_stage held = {
                .deployment = deployed(f)->id,
                .generation = deployed(f)->generation,
                .stage = stage ? (uint64_t)(stage - deployed(f)->stages) : 0,
                .state = "ready"};
            struct message h = {.type = MESSAGE_HEARTBEAT,
                                .u.heartbeat.held = {&held, stage != NULL}};
            if (m)
                fixture_say(f, 10 + (uint64_t)i, fixture_key(i), &h);
        }
    }
}

static void lose_and_replan(struct fixture *f)
{
    serving(f, 2, roomy, "{}");
    assert_int_equal(deployed(f)->n_stages, 2);
    pass_ms(f, 3000, 1); /* a1 is silent */
    assert_int_equal(deployed(f)->n_stages, 1);
    stages_ready(f);
}

TEST(a_deployment_grows_back_when_its_agent_is_back_and_nothing_runs)
{
    struct fixture f;
    lose_and_replan(&f);
    fixture_restart(&f); /* which forgets no wish */
    fixture_join(&f, 10, fixture_key(0), "a0", "", fixture_node("k", roomy));
    fixture_beat(&f, 10, fixture_key(0));
    stages_ready(&f);
    fixture_join(&f, 11, fixture_key(1), "a1", "", fixture_node("k", roomy));
    fixture_beat(&f, 11, fixture_key(1));
    deployed(&f)->n_active = 1;
    pass_serving_ms(&f, 8000, 3);
    assert_string_equal(state_of(&f), "serving"); /* something runs */
    deployed(&f)->n_active = 0;
    pass_serving_ms(&f, 4000, 3);
    assert_string_equal(state_of(&f), "serving");
    pass_serving_ms(&f, 2000, 3);
    assert_string_equal(state_of(&f), "preparing");
    assert_int_equal(deployed(&f)->n_stages, 2);
    stages_ready(&f);
    assert_null(deployed(&f)->wish);
    pass_serving_ms(&f, 10000, 3);
    assert_string_equal(state_of(&f), "serving");
    fixture_close(&f);
}

TEST(growing_back_that_fails_leaves_it_as_it_was)
{
    struct fixture f;
    lose_and_replan(&f);
    fixture_join(&f, 11, fixture_key(1), "a1", "", fixture_node("k", roomy));
    fixture_beat(&f, 11, fixture_key(1));
    pass_serving_ms(&f, 7000, 3);
    assert_string_equal(state_of(&f), "preparing");
    const struct deployment_stage *stage =
        deployment_stage_of(deployed(&f), member_find(f.core, "a1"));
    struct message m = {.type = MESSAGE_STAGE_STATE};
    m.u.stage_state =
        (struct message_stage_state){.deployment = deployed(&f)->id,
                                     .generation = deployed(&f)->generation,
                                     .stage = (uint64_t)(stage - deployed(&f)->stages),
                                     .state = "failed",
                                     .code = "io",
                                     .text = "a bad disk"};
    fixture_say(&f, 11, fixture_key(1), &m);
    assert_int_equal(deployed(&f)->n_stages, 1);
    stages_ready(&f);
    pass_serving_ms(&f, 20000, 3);
    assert_string_equal(state_of(&f), "serving");
    assert_int_equal(deployed(&f)->n_stages, 1);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_has_room_elsewhere_moves),
        cmocka_unit_test(what_cannot_move_is_refused_and_serves_on),
        cmocka_unit_test(a_smaller_context_is_no_way_to_move),
        cmocka_unit_test(force_moves_or_breaks),
        cmocka_unit_test(it_serves_on_while_the_plan_is_made),
        cmocka_unit_test(an_agent_is_not_drained_under_a_deployment_that_moves_to_it),
        cmocka_unit_test(it_can_be_taken_back_at_any_time),
        cmocka_unit_test(a_restart_forgets_no_drain),
        cmocka_unit_test(a_deployment_grows_back_when_its_agent_is_back_and_nothing_runs),
        cmocka_unit_test(growing_back_that_fails_leaves_it_as_it_was),
    };
    return cmocka_run_group_tests_name("moving", tests, NULL, NULL);
}
