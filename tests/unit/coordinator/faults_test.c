/* A coordinator's core without memory: every allocation of an agent's way in, a deployment, a
 * request and hpctl's questions fails once. The core goes on, and every request that it took has
 * its end. */
#include "common/log.h"
#include "common/manifest.h"
#include "coordinator/core.h"
#include "coordinator/deployment.h"
#include "coordinator/effects.h"
#include "coordinator/member.h"
#include "coordinator/model_slots.h"
#include "tests/unit/faults.h"

enum { SAID = 32, AGENT = 10, ADMIN = 1 };

static const char admin_key[] = "admin-key-of-forty-characters-0123456789",
                  agent_key[] = "agent-00-key-of-forty-characters-0123456";
static const struct layer_facts layers[] = {
    {"embed", "embed", 1000, 500, 0, 8, 0, 0, 0, 0, 0, 0, 0},
    {"blk.0.mlp", "mlp", 8000, 4000, 64, 8, 8000, 0, 0, 0, 0, 0, 0}};
static const uint32_t ends[] = {2};
static const struct model_facts facts = {.architecture = "toy",
                                         .layers = layers,
                                         .n_layers = 2,
                                         .vocabulary = 100,
                                         .width = 4,
                                         .context = 256,
                                         .end_ids = ends,
                                         .n_end_ids = 1};

/* What is said to the core, made while memory is there. */
static struct {
    uint64_t peer;
    const char *key;
    struct buffer bytes;
    bool request; /* one is opened before it */
} said[SAID];
static int n_said;

static void say(uint64_t peer, bool request, const struct message *m)
{
    message_encode(m, &said[n_said].bytes);
    said[n_said].peer = peer;
    said[n_said].key = peer == ADMIN ? admin_key : agent_key;
    said[n_said++].request = request;
}

static void ask(const char *verb, const char *arguments, struct pack_span blob)
{
    struct message m = {.type = MESSAGE_ASK, .id = 5, .u.ask = {verb, arguments, blob}};
    say(ADMIN, false, &m);
}

static int script(void **state)
{
    (void)state;
    static const uint8_t head[4] = "head";
    static const char node[] = "{\"name\": \"x\", \"devices\": [{\"name\": \"cpu\", \"kind\": "
                               "\"k\", \"memory_bytes\": 1e9}], \"nics\": []}";
    static const uint32_t ids[] = {7, 2};
    static const struct score scores[] = {{1, -0.5f}, {1, -0.25f}};
    struct manifest_file file = {"m.gguf", 4096};
    struct manifest_head first = {0, 0, {head, sizeof head}};
    struct manifest manifest = {.name = "toy", .files = {&file, 1}, .heads = {&first, 1}};
    struct buffer blob = {0};
    struct message m = {.type = MESSAGE_JOIN, .id = 3};
    m.u.join = (struct message_join){.name = "a0",
                                     .node = node,
                                     .hostname = "h",
                                     .machine = "m",
                                     .data_address = {(const uint8_t *)"a0", 2}};
    say(AGENT, false, &m);
    struct message beat = {.type = MESSAGE_HEARTBEAT};
    say(AGENT, false, &beat);
    manifest_encode(&manifest, &blob);
    ask("deploy", "{\"name\": \"d\", \"options\": {}}", (struct pack_span){blob.data, blob.size});
    static const uint32_t wanted[] = {0};
    struct message fetching = {.type = MESSAGE_STAGE_STATE,
                               .u.stage_state = {.deployment = 1,
                                                 .generation = 1,
                                                 .state = "fetching",
                                                 .wanted = {wanted, 1},
                                                 .code = "",
                                                 .text = ""}};
    say(AGENT, false, &fetching);
    struct message ready = {
        .type = MESSAGE_STAGE_STATE,
        .u.stage_state = {
            .deployment = 1, .generation = 1, .state = "ready", .code = "", .text = ""}};
    say(AGENT, false, &ready);
    struct message_prefill_slice pieces[] = {{0, 70, 1, 2, 3, 1}, {70, 1, 4, 5, 6, 1}};
    uint64_t sequence = (uint64_t)1 << 32 | 1;
    struct message prefill = {.type = MESSAGE_PREFILL,
                              .u.prefill = {1, 1, sequence, 0, 9, {pieces, 1}, false, false}};
    struct message decode = {.type = MESSAGE_DECODE,
                             .u.decode = {1, 1, sequence, 0, 9, {pieces + 1, 1}}};
    struct message_said row = {sequence, 0, {ids, 2},
                               "stop",   0, {(const uint8_t *)scores, sizeof scores}};
    struct message tokens = {.type = MESSAGE_TOKENS,
                             .u.tokens = {.deployment = 1, .generation = 1, .said = {&row, 1}}};
    say(AGENT, true, &prefill);
    say(AGENT, false, &decode);
    say(AGENT, false, &tokens);
    ask("key.create", "{\"name\": \"me\", \"models\": [\"d\"]}", (struct pack_span){0});
    ask("key.edit", "{\"name\": \"me\", \"models\": [\"d\", \"e\"]}", (struct pack_span){0});
    ask("key.ls", "{}", (struct pack_span){0});
    ask("node.describe", "{\"name\": \"a0\"}", (struct pack_span){0});
    ask("deployment.describe", "{\"name\": \"d\"}", (struct pack_span){0});
    say(AGENT, true, &beat);
    ask("rebalance", "{\"name\": \"d\", \"margin\": 0}", (struct pack_span){0});
    ask("node.drain", "{\"name\": \"a0\"}", (struct pack_span){0});
    ask("token.create", "{}", (struct pack_span){0});
    ask("greedy", "{\"deployment\": \"d\", \"ids\": [1, 3], \"tokens\": 2}", (struct pack_span){0});
    ask("logs", "{\"node\": \"a0\"}", (struct pack_span){0});
    ask("topo", "{}", (struct pack_span){0});
    ask("weights.ls", "{}", (struct pack_span){0});
    ask("profile.ls", "{}", (struct pack_span){0});
    say(AGENT, true, &beat); /* this request is never answered */
    ask("undeploy", "{\"name\": \"d\"}", (struct pack_span){0});
    buffer_free(&blob);
    return 0;
}

