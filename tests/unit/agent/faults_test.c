/* What agent/ makes and handles, with every allocation failing once. */
#include "agent/agent_core.h"
#include "agent/backend/backend.h"
#include "agent/discover_devices.h"
#include "agent/engine/kv_cache.h"
#include "agent/engine/queue.h"
#include "agent/engine/sampler.h"
#include "agent/engine/section_plan.h"
#include "agent/engine/stage_int.h"
#include "agent/fetch.h"
#include "agent/weight_store.h"
#include "common/log.h"
#include "tests/message_fixture.h"
#include "tests/unit/agent/engine/tiny_model.h"
#include "tests/unit/agent/store_fixture.h"
#include "tests/unit/faults.h"

/* ---- the store ---- */

static int store_used(void *ctx)
{
    static const uint32_t seeds[] = {11, 12, 13};
    char folder[256];
    struct weight_store *s = NULL;
    struct store_model *m = NULL;
    struct err e = {0};
    uint8_t bytes[TEST_CHUNK];
    const struct buffer *manifest = ctx;
    test_folder_make(folder);
    int rc = weight_store_open(folder, 0, &s, &e);
    rc = rc < 0 ? rc : weight_store_hold(s, manifest->data, manifest->size, &m, &e);
    for (uint32_t i = 0; rc == 0 && i < 3; i++) {
        test_chunk_bytes(seeds[i], bytes);
        rc = weight_store_put(s, m, i, bytes, sizeof bytes, &e);
    }
    rc = rc < 0 ? rc : weight_store_sync(s, &e);
    rc = rc < 0 ? rc : weight_store_check(s, m, 1, &e);
    if (m)
        weight_store_release(s, m);
    weight_store_close(&s);
    /* What was there before the want of memory is there after it. */
    int again = weight_store_open(folder, 0, &s, &e);
    weight_store_close(&s);
    test_folder_remove(folder);
    return rc < 0 ? rc : again;
}

static int fetch_made(void *ctx)
{
    static const uint32_t chunks[] = {1, 2, 3}, bytes[] = {10, 10, 10};
    struct fetch *f = NULL;
    struct err e = {0};
    (void)ctx;
    int rc = fetch_create(chunks, bytes, 3, 2, &f, &e);
    if (rc == 0)
        fetch_destroy(&f);
    return rc;
}

static void store_bears_failing_allocations(void **state)
{
    static const uint32_t seeds[] = {11, 12, 13};
    struct buffer manifest = test_manifest("m.gguf", seeds, 3);
    (void)state;
    faults_each("store", store_used, &manifest);
    faults_each("fetch", fetch_made, NULL);
    buffer_free(&manifest);
}

/* ---- the engine ---- */

static struct device *device;
static struct tiny_model *tiny;

static int stage_used(void *ctx)
{
    struct stage_config c = {.first_layer = 0,
                             .end_layer = TINY_LAYERS,
                             .device = device,
                             .compute = COMPUTE_F32,
                             .kv_tokens = 64,
                             .max_sequences = 2,
                             .max_batch_tokens = 16};
    static const uint32_t ids[] = {1, 2, 3, 4, 5};
    struct stage *s = NULL;
    struct section_need need;
    struct err e = {0};
    float out[TINY_VOCABULARY];
    struct batch_run run = {1, 0, 5, 1, 0, false, 0, 0, 0, 0};
    uint64_t before = device->backend->memory_free(device);
    (void)ctx;
    int rc = stage_footprint_of_graph(&tiny->graph, &c, &need, &e);
    if (rc == 0 && (need.weight_bytes == 0 || need.activation_bytes == 0 || need.state_bytes == 0))
        return HP_EBUG; /* a footprint of 0 would pass any check */
    rc = rc < 0 ? rc : stage_load_graph(&tiny->graph, &tiny->config, &c, &s, &e);
    rc = rc < 0 ? rc : stage_sequence_open(s, 1, 32, &e);
    rc = rc < 0 ? rc : stage_run(s, &run, 1, ids, out, &e);
    stage_unload(&s);
    return rc == 0 && device->backend->memory_free(device) != before ? HP_EBUG : rc;
}

