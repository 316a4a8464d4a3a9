/* Pools of a language model without memory: every allocation of applying it, of finding it by its
 * name, of a text that is asked and of its end fails once. The core goes on, and what was asked has
 * its end. */
#include <stdio.h>

#include "common/log.h"
#include "coordinator/core.h"
#include "coordinator/model_slots.h"
#include "coordinator/pools/pools.h"
#include "tests/manifest_fixture.h"
#include "tests/unit/faults.h"
#include "transport/message.h"

enum { AGENT = 10, ADMIN = 1, SAID = 8 };

static const char admin_key[] = "admin-key-of-forty-characters-0123456789",
                  agent_key[] = "agent-00-key-of-forty-characters-0123456";
static char handle;
static const struct layer_facts layer = {.name = "embed", .class_name = "embed"};
static const struct model_facts facts = {.architecture = "bert",
                                         .layers = &layer,
                                         .n_layers = 1,
                                         .handle = (struct model *)(void *)&handle};

/* What is said to the core, made while memory is there. */
static struct {
    uint64_t peer;
    struct buffer bytes;
} said[SAID];
static int n_said;

struct pools_faults_run {
    struct env_virtual clock;
    struct env env;
    struct coord *core;
    bool found, served;
    int opened, ended;
};

static int best_found, best_served;
static json_t *workload; /* what is applied. As a message jansson would read it, which writes beyond
                            its buffers where they cannot grow (2.14, strbuffer_append_byte) */

static void say(uint64_t peer, const struct message *m)
{
    message_encode(m, &said[n_said].bytes);
    said[n_said++].peer = peer;
}

static void ask(const char *verb, const char *arguments)
{
    struct message m = {.type = MESSAGE_ASK, .id = 5, .u.ask = {verb, arguments, {0}}};
    say(ADMIN, &m);
}

static int script(void **state)
{
    (void)state;
    static char apply[6000];
    static const char node[] = "{\"name\": \"x\", \"devices\": [{\"name\": \"cpu\", \"kind\": "
                               "\"fast\", \"memory_bytes\": 1e9}], \"nics\": []}";
    static const char tensor[] = "{\"name\": \"%s\", \"type\": 7, \"dims\": [-1, -1], "
                                 "\"length_axis\": 1}";
    char ids[120], mask[120];
    json_t *manifest = manifest_json_of("m.gguf", 100);
    snprintf(ids, sizeof ids, tensor, "input_ids");
    snprintf(mask, sizeof mask, tensor, "attention_mask");
    snprintf(
        apply, sizeof apply,
        "{\"workload\": {\"format\": \"hp-workload/1\", \"models\": [{\"name\": "
        "\"m\", \"weight\": 1, \"slo_s\": 0.1}], \"slo_margin\": 0.2, \"max_stages\": 1}, "
        "\"profiles\": {\"m\": {\"format\": \"hp-profile/1\", \"model\": \"m\", \"length\": 4, "
        "\"layers\": [{\"class\": \"b\", \"output_bytes\": 8}], \"latency\": {\"fast\": {\"b\": "
        "{\"share\": [1], \"batch\": [1], \"seconds\": [[0.004]]}}}}}, \"source_machine\": "
        "\"x\", \"networks\": [{\"name\": \"m\", \"manifest\": \"%s\", \"source_path\": "
        "\"/m.gguf\", \"limit_bytes\": 1000, \"inputs\": [%s, %s], \"outputs\": [{\"name\": "
        "\"embedding\", \"type\": 1, \"dims\": [-1, 8]}], \"lengths\": [4], "
        "\"length_symbols\": [\"tokens\"], \"mask\": \"attention_mask\", \"text\": true}]}",
        json_string_value(manifest), ids, mask);
    json_decref(manifest);
    struct message join = {.type = MESSAGE_JOIN, .id = 3};
    join.u.join = (struct message_join){.name = "a0",
                                        .node = node,
                                        .hostname = "h",
                                        .machine = "m",
                                        .data_address = {(const uint8_t *)"a0", 2}};
    say(AGENT, &join);
    struct message beat = {.type = MESSAGE_HEARTBEAT};
    say(AGENT, &beat);
    workload = json_loads(apply, 0, NULL);
    assert_non_null(workload);
    n_said++;
    struct message ready = {
        .type = MESSAGE_STAGE_STATE,
        .u.stage_state = {
            .deployment = 1, .generation = 1, .state = "ready", .code = "", .text = ""}};
    say(AGENT, &ready);
    say(AGENT, &beat);
    ask("pools", "{}");
    ask("pools.remove", "{}");
    return 0;
}

static int script_end(void **state)
{
    (void)state;
    for (int i = 0; i < n_said; i++)
        buffer_free(&said[i].bytes);
    json_decref(workload);
    return 0;
}

