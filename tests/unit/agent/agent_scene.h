/* Whole agents in this process, with a coordinator that the test plays: over the in-process twins,
 * or over ZeroMQ and UCX on loopback. For tests that include it in one file. */
#ifndef HP_TESTS_UNIT_AGENT_AGENT_SCENE_H
#define HP_TESTS_UNIT_AGENT_AGENT_SCENE_H

#include "agent/agent.h"
#include "agent/backend/backend.h"
#include "agent/engine/local.h"
#include "common/env.h"
#include "common/host.h"
#include "common/log.h"
#include "common/manifest.h"
#include "model/manifest_build.h"
#include "tests/test.h"
#include "tests/unit/agent/store_fixture.h"
#include "transport/message.h"

enum { N_AGENTS = 3, N_TOKENS = 8, DEPLOYMENT = 4 };
/* A test may set these before the scene is opened. */
static uint64_t heartbeat_ms = 100;
static const char *data_mode = "";             /* of the data channel */
static void (*coordinator_works)(bool begins); /* told when the test's own part works */

static const char demo_model[] = "examples/demo-model/demo-q8_0.gguf";

struct played { /* an agent as its coordinator sees it */
    struct agent *agent;
    char dir[300], name[8], state[16], text[256];
    uint64_t peer, moved_bytes;
    uint8_t address[1024];
    size_t address_size, n_wanted;
    uint8_t key[KEY_BYTES];
    bool joined;
};

struct agent_scene {
    uv_loop_t loop;
    struct control_hub *hub; /* NULL: ZeroMQ and UCX */
    struct control *control;
    struct key_pair keys;
    char folder[256], address[64], machine[HOST_ID], source[1024];
    struct played agents[N_AGENTS];
    struct buffer manifest, encoded;
    struct digest id;
    uint32_t prompt[16], expected[N_TOKENS];
    uint32_t n_prompt;
    uint32_t got[8][N_TOKENS]; /* by sequence % 8 */
    size_t n_got[8], first[8]; /* first: of its output, in the last message */
    bool finished[8];
    const uint64_t *cuts; /* [N_AGENTS + 1]: layers of the stages */
    int kv_awaited, kv_received, kv_sent, kv_failed;
    uint64_t kv_bytes; /* received */
    int failed;
    char failure[256];
};

static inline void send_to(struct agent_scene *s, uint64_t peer, const struct message *m)
{
    s->encoded.size = 0;
    message_encode(m, &s->encoded);
    assert_int_equal(control_send(s->control, peer, s->encoded.data, s->encoded.size, NULL), 0);
}

/* Who may connect to whom: all to all, as far as they have joined. */
static inline void tell_members(struct agent_scene *s)
{
    uint8_t keys[N_AGENTS][KEY_BYTES];
    for (int i = 0; i < N_AGENTS; i++)
        memcpy(keys[i], s->agents[i].key, KEY_BYTES);
    struct message m = {.type = MESSAGE_MEMBERS, .u.members.keys = {keys[0], sizeof keys}};
    for (int i = 0; i < N_AGENTS; i++)
        if (s->agents[i].joined)
            send_to(s, s->agents[i].peer, &m);
}

static inline void on_join(struct agent_scene *s, uint64_t peer, const char *key,
                           const struct message_join *j)
{
    int i = j->name[1] - '0';
    struct played *a = &s->agents[i];
    a->peer = peer;
    if (!s->hub)
        assert_int_equal(key_decode(key, a->key, NULL), 0);
    a->joined = true;
    a->address_size = j->data_address.size;
    assert_true(a->address_size <= sizeof a->address);
    memcpy(a->address, j->data_address.data, a->address_size);
    struct message m = {.type = MESSAGE_WELCOME};
    m.u.welcome = (struct message_welcome){
        .name = a->name, .heartbeat_ms = heartbeat_ms, .coordinator_boot = 1, .data = data_mode};
    send_to(s, peer, &m);
    tell_members(s);
}

