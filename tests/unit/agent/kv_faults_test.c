/* Keys and values with every allocation failing once: in the engine, where sequences share, come
 * and go, and at the core, whose orders and frames still have their ends. */
#include "agent/agent_core.h"
#include "agent/backend/backend.h"
#include "agent/engine/stage_int.h"
#include "common/log.h"
#include "tests/message_fixture.h"
#include "tests/unit/agent/engine/tiny_model.h"
#include "tests/unit/faults.h"

/* ---- the engine ---- */

enum { TOKENS = 100 };
static struct tiny_model *tiny;
static struct device *device;

/* All that `to` awaits of the sequence. */
static int kv_move(struct stage *from, struct stage *to, uint64_t id, struct err *e)
{
    struct kv_shape shape = stage_kv_shape(to);
    struct kv_cursor at = {0};
    struct kv_range r;
    static uint8_t data[1 << 16];
    int rc = 0;
    while (rc == 0 && kv_shape_next(&shape, TOKENS, sizeof data, &at, &r)) {
        rc = stage_kv_export(from, 1, &r, data, e);
        rc = rc < 0 ? rc : stage_kv_import(to, id, &r, data, e);
    }
    return rc;
}

static int stages_used(void *ctx)
{
    static float out[TINY_VOCABULARY];
    static const uint32_t ids[TOKENS + 1] = {1, 2, 3};
    struct stage *stages[2] = {NULL, NULL};
    struct err e = {0};
    (void)ctx;
    int rc = 0;
    struct stage_config c = {.end_layer = TINY_LAYERS,
                             .device = device,
                             .kv_tokens = 4 * TOKENS,
                             .max_sequences = 3,
                             .max_batch_tokens = TOKENS};
    for (int i = 0; i < 2 && rc == 0; i++)
        rc = stage_load_graph(&tiny->graph, &tiny->config, &c, &stages[i], &e);
    struct batch_run first = {.sequence = 1, .n_tokens = TOKENS, .n_logits = 1},
                     next = {.first_position = TOKENS, .n_tokens = 1, .n_logits = 1};
    rc = rc < 0 ? rc : stage_sequence_open(stages[0], 1, TOKENS + 5, &e);
    rc = rc < 0 ? rc : stage_run(stages[0], &first, 1, ids, out, &e);
    rc = rc < 0 ? rc : stage_sequence_open_at(stages[0], 2, TOKENS + 5, TOKENS, 1, &e);
    next.sequence = 2;
    rc = rc < 0 ? rc : stage_run(stages[0], &next, 1, ids + TOKENS, out, &e);
    rc = rc < 0 ? rc : stage_sequence_open_at(stages[1], 3, TOKENS + 5, TOKENS, 0, &e);
    rc = rc < 0 ? rc : kv_move(stages[0], stages[1], 3, &e);
    next.sequence = 3;
    rc = rc < 0 ? rc : stage_run(stages[1], &next, 1, ids + TOKENS, out, &e);
    if (rc == 0) {
        stage_sequence_keep(stages[0], 2, TOKENS);
        rc = stage_sequence_open_at(stages[0], 4, TOKENS + 5, TOKENS - 30, 2, &e);
    }
    for (int i = 0; i < 2; i++)
        stage_unload(&stages[i]);
    return rc;
}

TEST(sequences_that_share_and_move_bear_failing_allocations)
{
    struct device_config d = {.n_threads = 1};
    tiny = tiny_model_make(3);
    assert_int_equal(device_open(&d, &device, NULL), 0);
    stages_used(NULL); /* the device has its scratch, which it keeps */
    faults_each("stages", stages_used, NULL);
    device_close(&device);
    tiny_model_free(&tiny);
}

/* ---- the core ---- */

enum { DEPLOYMENT = 7, SESSION = 900, LENGTH = 64 };
static const struct kv_shape shape = {.n_groups = 1, .groups = {{0, 1, 0, 16, true}}};

