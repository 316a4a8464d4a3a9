/* A deployment whose long sequences are copied to an agent without weights, without memory: every
 * allocation of making that place, a copy, losing the stage, going on and of losing the keeper
 * fails once. The core goes on, and every request that it took has its end. */
#include "common/log.h"
#include "common/manifest.h"
#include "coordinator/core.h"
#include "coordinator/deployment.h"
#include "coordinator/model_facts.h"
#include "tests/unit/faults.h"
#include "transport/message.h"

enum { AGENTS = 2, ADMIN = 1, SAID = 64, HELD = 4, LAYERS = 2 };

static const char admin_key[] = "admin-key-of-forty-characters-0123456789";
static const char *const keys[AGENTS] = {"agent-00-key-of-forty-characters-0123456",
                                         "agent-01-key-of-forty-characters-0123456"};
static const struct layer_facts layers[LAYERS] = {
    {"embed", "embed", 1000, 500, 0, 8, 0, 0, 0, 0, 0, 0, 0},
    {"blk.0.attn", "attn", 8000, 4000, 64, 8, 8000, 0, 0, 0, 0, 0, 0}};
static const uint32_t kv_before[LAYERS + 1][MODEL_KV_GROUPS] = {{0}, {0}, {1}}, ends[] = {2};
static const struct model_facts facts = {.architecture = "toy",
                                         .layers = layers,
                                         .n_layers = LAYERS,
                                         .kv_before = kv_before,
                                         .vocabulary = 100,
                                         .width = 4,
                                         .context = 256,
                                         .end_ids = ends,
                                         .n_end_ids = 1};
static struct buffer manifest;

struct faults_copies {
    struct env_virtual clock;
    struct env env;
    struct coord *core;
    int opened, ended;
    struct { /* what agents have yet to say */
        int agent;
        struct buffer bytes;
    } said[SAID];
    int n_said;
    bool silent[AGENTS];
    struct message_held_stage held[AGENTS][HELD];
    size_t n_held[AGENTS];
    struct message_sequence_open own; /* the last that a stage with weights was given */
    bool own_runs;
};

/* ---- agents: what they say is made while memory is there ---- */

static void message_say(struct faults_copies *r, int agent, const struct message *m)
{
    bool armed = faults.armed;
    faults.armed = false;
    if (r->n_said < SAID) {
        r->said[r->n_said].agent = agent;
        r->said[r->n_said].bytes = (struct buffer){0};
        message_encode(m, &r->said[r->n_said++].bytes);
    }
    faults.armed = armed;
}

static void stage_say(struct faults_copies *r, int agent, const struct message_stage_prepare *p,
                      const char *state)
{
    struct message m = {.type = MESSAGE_STAGE_STATE,
                        .u.stage_state = {.deployment = p->deployment,
                                          .generation = p->generation,
                                          .stage = p->stage,
                                          .state = state,
                                          .code = "",
                                          .text = ""}};
    message_say(r, agent, &m);
}

static void stage_take(struct faults_copies *r, int agent, const struct message_stage_prepare *p)
{
    if (r->n_held[agent] < HELD)
        r->held[agent][r->n_held[agent]++] =
            (struct message_held_stage){.deployment = p->deployment,
                                        .generation = p->generation,
                                        .stage = p->stage,
                                        .state = "ready"};
    stage_say(r, agent, p, "ready");
}

static void stage_drop(struct faults_copies *r, int agent, const struct message_stage_unload *u)
{
    for (size_t i = r->n_held[agent]; i-- > 0;)
        if (r->held[agent][i].deployment == u->deployment)
            r->held[agent][i] = r->held[agent][--r->n_held[agent]];
    const struct message_stage_prepare p = {.deployment = u->deployment,
                                            .generation = u->generation};
    stage_say(r, agent, &p, "unloaded");
}

static void tokens_say(struct faults_copies *r, const char *finish)
{
    static const uint32_t ids[] = {7};
    struct message_said row = {r->own.sequence, r->own.sampled, {ids, 1}, finish, 0, {NULL, 0}};
    struct message m = {.type = MESSAGE_TOKENS,
                        .u.tokens = {.deployment = r->own.deployment,
                                     .generation = r->own.generation,
                                     .said = {&row, 1}}};
    if (r->own_runs)
        message_say(r, 0, &m);
    r->own.sampled++;
    r->own_runs = r->own_runs && !finish[0];
}

static void kv_say(struct faults_copies *r, int agent, uint64_t id,
                   const struct message_kv_state *k)
{
    struct message m = {.type = MESSAGE_KV_STATE, .id = id, .u.kv_state = *k};
    m.u.kv_state.code = m.u.kv_state.text = "";
    message_say(r, agent, &m);
}