static inline void on_stage_state(struct agent_scene *s, uint64_t peer,
                                  const struct message_stage_state *t)
{
    for (int i = 0; i < N_AGENTS; i++)
        if (s->agents[i].peer == peer) {
            snprintf(s->agents[i].state, sizeof s->agents[i].state, "%s", t->state);
            snprintf(s->agents[i].text, sizeof s->agents[i].text, "%s", t->text);
            s->agents[i].moved_bytes = t->moved_bytes;
            s->agents[i].n_wanted = t->wanted.count;
        }
}

static inline void on_kv_state(struct agent_scene *s, const struct message_kv_state *t)
{
    s->kv_awaited += strcmp(t->state, "awaited") == 0;
    s->kv_received += strcmp(t->state, "received") == 0;
    s->kv_sent += strcmp(t->state, "sent") == 0;
    s->kv_failed += strcmp(t->state, "failed") == 0;
    if (strcmp(t->state, "received") == 0)
        s->kv_bytes += t->moved_bytes;
    if (t->text[0] && !s->failure[0])
        snprintf(s->failure, sizeof s->failure, "%s", t->text);
}

static inline void on_said(struct agent_scene *s, const struct message_said *t)
{
    size_t i = t->sequence % 8;
    for (size_t k = 0; k < t->ids.count && s->n_got[i] < N_TOKENS; k++)
        s->got[i][s->n_got[i]++] = t->ids.items[k];
    s->first[i] = t->first;
    s->finished[i] = t->finish[0] != '\0';
}

static inline void on_message(void *ctx, uint64_t peer, const char *key, const uint8_t *bytes,
                              size_t size)
{
    struct agent_scene *s = ctx;
    struct arena arena = {0};
    struct message m;
    struct err e = {0};
    if (coordinator_works)
        coordinator_works(true);
    if (message_decode(bytes, size, &arena, &m, &e) < 0)
        fail_msg("%s", e.text);
    if (m.type == MESSAGE_JOIN) {
        on_join(s, peer, key, &m.u.join);
    } else if (m.type == MESSAGE_HEARTBEAT) {
        struct message ack = {.type = MESSAGE_HEARTBEAT_ACK};
        ack.u.heartbeat_ack.number = m.u.heartbeat.number;
        send_to(s, peer, &ack);
    } else if (m.type == MESSAGE_STAGE_STATE) {
        on_stage_state(s, peer, &m.u.stage_state);
    } else if (m.type == MESSAGE_TOKENS) {
        for (size_t k = 0; k < m.u.tokens.said.count; k++)
            on_said(s, (const struct message_said *)m.u.tokens.said.items + k);
    } else if (m.type == MESSAGE_KV_STATE) {
        on_kv_state(s, &m.u.kv_state);
    } else if (m.type == MESSAGE_SEQUENCE_FAILED) {
        s->failed++;
        snprintf(s->failure, sizeof s->failure, "%s", m.u.sequence_failed.text);
    }
    arena_free(&arena);
    if (coordinator_works)
        coordinator_works(false);
}

/* So that the loop turns though nothing happens. */
static inline void on_nudge(uv_timer_t *t)
{
    (void)t;
}

/* Turns the loop until something is so; fails after half a minute. */
static inline void run_until(struct agent_scene *s, bool (*so)(const struct agent_scene *s),
                             const char *what)
{
    uint64_t until = env_now_ns(&env_real) + (uint64_t)(30e9 * env_time_scale());
    uv_timer_t nudge;
    uv_timer_init(&s->loop, &nudge);
    uv_timer_start(&nudge, on_nudge, 20, 20);
    while (!so(s)) {
        uv_run(&s->loop, UV_RUN_ONCE);
        if (s->failed || s->kv_failed || env_now_ns(&env_real) > until)
            fail_msg("%s: %s; states %s, %s, %s; wanted %zu, %zu, %zu; moved %llu", what,
                     s->failed ? s->failure : "not in time", s->agents[0].state, s->agents[1].state,
                     s->agents[2].state, s->agents[0].n_wanted, s->agents[1].n_wanted,
                     s->agents[2].n_wanted,
                     (unsigned long long)(s->agents[0].moved_bytes + s->agents[1].moved_bytes +
                                          s->agents[2].moved_bytes));
    }
    uv_close((uv_handle_t *)&nudge, NULL);
    uv_run(&s->loop, UV_RUN_NOWAIT);
}