struct kv_scene {
    struct agent_core *core;
    struct agent_actions actions;
    struct env_virtual clock;
    int buffers; /* that the core has */
};

static void scene_release(void *ctx, void *buffer)
{
    (void)buffer;
    ((struct kv_scene *)ctx)->buffers--;
}

static void scene_event(struct kv_scene *s, const struct agent_event *ev);

/* Every order is done at once; what was lost for want of memory is not answered. */
static void scene_answer(struct kv_scene *s, const struct agent_action *a)
{
    struct agent_event ev = {0};
    switch (a->kind) {
    case AGENT_DO_FETCH:
    case AGENT_DO_LOAD:
        ev.kind = a->kind == AGENT_DO_FETCH ? AGENT_EVENT_FETCHED : AGENT_EVENT_LOADED;
        ev.u.progress = (struct agent_progress){.slot = a->u.work.slot,
                                                .ticket = a->u.work.ticket,
                                                .row_in.width = 1,
                                                .vocabulary = 50,
                                                .kv = shape};
        break;
    case AGENT_DO_SEQUENCE_OPEN: {
        uint64_t id = a->u.sequence_open.open->sequence;
        ev.kind = AGENT_EVENT_SEQUENCE_OPENED;
        ev.u.sequence_opened.slot = a->u.sequence_open.slot;
        ev.u.sequence_opened.ticket = a->u.sequence_open.ticket;
        ev.u.sequence_opened.sequence = id;
        ev.u.sequence_opened.awaited = id > 1; /* the first one has all its own */
        break;
    }
    case AGENT_DO_KV_IMPORT:
        s->buffers--;
        ev.kind = AGENT_EVENT_KV_IMPORTED;
        ev.u.kv_imported.slot = a->u.kv_import.slot;
        ev.u.kv_imported.ticket = a->u.kv_import.ticket;
        ev.u.kv_imported.sequence = a->u.kv_import.sequence;
        break;
    case AGENT_DO_KV_EXPORT:
        ev.kind = AGENT_EVENT_KV_LEFT;
        ev.u.kv_left.ticket = a->u.kv_export.ticket;
        break;
    case AGENT_DO_RELEASE: s->buffers--; return;
    default: return;
    }
    scene_event(s, &ev);
}

static void scene_event(struct kv_scene *s, const struct agent_event *ev)
{
    struct agent_action actions[32];
    agent_core_event(s->core, ev, &s->actions);
    size_t n = s->actions.count < 32 ? s->actions.count : 32;
    memcpy(actions, s->actions.items, n * sizeof *actions);
    for (size_t i = 0; i < n; i++)
        scene_answer(s, &actions[i]);
}

static void scene_tell(struct kv_scene *s, const struct message *m)
{
    struct agent_event ev = {.kind = AGENT_EVENT_MESSAGE};
    ev.u.message = message_of_test(m);
    if (ev.u.message)
        scene_event(s, &ev);
    message_ref_release(ev.u.message);
}

static void scene_begin(struct kv_scene *s)
{
    static const uint8_t model_id[32] = {1};
    struct message m = {.type = MESSAGE_WELCOME};
    m.u.welcome = (struct message_welcome){.name = "a", .heartbeat_ms = 500, .coordinator_boot = 3};
    scene_event(s, &(struct agent_event){.kind = AGENT_EVENT_START});
    scene_tell(s, &m);
    m.type = MESSAGE_STAGE_PREPARE;
    m.u.stage_prepare = (struct message_stage_prepare){.deployment = DEPLOYMENT,
                                                       .generation = 1,
                                                       .stage = 0,
                                                       .n_stages = 1,
                                                       .session = 77,
                                                       .model = {model_id, 32},
                                                       .end_layer = 4,
                                                       .compute = "f32",
                                                       .context = 1000,
                                                       .kv_tokens = 1000,
                                                       .max_sequences = 8,
                                                       .max_batch_tokens = 256};
    scene_tell(s, &m);
    m.type = MESSAGE_STAGE_CONNECT;
    m.u.stage_connect =
        (struct message_stage_connect){.deployment = DEPLOYMENT, .generation = 1, .n_stages = 1};
    scene_tell(s, &m);
}

