/* Shares of plans of pools in the agent's core: from the order to prepare one to its unloading. */
#include "tests/unit/agent/core_fixture.h"

enum { SHARE_INPUT = 501 };

static struct message_share whole_share(void)
{
    return (struct message_share){.parts = 2, .part = 1, .n_blocks = 4, .batch = 8};
}

/* An order for share `stage` of `generation`; `share` lives as long. */
static struct message share_of(uint64_t generation, uint64_t stage, struct message_share *share)
{
    struct message m = {.type = MESSAGE_STAGE_PREPARE};
    m.u.stage_prepare = (struct message_stage_prepare){.deployment = DEPLOYMENT,
                                                       .generation = generation,
                                                       .stage = stage,
                                                       .n_stages = 3,
                                                       .session = SESSION + generation,
                                                       .input_session = SHARE_INPUT + stage,
                                                       .model = {model_id, 32},
                                                       .first_layer = 1,
                                                       .end_layer = 3,
                                                       .share = {share, 1}};
    return m;
}

static void prepare(struct core_fixture *f, uint64_t generation, uint64_t stage)
{
    struct message_share share = whole_share();
    struct message m = share_of(generation, stage, &share);
    tell(f, &m);
}

static void work_ends(struct core_fixture *f, enum agent_event_kind kind,
                      const struct agent_action *of, int status, const struct err *e)
{
    struct agent_event ev = {.kind = kind};
    ev.u.progress.slot = of->u.work.slot;
    ev.u.progress.ticket = of->u.work.ticket;
    ev.u.progress.status = status;
    ev.u.progress.error = e;
    ev.u.progress.warming = status == HP_PENDING;
    feed(f, &ev);
}

static void state_is(const struct core_fixture *f, const char *word)
{
    const struct message *m = said(f, MESSAGE_STAGE_STATE);
    assert_non_null(m);
    assert_string_equal(m->u.stage_state.state, word);
}

/* Prepared, fetched and loaded; returns its slot. */
static uint64_t share_ready(struct core_fixture *f, uint64_t generation, uint64_t stage)
{
    prepare(f, generation, stage);
    state_is(f, "fetching");
    struct agent_action work = *did(f, AGENT_DO_FETCH, 0);
    work_ends(f, AGENT_EVENT_FETCHED, &work, 0, NULL);
    state_is(f, "loading");
    work = *did(f, AGENT_DO_LOAD, 0);
    work_ends(f, AGENT_EVENT_LOADED, &work, HP_PENDING, NULL);
    state_is(f, "warming");
    work_ends(f, AGENT_EVENT_LOADED, &work, 0, NULL);
    state_is(f, "ready");
    return work.u.work.slot;
}

static void connect_plan(struct core_fixture *f, uint64_t generation)
{
    struct message_share_peer rows[2] = {{.name = "coordinator", .session = 3, .device = ""},
                                         {.name = "b", .session = 4, .device = ""}};
    struct message m = {.type = MESSAGE_SHARE_CONNECT};
    m.u.share_connect = (struct message_share_connect){DEPLOYMENT, generation, {rows, 2}};
    tell(f, &m);
}

static void a_share_comes_to_be_ready_and_is_connected(void **state)
{
    struct core_fixture *f = *state;
    join(f);
    prepare(f, 1, 2);
    const struct agent_action *allow = did(f, AGENT_DO_SESSION_ALLOW, 1);
    assert_int_equal(did(f, AGENT_DO_SESSION_ALLOW, 0)->u.session.session, SESSION + 1);
    assert_int_equal(allow->u.session.session, SHARE_INPUT + 2);
    assert_null(allow->u.session.from); /* any agent of the list may send */
    connect_plan(f, 1);                 /* it is kept for when it is ready */
    const struct agent_action *c = did(f, AGENT_DO_SHARE_CONNECT, 0);
    const struct message_share_peer *rows = c->u.share_connect.peers.items;
    assert_int_equal(c->u.share_connect.generation, 1);
    assert_int_equal(c->u.share_connect.peers.count, 2);
    assert_string_equal(rows[1].name, "b");
    assert_null(did(f, AGENT_DO_CONNECT, 0));
    share_ready(f, 1, 0);
    connect_plan(f, 1);
    assert_null(did(f, AGENT_DO_SHARE_CONNECT, 1)); /* once for both */
    connect_plan(f, 9);
    assert_null(did(f, AGENT_DO_SHARE_CONNECT, 0));
    assert_int_equal(agent_core_view(f->core).dropped_stale, 1);
    prepare(f, 1, 0); /* again: as it is */
    assert_null(did(f, AGENT_DO_FETCH, 0));
    state_is(f, "ready");
}

