/* A deployment of a toy model on two agents, up to serving. */
#ifndef HP_TESTS_UNIT_COORDINATOR_DEPLOYMENT_FIXTURE_H
#define HP_TESTS_UNIT_COORDINATOR_DEPLOYMENT_FIXTURE_H

#include "tests/unit/coordinator/core_fixture.h"

static const struct layer_facts layers[6] = {
    {"embed", "embed", 1000, 500, 0, 64, 0, 0, 0, 0, 0, 0, 0},
    {"l1", "attn", 1000, 500, 64, 64, 1e5, 0, 0, 0, 0, 0, 0},
    {"l2", "mlp", 1000, 500, 0, 64, 1e5, 0, 0, 0, 0, 0, 0},
    {"l3", "attn", 1000, 500, 64, 64, 1e5, 0, 0, 0, 0, 0, 0},
    {"l4", "mlp", 1000, 500, 0, 64, 1e5, 0, 0, 0, 0, 0, 0},
    {"head", "head", 1000, 500, 0, 4, 1e5, 0, 0, 0, 0, 0, 0},
};

static const uint32_t end_ids[] = {2};
static const struct model_facts facts = {.architecture = "test",
                                         .layers = layers,
                                         .n_layers = 6,
                                         .vocabulary = 100,
                                         .width = 16,
                                         .context = 256,
                                         .end_ids = end_ids,
                                         .n_end_ids = 1};

static inline void ask_deploy(struct fixture *f, const char *options)
{
    static const uint8_t head[4] = "head";
    struct manifest_file file = {"m.gguf", 4096};
    struct manifest_head first = {0, 0, {head, sizeof head}};
    struct manifest m = {.name = "m", .files = {&file, 1}, .heads = {&first, 1}};
    struct buffer blob = {0};
    manifest_encode(&m, &blob);
    f->facts = &facts;
    char arguments[300];
    snprintf(arguments, sizeof arguments, "{\"name\": \"d\", \"options\": %s}", options);
    fixture_ask(f, "deploy", arguments, &blob);
    buffer_free(&blob);
}

static inline void stage_says(struct fixture *f, int agent, uint64_t generation, uint64_t stage,
                              const char *state, const uint32_t *wanted, size_t n)
{
    struct message m = {.type = MESSAGE_STAGE_STATE};
    m.u.stage_state = (struct message_stage_state){
        .deployment = deployment_find(f->core, "d") ? deployment_find(f->core, "d")->id : 1,
        .generation = generation,
        .stage = stage,
        .state = state,
        .wanted = {wanted, n},
        .code = strcmp(state, "failed") == 0 ? "no_space" : "",
        .text = strcmp(state, "failed") == 0 ? "the disk is full" : "",
        .hint = strcmp(state, "failed") == 0 ? "free some space" : ""};
    fixture_say(f, 10 + (uint64_t)agent, fixture_key(agent), &m);
}

/* A heartbeat that shows a stage. */
static inline void beat_with(struct fixture *f, int agent, uint64_t deployment, uint64_t generation,
                             uint64_t stage, const char *state)
{
    struct message_held_stage held = {
        .deployment = deployment, .generation = generation, .stage = stage, .state = state};
    struct message m = {.type = MESSAGE_HEARTBEAT};
    m.u.heartbeat.held = (struct pack_list){&held, 1};
    fixture_say(f, 10 + (uint64_t)agent, fixture_key(agent), &m);
}

static const char *state_of(struct fixture *f)
{
    const struct deployment *d = deployment_find(f->core, "d");
    return d ? deployment_states[d->state].word : "gone";
}

/* Three agents, serving over a1, a0. */
static inline struct deployment *serving(struct fixture *f)
{
    fixture_open(f);
    for (int i = 0; i < 3; i++)
        fixture_agent(f, i, "k", 1e9);
    ask_deploy(f, "{\"agents\": \"a1,a0\", \"max_context\": 128}");
    stage_says(f, 1, 1, 0, "ready", NULL, 0);
    stage_says(f, 0, 1, 1, "ready", NULL, 0);
    assert_string_equal(state_of(f), "serving");
    return deployment_find(f->core, "d");
}

static inline void hop_says(struct fixture *f, int agent, uint64_t generation, uint64_t stage,
                            bool heard)
{
    struct message m = {.type = MESSAGE_HOP_STATE};
    m.u.hop_state = (struct message_hop_state){
        .deployment = deployment_find(f->core, "d") ? deployment_find(f->core, "d")->id : 1,
        .generation = generation,
        .stage = stage,
        .heard = heard,
        .silent_s = heard ? 0 : 2.5};
    fixture_say(f, 10 + (uint64_t)agent, fixture_key(agent), &m);
}

/* Both stages are ready, but their agents have not heard each other. */
static inline void ready_and_deaf(struct fixture *f)
{
    fixture_open(f);
    f->deaf = true;
    for (int i = 0; i < 3; i++)
        fixture_agent(f, i, "k", 1e9);
    ask_deploy(f, "{\"agents\": \"a1,a0\", \"max_context\": 128}");
    stage_says(f, 1, 1, 0, "ready", NULL, 0);
    stage_says(f, 0, 1, 1, "ready", NULL, 0);
    assert_string_equal(state_of(f), "ready");
}

#endif