static inline bool all_joined(const struct agent_scene *s)
{
    return s->agents[0].joined && s->agents[1].joined && s->agents[2].joined;
}

static inline bool all_in(const struct agent_scene *s, const char *state)
{
    return strcmp(s->agents[0].state, state) == 0 && strcmp(s->agents[1].state, state) == 0 &&
           strcmp(s->agents[2].state, state) == 0;
}
static inline bool all_ready(const struct agent_scene *s)
{
    return all_in(s, "ready");
}
static inline bool all_unloaded(const struct agent_scene *s)
{
    return all_in(s, "unloaded");
}

/* ---- what must come out ---- */

static inline void expected_make(struct agent_scene *s)
{
    struct device_config d = {.backend = "cpu", .n_threads = 1};
    struct err e = {0};
    struct model *model;
    struct device *device = NULL;
    struct local_chain *chain;
    if (model_open(demo_model, &model, &e) < 0 || device_open(&d, &device, &e) < 0)
        fail_msg("%s", e.text);
    struct local_config c = {
        .model = model, .device = device, .n_stages = 1, .compute = COMPUTE_F32, .max_tokens = 64};
    s->n_prompt = 13;
    for (uint32_t i = 0; i < s->n_prompt; i++)
        s->prompt[i] = 100 + 37 * i;
    if (local_chain_open(&c, &chain, &e) < 0 ||
        local_chain_greedy(chain, s->prompt, s->n_prompt, s->expected, N_TOKENS, &e) < 0)
        fail_msg("%s", e.text);
    local_chain_close(&chain);
    device_close(&device);
    assert_int_equal(manifest_build(model, NULL, NULL, NULL, &s->manifest, &e), 0);
    s->id = manifest_id(s->manifest.data, s->manifest.size);
    model_close(&model);
}

/* ---- the play ---- */

static inline void scene_open(struct agent_scene *s, bool inproc)
{
    static const uint64_t usual_cuts[N_AGENTS + 1] = {0, 5, 12, 18};
    memset(s, 0, sizeof *s);
    s->cuts = usual_cuts;
    struct err e = {0};
    uv_loop_init(&s->loop);
    log_set_level(LOG_ERROR);
    test_folder_make(s->folder);
    host_id(s->machine);
    assert_non_null(realpath(demo_model, s->source));
    expected_make(s);
    struct control_callbacks cb = {.ctx = s, .message = on_message};
    assert_int_equal(key_pair_create(&s->keys, &e), 0);
    s->hub = inproc ? control_hub_create() : NULL;
    int rc = inproc ? control_serve_inproc(s->hub, &s->loop, "c", &s->keys, &cb, &s->control, &e)
                    : control_serve_zmq(&s->loop, "127.0.0.1:0", &s->keys, &cb, &s->control, &e);
    if (rc < 0)
        fail_msg("%s", e.text);
    snprintf(s->address, sizeof s->address, inproc ? "c" : "127.0.0.1:%d",
             control_port(s->control));
    for (int i = 0; i < N_AGENTS; i++) {
        struct played *a = &s->agents[i];
        struct agent_config c = {.coordinator = s->address,
                                 .hub = s->hub,
                                 .server_key = s->keys.public_key,
                                 .secret = "",
                                 .name = a->name,
                                 .dir = a->dir,
                                 .network = "lo"};
        snprintf(a->dir, sizeof a->dir, "%s/%d", s->folder, i);
        snprintf(a->name, sizeof a->name, "a%d", i);
        assert_int_equal(data_policy_set(&c.data, data_mode, "", &e), 0);
        assert_int_equal(discover_share(NULL, 1, 1 << 30, &c.share, &e), 0);
        c.share.n_cores = 0; /* nothing is pinned */
        if (agent_start(&s->loop, &c, &a->agent, &e) < 0)
            fail_msg("%s", e.text);
    }
    run_until(s, all_joined, "joining");
}

