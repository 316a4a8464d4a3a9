/* Stages are fetched, loaded, kept and unloaded, as one core orders it. */
#include "tests/unit/agent/core_fixture.h"

static uint8_t other_model[32] = {9};

static void stage_is_fetched_loaded_and_told_at_every_step(void **state)
{
    struct core_fixture *f = *state;
    join(f);
    struct message m = prepare_of(1, 0, 2);
    tell(f, &m);
    assert_int_equal(did(f, AGENT_DO_SESSION_ALLOW, 0)->u.session.session, SESSION + 1);
    assert_string_equal(said(f, MESSAGE_STAGE_STATE)->u.stage_state.state, "fetching");
    uint64_t slot = did(f, AGENT_DO_FETCH, 0)->u.work.slot,
             ticket = did(f, AGENT_DO_FETCH, 0)->u.work.ticket;
    assert_string_equal(did(f, AGENT_DO_FETCH, 0)->u.work.prepare->message.u.stage_prepare.compute,
                        "f32");

    static const uint32_t wanted[] = {3, 5};
    struct agent_event ev = {.kind = AGENT_EVENT_FETCHED};
    ev.u.progress = (struct agent_progress){.slot = slot,
                                            .ticket = ticket,
                                            .status = HP_PENDING,
                                            .done_bytes = 10,
                                            .total_bytes = 40,
                                            .moved_bytes = 8,
                                            .wanted = {wanted, 2}};
    feed(f, &ev);
    const struct message_stage_state *s = &said(f, MESSAGE_STAGE_STATE)->u.stage_state;
    assert_int_equal(s->done_bytes, 10);
    assert_int_equal(s->total_bytes, 40);
    assert_int_equal(s->moved_bytes, 8);
    assert_int_equal(s->wanted.count, 2);
    assert_int_equal(s->wanted.items[1], 5);
    progress(f, AGENT_EVENT_FETCHED, slot, ticket + 100, 0); /* of another order */
    assert_null(did(f, AGENT_DO_LOAD, 0));
    progress(f, AGENT_EVENT_FETCHED, slot, ticket, HP_ENOSPACE);
    s = &said(f, MESSAGE_STAGE_STATE)->u.stage_state;
    assert_string_equal(s->state, "failed");
    assert_string_equal(s->code, "no_space");
    assert_string_equal(s->text, "went wrong");
    /* The same generation again: another try. */
    tell(f, &m);
    assert_int_equal(did(f, AGENT_DO_UNLOAD, 0)->u.unload.slot, slot);
    assert_int_not_equal(did(f, AGENT_DO_FETCH, 0)->u.work.slot, slot);
}

static void next_generation_keeps_weights_that_are_the_same(void **state)
{
    static const struct {
        const char *what;
        bool keeps;
        uint64_t stage, n_stages, end_layer, kv_tokens;
        const char *compute;
        uint8_t *model;
    } cases[] = {
        {"same", true, 0, 2, 4, 1000, "f32", model_id},
        {"another place", true, 1, 3, 4, 1000, "f32", model_id},
        {"smaller cache", true, 0, 2, 4, 500, "f32", model_id},
        {"larger cache", false, 0, 2, 4, 1001, "f32", model_id},
        {"layers", false, 0, 2, 5, 1000, "f32", model_id},
        {"compute", false, 0, 2, 4, 1000, "auto", model_id},
        {"model", false, 0, 2, 4, 1000, "f32", other_model},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct core_fixture *f = *state;
        join(f);
        uint64_t slot = make_ready(f, 1, 0, 2);
        struct message m = prepare_of(2, cases[i].stage, cases[i].n_stages);
        m.u.stage_prepare.end_layer = cases[i].end_layer;
        m.u.stage_prepare.kv_tokens = cases[i].kv_tokens;
        m.u.stage_prepare.compute = cases[i].compute;
        m.u.stage_prepare.model.data = cases[i].model;
        tell(f, &m);
        const struct agent_action *fetch = did(f, AGENT_DO_FETCH, 0);
        if ((fetch == NULL) != cases[i].keeps)
            fail_msg("%s: %s", cases[i].what, fetch ? "loads again" : "keeps what is not the same");
        assert_int_equal(did(f, AGENT_DO_SESSION_REVOKE, 0)->u.session.session, SESSION + 1);
        if (cases[i].keeps)
            assert_string_equal(said(f, MESSAGE_STAGE_STATE)->u.stage_state.state, "ready");
        else
            assert_int_equal(did(f, AGENT_DO_UNLOAD, 0)->u.unload.slot, slot);
        /* The old one is stale now. */
        m = prepare_of(1, 0, 2);
        tell(f, &m);
        assert_null(said(f, MESSAGE_STAGE_STATE));
        assert_int_equal(agent_core_view(f->core).dropped_stale, 1);
        teardown(state);
        setup(state);
    }
}