static int script_end(void **state)
{
    (void)state;
    for (int i = 0; i < n_said; i++)
        buffer_free(&said[i].bytes);
    return 0;
}

struct faults_run {
    struct env_virtual clock;
    struct env env;
    struct coord *core;
    int opened, ended, shared; /* requests; those that began as another */
    size_t scored;             /* tokens that were told with a score */
    bool described;            /* the first steps of an answer were told of */
};

static void on_tokens(void *ctx, uint64_t request, const uint32_t *ids, size_t n)
{
    (void)ctx, (void)request, (void)ids, (void)n;
}

static void on_scores(void *ctx, uint64_t request, bool of_prompt, const struct score *scores,
                      size_t n)
{
    struct faults_run *r = ctx;
    (void)request, (void)of_prompt, (void)scores;
    r->scored += n;
}

static void on_finished(void *ctx, uint64_t request, enum request_finish finish,
                        const struct request_usage *usage)
{
    struct faults_run *r = ctx;
    (void)request, (void)finish;
    r->ended++;
    r->shared += usage->cached_tokens > 0;
}

static void on_failed(void *ctx, uint64_t request, const struct err *why,
                      const struct request_usage *usage)
{
    struct faults_run *r = ctx;
    (void)request;
    r->ended += why->code < 0;
    r->shared += usage->cached_tokens > 0;
}

/* What the store has while the first request runs. */
enum { RECORDS = 16, STREAM = 0x50000 };
static struct {
    char kind[16], key[96];
    struct buffer bytes;
} kept[RECORDS];
static int n_kept;
static bool keeps;

static void record_keep_for(const struct coord_action *a)
{
    int i = 0;
    keeps = keeps && !strstr(a->key, ".end");
    while (i < n_kept &&
           (strcmp(kept[i].key, a->key) != 0 || strcmp(kept[i].kind, a->record_kind) != 0))
        i++;
    if (!keeps || !a->bytes || i == RECORDS)
        return;
    n_kept = i < n_kept ? n_kept : i + 1;
    snprintf(kept[i].kind, sizeof kept[i].kind, "%s", a->record_kind);
    snprintf(kept[i].key, sizeof kept[i].key, "%s", a->key);
    kept[i].bytes.size = 0;
    buffer_append(&kept[i].bytes, a->bytes, a->size);
}