static int device_used(void *ctx)
{
    struct device_config c = {.backend = "cpu", .n_threads = 2, .memory_bytes = 1 << 20};
    struct device *d = NULL;
    struct err e = {0};
    (void)ctx;
    int rc = device_open(&c, &d, &e);
    if (rc == 0)
        device_close(&d);
    return rc;
}

static int sampler_used(void *ctx)
{
    struct sampling_params p = sampling_greedy;
    static const uint32_t prompt[] = {1, 2, 3, 3};
    struct sampler *s = NULL;
    struct err e = {0};
    float logits[TINY_VOCABULARY] = {0.5f, 1, 2};
    (void)ctx;
    p.temperature = 0.8;
    p.top_k = 20;
    p.top_p = 0.9;
    p.repetition_penalty = 1.1;
    struct sampling_bias bias = {2, 1};
    p.bias = (struct pack_list){&bias, 1};
    int rc = sampler_create(&p, TINY_VOCABULARY, prompt, 4, &s, &e);
    for (int i = 0; rc == 0 && i < 3; i++)
        sampler_pick(s, logits);
    sampler_destroy(&s);
    return rc;
}

static void queue_release(void *ctx, void *buffer)
{
    (void)buffer;
    --*(int *)ctx;
}

/* A middle stage's queue: sequences, frames, batches. Buffers are counted. */
static int queue_used(void *ctx)
{
    struct queue_config c = {.n_stages = 3,
                             .max_batch_tokens = 16,
                             .max_sequences = 4,
                             .hold_limit_ns = 1000,
                             .flight_limit_ns = 1000,
                             .flight_linger_ns = 10};
    struct queue *q = NULL;
    struct batch b = {0};
    struct batch_run run = {1, 0, 2, 0, 0, false, 0, 0, 0, 0};
    struct err e = {0};
    uint64_t dropped = 0;
    int buffers = 0, rc = queue_create(&c, &q, &e);
    (void)ctx;
    if (rc < 0)
        return rc;
    struct queue_sequence s = {.id = 1, .owner = &c};
    rc = queue_sequence_open(q, &s, &e);
    if (rc == 0) {
        queue_sequence_ready(q, 1);
        rc = queue_frame_add(q, 1, &run, 1, 2, &run, 0);
        buffers += rc == 0;
    }
    if (rc == 0 && queue_next(q, &b, &dropped)) {
        buffers -= b.input != NULL;
        queue_done(q, &b, 0, 0);
    } else if (rc == 0) {
        rc = HP_ENOMEM; /* waits until there is some */
    }
    queue_sequence_close(q, 1, 0);
    batch_free(&b);
    queue_destroy(&q, queue_release, &buffers);
    return buffers ? HP_EBUG : rc;
}

static void engine_bears_failing_allocations(void **state)
{
    struct device_config c = {.backend = "cpu", .n_threads = 1, .memory_bytes = 64 << 20};
    struct err e = {0};
    (void)state;
    tiny = tiny_model_make(3);
    if (device_open(&c, &device, &e) < 0)
        fail_msg("%s", e.text);
    stage_used(NULL); /* the device's scratch stays */
    faults_each("stage", stage_used, NULL);
    faults_each("sampler", sampler_used, NULL);
    faults_each("queue", queue_used, NULL);
    device_close(&device);
    tiny_model_free(&tiny);
    faults_each("device", device_used, NULL);
}

/* ---- what the box has ---- */

static int node_described(void *ctx)
{
    struct discover_share share = {
        .cores = {0}, .n_cores = 1, .n_threads = 1, .memory_bytes = 1 << 30};
    struct discover_box box = {.tree_synthetic = "package:1 core:2 pu:1"};
    struct buffer json = {0};
    struct err e = {0};
    char kind[DISCOVER_KIND];
    (void)ctx;
    int rc = discover_node_of(&box, "n", &share, "lo", &json, &kind, &e);
    static const char *const parts[] = {"\"devices\":[{\"name\":\"cpu\"", "\"nics\":[{",
                                        "\"cores\":[0]", "\"caches\":[]"};
    for (size_t i = 0; rc == 0 && i < sizeof parts / sizeof *parts; i++)
        if (!strstr(buffer_cstr(&json), parts[i]))
            rc = HP_EBUG; /* half a node */
    buffer_free(&json);
    return rc;
}