static void what_shares_do_is_told_with_heartbeats_and_failures_at_once(void **state)
{
    struct core_fixture *f = *state;
    join(f);
    struct agent_event ev = {.kind = AGENT_EVENT_SHARE_METER};
    ev.u.share_meter.slot = share_ready(f, 1, 2);
    ev.u.share_meter.queued = 5;
    ev.u.share_meter.done = 70;
    ev.u.share_meter.running = true;
    ev.u.share_meter.busy_s = 1.5;
    ev.u.share_meter.planned_s = 1.25;
    feed(f, &ev);
    ev = (struct agent_event){.kind = AGENT_EVENT_METER};
    ev.u.meter.dropped_stale = 3;
    feed(f, &ev);
    tick_to(f, 2000);
    const struct message *m = said(f, MESSAGE_HEARTBEAT);
    assert_non_null(m);
    assert_int_equal(m->u.heartbeat.dropped_stale, 3);
    assert_int_equal(m->u.heartbeat.held.count, 1);
    const struct message_held_stage *h = m->u.heartbeat.held.items;
    assert_int_equal(h->deployment, DEPLOYMENT);
    assert_int_equal(h->stage, 2);
    assert_string_equal(h->state, "ready");
    assert_int_equal(h->queued_batches, 5);
    assert_int_equal(h->batches_done, 70);
    assert_true(h->running);
    assert_true(h->busy_s == 1.5 && h->planned_s == 1.25);
    ev = (struct agent_event){.kind = AGENT_EVENT_SHARE_FAILED};
    ev.u.share_failed.deployment = DEPLOYMENT;
    ev.u.share_failed.generation = 1;
    ev.u.share_failed.share = 2;
    ev.u.share_failed.batch = 77;
    ev.u.share_failed.code = HP_EBUSY;
    ev.u.share_failed.text = "too many";
    feed(f, &ev);
    m = said(f, MESSAGE_SHARE_FAILED);
    assert_non_null(m);
    assert_int_equal(m->u.share_failed.stage, 2);
    assert_int_equal(m->u.share_failed.batch, 77);
    assert_string_equal(m->u.share_failed.code, "busy");
    assert_string_equal(m->u.share_failed.text, "too many");
}

static void a_share_that_fails_says_why_and_may_be_prepared_again(void **state)
{
    struct core_fixture *f = *state;
    struct err e = {0};
    join(f);
    prepare(f, 1, 0);
    struct agent_action work = *did(f, AGENT_DO_FETCH, 0);
    work_ends(f, AGENT_EVENT_FETCHED, &work, 0, NULL);
    work = *did(f, AGENT_DO_LOAD, 0);
    err_set(&e, HP_EINVAL, "the plan speaks of layers");
    err_hint(&e, "measure anew");
    work_ends(f, AGENT_EVENT_LOADED, &work, HP_EINVAL, &e);
    const struct message *m = said(f, MESSAGE_STAGE_STATE);
    assert_string_equal(m->u.stage_state.state, "failed");
    assert_string_equal(m->u.stage_state.text, "the plan speaks of layers");
    assert_string_equal(m->u.stage_state.hint, "measure anew");
    prepare(f, 1, 0);
    assert_int_equal(did(f, AGENT_DO_UNLOAD, 0)->u.unload.slot, work.u.work.slot);
    assert_true(did(f, AGENT_DO_FETCH, 0)->u.work.slot != work.u.work.slot);
}

static void generations_stand_beside_each_other_until_the_older_is_unloaded(void **state)
{
    struct core_fixture *f = *state;
    join(f);
    uint64_t older = share_ready(f, 1, 0), newer = share_ready(f, 2, 0);
    assert_null(did(f, AGENT_DO_UNLOAD, 0));
    assert_int_equal(agent_core_view(f->core).n_stages, 2);
    struct message m = {.type = MESSAGE_STAGE_UNLOAD};
    m.u.stage_unload = (struct message_stage_unload){DEPLOYMENT, 1};
    tell(f, &m);
    assert_int_equal(did(f, AGENT_DO_UNLOAD, 0)->u.unload.slot, older);
    assert_int_equal(did(f, AGENT_DO_SESSION_REVOKE, 0)->u.session.session, SESSION + 1);
    assert_null(did(f, AGENT_DO_SESSION_REVOKE, 1)); /* the other's frames still come */
    state_is(f, "unloaded");
    m.u.stage_unload.generation = 2;
    tell(f, &m);
    assert_int_equal(did(f, AGENT_DO_UNLOAD, 0)->u.unload.slot, newer);
    assert_int_equal(did(f, AGENT_DO_SESSION_REVOKE, 1)->u.session.session, SHARE_INPUT);
    assert_int_equal(agent_core_view(f->core).n_stages, 0);
}

