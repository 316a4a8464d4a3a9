/* What shares of plans of pools make and handle, with every allocation failing once. */
#include "agent/agent_core.h"
#include "agent/share_load.h"
#include "common/log.h"
#include "tests/unit/agent/share_fixture.h"
#include "tests/unit/faults.h"

static void on_loaded(void *ctx, const struct share_report *r)
{
    (void)ctx;
    (void)r;
}

static void on_failed(void *ctx, const struct frame_header *h, uint32_t share, int code,
                      const char *text)
{
    (void)ctx;
    (void)h;
    (void)share;
    (void)code;
    (void)text;
}

/* A runner comes and goes; a frame comes before it is loaded. */
static int runner_used(void *ctx)
{
    const struct share_bench *b = ctx;
    const struct share_node *n = &b->nodes[0];
    struct share_runner *r = NULL;
    struct err e = {0};
    struct share_runner_config c = {.slot = 1,
                                    .prepare = n->prepare,
                                    .path = b->path,
                                    .cores = (const int[]){0},
                                    .n_cores = 1,
                                    .memory_bytes = UINT32_MAX,
                                    .queue_bytes = 1 << 20,
                                    .data = n->data,
                                    .loaded = on_loaded,
                                    .failed = on_failed};
    int rc = share_runner_create(&c, &r, &e);
    if (rc < 0)
        return rc;
    share_runner_connect(r, n->peers);
    share_runner_destroy(&r);
    return 0;
}

static int peers_used(void *ctx)
{
    const struct share_bench *b = ctx;
    const struct share_node *n = &b->nodes[0];
    size_t size;
    const uint8_t *address = data_address(b->coordinator, &size);
    struct message_share_peer rows[] = {{"coordinator", {address, size}, 0, ""},
                                        {"b", {address, size}, 0, ""}};
    const struct pack_list list = {rows, 2};
    const struct share_peers_config c = {
        .data = n->data, .line = n->line, .lost = share_on_lost, .ctx = (void *)(uintptr_t)n};
    struct share_peers *p = NULL;
    struct err e = {0};
    int rc = share_peers_create(&c, &list, &p, &e);
    share_peers_release(p);
    return rc;
}

static int part_loaded(void *ctx)
{
    const struct share_bench *b = ctx;
    const struct message_stage_prepare *p = &b->nodes[1].prepare->message.u.stage_prepare;
    struct network_part *part = NULL;
    struct err e = {0};
    atomic_bool stop = false;
    int rc =
        share_part_open(p, p->share.items, b->path, UINT32_MAX, &stop, NULL, NULL, NULL, &part, &e);
    rc = rc < 0 ? rc : share_part_warm(part, &stop, &e);
    if (part)
        network_part_close(&part);
    return rc;
}

static void on_going(void *ctx, const struct share_measuring *how)
{
    (void)ctx;
    (void)how;
}

static int network_measured(void *ctx)
{
    static const uint32_t one[] = {1};
    const struct share_bench *b = ctx;
    struct message_measure measure = {.batches = {one, 1}, .shares = {one, 1}, .budget_ms = 1};
    struct message_dim side = {"", SHARE_SIDE};
    const struct message_share share = {.dims = {&side, 1}, .measure = {&measure, 1}};
    const atomic_bool stop = false;
    const struct share_measure_config c = {.share = &share,
                                           .path = b->path,
                                           .model = "net",
                                           .kind = "K",
                                           .memory_bytes = UINT32_MAX,
                                           .stop = &stop,
                                           .goes_on = on_going};
    struct buffer json = {0};
    struct err e = {0};
    int rc = share_measure(&c, &json, &e);
    buffer_free(&json);
    return rc;
}

TEST(runners_peers_and_parts_bear_failing_allocations)
{
    struct share_bench *b = share_bench_open(NULL);
    share_wait(b, &b->told.n_loaded, 2);
    log_set_level(LOG_ERROR);
    faults_each("runner of a share", runner_used, b);
    faults_each("peers of a plan", peers_used, b);
    faults_each("part of a share", part_loaded, b);
    faults_each("measurement of a network", network_measured, b);
    share_bench_close(&b);
}