/* As an agent does whose stages have nothing else to do. */
static void agent_hear(struct faults_copies *r, int agent, const struct message *m)
{
    const struct message_kv_import *in = &m->u.kv_import;
    const struct message_kv_export *x = &m->u.kv_export;
    if (r->silent[agent])
        return;
    if (m->type == MESSAGE_STAGE_PREPARE)
        stage_take(r, agent, &m->u.stage_prepare);
    else if (m->type == MESSAGE_STAGE_UNLOAD)
        stage_drop(r, agent, &m->u.stage_unload);
    else if (m->type == MESSAGE_KV_IMPORT)
        kv_say(r, agent, m->id,
               &(struct message_kv_state){in->deployment, in->generation, in->stage, in->sequence,
                                          .state = "awaited"});
    if (m->type == MESSAGE_KV_EXPORT) {
        kv_say(r, agent, m->id,
               &(struct message_kv_state){x->deployment, x->generation, x->stage, x->sequence,
                                          .state = "sent"});
        kv_say(r, 1 - agent, m->id,
               &(struct message_kv_state){x->to_deployment, x->to_generation, x->to_stage,
                                          x->to_sequence, .state = "received"});
    }
    if (m->type == MESSAGE_SEQUENCE_OPEN && m->u.sequence_open.prompt.count > 0) {
        r->own = m->u.sequence_open;
        r->own_runs = true;
        tokens_say(r, "");
    }
}

static void sent_hear(struct faults_copies *r, const struct coord_action *a)
{
    struct arena arena = {0};
    struct message m;
    bool armed = faults.armed;
    faults.armed = false;
    if (a->peer >= 10 && message_decode(a->bytes, a->size, &arena, &m, NULL) == 0)
        agent_hear(r, (int)a->peer - 10, &m);
    arena_free(&arena);
    faults.armed = armed;
}

/* ---- the core ---- */

static void actions_do(struct faults_copies *r)
{
    size_t n;
    const struct coord_action *a;
    while (a = coord_take(r->core, &n), n > 0)
        for (size_t i = 0; i < n; i++)
            switch (a[i].kind) {
            case COORD_STORE: coord_stored(r->core, a[i].number, NULL); break;
            case COORD_MODEL_OPEN: coord_model_opened(r->core, a[i].key, &facts, NULL); break;
            case COORD_WORK:
                a[i].work->run(a[i].work);
                coord_worked(r->core, a[i].work);
                break;
            case COORD_SEND: sent_hear(r, &a[i]); break;
            case COORD_TOKENS:
            case COORD_FINISHED:
            case COORD_FAILED: coord_action_call_back(&a[i]); break;
            default: break;
            }
}

static void settle(struct faults_copies *r)
{
    actions_do(r);
    for (int i = 0; i < r->n_said; i++) { /* it may grow */
        struct buffer bytes = r->said[i].bytes;
        int agent = r->said[i].agent;
        coord_message(r->core, 10 + (uint64_t)agent, keys[agent], bytes.data, bytes.size);
        buffer_free(&bytes);
        actions_do(r);
    }
    r->n_said = 0;
}

/* Of what beats and joins as any agent does no allocation fails: others see to that. */
static void agents_beat(struct faults_copies *r)
{
    bool armed = faults.armed;
    faults.armed = false;
    for (int i = 0; i < AGENTS; i++) {
        struct message beat = {.type = MESSAGE_HEARTBEAT,
                               .u.heartbeat = {.held = {r->held[i], r->n_held[i]}}};
        if (!r->silent[i])
            message_say(r, i, &beat);
    }
    settle(r);
    faults.armed = armed;
}

static void pass_ms(struct faults_copies *r, uint64_t ms)
{
    for (; ms; ms -= 500) {
        r->clock.now_ns += UINT64_C(500000000);
        agents_beat(r);
        coord_tick(r->core);
        settle(r);
    }
}

static void agent_join(struct faults_copies *r, int agent)
{
    static const char node[] = "{\"name\": \"x\", \"devices\": [{\"name\": \"cpu\", \"kind\": "
                               "\"k\", \"memory_bytes\": 1e9}], \"nics\": []}";
    char name[] = {'a', (char)('0' + agent), 0};
    struct message m = {.type = MESSAGE_JOIN, .id = 3};
    m.u.join = (struct message_join){.name = name,
                                     .node = node,
                                     .hostname = "h",
                                     .machine = "m",
                                     .data_address = {(const uint8_t *)name, 2}};
    r->n_held[agent] = 0;
    r->silent[agent] = false;
    message_say(r, agent, &m);
    settle(r);
}

static void hpctl_ask(struct faults_copies *r, const char *verb, const char *arguments)
{
    struct buffer bytes = {0};
    struct message m = {
        .type = MESSAGE_ASK, .id = 5, .u.ask = {verb, arguments, {manifest.data, manifest.size}}};
    bool armed = faults.armed;
    faults.armed = false;
    message_encode(&m, &bytes);
    faults.armed = armed;
    coord_message(r->core, ADMIN, admin_key, bytes.data, bytes.size);
    buffer_free(&bytes);
    settle(r);
}

static void on_tokens(void *ctx, uint64_t request, const uint32_t *ids, size_t n)
{
    (void)ctx, (void)request, (void)ids, (void)n;
}