/* Neither orders nor frames of sequences mean anything to a share. */
static void a_share_outlives_its_coordinator_and_takes_no_frames_of_stages(void **state)
{
    struct core_fixture *f = *state;
    join(f);
    share_ready(f, 1, 0);
    struct frame_header h = {
        .kind = FRAME_ALIVE, .session = SHARE_INPUT, .deployment = DEPLOYMENT, .generation = 1};
    struct agent_event ev = {.kind = AGENT_EVENT_FRAME};
    ev.u.frame.header = &h;
    feed(f, &ev);
    assert_int_equal(agent_core_view(f->core).dropped_foreign, 1);
    assert_null(said(f, MESSAGE_HOP_STATE));
    tick_to(f, 1000 + 2 * AGENT_ORPHAN_MS);
    assert_int_equal(agent_core_view(f->core).n_stages, 1);
    assert_null(did(f, AGENT_DO_UNLOAD, 0));
}

static void orders_that_make_no_sense_are_refused_by_name(void **state)
{
    struct core_fixture *f = *state;
    static const uint32_t few[] = {0, 1, 2};
    static const struct {
        struct message_share share;
        uint64_t device, first, end, stage;
        const char *said;
    } cases[] = {
        {{.parts = 1, .n_blocks = 4, .batch = 1}, 5, 0, 4, 0, "device 5: this agent has 1"},
        {{.parts = 2, .part = 2, .n_blocks = 4, .batch = 1}, 0, 0, 4, 0, "part 2 of a device in 2"},
        {{.parts = 0, .n_blocks = 4, .batch = 1}, 0, 0, 4, 0, "part 0 of a device in 0"},
        {{.parts = 1, .n_blocks = 4, .batch = 1}, 0, 2, 5, 0, "blocks 2 to 5 of a network with 4"},
        {{.parts = 1, .n_blocks = 4, .batch = 1}, 0, 2, 2, 0, "blocks 2 to 2 of a network with 4"},
        {{.parts = 1, .n_blocks = 4, .batch = 0}, 0, 0, 4, 0, "batches of up to 0"},
        {{.parts = 1, .n_blocks = 4, .batch = 2000}, 0, 0, 4, 0, "batches of up to 2000"},
        {{.parts = 1, .n_blocks = 4, .batch = 1}, 0, 0, 4, 1 << 20, "share 1048576"},
        {{.parts = 1, .n_blocks = 4, .batch = 1, .bounds = {few, 3}},
         0,
         0,
         4,
         0,
         "4 blocks with 3 bounds"},
    };
    join(f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct message_share share = cases[i].share;
        struct message m = share_of(1, cases[i].stage, &share);
        m.u.stage_prepare.device = cases[i].device;
        m.u.stage_prepare.first_layer = cases[i].first;
        m.u.stage_prepare.end_layer = cases[i].end;
        tell(f, &m);
        const struct message *told = said(f, MESSAGE_STAGE_STATE);
        assert_string_equal(told->u.stage_state.state, "failed");
        if (!strstr(told->u.stage_state.text, cases[i].said))
            fail_msg("\"%s\" does not say \"%s\"", told->u.stage_state.text, cases[i].said);
        assert_null(did(f, AGENT_DO_FETCH, 0));
        assert_int_equal(agent_core_view(f->core).n_stages, 0);
    }
}

#define CLAIM(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CLAIM(a_share_comes_to_be_ready_and_is_connected),
        CLAIM(what_shares_do_is_told_with_heartbeats_and_failures_at_once),
        CLAIM(a_share_that_fails_says_why_and_may_be_prepared_again),
        CLAIM(generations_stand_beside_each_other_until_the_older_is_unloaded),
        CLAIM(a_share_outlives_its_coordinator_and_takes_no_frames_of_stages),
        CLAIM(orders_that_make_no_sense_are_refused_by_name),
    };
    return cmocka_run_group_tests_name("core_shares", tests, NULL, NULL);
}