static void settle(struct faults_run *r)
{
    size_t n;
    const struct coord_action *a;
    while (a = coord_take(r->core, &n), n > 0)
        for (size_t i = 0; i < n; i++)
            switch (a[i].kind) {
            case COORD_STORE:
                record_keep_for(&a[i]);
                coord_stored(r->core, a[i].number, NULL);
                break;
            case COORD_MODEL_OPEN: coord_model_opened(r->core, a[i].key, &facts, NULL); break;
            case COORD_WORK:
                a[i].work->run(a[i].work);
                coord_worked(r->core, a[i].work);
                break;
            case COORD_SEND:
                r->described |= memmem(a[i].bytes, a[i].size, "\"decode\"", 8) != NULL;
                break;
            case COORD_TOKENS:
            case COORD_SCORES:
            case COORD_FINISHED:
            case COORD_FAILED: coord_action_call_back(&a[i]); break;
            default: break;
            }
}

static void request_open(struct faults_run *r)
{
    static const uint32_t prompt[70] = {1, 3, 4}; /* long enough to be shared */
    struct requests requests;
    uint64_t id;
    struct request_spec q = {.model = "d",
                             .prompt = prompt,
                             .n_prompt = 70,
                             .max_tokens = 4,
                             .said_scores = 1,
                             .stream = STREAM,
                             .note = {(const uint8_t *)"n", 1},
                             .callbacks = {r, on_tokens, on_finished, on_failed, NULL, on_scores}};
    coord_requests(r->core, &requests);
    r->opened += requests.open(requests.ctx, &q, &id, NULL) == 0;
    settle(r);
}

static void pass_ms(struct faults_run *r, uint64_t ms)
{
    r->clock.now_ns += ms * 1000000;
    coord_tick(r->core);
    settle(r);
}

static int opened_at_best, shared_at_best;
static bool told_at_best; /* scores, and the steps of an answer */

static int run_begin(struct faults_run *r, struct err *e)
{
    r->env = env_virtual_init(&r->clock, 7);
    r->clock.now_ns = 1000000000;
    struct coord_config config = {.env = &r->env,
                                  .cluster = "c",
                                  .version = "v",
                                  .public_key = admin_key,
                                  .admin_key = admin_key,
                                  .unix_s = 1000,
                                  .profile_ms = UINT64_MAX};
    return coord_create(&config, &r->core, e);
}

static int lives(void *ctx)
{
    (void)ctx;
    static const char record[] = "{\"key\": \"agent-00-key-of-forty-characters-0123456\", "
                                 "\"machine\": \"m\", \"hostname\": \"h\"}";
    struct faults_run r = {0};
    struct err e = {0};
    int rc = run_begin(&r, &e);
    if (rc == 0)
        rc = coord_restore(r.core, "agent", "a0", record, strlen(record), &e);
    if (rc == 0) {
        coord_start(r.core, true);
        settle(&r);
        for (int i = 0; i < n_said; i++) {
            if (said[i].request)
                request_open(&r);
            coord_message(r.core, said[i].peer, said[i].key, said[i].bytes.data,
                          said[i].bytes.size);
            settle(&r);
            pass_ms(&r, 100);
        }
        for (int i = 0; i < 100; i++) /* the agent is silent from here on */
            pass_ms(&r, 1000);
        shared_at_best = r.shared > shared_at_best ? r.shared : shared_at_best;
        told_at_best |= r.scored && r.described;
        opened_at_best = r.opened > opened_at_best ? r.opened : opened_at_best;
        if (r.ended != r.opened)
            rc = HP_EBUG;
    }
    coord_destroy(&r.core);
    return rc;
}

static void stream_attach(void *out, const struct request_before *s)
{
    struct faults_run *r = out;
    r->shared += s->stream == STREAM && !s->ended;
}

static struct buffer back[3]; /* what the agent says to the next coordinator */