/* ---- the core ---- */

struct share_scene {
    struct agent_core *core;
    struct agent_actions actions;
    struct env_virtual clock;
    struct agent_action work;
    bool has_work;
};

static void scene_event(struct share_scene *s, const struct agent_event *ev)
{
    agent_core_event(s->core, ev, &s->actions);
    s->has_work = false;
    for (size_t i = 0; i < s->actions.count; i++)
        if (s->actions.items[i].kind == AGENT_DO_FETCH ||
            s->actions.items[i].kind == AGENT_DO_LOAD) {
            s->work = s->actions.items[i];
            s->has_work = true;
        }
}

static void scene_tell(struct share_scene *s, const struct message *m)
{
    struct agent_event ev = {.kind = AGENT_EVENT_MESSAGE};
    ev.u.message = message_of_test(m);
    if (!ev.u.message)
        return;
    scene_event(s, &ev);
    message_ref_release(ev.u.message);
}

static void scene_work(struct share_scene *s, enum agent_event_kind kind)
{
    struct agent_event ev = {.kind = kind};
    ev.u.progress.slot = s->work.u.work.slot;
    ev.u.progress.ticket = s->work.u.work.ticket;
    if (s->has_work)
        scene_event(s, &ev);
}

static void share_told(struct share_scene *s)
{
    struct message_share_peer row = {.name = "coordinator", .device = ""};
    struct message m = {.type = MESSAGE_SHARE_CONNECT};
    m.u.share_connect = (struct message_share_connect){SHARE_PLAN, 1, {&row, 1}};
    scene_tell(s, &m);
    struct agent_event ev = {.kind = AGENT_EVENT_SHARE_METER};
    ev.u.share_meter.slot = 1;
    scene_event(s, &ev);
    ev = (struct agent_event){.kind = AGENT_EVENT_SHARE_FAILED};
    ev.u.share_failed.text = "why";
    ev.u.share_failed.code = HP_EBUSY;
    scene_event(s, &ev);
}

static int core_lives(void *ctx)
{
    static uint8_t id[32];
    struct share_scene s = {0};
    struct env env = env_virtual_init(&s.clock, 1);
    struct agent_core_config config = {.name = "a",
                                       .secret = "s",
                                       .program = "1",
                                       .machine = "m",
                                       .hostname = "h",
                                       .node_json = "{}"};
    struct message_share share = {.parts = 1, .n_blocks = 1, .batch = 1};
    struct message m = {.type = MESSAGE_STAGE_PREPARE};
    struct err e = {0};
    (void)ctx;
    s.clock.now_ns = 1000000000;
    int rc = agent_core_create(&env, &config, &s.core, &e);
    if (rc < 0)
        return rc;
    scene_event(&s, &(struct agent_event){.kind = AGENT_EVENT_START});
    m.u.stage_prepare = (struct message_stage_prepare){.deployment = SHARE_PLAN,
                                                       .generation = 1,
                                                       .session = 8,
                                                       .input_session = 9,
                                                       .model = {id, 32},
                                                       .end_layer = 1,
                                                       .share = {&share, 1}};
    scene_tell(&s, &m);
    scene_work(&s, AGENT_EVENT_FETCHED);
    share_told(&s);
    scene_work(&s, AGENT_EVENT_LOADED);
    m = (struct message){.type = MESSAGE_STAGE_UNLOAD};
    m.u.stage_unload = (struct message_stage_unload){SHARE_PLAN, 1};
    scene_tell(&s, &m);
    agent_core_destroy(&s.core, NULL, NULL);
    agent_actions_free(&s.actions);
    return 0;
}

TEST(a_core_with_shares_bears_failing_allocations)
{
    log_set_level(LOG_ERROR);
    faults_each("core of a share", core_lives, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runners_peers_and_parts_bear_failing_allocations),
        cmocka_unit_test(a_core_with_shares_bears_failing_allocations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