static int data_open(void *ctx, struct pack_span there, struct pack_span *own, struct err *e)
{
    static const uint8_t address[] = "c";
    (void)ctx, (void)there, (void)e;
    *own = (struct pack_span){address, sizeof address};
    return 0;
}

static void settle(struct pools_faults_run *r)
{
    size_t n;
    const struct coord_action *a;
    while (a = coord_take(r->core, &n), n > 0)
        for (size_t i = 0; i < n; i++)
            switch (a[i].kind) {
            case COORD_FRAME: coord_frame_free(a[i].frame); break;
            case COORD_STORE: coord_stored(r->core, a[i].number, NULL); break;
            case COORD_MODEL_OPEN: coord_model_opened(r->core, a[i].key, &facts, NULL); break;
            case COORD_WORK: /* planners have a test of their own; lp_solve bears no such thing */
                faults.armed = false;
                a[i].work->run(a[i].work);
                faults.armed = true;
                coord_worked(r->core, a[i].work);
                break;
            default: break;
            }
}

static void on_answered(void *ctx, struct ndarray *outputs, const struct infer_times *times)
{
    (void)ctx, (void)outputs, (void)times;
    abort(); /* no agent computes here */
}

static void on_failed(void *ctx, const struct err *why)
{
    struct pools_faults_run *r = ctx;
    r->ended += why->code < 0;
}

/* A text, whose agent never answers. */
static void text_ask(struct pools_faults_run *r)
{
    static int64_t ids[] = {1, 2}, ones[] = {1, 1};
    static const struct ndarray inputs[] = {{ND_I64, 2, {1, 2}, 2, ids, false},
                                            {ND_I64, 2, {1, 2}, 2, ones, false}};
    struct pool_requests pools;
    struct pool_text text;
    struct err e = {0};
    uint64_t id;
    uint32_t unused;
    coord_pool_requests(r->core, &pools);
    r->found = pools.text(pools.ctx, NULL, "m", &text, &e) == 0;
    const struct pool_call call = {
        .model = "m", .inputs = inputs, .ctx = r, .answered = on_answered, .failed = on_failed};
    if (pools.infer(pools.ctx, &call, &id, &unused, &e) == 0) {
        r->served = true;
        r->opened++;
    }
    coord_pools_run(r->core);
    settle(r);
}

static void said_tell(struct pools_faults_run *r, int i)
{
    struct err e = {0};
    json_t *copy;
    if (said[i].bytes.size)
        coord_message(r->core, said[i].peer, said[i].peer == ADMIN ? admin_key : agent_key,
                      said[i].bytes.data, said[i].bytes.size);
    else if ((copy = json_deep_copy(workload)) != NULL)
        pools_apply(r->core, ADMIN, 5, copy, false, &e);
}

static int pools_live(void *ctx)
{
    static const char record[] = "{\"key\": \"agent-00-key-of-forty-characters-0123456\", "
                                 "\"machine\": \"m\", \"hostname\": \"h\"}";
    struct pools_faults_run r = {0};
    struct err e = {0};
    (void)ctx;
    r.env = env_virtual_init(&r.clock, 7);
    r.clock.now_ns = 1000000000;
    struct coord_config config = {.env = &r.env,
                                  .cluster = "c",
                                  .version = "v",
                                  .public_key = admin_key,
                                  .admin_key = admin_key,
                                  .unix_s = 1000,
                                  .profile_ms = UINT64_MAX,
                                  .data_open = data_open};
    int rc = coord_create(&config, &r.core, &e);
    rc = rc < 0 ? rc : coord_restore(r.core, "agent", "a0", record, strlen(record), &e);
    if (rc == 0) {
        coord_start(r.core, true);
        settle(&r);
        for (int i = 0; i < n_said; i++) {
            if (i == n_said - 1)
                text_ask(&r);
            said_tell(&r, i);
            settle(&r);
            r.clock.now_ns += 100000000;
            coord_tick(r.core);
            settle(&r);
        }
        for (int i = 0; i < 40; i++) { /* the agent is silent from here on */
            r.clock.now_ns += 1000000000;
            coord_pools_run(r.core);
            coord_tick(r.core);
            settle(&r);
        }
        best_found += r.found;
        best_served += r.served;
        if (r.ended != r.opened)
            rc = HP_EBUG;
    }
    coord_destroy(&r.core);
    return rc;
}

TEST(pools_of_a_language_model_bear_every_failing_allocation)
{
    log_set_level(getenv("HP_LOG") ? LOG_INFO : LOG_ERROR);
    faults_each("pools of a language model", pools_live, NULL);
    assert_true(best_found > 0 && best_served > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(
        pools_of_a_language_model_bear_every_failing_allocation, script, script_end)};
    return cmocka_run_group_tests_name("pools_faults", tests, NULL, NULL);
}