static void scene_open(struct kv_scene *s, uint64_t id)
{
    static const uint32_t prompt[LENGTH + 1] = {1};
    struct message m = {.type = MESSAGE_SEQUENCE_OPEN};
    m.u.sequence_open = (struct message_sequence_open){.deployment = DEPLOYMENT,
                                                       .generation = 1,
                                                       .sequence = id,
                                                       .prompt = {prompt, LENGTH + 1},
                                                       .max_tokens = 5,
                                                       .kv_tokens = 200,
                                                       .length = LENGTH};
    scene_tell(s, &m);
}

static void scene_import(struct kv_scene *s, uint64_t id)
{
    static const uint8_t key[KEY_BYTES] = {2};
    static int payload;
    struct message m = {.type = MESSAGE_KV_IMPORT, .id = 4};
    m.u.kv_import =
        (struct message_kv_import){DEPLOYMENT, 1, 0, id, SESSION + id, {key, KEY_BYTES}};
    scene_tell(s, &m);
    struct kv_range r = {0, 0, 1, 0, LENGTH};
    struct frame_header h = {.kind = FRAME_KV,
                             .dtype = FRAME_F32,
                             .session = SESSION + id,
                             .deployment = DEPLOYMENT,
                             .generation = 1,
                             .sequence = id,
                             .n_tokens = LENGTH,
                             .payload_bytes = FRAME_KV_BYTES + kv_shape_bytes(&shape, &r)};
    struct agent_event ev = {.kind = AGENT_EVENT_FRAME};
    ev.u.frame.header = &h;
    ev.u.frame.kv = r;
    ev.u.frame.buffer = &payload;
    s->buffers++;
    scene_event(s, &ev);
}

static void scene_export(struct kv_scene *s, uint64_t id)
{
    struct message m = {.type = MESSAGE_KV_EXPORT, .id = 5};
    m.u.kv_export = (struct message_kv_export){.deployment = DEPLOYMENT,
                                               .generation = 1,
                                               .sequence = id,
                                               .length = LENGTH,
                                               .session = SESSION,
                                               .to_address = {(const uint8_t *)"there", 5},
                                               .to_deployment = 8,
                                               .to_generation = 1,
                                               .to_sequence = 55};
    scene_tell(s, &m);
}

static int core_moves(void *ctx)
{
    static const struct agent_core_config config = {.name = "a",
                                                    .secret = "",
                                                    .program = "1",
                                                    .machine = "m",
                                                    .hostname = "h",
                                                    .node_json = "{}"};
    struct kv_scene s = {0};
    struct env env = env_virtual_init(&s.clock, 1);
    struct err e = {0};
    (void)ctx;
    int rc = agent_core_create(&env, &config, &s.core, &e);
    if (rc < 0)
        return rc;
    scene_begin(&s);
    for (uint64_t id = 1; id <= 3; id++)
        scene_open(&s, id);
    scene_import(&s, 2);
    scene_export(&s, 1);
    scene_export(&s, 2);
    s.clock.now_ns += (uint64_t)(AGENT_KV_LIMIT_MS + 1000) * 1000000; /* 3 has waited too long */
    scene_event(&s, &(struct agent_event){.kind = AGENT_EVENT_TIMER});
    agent_core_destroy(&s.core, scene_release, &s);
    agent_actions_free(&s.actions);
    assert_int_equal(s.buffers, 0);
    return 0;
}

TEST(orders_and_frames_of_keys_and_values_bear_failing_allocations)
{
    log_set_level(LOG_ERROR + 1);
    faults_each("core", core_moves, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequences_that_share_and_move_bear_failing_allocations),
        cmocka_unit_test(orders_and_frames_of_keys_and_values_bear_failing_allocations),
    };
    return cmocka_run_group_tests_name("kv_faults", tests, NULL, NULL);
}