static int share_divided(void *ctx)
{
    static const char *const texts[] = {"cpu:3,threads=1", "cpu:4,mem=1M,threads=1"};
    struct discover_share share = {
        .cores = {3, 4}, .n_cores = 2, .n_threads = 2, .memory_bytes = 1 << 30};
    struct err e = {0};
    (void)ctx;
    int rc = discover_devices(texts, 2, &share, &e);
    return share.n_devices == (rc < 0 ? 0 : 2) ? rc : HP_EBUG;
}

TEST(description_bears_failing_allocations)
{
    faults_each("node", node_described, NULL);
    faults_each("devices", share_divided, NULL);
}

/* ---- the core's handlers ---- */

enum { DEPLOYMENT = 7, SESSION = 77, WIDTH = 2, VOCABULARY = 50, SCORES = 2 };

struct scene {
    struct agent_core *core;
    struct agent_actions actions;
    uint8_t buffers[8]; /* their addresses alone count */
    int out;            /* buffers that the core has */
    bool last, deaf;    /* deaf: it was told that nobody may connect, which nobody said */
    int told[MESSAGE_TYPE_COUNT];
    struct env_virtual clock;
};

static void scene_release(void *ctx, void *buffer)
{
    ((struct scene *)ctx)->out -= buffer != NULL;
}

static void scene_event(struct scene *s, const struct agent_event *ev);

/* Does what the core asks for at once: its orders are answered with success, its batches run. */
static void scene_answer(struct scene *s, const struct agent_action *a)
{
    static const uint32_t picked[16] = {3, 3, 3, 3};
    static const struct score scores[16 * SCORES];
    struct agent_event ev = {0};
    switch (a->kind) {
    case AGENT_DO_FETCH:
    case AGENT_DO_LOAD:
        ev.kind = a->kind == AGENT_DO_FETCH ? AGENT_EVENT_FETCHED : AGENT_EVENT_LOADED;
        ev.u.progress = (struct agent_progress){.slot = a->u.work.slot,
                                                .ticket = a->u.work.ticket,
                                                .row_in.width = WIDTH,
                                                .row_out.width = WIDTH,
                                                .vocabulary = VOCABULARY};
        break;
    case AGENT_DO_SEQUENCE_OPEN:
        ev.kind = AGENT_EVENT_SEQUENCE_OPENED;
        ev.u.sequence_opened.slot = a->u.sequence_open.slot;
        ev.u.sequence_opened.ticket = a->u.sequence_open.ticket;
        ev.u.sequence_opened.sequence = a->u.sequence_open.open->sequence;
        break;
    case AGENT_DO_RUN:
        ev.kind = AGENT_EVENT_BATCH_DONE;
        ev.u.batch_done.slot = a->u.run.slot;
        ev.u.batch_done.ticket = a->u.run.ticket;
        ev.u.batch_done.seconds = 0.001;
        ev.u.batch_done.picked = s->last ? picked : NULL;
        ev.u.batch_done.scores = s->last ? scores : NULL;
        ev.u.batch_done.posted = !s->last;
        s->out -= a->u.run.batch->input != NULL;
        break;
    case AGENT_DO_RELEASE: s->out -= a->u.release.buffer != NULL; return;
    case AGENT_DO_PEERS: s->deaf |= a->u.peers.keys.size == 0; return;
    case AGENT_DO_POST: s->out -= a->u.post.buffer != NULL; return;
    case AGENT_DO_SEND: s->told[a->u.message.type]++; return;
    default: return;
    }
    scene_event(s, &ev);
}