static inline void scene_close(struct agent_scene *s)
{
    for (int i = 0; i < N_AGENTS; i++)
        agent_stop(&s->agents[i].agent);
    control_close(&s->control);
    uv_run(&s->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&s->loop), 0);
    control_hub_destroy(&s->hub);
    buffer_free(&s->manifest);
    buffer_free(&s->encoded);
    test_folder_remove(s->folder);
}

/* Agent (i + turn) % N gets stage i of a deployment over all agents. */
static inline void prepare(struct agent_scene *s, uint64_t deployment, uint64_t generation,
                           int turn, bool path)
{
    for (int i = 0; i < N_AGENTS; i++)
        snprintf(s->agents[i].state, sizeof s->agents[i].state, "told");
    for (int i = 0; i < N_AGENTS; i++) {
        struct played *a = &s->agents[(i + turn) % N_AGENTS];
        struct message_peer peers[N_AGENTS];
        size_t n_peers = 0;
        for (int k = 0; k < N_AGENTS; k++)
            if (&s->agents[k] != a)
                peers[n_peers++] = (struct message_peer){
                    s->agents[k].name, {s->agents[k].address, s->agents[k].address_size}};
        struct message m = {.type = MESSAGE_STAGE_PREPARE};
        m.u.stage_prepare =
            (struct message_stage_prepare){.deployment = deployment,
                                           .generation = generation,
                                           .stage = (uint64_t)i,
                                           .n_stages = N_AGENTS,
                                           .session = 1000 * deployment + generation,
                                           .deployment_name = "d",
                                           .model = {s->id.bytes, DIGEST_BYTES},
                                           .manifest = {s->manifest.data, s->manifest.size},
                                           .first_layer = s->cuts[i],
                                           .end_layer = s->cuts[i + 1],
                                           .compute = "f32",
                                           .context = 128,
                                           .kv_tokens = 1024,
                                           .max_sequences = 8,
                                           .max_batch_tokens = 64,
                                           .source_machine = s->machine,
                                           .source_path = path ? s->source : "",
                                           .peers = {peers, n_peers}};
        send_to(s, a->peer, &m);
    }
    run_until(s, all_ready, "preparing");
    for (int i = 0; i < N_AGENTS; i++) {
        struct played *next = &s->agents[(i + 1 + turn) % N_AGENTS],
                      *first = &s->agents[turn % N_AGENTS];
        struct message m = {.type = MESSAGE_STAGE_CONNECT};
        m.u.stage_connect = (struct message_stage_connect){.deployment = deployment,
                                                           .generation = generation,
                                                           .stage = (uint64_t)i,
                                                           .n_stages = N_AGENTS};
        if (i < N_AGENTS - 1)
            m.u.stage_connect.next_address = (struct pack_span){next->address, next->address_size};
        else
            m.u.stage_connect.first_address =
                (struct pack_span){first->address, first->address_size};
        send_to(s, s->agents[(i + turn) % N_AGENTS].peer, &m);
    }
}

static inline void unload(struct agent_scene *s, uint64_t deployment, uint64_t generation)
{
    struct message m = {.type = MESSAGE_STAGE_UNLOAD};
    m.u.stage_unload = (struct message_stage_unload){deployment, generation};
    for (int i = 0; i < N_AGENTS; i++)
        send_to(s, s->agents[i].peer, &m);
    run_until(s, all_unloaded, "unloading");
}

#endif