static void bad_prepare_fails_without_a_stage(void **state)
{
    struct core_fixture *f = *state;
    join(f);
    for (int i = 0; i < 7; i++) {
        struct message m = prepare_of(1, 0, 2);
        struct message_stage_prepare *p = &m.u.stage_prepare;
        uint64_t ignored = 1;
        *(i == 0   ? &p->n_stages
          : i == 1 ? &p->end_layer
          : i == 2 ? &p->max_batch_tokens
          : i == 3 ? &p->kv_tokens
          : i == 4 ? &p->stage
                   : &ignored) = i == 4 ? 2 : 0;
        if (i == 5)
            p->compute = "f12";
        if (i == 6) /* a frame has no more runs */
            p->max_sequences = FRAME_MAX_RUNS + 1;
        tell(f, &m);
        assert_string_equal(said(f, MESSAGE_STAGE_STATE)->u.stage_state.state, "failed");
        assert_int_equal(agent_core_view(f->core).n_stages, 0);
    }
}

static void what_crosses_is_agreed_before_stages_are_connected(void **state)
{
    struct core_fixture *f = *state;
    struct message_value own = {"x", WIDTH, false}, wider = {"x", WIDTH + 1, false},
                         other = {"y", WIDTH, false}, exact = {"x", WIDTH, true};
    const struct {
        const char *wire;
        struct message_value *value;
        const char *says;
    } cases[] = {{"f16", &own, NULL},
                 {"", &own, NULL},
                 {"f32", &own, "was prepared to hand on f16"},
                 {"f8", &own, "f8"},
                 {"f16", &wider, "x of 3"},
                 {"f16", &other, "has x of 2"},
                 {"f16", &exact, "x is to cross between stages as float32"}};
    join(f);
    struct message bad = prepare_of(1, 0, 2);
    bad.u.stage_prepare.wire = "int8";
    tell(f, &bad);
    assert_non_null(strstr(said(f, MESSAGE_STAGE_STATE)->u.stage_state.text, "int8"));
    for (uint64_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct message m = prepare_of(i + 1, 0, 2), c = {.type = MESSAGE_STAGE_CONNECT};
        m.u.stage_prepare.wire = "f16";
        m.u.stage_prepare.crosses = (struct pack_list){&own, 1};
        m.u.stage_prepare.first_layer = i; /* another stage each time */
        m.u.stage_prepare.end_layer = 10;
        tell(f, &m);
        const struct agent_action *fetch = did(f, AGENT_DO_FETCH, 0);
        uint64_t slot = fetch->u.work.slot;
        progress(f, AGENT_EVENT_FETCHED, slot, fetch->u.work.ticket, 0);
        progress(f, AGENT_EVENT_LOADED, slot, did(f, AGENT_DO_LOAD, 0)->u.work.ticket, 0);
        c.u.stage_connect = (struct message_stage_connect){.deployment = DEPLOYMENT,
                                                           .generation = i + 1,
                                                           .n_stages = 2,
                                                           .next_address = {model_id, 1},
                                                           .wire = cases[i].wire,
                                                           .crosses = {cases[i].value, 1}};
        tell(f, &c);
        const struct message *told = said(f, MESSAGE_STAGE_STATE);
        assert_int_equal(did(f, AGENT_DO_CONNECT, 0) != NULL, cases[i].says == NULL);
        if (cases[i].says && (!told || strcmp(told->u.stage_state.state, "failed") != 0 ||
                              !strstr(told->u.stage_state.text, cases[i].says)))
            fail_msg("case %d: %s", (int)i, told ? told->u.stage_state.text : "nothing was said");
    }
}