static void scene_event(struct scene *s, const struct agent_event *ev)
{
    struct agent_action actions[32];
    agent_core_event(s->core, ev, &s->actions);
    size_t n = s->actions.count < 32 ? s->actions.count : 32;
    memcpy(actions, s->actions.items, n * sizeof *actions);
    for (size_t i = 0; i < n; i++)
        if (actions[i].kind != AGENT_DO_RUN)
            scene_answer(s, &actions[i]);
    for (size_t i = 0; i < n; i++)
        if (actions[i].kind == AGENT_DO_RUN)
            scene_answer(s, &actions[i]);
}

static void scene_tell(struct scene *s, const struct message *m)
{
    struct agent_event ev = {.kind = AGENT_EVENT_MESSAGE};
    ev.u.message = message_of_test(m);
    if (ev.u.message)
        scene_event(s, &ev);
    message_ref_release(ev.u.message);
}

static void scene_prepare(struct scene *s, uint64_t generation, uint64_t stage, uint64_t n_stages)
{
    static const uint8_t model_id[32] = {1, 2, 3};
    struct message m = {.type = MESSAGE_STAGE_PREPARE};
    m.u.stage_prepare = (struct message_stage_prepare){.deployment = DEPLOYMENT,
                                                       .generation = generation,
                                                       .stage = stage,
                                                       .n_stages = n_stages,
                                                       .session = SESSION,
                                                       .deployment_name = "d",
                                                       .model = {model_id, 32},
                                                       .end_layer = 4,
                                                       .compute = "f32",
                                                       .context = 100,
                                                       .kv_tokens = 1000,
                                                       .max_sequences = 8,
                                                       .max_batch_tokens = 16,
                                                       .source_machine = "",
                                                       .source_path = "",
                                                       .planned_s_per_token = 0.5};
    scene_tell(s, &m);
    m = (struct message){.type = MESSAGE_STAGE_CONNECT};
    m.u.stage_connect =
        (struct message_stage_connect){.deployment = DEPLOYMENT,
                                       .generation = generation,
                                       .stage = stage,
                                       .n_stages = n_stages,
                                       .next_address = {(const uint8_t *)"n", n_stages > 1},
                                       .first_address = {(const uint8_t *)"f", n_stages > 1},
                                       .next_device = "",
                                       .first_device = ""};
    scene_tell(s, &m);
}

static void scene_sequence(struct scene *s, uint64_t id)
{
    static const uint32_t prompt[] = {1, 2, 3, 4}, slices[] = {2, 2}, end_ids[] = {9};
    struct message m = {.type = MESSAGE_SEQUENCE_OPEN};
    m.u.sequence_open = (struct message_sequence_open){.deployment = DEPLOYMENT,
                                                       .generation = 1,
                                                       .sequence = id,
                                                       .stage = s->last ? 0 : 1,
                                                       .prompt = {prompt, 4},
                                                       .max_tokens = 3,
                                                       .kv_tokens = 7,
                                                       .end_ids = {end_ids, 1},
                                                       .slices = {slices, 2},
                                                       .prompt_tokens = 4,
                                                       .said_scores = SCORES,
                                                       .stream = id};
    scene_tell(s, &m);
}

static void scene_frame(struct scene *s, uint64_t sequence, uint32_t position, uint8_t *buffer)
{
    struct batch_run run = {sequence, position, 2, position == 2, 0, false, 0, 0, 0, 0};
    struct frame_header h = {.kind = FRAME_ACTIVATION,
                             .stage = 1,
                             .dtype = FRAME_F32,
                             .n_runs = 1,
                             .session = SESSION,
                             .deployment = DEPLOYMENT,
                             .generation = 1,
                             .batch = position + 1,
                             .sequence = sequence,
                             .first_position = position,
                             .n_tokens = 2,
                             .payload_bytes = FRAME_RUN_BYTES + 2 * WIDTH * sizeof(float)};
    struct agent_event ev = {.kind = AGENT_EVENT_FRAME};
    ev.u.frame.header = &h;
    ev.u.frame.runs = &run;
    ev.u.frame.buffer = buffer;
    s->out++;
    scene_event(s, &ev);
}