static int backs_make(void)
{
    static const uint32_t ids[] = {7, 2};
    static const struct score scores[] = {{1, -0.5f}, {1, -0.25f}};
    static const char node[] = "{\"name\": \"x\", \"devices\": [{\"name\": \"cpu\", \"kind\": "
                               "\"k\", \"memory_bytes\": 1e9}], \"nics\": []}";
    struct message_held_stage held = {
        .deployment = 1, .generation = 1, .state = "ready", .sequences = 1};
    struct message join = {.type = MESSAGE_JOIN,
                           .u.join = {.name = "a0",
                                      .node = node,
                                      .hostname = "h",
                                      .machine = "m",
                                      .held = {&held, 1},
                                      .streams = 1}};
    struct message_stream row = {.deployment = 1,
                                 .generation = 1,
                                 .sequence = 77,
                                 .stream = STREAM,
                                 .open = true,
                                 .sampled = 1,
                                 .ids = {ids, 1},
                                 .scores = {(const uint8_t *)scores, sizeof *scores},
                                 .finish = ""};
    struct message streams = {.type = MESSAGE_STREAMS, .u.streams = {{&row, 1}, true}};
    struct message_said said_row = {77,     1, {ids + 1, 1},
                                    "stop", 0, {(const uint8_t *)(scores + 1), sizeof *scores}};
    struct message tokens = {
        .type = MESSAGE_TOKENS,
        .u.tokens = {.deployment = 1, .generation = 1, .said = {&said_row, 1}}};
    message_encode(&join, &back[0]);
    message_encode(&streams, &back[1]);
    message_encode(&tokens, &back[2]);
    return 0;
}

static uint64_t adopted_at_best;

/* The next run, to which the agent comes back with a request that goes on. */
static int comes_back(void *ctx)
{
    (void)ctx;
    struct faults_run r = {0};
    struct err e = {0};
    struct requests requests;
    int rc = run_begin(&r, &e);
    for (int k = 0; rc == 0 && coord_kinds[k]; k++)
        for (int i = 0; rc == 0 && i < n_kept; i++)
            if (strcmp(kept[i].kind, coord_kinds[k]) == 0)
                rc = coord_restore(r.core, kept[i].kind, kept[i].key, kept[i].bytes.data,
                                   kept[i].bytes.size, &e);
    if (rc == 0) {
        const struct request_callbacks callbacks = {.ctx = &r,
                                                    .tokens = on_tokens,
                                                    .finished = on_finished,
                                                    .failed = on_failed,
                                                    .scores = on_scores};
        coord_start(r.core, true);
        coord_requests(r.core, &requests);
        requests.streams(requests.ctx, stream_attach, &r);
        r.opened = r.shared && requests.attach(requests.ctx, STREAM, &callbacks);
        settle(&r);
        for (int i = 0; i < 3; i++) {
            coord_message(r.core, AGENT, agent_key, back[i].data, back[i].size);
            settle(&r);
            pass_ms(&r, 10);
        }
        uint64_t adopted = coord_view(r.core).sequences_adopted;
        adopted_at_best = adopted > adopted_at_best ? adopted : adopted_at_best;
        for (int i = 0; i < 700 && r.ended < r.opened; i++) /* the agent is silent */
            pass_ms(&r, 1000);
        if (r.ended != r.opened)
            rc = HP_EBUG;
    }
    coord_destroy(&r.core);
    return rc;
}

TEST(the_core_goes_on_without_memory)
{
    log_set_level(getenv("HP_LOG") ? LOG_INFO : LOG_ERROR);
    keeps = true;
    assert_int_equal(lives(NULL), 0);
    keeps = false;
    assert_int_equal(shared_at_best, 2); /* the others begin as the first */
    assert_int_equal(opened_at_best, 3); /* the script does what it is for */
    assert_true(told_at_best);

    faults_each("a coordinator's core", lives, NULL);
    assert_int_equal(backs_make(), 0);
    assert_int_equal(comes_back(NULL), 0);
    assert_int_equal(adopted_at_best, 1);
    faults_each("a coordinator that finds a request at work", comes_back, NULL);
    for (int i = 0; i < RECORDS; i++)
        buffer_free(&kept[i].bytes);
    for (int i = 0; i < 3; i++)
        buffer_free(&back[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_core_goes_on_without_memory, script, script_end)};
    return cmocka_run_group_tests_name("faults", tests, NULL, NULL);
}