static void unload_of_a_generation_takes_it_and_older_ones(void **state)
{
    struct core_fixture *f = *state;
    join(f);
    uint64_t slot = make_ready(f, 3, 0, 1);
    struct message m = {.type = MESSAGE_STAGE_UNLOAD};
    m.u.stage_unload = (struct message_stage_unload){DEPLOYMENT, 2};
    tell(f, &m);
    assert_null(did(f, AGENT_DO_UNLOAD, 0));
    m.u.stage_unload.generation = 3;
    tell(f, &m);
    assert_int_equal(did(f, AGENT_DO_UNLOAD, 0)->u.unload.slot, slot);
    assert_string_equal(said(f, MESSAGE_STAGE_STATE)->u.stage_state.state, "unloaded");
    tell(f, &m); /* twice is nothing */
    assert_int_equal(f->actions.count, 0);
}

static void stage_whose_weights_cannot_be_read_fails_with_what_to_do(void **state)
{
    struct core_fixture *f = *state;
    struct err e = {0};
    err_set(&e, HP_EIO, "m.gguf: byte 7 could not be read");
    err_hint(&e, "restore the file");
    join(f);
    make_ready(f, 1, 0, 2);
    connect_stage(f, 1, 0, 2);
    begin(f, 1, 5, 10, true);
    assert_true(take_run(f));
    struct agent_event ev = {.kind = AGENT_EVENT_BATCH_DONE};
    ev.u.batch_done.slot = f->run.u.run.slot;
    ev.u.batch_done.ticket = f->run.u.run.ticket;
    ev.u.batch_done.status = HP_EIO;
    ev.u.batch_done.error = &e;
    feed(f, &ev);
    assert_string_equal(said(f, MESSAGE_SEQUENCE_FAILED)->u.sequence_failed.code, "io");
    const struct message_stage_state *s = &said(f, MESSAGE_STAGE_STATE)->u.stage_state;
    assert_string_equal(s->state, "failed");
    assert_string_equal(s->code, "io");
    assert_string_equal(s->text, "m.gguf: byte 7 could not be read");
    assert_string_equal(s->hint, "restore the file");
    struct message again =
        prepare_of(2, 0, 2); /* the next generation takes the weights from the store anew */
    tell(f, &again);
    assert_non_null(did(f, AGENT_DO_FETCH, 0));
}

static void grants_open_and_close_the_door_for_chunks(void **state)
{
    struct core_fixture *f = *state;
    join(f);
    make_ready(f, 1, 0, 2);
    struct message m = {.type = MESSAGE_CHUNK_GRANT};
    m.u.chunk_grant = (struct message_chunk_grant){900, {model_id, 32}, false};
    tell(f, &m);
    assert_int_equal(did(f, AGENT_DO_SESSION_ALLOW, 0)->u.session.session, 900);
    m.u.chunk_grant.revoke = true;
    tell(f, &m);
    assert_int_equal(did(f, AGENT_DO_SESSION_REVOKE, 0)->u.session.session, 900);
    m.u.chunk_grant = (struct message_chunk_grant){SESSION + 1, {model_id, 32}, false};
    tell(f, &m);
    m.u.chunk_grant.revoke = true;
    tell(f, &m);
    assert_null(did(f, AGENT_DO_SESSION_REVOKE, 0)); /* the stage still has that token */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CLAIM(stage_whose_weights_cannot_be_read_fails_with_what_to_do),
        CLAIM(stage_is_fetched_loaded_and_told_at_every_step),
        CLAIM(next_generation_keeps_weights_that_are_the_same),
        CLAIM(bad_prepare_fails_without_a_stage),
        CLAIM(what_crosses_is_agreed_before_stages_are_connected),
        CLAIM(unload_of_a_generation_takes_it_and_older_ones),
        CLAIM(grants_open_and_close_the_door_for_chunks),
    };
    return cmocka_run_group_tests_name("core_stages", tests, NULL, NULL);
}