static void scene_misc(struct scene *s)
{
    static const uint8_t id[32] = {5};
    struct message_model models[] = {{{id, 32}, 10, "m"}};
    struct agent_event store = {.kind = AGENT_EVENT_STORE},
                       profiled = {.kind = AGENT_EVENT_PROFILED},
                       probed = {.kind = AGENT_EVENT_PROBED};
    static const struct data_loss losses[] = {{{7}, 1000, 30}};
    struct agent_event meter = {.kind = AGENT_EVENT_METER};
    meter.u.meter.losses = losses;
    meter.u.meter.n_losses = 1;
    store.u.store.models = (struct pack_list){models, 1};
    scene_event(s, &store);
    profiled.u.profiled.model = (struct pack_span){id, 32};
    profiled.u.profiled.kind = "k";
    profiled.u.profiled.tables = "{}";
    scene_event(s, &profiled);
    probed.u.probed.status = HP_ELINK;
    scene_event(s, &probed);
    scene_event(s, &meter);
    s->clock.now_ns += 600000000;
    scene_event(s, &(struct agent_event){.kind = AGENT_EVENT_TIMER});
}

/* Whether the last run told the coordinator all that the scene is for. */
static bool core_told;

static int core_lives(void *ctx)
{
    struct scene s = {.last = *(const bool *)ctx};
    struct env env = env_virtual_init(&s.clock, 1);
    struct agent_core_config config = {.name = "a",
                                       .secret = "s",
                                       .program = "1",
                                       .machine = "m",
                                       .hostname = "h",
                                       .node_json = "{}"};
    struct err e = {0};
    s.clock.now_ns = 1000000000;
    int rc = agent_core_create(&env, &config, &s.core, &e);
    if (rc < 0)
        return rc;
    scene_event(&s, &(struct agent_event){.kind = AGENT_EVENT_START});
    struct message welcome = {.type = MESSAGE_WELCOME};
    welcome.u.welcome =
        (struct message_welcome){.name = "node-1", .heartbeat_ms = 500, .coordinator_boot = 3};
    scene_tell(&s, &welcome);
    static const uint8_t keys[KEY_BYTES] = {7};
    scene_tell(&s,
               &(struct message){.type = MESSAGE_MEMBERS, .u.members.keys = {keys, sizeof keys}});
    scene_prepare(&s, 1, s.last ? 0 : 1, s.last ? 1 : 3);
    for (uint64_t id = 4; id < 6; id++) {
        scene_sequence(&s, id);
        for (uint32_t position = 0; !s.last && position < 4; position += 2)
            scene_frame(&s, id, position, &s.buffers[position + id - 4]);
    }
    scene_misc(&s);
    struct message close = {.type = MESSAGE_SEQUENCE_CLOSE};
    close.u.sequence_close = (struct message_sequence_close){DEPLOYMENT, 1, 5, s.last ? 0 : 1, 0};
    scene_tell(&s, &close);
    welcome.u.welcome.coordinator_boot = 4; /* another one, which hears what is open and left */
    scene_tell(&s, &welcome);
    struct message unload = {.type = MESSAGE_STAGE_UNLOAD};
    unload.u.stage_unload = (struct message_stage_unload){DEPLOYMENT, 1};
    scene_tell(&s, &unload);
    agent_core_destroy(&s.core, scene_release, &s);
    agent_actions_free(&s.actions);
    core_told = s.told[MESSAGE_PREFILL] && s.told[MESSAGE_LOSSES] &&
                (!s.last || (s.told[MESSAGE_DECODE] && s.told[MESSAGE_STREAMS]));
    return s.out == 0 && !s.deaf ? 0
                                 : HP_EBUG; /* a buffer that nobody gives back, or all doors shut */
}

static void core_bears_failing_allocations(void **state)
{
    bool alone = true, middle = false;
    (void)state;
    log_set_level(LOG_ERROR);
    assert_true(core_lives(&alone) == 0 && core_told);
    assert_true(core_lives(&middle) == 0 && core_told);
    faults_each("core of a whole model", core_lives, &alone);
    faults_each("core of a middle stage", core_lives, &middle);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(store_bears_failing_allocations),
        cmocka_unit_test(engine_bears_failing_allocations),
        cmocka_unit_test(description_bears_failing_allocations),
        cmocka_unit_test(core_bears_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