static void on_finished(void *ctx, uint64_t request, enum request_finish finish,
                        const struct request_usage *usage)
{
    struct faults_copies *r = ctx;
    (void)request, (void)finish, (void)usage;
    r->ended++;
}

static void on_failed(void *ctx, uint64_t request, const struct err *why,
                      const struct request_usage *usage)
{
    struct faults_copies *r = ctx;
    (void)request, (void)why, (void)usage;
    r->ended++;
}

static void request_open(struct faults_copies *r)
{
    static const uint32_t prompt[70] = {1, 3, 4};
    struct requests requests;
    uint64_t id;
    struct request_spec q = {.model = "d",
                             .prompt = prompt,
                             .n_prompt = 70,
                             .max_tokens = 50,
                             .callbacks = {r, on_tokens, on_finished, on_failed, NULL, NULL}};
    coord_requests(r->core, &requests);
    r->opened += requests.open(requests.ctx, &q, &id, NULL) == 0;
    settle(r);
}

/* ---- what happens ---- */

static struct {
    uint64_t copied, lost, recovered;
    bool gone; /* its keeper ended with the deployment */
} best;

static void best_note(struct faults_copies *r)
{
    const struct deployment *d = deployment_find(r->core, "d");
    if (!d)
        return;
    best.copied = d->replicas.copied > best.copied ? d->replicas.copied : best.copied;
    best.lost = d->losses.sequences > best.lost ? d->losses.sequences : best.lost;
    best.recovered = d->losses.recovered > best.recovered ? d->losses.recovered : best.recovered;
}

static void live(struct faults_copies *r)
{
    bool armed = faults.armed;
    faults.armed = false;
    for (int i = 0; i < AGENTS; i++)
        agent_join(r, i);
    pass_ms(r, 500);
    faults.armed = armed;
    hpctl_ask(
        r, "deploy",
        "{\"name\": \"d\", \"options\": {\"agents\": \"a0\", \"slice\": 80, \"max_context\": 128, "
        "\"replicate_kv\": 64, "
        "\"replicate_to\": \"auto\"}}");
    pass_ms(r, 1000);
    request_open(r);
    tokens_say(r, "");
    pass_ms(r, 1000);
    agent_join(r, 0); /* it was started again */
    pass_ms(r, 6000);
    best_note(r);
    tokens_say(r, "length");
    request_open(r);
    pass_ms(r, 1000);
    r->silent[1] = true; /* the keeper is lost */
    pass_ms(r, 4000);
    best_note(r);
    hpctl_ask(r, "undeploy", "{\"name\": \"d\"}");
    pass_ms(r, 5500);
    best.gone |= !deployment_find(r->core, "d/copy");
    r->silent[0] = true; /* where the question was lost, too */
    for (int i = 0; i < 700 && r->ended < r->opened; i++) {
        r->clock.now_ns += UINT64_C(1000000000);
        coord_tick(r->core);
        settle(r);
    }
}

static int copies_live(void *ctx)
{
    static const char record[] =
        "{\"key\": \"agent-0%d-key-of-forty-characters-0123456\", \"machine\": \"m\", "
        "\"hostname\": \"h\"}";
    struct faults_copies *r = ctx;
    struct err e = {0};
    *r = (struct faults_copies){0};
    r->env = env_virtual_init(&r->clock, 7);
    r->clock.now_ns = 1000000000;
    struct coord_config config = {.env = &r->env,
                                  .cluster = "c",
                                  .version = "v",
                                  .public_key = admin_key,
                                  .admin_key = admin_key,
                                  .unix_s = 1000,
                                  .profile_ms = UINT64_MAX};
    int rc = coord_create(&config, &r->core, &e);
    for (int i = 0; rc == 0 && i < AGENTS; i++) {
        char name[] = {'a', (char)('0' + i), 0}, text[160];
        snprintf(text, sizeof text, record, i);
        rc = coord_restore(r->core, "agent", name, text, strlen(text), &e);
    }
    if (rc == 0) {
        coord_start(r->core, true);
        settle(r);
        live(r);
        rc = r->ended == r->opened ? 0 : HP_EBUG;
    }
    coord_destroy(&r->core);
    return rc;
}

TEST(copies_and_whoever_keeps_them_bear_every_failing_allocation)
{
    static struct faults_copies r;
    static const uint8_t head[4] = "head";
    struct manifest_file file = {"m.gguf", 4096};
    struct manifest_head first = {0, 0, {head, sizeof head}};
    struct manifest m = {.name = "toy", .files = {&file, 1}, .heads = {&first, 1}};
    log_set_level(getenv("HP_LOG") ? LOG_INFO : LOG_ERROR);
    manifest_encode(&m, &manifest);
    assert_int_equal(copies_live(&r), 0);
    assert_int_equal(r.opened, 2); /* it does what it is for */
    assert_true(best.copied >= 2 && best.lost > 0 && best.recovered > 0 && best.gone);
    faults_each("copies", copies_live, &r);
    buffer_free(&manifest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_and_whoever_keeps_them_bear_every_failing_allocation)};
    return cmocka_run_group_tests_name("keeper faults", tests, NULL, NULL);
}
