/* One core, stepped by hand: keys and values that a sequence begins with, and those that go to
 * another stage. Whatever comes late, twice, not at all or from whoever, each order is answered,
 * and a sequence either goes on with all of them or fails. */
#include <stdlib.h>
#include <string.h>

#include "agent/agent_core.h"
#include "tests/message_fixture.h"
#include "tests/test.h"

static const uint64_t ms = 1000000;
enum { DEPLOYMENT = 7, GENERATION = 2, STAGE = 1, KV_SESSION = 900, LENGTH = 150, PAGE = 64 };
/* Two groups: blocks 2 to 4 of the first, block 1 of the second, which has a window. */
static const struct kv_shape shape = {.n_groups = 2,
                                      .groups = {{2, 3, 0, 16, true}, {1, 1, 20, 8, false}}};
static uint8_t model_id[32] = {1}, key[KEY_BYTES] = {2};

struct kv_fixture {
    struct message_ref *told; /* the last message, into which actions may point */
    struct env_virtual clock;
    struct env env;
    struct agent_core_config config;
    struct agent_core *core;
    struct agent_actions actions;
    uint64_t slot, ticket; /* ticket: of the sequence that was opened last */
    int buffers;           /* that the core has */
};

static void feed(struct kv_fixture *f, const struct agent_event *ev)
{
    agent_core_event(f->core, ev, &f->actions);
    for (size_t i = 0; i < f->actions.count; i++)
        f->buffers -= f->actions.items[i].kind == AGENT_DO_RELEASE ||
                      f->actions.items[i].kind == AGENT_DO_KV_IMPORT;
}

static void tell(struct kv_fixture *f, const struct message *m)
{
    struct agent_event ev = {.kind = AGENT_EVENT_MESSAGE};
    if (f->told)
        message_ref_release(f->told);
    ev.u.message = f->told = message_of_test(m);
    feed(f, &ev);
}

static const struct agent_action *did(const struct kv_fixture *f, enum agent_action_kind kind,
                                      int n)
{
    for (size_t i = 0; i < f->actions.count; i++)
        if (f->actions.items[i].kind == kind && n-- == 0)
            return &f->actions.items[i];
    return NULL;
}

static const struct message *said(const struct kv_fixture *f, enum message_type type)
{
    for (size_t i = 0; i < f->actions.count; i++)
        if (f->actions.items[i].kind == AGENT_DO_SEND && f->actions.items[i].u.message.type == type)
            return &f->actions.items[i].u.message;
    return NULL;
}

static void wake_at(struct kv_fixture *f, uint64_t now_ms)
{
    f->clock.now_ns = now_ms * ms;
    feed(f, &(struct agent_event){.kind = AGENT_EVENT_TIMER});
}

/* Meanwhile the agent itself does not stand still, and hears the stage before and the coordinator.
 */
static void tick_to(struct kv_fixture *f, uint64_t now_ms)
{
    enum { BEAT_MS = 500 };
    struct frame_header alive = {.kind = FRAME_ALIVE,
                                 .stage = STAGE,
                                 .session = 77,
                                 .deployment = DEPLOYMENT,
                                 .generation = GENERATION};
    struct agent_event heard = {.kind = AGENT_EVENT_FRAME};
    heard.u.frame.header = &alive;
    while (f->clock.now_ns / ms + BEAT_MS < now_ms) {
        wake_at(f, f->clock.now_ns / ms + BEAT_MS);
        feed(f, &heard);
        tell(f, &(struct message){.type = MESSAGE_HEARTBEAT_ACK});
    }
    wake_at(f, now_ms);
}

static void stage_make(struct kv_fixture *f)
{
    struct message m = {.type = MESSAGE_STAGE_PREPARE};
    m.u.stage_prepare = (struct message_stage_prepare){.deployment = DEPLOYMENT,
                                                       .generation = GENERATION,
                                                       .stage = STAGE,
                                                       .n_stages = 2,
                                                       .session = 77,
                                                       .model = {model_id, 32},
                                                       .end_layer = 4,
                                                       .compute = "f32",
                                                       .context = 1000,
                                                       .kv_tokens = 1000,
                                                       .max_sequences = 8,
                                                       .max_batch_tokens = 256};
    tell(f, &m);
    const struct agent_action *fetch = did(f, AGENT_DO_FETCH, 0);
    f->slot = fetch->u.work.slot;
    struct agent_event ev = {.kind = AGENT_EVENT_FETCHED};
    ev.u.progress = (struct agent_progress){.slot = f->slot, .ticket = fetch->u.work.ticket};
    feed(f, &ev);
    ev.kind = AGENT_EVENT_LOADED;
    ev.u.progress = (struct agent_progress){.slot = f->slot,
                                            .ticket = did(f, AGENT_DO_LOAD, 0)->u.work.ticket,
                                            .row_in.width = 1,
                                            .vocabulary = 50,
                                            .kv = shape};
    feed(f, &ev);
    m.type = MESSAGE_STAGE_CONNECT;
    m.u.stage_connect = (struct message_stage_connect){
        .deployment = DEPLOYMENT, .generation = GENERATION, .stage = STAGE, .n_stages = 2};
    tell(f, &m);
}

static int setup(void **state)
{
    struct kv_fixture *f = calloc(1, sizeof *f);
    f->env = env_virtual_init(&f->clock, 1);
    f->clock.now_ns = 1000 * ms;
    f->config = (struct agent_core_config){.name = "a",
                                           .secret = "",
                                           .program = "1",
                                           .machine = "m",
                                           .hostname = "h",
                                           .node_json = "{}"};
    assert_int_equal(agent_core_create(&f->env, &f->config, &f->core, NULL), 0);
    struct message m = {.type = MESSAGE_WELCOME};
    m.u.welcome = (struct message_welcome){.name = "a", .heartbeat_ms = 500, .coordinator_boot = 3};
    feed(f, &(struct agent_event){.kind = AGENT_EVENT_START});
    tell(f, &m);
    stage_make(f);
    *state = f;
    return 0;
}

static void release(void *ctx, void *buffer)
{
    (void)buffer;
    ((struct kv_fixture *)ctx)->buffers--;
}

static int teardown(void **state)
{
    struct kv_fixture *f = *state;
    agent_core_destroy(&f->core, release, f);
    agent_actions_free(&f->actions);
    assert_int_equal(f->buffers, 0);
    if (f->told)
        message_ref_release(f->told);
    free(f);
    return 0;
}

static void open_at(struct kv_fixture *f, uint64_t id, uint64_t length, uint64_t share)
{
    static const uint32_t prompt[LENGTH + 1] = {1};
    struct message m = {.type = MESSAGE_SEQUENCE_OPEN};
    m.u.sequence_open = (struct message_sequence_open){.deployment = DEPLOYMENT,
                                                       .generation = GENERATION,
                                                       .stage = STAGE,
                                                       .sequence = id,
                                                       .prompt = {prompt, LENGTH + 1},
                                                       .max_tokens = 5,
                                                       .kv_tokens = 200,
                                                       .length = length,
                                                       .share = share};
    tell(f, &m);
    const struct agent_action *a = did(f, AGENT_DO_SEQUENCE_OPEN, 0);
    f->ticket = a ? a->u.sequence_open.ticket : 0;
}

static void opened(struct kv_fixture *f, uint64_t id, int status, uint32_t awaited)
{
    struct agent_event ev = {.kind = AGENT_EVENT_SEQUENCE_OPENED};
    ev.u.sequence_opened.slot = f->slot;
    ev.u.sequence_opened.ticket = f->ticket;
    ev.u.sequence_opened.sequence = id;
    ev.u.sequence_opened.status = status;
    ev.u.sequence_opened.awaited = awaited;
    feed(f, &ev);
}

static void imported(struct kv_fixture *f, uint64_t id, int status, uint32_t awaited)
{
    struct agent_event ev = {.kind = AGENT_EVENT_KV_IMPORTED};
    ev.u.kv_imported.slot = f->slot;
    ev.u.kv_imported.ticket = f->ticket;
    ev.u.kv_imported.sequence = id;
    ev.u.kv_imported.status = status;
    ev.u.kv_imported.awaited = awaited;
    feed(f, &ev);
}

static struct message import_of(uint64_t id)
{
    struct message m = {.type = MESSAGE_KV_IMPORT, .id = 40 + id};
    m.u.kv_import =
        (struct message_kv_import){DEPLOYMENT, GENERATION, STAGE, id, KV_SESSION, {key, KEY_BYTES}};
    return m;
}

static void import(struct kv_fixture *f, uint64_t id)
{
    struct message m = import_of(id);
    tell(f, &m);
}

/* The state that was told last, with its id. */
static const struct message_kv_state *kv_said(const struct kv_fixture *f, uint64_t id)
{
    const struct message *m = said(f, MESSAGE_KV_STATE);
    if (!m)
        return NULL;
    assert_int_equal(m->id, id);
    return &m->u.kv_state;
}

static struct frame_header frame_of(uint64_t id, const struct kv_range *r)
{
    return (struct frame_header){.kind = FRAME_KV,
                                 .stage = STAGE,
                                 .dtype =
                                     (uint16_t)frame_dtype_of_kv(shape.groups[r->group % 2].format),
                                 .session = KV_SESSION,
                                 .deployment = DEPLOYMENT,
                                 .generation = GENERATION,
                                 .sequence = id,
                                 .first_position = r->first,
                                 .n_tokens = r->count,
                                 .payload_bytes = FRAME_KV_BYTES + kv_shape_bytes(&shape, r)};
}

static void frame_in(struct kv_fixture *f, const struct frame_header *h, const struct kv_range *r)
{
    static int payload;
    struct agent_event ev = {.kind = AGENT_EVENT_FRAME};
    ev.u.frame.header = h;
    ev.u.frame.kv = *r;
    ev.u.frame.buffer = &payload;
    f->buffers++;
    feed(f, &ev);
}

static const struct kv_range piece = {0, 2, 3, 0, PAGE};

/* A run of the sequence that begins where its length ends: does the queue take it as due? */
static bool runs_at(struct kv_fixture *f, uint64_t id, uint32_t position, uint32_t batch)
{
    static int rows;
    struct batch_run run = {
        .sequence = id, .first_position = position, .n_tokens = 1, .n_logits = 1};
    struct frame_header h = {.kind = FRAME_ACTIVATION,
                             .stage = STAGE,
                             .dtype = FRAME_F32,
                             .n_runs = 1,
                             .session = 77,
                             .deployment = DEPLOYMENT,
                             .generation = GENERATION,
                             .batch = batch,
                             .n_tokens = 1,
                             .payload_bytes = FRAME_RUN_BYTES + sizeof(float)};
    struct agent_event ev = {.kind = AGENT_EVENT_FRAME};
    ev.u.frame.header = &h;
    ev.u.frame.runs = &run;
    ev.u.frame.buffer = &rows;
    f->buffers++;
    feed(f, &ev);
    bool ran = did(f, AGENT_DO_RUN, 0) != NULL;
    f->buffers -= ran; /* its input is taken */
    return ran;
}

static void a_sequence_runs_once_all_that_it_begins_with_has_come(void **state)
{
    struct kv_fixture *f = *state;
    open_at(f, 1, LENGTH, 0);
    assert_int_equal(did(f, AGENT_DO_SEQUENCE_OPEN, 0)->u.sequence_open.open->length, LENGTH);
    opened(f, 1, 0, 3);
    import(f, 1);
    assert_string_equal(kv_said(f, 41)->state, "awaited");
    assert_int_equal(did(f, AGENT_DO_SESSION_ALLOW, 0)->u.session.session, KV_SESSION);
    assert_memory_equal(did(f, AGENT_DO_SESSION_ALLOW, 0)->u.session.from, key, KEY_BYTES);
    assert_false(runs_at(f, 1, LENGTH, 1));
    struct frame_header h = frame_of(1, &piece);
    for (int i = 0; i < 2; i++) { /* one that comes twice is the executor's business */
        frame_in(f, &h, &piece);
        const struct agent_action *a = did(f, AGENT_DO_KV_IMPORT, 0);
        assert_int_equal(a->u.kv_import.ticket, f->ticket);
        assert_int_equal(a->u.kv_import.range.n_blocks, 3);
        imported(f, 1, 0, 2);
        assert_null(said(f, MESSAGE_KV_STATE));
        assert_null(did(f, AGENT_DO_RUN, 0));
    }
    frame_in(f, &h, &piece);
    imported(f, 1, 0, 0);
    const struct message_kv_state *s = kv_said(f, 41);
    assert_string_equal(s->state, "received");
    assert_int_equal(s->moved_bytes, 3 * (h.payload_bytes - FRAME_KV_BYTES));
    assert_int_equal(did(f, AGENT_DO_SESSION_REVOKE, 0)->u.session.session, KV_SESSION);
    assert_non_null(did(f, AGENT_DO_RUN, 0)); /* the run that waited */
    f->buffers--;
    /* A frame that is late is nobody's any more. */
    frame_in(f, &h, &piece);
    assert_null(did(f, AGENT_DO_KV_IMPORT, 0));
    assert_int_equal(agent_core_view(f->core).dropped_foreign, 1);
}

static void a_stage_that_keeps_nothing_awaits_nothing(void **state)
{
    struct kv_fixture *f = *state;
    open_at(f, 1, LENGTH, 0);
    opened(f, 1, 0, 0);
    assert_true(runs_at(f, 1, LENGTH, 1));
    import(f, 1);
    assert_string_equal(kv_said(f, 41)->state, "failed");
    assert_string_equal(kv_said(f, 41)->code, "invalid");
}

static void a_shared_beginning_needs_no_frames(void **state)
{
    struct kv_fixture *f = *state;
    open_at(f, 1, 0, 0);
    opened(f, 1, 0, 0);
    open_at(f, 2, 100, 1);
    assert_int_equal(did(f, AGENT_DO_SEQUENCE_OPEN, 0)->u.sequence_open.open->share, 1);
    opened(f, 2, 0, 0);
    assert_true(runs_at(f, 2, 100, 1));
    open_at(f, 3, 100, 9); /* with one that comes later */
    assert_string_equal(said(f, MESSAGE_SEQUENCE_FAILED)->u.sequence_failed.code, "invalid");
    open_at(f, 4, 200, 0); /* as long as it may become */
    assert_string_equal(said(f, MESSAGE_SEQUENCE_FAILED)->u.sequence_failed.code, "invalid");
    open_at(f, 5, 100, 1);
    opened(f, 5, HP_ENOENT, 0); /* closed meanwhile */
    assert_string_equal(said(f, MESSAGE_SEQUENCE_FAILED)->u.sequence_failed.code, "not_found");
}

static void imports_that_make_no_sense_are_refused(void **state)
{
    struct kv_fixture *f = *state;
    open_at(f, 1, LENGTH, 0);
    struct message good = import_of(1);
    static const struct {
        const char *code;
        int field;
        uint64_t value;
    } cases[] = {{"stale", 0, 8}, {"stale", 1, 1},     {"stale", 1, 3},
                 {"stale", 2, 0}, {"not_found", 3, 9}, {"invalid", 4, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct message m = good;
        struct message_kv_import *o = &m.u.kv_import;
        uint64_t *fields[] = {&o->deployment, &o->generation, &o->stage, &o->sequence, &o->session};
        *fields[cases[i].field] = cases[i].value;
        tell(f, &m);
        assert_string_equal(kv_said(f, 41)->state, "failed");
        assert_string_equal(kv_said(f, 41)->code, cases[i].code);
        assert_null(did(f, AGENT_DO_SESSION_ALLOW, 0));
    }
    struct message short_key = good;
    short_key.u.kv_import.from.size = 3;
    tell(f, &short_key);
    assert_string_equal(kv_said(f, 41)->code, "invalid");
    for (int i = 0; i < AGENT_MAX_KV_IMPORTS; i++) {
        good.u.kv_import.session = 1000 + (uint64_t)i;
        tell(f, &good);
        assert_string_equal(kv_said(f, 41)->state, "awaited");
    }
    good.u.kv_import.session = 1;
    tell(f, &good);
    assert_string_equal(kv_said(f, 41)->code, "busy");
}

static void frames_of_others_are_dropped_and_those_that_fit_nothing_fail_the_sequence(void **state)
{
    struct kv_fixture *f = *state;
    open_at(f, 1, LENGTH, 0);
    opened(f, 1, 0, 3);
    import(f, 1);
    struct frame_header good = frame_of(1, &piece);
    for (int i = 0; i < 5; i++) {
        struct frame_header h = good;
        if (i == 0)
            h.session++;
        else if (i == 1)
            h.generation--;
        else if (i == 2)
            h.stage = 0;
        else if (i == 3)
            h.sequence = 2;
        else
            h.deployment++;
        frame_in(f, &h, &piece);
        assert_null(did(f, AGENT_DO_KV_IMPORT, 0));
        assert_null(said(f, MESSAGE_SEQUENCE_FAILED));
    }
    struct agent_core_view v = agent_core_view(f->core);
    assert_int_equal(v.dropped_foreign, 4);
    assert_int_equal(v.dropped_stale, 1);
    static const struct kv_range bad[] = {{0, 1, 3, 0, PAGE}, {0, 3, 3, 0, PAGE},
                                          {2, 0, 1, 0, PAGE}, {0, 2, 3, 128, PAGE},
                                          {0, 2, 3, 0, 0},    {0, 2, 3, UINT32_MAX, 2}};
    for (uint64_t i = 0; i < sizeof bad / sizeof *bad + 2; i++) {
        const struct kv_range *r = i < sizeof bad / sizeof *bad ? &bad[i] : &piece;
        struct frame_header h = frame_of(1 + i, r);
        h.payload_bytes -= r == &piece && i % 2 == 0;
        h.dtype = r == &piece && i % 2 ? FRAME_F16 : h.dtype;
        frame_in(f, &h, r);
        assert_null(did(f, AGENT_DO_KV_IMPORT, 0));
        assert_string_equal(said(f, MESSAGE_SEQUENCE_FAILED)->u.sequence_failed.code, "protocol");
        assert_string_equal(kv_said(f, 41 + i)->state, "failed");
        assert_int_equal(did(f, AGENT_DO_SESSION_REVOKE, 0)->u.session.session, KV_SESSION);
        open_at(f, 2 + i, LENGTH, 0);
        opened(f, 2 + i, 0, 3);
        import(f, 2 + i);
    }
}

static void frames_of_another_format_are_taken_as_what_they_say(void **state)
{
    static const struct {
        uint16_t dtype;
        uint64_t token_bytes; /* of 16 of its own */
        bool fits;
    } cases[] = {{FRAME_F16, 8, true},      {FRAME_F32, 8, false},     {FRAME_F16, 16, false},
                 {FRAME_KV_Q8_0, 4, false}, {FRAME_KV_Q8_0, 0, false}, {FRAME_BF16, 8, false},
                 {FRAME_Q8, 8, false},      {FRAME_BYTES, 16, false},  {FRAME_DTYPE_END, 16, false},
                 {UINT16_MAX, 16, false}};
    struct kv_fixture *f = *state;
    for (uint64_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        open_at(f, 1 + i, LENGTH, 0);
        opened(f, 1 + i, 0, 3);
        import(f, 1 + i);
        struct frame_header h = frame_of(1 + i, &piece);
        h.dtype = cases[i].dtype;
        h.payload_bytes =
            FRAME_KV_BYTES + (uint64_t)piece.n_blocks * piece.count * cases[i].token_bytes;
        frame_in(f, &h, &piece);
        const struct agent_action *a = did(f, AGENT_DO_KV_IMPORT, 0);
        assert_int_equal(a != NULL, cases[i].fits);
        if (a) {
            assert_int_equal(a->u.kv_import.format, KV_F16);
            imported(f, 1 + i, 0, 0);
            assert_string_equal(kv_said(f, 41 + i)->state, "received");
        } else {
            assert_string_equal(kv_said(f, 41 + i)->state, "failed");
        }
    }
}

static void what_does_not_come_fails_the_sequence_in_its_time(void **state)
{
    struct kv_fixture *f = *state;
    open_at(f, 1, LENGTH, 0); /* nobody is told to send */
    opened(f, 1, 0, 3);
    tick_to(f, 2000);
    open_at(f, 2, LENGTH, 0);
    opened(f, 2, 0, 3);
    import(f, 2);
    tick_to(f, 1000 + AGENT_KV_LIMIT_MS);
    assert_int_equal(said(f, MESSAGE_SEQUENCE_FAILED)->u.sequence_failed.sequence, 1);
    assert_string_equal(said(f, MESSAGE_SEQUENCE_FAILED)->u.sequence_failed.code, "timeout");
    struct frame_header h = frame_of(2, &piece);
    tick_to(f, 1900 + AGENT_KV_LIMIT_MS);
    frame_in(f, &h, &piece); /* something still moves */
    imported(f, 2, 0, 2);
    tick_to(f, 1800 + 2 * AGENT_KV_LIMIT_MS);
    assert_null(said(f, MESSAGE_SEQUENCE_FAILED));
    tick_to(f, 1900 + 2 * AGENT_KV_LIMIT_MS);
    assert_string_equal(said(f, MESSAGE_SEQUENCE_FAILED)->u.sequence_failed.code, "timeout");
    assert_string_equal(kv_said(f, 42)->state, "failed");
    assert_int_equal(agent_core_view(f->core).n_sequences, 0);
}

/* A sender that says the same piece over and over keeps nothing open. */
static void a_piece_that_comes_again_and_again_is_no_sign_of_life(void **state)
{
    struct kv_fixture *f = *state;
    open_at(f, 1, LENGTH, 0);
    opened(f, 1, 0, 3);
    import(f, 1);
    struct frame_header h = frame_of(1, &piece);
    for (int i = 0; i < 2; i++) {
        frame_in(f, &h, &piece);
        imported(f, 1, 0, 2);
        tick_to(f, AGENT_KV_LIMIT_MS + (i ? 1000 : 900));
    }
    assert_string_equal(said(f, MESSAGE_SEQUENCE_FAILED)->u.sequence_failed.code, "timeout");
    assert_string_equal(kv_said(f, 41)->state, "failed");
    /* Nor does it keep the executor at work for ever. */
    open_at(f, 2, LENGTH, 0);
    opened(f, 2, 0, 3);
    import(f, 2);
    h.sequence = 2;
    int taken = 0;
    for (int i = 0; i < 1000 && agent_core_view(f->core).n_sequences; i++) {
        frame_in(f, &h, &piece);
        taken += did(f, AGENT_DO_KV_IMPORT, 0) != NULL;
        if (agent_core_view(f->core).n_sequences)
            imported(f, 2, 0, 2);
    }
    assert_int_equal(agent_core_view(f->core).n_sequences, 0);
    assert_string_equal(said(f, MESSAGE_SEQUENCE_FAILED)->u.sequence_failed.code, "protocol");
    assert_in_range(taken, 3, 20);
}

/* A sender that computes what it is to send says so, and is waited for. */
static void a_lease_is_kept_by_signs_of_life_of_its_sender_alone(void **state)
{
    struct kv_fixture *f = *state;
    open_at(f, 1, LENGTH, 0);
    opened(f, 1, 0, 3);
    import(f, 1);
    struct frame_header beat = frame_of(1, &(struct kv_range){0}), foreign;
    beat.payload_bytes = 0;
    foreign = beat;
    foreign.session++;
    struct agent_event ev = {.kind = AGENT_EVENT_FRAME};
    ev.u.frame.header = &beat;
    for (uint64_t i = 1; i <= 3; i++) {
        tick_to(f, 1000 - 100 * i + i * AGENT_KV_LIMIT_MS);
        feed(f, &ev);
        assert_null(said(f, MESSAGE_SEQUENCE_FAILED));
    }
    ev.u.frame.header = &foreign;
    tick_to(f, 600 + 4 * AGENT_KV_LIMIT_MS);
    feed(f, &ev);
    assert_int_equal(agent_core_view(f->core).dropped_foreign, 1);
    tick_to(f, 750 + 4 * AGENT_KV_LIMIT_MS);
    assert_string_equal(said(f, MESSAGE_SEQUENCE_FAILED)->u.sequence_failed.code, "timeout");
}

/* What has come waits for the batch that the executor is at: that is nobody's silence. */
static void a_piece_that_waits_for_a_long_batch_is_waited_for(void **state)
{
    struct kv_fixture *f = *state;
    open_at(f, 1, 0, 0);
    opened(f, 1, 0, 0);
    assert_true(runs_at(f, 1, 0, 1));
    open_at(f, 2, LENGTH, 0);
    opened(f, 2, 0, 3);
    import(f, 2);
    struct frame_header h = frame_of(2, &piece);
    frame_in(f, &h, &piece);
    tick_to(f, 1000 + AGENT_KV_LIMIT_MS + 100);
    assert_null(said(f, MESSAGE_SEQUENCE_FAILED));
    imported(f, 2, 0, 2);
    tick_to(f, 1000 + 2 * AGENT_KV_LIMIT_MS);
    assert_null(said(f, MESSAGE_SEQUENCE_FAILED));
    tick_to(f, 1100 + 2 * AGENT_KV_LIMIT_MS);
    assert_string_equal(said(f, MESSAGE_SEQUENCE_FAILED)->u.sequence_failed.code, "timeout");
}

static void what_an_executor_cannot_take_fails_the_sequence(void **state)
{
    struct kv_fixture *f = *state;
    open_at(f, 1, LENGTH, 0);
    opened(f, 1, 0, 3);
    import(f, 1);
    struct frame_header h = frame_of(1, &piece);
    frame_in(f, &h, &piece);
    uint64_t ticket = f->ticket;
    f->ticket++;
    imported(f, 1, HP_EDEVICE, 0); /* of another sequence of that number */
    assert_null(said(f, MESSAGE_SEQUENCE_FAILED));
    f->ticket = ticket;
    imported(f, 1, HP_EDEVICE, 0);
    assert_string_equal(said(f, MESSAGE_SEQUENCE_FAILED)->u.sequence_failed.code, "device");
    assert_string_equal(kv_said(f, 41)->state, "failed");
    imported(f, 1, 0, 0); /* of the piece behind it */
    assert_null(said(f, MESSAGE_KV_STATE));
}

/* Each of several senders' orders is answered with what came from that one. */
static void each_sender_is_told_what_came_from_it(void **state)
{
    struct kv_fixture *f = *state;
    const struct kv_range other = {1, 1, 1, 0, PAGE};
    struct message second = import_of(1);
    second.id = 50;
    second.u.kv_import.session = KV_SESSION + 1;
    open_at(f, 1, LENGTH, 0);
    opened(f, 1, 0, 3);
    import(f, 1);
    tell(f, &second);
    struct frame_header h = frame_of(1, &piece), from_second = frame_of(1, &other);
    from_second.session = KV_SESSION + 1;
    frame_in(f, &h, &piece);
    imported(f, 1, 0, 1);
    frame_in(f, &from_second, &other);
    imported(f, 1, 0, 0);
    int answers = 0;
    for (size_t i = 0; i < f->actions.count; i++) {
        const struct agent_action *a = &f->actions.items[i];
        if (a->kind != AGENT_DO_SEND || a->u.message.type != MESSAGE_KV_STATE)
            continue;
        answers++;
        assert_string_equal(a->u.message.u.kv_state.state, "received");
        assert_int_equal(a->u.message.u.kv_state.moved_bytes,
                         kv_shape_bytes(&shape, a->u.message.id == 50 ? &other : &piece));
    }
    assert_int_equal(answers, 2);
}

/* An agent that was stopped itself (a suspended laptop, a debugger) saw nothing of what moved: the
 * limit begins anew. */
static void what_awaits_keys_and_values_outlives_a_pause_of_the_agent(void **state)
{
    struct kv_fixture *f = *state;
    open_at(f, 1, LENGTH, 0);
    opened(f, 1, 0, 3);
    import(f, 1);
    wake_at(f, 1000 + 3 * AGENT_KV_LIMIT_MS);
    assert_null(said(f, MESSAGE_SEQUENCE_FAILED));
    assert_null(said(f, MESSAGE_KV_STATE));
    tick_to(f, 900 + 4 * AGENT_KV_LIMIT_MS);
    assert_null(said(f, MESSAGE_SEQUENCE_FAILED));
    tick_to(f, 1100 + 4 * AGENT_KV_LIMIT_MS);
    assert_string_equal(said(f, MESSAGE_SEQUENCE_FAILED)->u.sequence_failed.code, "timeout");
}

/* ---- what goes ---- */

static struct message export_of(uint64_t id, uint64_t length)
{
    struct message m = {.type = MESSAGE_KV_EXPORT, .id = 80 + id};
    m.u.kv_export = (struct message_kv_export){.deployment = DEPLOYMENT,
                                               .generation = GENERATION,
                                               .stage = STAGE,
                                               .sequence = id,
                                               .length = length,
                                               .session = KV_SESSION,
                                               .to_address = {(const uint8_t *)"there", 5},
                                               .to_deployment = 8,
                                               .to_generation = 1,
                                               .to_stage = 3,
                                               .to_sequence = 55};
    return m;
}

/* A sequence with all its keys and values here. */
static void make_whole(struct kv_fixture *f, uint64_t id)
{
    open_at(f, id, LENGTH, 0);
    opened(f, id, 0, 0);
}

static void left(struct kv_fixture *f, uint64_t ticket, int status, const struct kv_range *again)
{
    struct agent_event ev = {.kind = AGENT_EVENT_KV_LEFT};
    ev.u.kv_left.ticket = ticket;
    ev.u.kv_left.status = status;
    if (again)
        ev.u.kv_left.range = *again;
    feed(f, &ev);
}

/* Takes the pieces that the core wants to be sent: counts their pages of blocks. */
static uint32_t pieces_take(const struct kv_fixture *f, uint64_t *ticket, uint64_t *bytes)
{
    uint32_t n = 0;
    const struct agent_action *a;
    for (int i = 0; (a = did(f, AGENT_DO_KV_EXPORT, i)) != NULL; i++, n++) {
        const struct kv_range *r = &a->u.kv_export.range;
        const struct frame_header *h = &a->u.kv_export.header;
        *ticket = a->u.kv_export.ticket;
        *bytes += kv_shape_bytes(&shape, r);
        assert_int_equal(h->kind, FRAME_KV);
        assert_int_equal(h->stage, 3);
        assert_int_equal(h->deployment, 8);
        assert_int_equal(h->sequence, 55);
        assert_int_equal(h->session, KV_SESSION);
        assert_int_equal(h->first_position, r->first);
        assert_int_equal(h->n_tokens, r->count);
        assert_int_equal(h->dtype, frame_dtype_of_kv(shape.groups[r->group].format));
        assert_memory_equal(a->u.kv_export.to.data, "there", 5);
    }
    return n;
}

/* So many tokens of a sequence are run; 0: they are not due. Returns the run's ticket. */
static uint64_t tokens_run(struct kv_fixture *f, uint64_t id, uint32_t position, uint32_t n,
                           uint32_t batch)
{
    static int rows;
    struct batch_run run = {.sequence = id, .first_position = position, .n_tokens = n};
    struct frame_header h = {.kind = FRAME_ACTIVATION,
                             .stage = STAGE,
                             .dtype = FRAME_F32,
                             .n_runs = 1,
                             .session = 77,
                             .deployment = DEPLOYMENT,
                             .generation = GENERATION,
                             .batch = batch,
                             .n_tokens = n,
                             .payload_bytes = FRAME_RUN_BYTES + n * sizeof(float)};
    struct agent_event ev = {.kind = AGENT_EVENT_FRAME};
    ev.u.frame.header = &h;
    ev.u.frame.runs = &run;
    ev.u.frame.buffer = &rows;
    f->buffers++;
    feed(f, &ev);
    const struct agent_action *a = did(f, AGENT_DO_RUN, 0);
    f->buffers -= a != NULL; /* its input is taken */
    return a ? a->u.run.ticket : 0;
}

static void ran(struct kv_fixture *f, uint64_t ticket)
{
    struct agent_event ev = {.kind = AGENT_EVENT_BATCH_DONE};
    ev.u.batch_done.slot = f->slot;
    ev.u.batch_done.ticket = ticket;
    ev.u.batch_done.seconds = 1e-3;
    feed(f, &ev);
}

static void what_is_still_being_computed_goes_page_by_page(void **state)
{
    struct kv_fixture *f = *state;
    uint64_t ticket = 0, bytes = 0;
    open_at(f, 1, 0, 0);
    opened(f, 1, 0, 0);
    struct message m = export_of(1, LENGTH);
    tell(f, &m);
    assert_string_equal(kv_said(f, 81)->code, "invalid"); /* it has nothing */
    m.u.kv_export.follow = true;
    tell(f, &m);
    assert_null(said(f, MESSAGE_KV_STATE));
    assert_int_equal(pieces_take(f, &ticket, &bytes), 0);
    /* Nothing to send: a sign of life. */
    tick_to(f, 1000 + AGENT_KV_BEAT_MS);
    const struct agent_action *beat = did(f, AGENT_DO_KV_EXPORT, 0);
    assert_int_equal(beat->u.kv_export.header.n_tokens, 0);
    assert_int_equal(beat->u.kv_export.range.count, 0);
    left(f, beat->u.kv_export.ticket, 0, NULL);
    assert_null(said(f, MESSAGE_KV_STATE));
    /* A page and a half: the page goes, of the group without a window. */
    uint64_t run = tokens_run(f, 1, 0, 100, 1);
    assert_int_equal(pieces_take(f, &ticket, &bytes), 1);
    assert_int_equal(bytes, PAGE * 3 * 16);
    left(f, ticket, 0, NULL);
    assert_int_equal(pieces_take(f, &ticket, &bytes), 0);
    ran(f, run);
    run = tokens_run(f, 1, 100, LENGTH - 100, 2);
    assert_int_equal(pieces_take(f, &ticket, &bytes), 2);
    uint64_t seen = kv_first_seen(20, LENGTH) / PAGE * PAGE;
    assert_int_equal(bytes, LENGTH * 3 * 16 + (LENGTH - seen) * 8);
    left(f, ticket, 0, NULL);
    left(f, ticket, 0, NULL);
    assert_string_equal(kv_said(f, 81)->state, "sent");
    assert_int_equal(kv_said(f, 81)->moved_bytes, bytes);
    ran(f, run);
    /* One that is closed in the middle of it says so. */
    open_at(f, 2, 0, 0);
    opened(f, 2, 0, 0);
    m = export_of(2, LENGTH);
    m.u.kv_export.follow = true;
    tell(f, &m);
    struct message end = {.type = MESSAGE_SEQUENCE_CLOSE};
    end.u.sequence_close = (struct message_sequence_close){DEPLOYMENT, GENERATION, 2, STAGE, 0};
    tell(f, &end);
    assert_string_equal(kv_said(f, 82)->code, "canceled");
}

static void a_sequence_goes_piece_by_piece_and_says_when_all_has_left(void **state)
{
    struct kv_fixture *f = *state;
    make_whole(f, 1);
    struct message m = export_of(1, LENGTH);
    uint64_t ticket = 0, bytes = 0;
    tell(f, &m);
    assert_int_equal(pieces_take(f, &ticket, &bytes), 2); /* one of each group */
    uint64_t seen = kv_first_seen(20, LENGTH) / PAGE * PAGE;
    assert_int_equal(bytes, LENGTH * 3 * 16 + (LENGTH - seen) * 8);
    left(f, ticket, 0, NULL);
    assert_null(said(f, MESSAGE_KV_STATE));
    left(f, ticket, 0, NULL);
    assert_string_equal(kv_said(f, 81)->state, "sent");
    assert_int_equal(kv_said(f, 81)->moved_bytes, bytes);
    assert_int_equal(did(f, AGENT_DO_KV_DROP, 0)->u.kv_drop.ticket, ticket);
    left(f, ticket, 0, NULL); /* said twice */
    assert_int_equal(f->actions.count, 0);
    /* A part of the blocks. */
    struct message_kv_blocks some = {0, 3, 1};
    m.u.kv_export.blocks = (struct pack_list){&some, 1};
    tell(f, &m);
    bytes = 0;
    assert_int_equal(pieces_take(f, &ticket, &bytes), 1);
    assert_int_equal(bytes, LENGTH * 16);
    left(f, ticket, 0, NULL);
    assert_string_equal(kv_said(f, 81)->state, "sent");
}

static void what_goes_crosses_in_the_format_of_fewer_bytes(void **state)
{
    static const struct {
        const char *kv;
        enum kv_format format; /* of a stage of float32, whose rows are no blocks of 32 */
        uint64_t token_bytes;
    } cases[] = {{"f16", KV_F16, 8}, {"f32", KV_F32, 16}, {"", KV_F32, 16}, {"q8_0", KV_F32, 16}};
    struct kv_fixture *f = *state;
    make_whole(f, 1);
    struct message m = export_of(1, LENGTH);
    struct message_kv_blocks some = {0, 3, 1};
    m.u.kv_export.blocks = (struct pack_list){&some, 1};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        m.u.kv_export.kv = cases[i].kv;
        tell(f, &m);
        const struct agent_action *a = did(f, AGENT_DO_KV_EXPORT, 0);
        assert_int_equal(a->u.kv_export.format, cases[i].format);
        assert_int_equal(a->u.kv_export.header.dtype, frame_dtype_of_kv(cases[i].format));
        left(f, a->u.kv_export.ticket, 0, NULL);
        assert_int_equal(kv_said(f, 81)->moved_bytes, LENGTH * cases[i].token_bytes);
    }
    m.u.kv_export.kv = "int7";
    tell(f, &m);
    assert_string_equal(kv_said(f, 81)->code, "invalid");
}

static void a_piece_without_a_buffer_is_tried_again(void **state)
{
    struct kv_fixture *f = *state;
    make_whole(f, 1);
    struct message m = export_of(1, LENGTH);
    uint64_t ticket = 0, bytes = 0, again = 0;
    tell(f, &m);
    struct kv_range first = did(f, AGENT_DO_KV_EXPORT, 0)->u.kv_export.range;
    pieces_take(f, &ticket, &bytes);
    left(f, ticket, HP_EBUSY, &first);
    assert_null(did(f, AGENT_DO_KV_EXPORT, 0));
    left(f, ticket, 0, NULL); /* the other one */
    assert_null(said(f, MESSAGE_KV_STATE));
    tick_to(f, 1000 + AGENT_KV_RETRY_MS);
    assert_int_equal(pieces_take(f, &ticket, &again), 1);
    assert_int_equal(again, kv_shape_bytes(&shape, &first));
    left(f, ticket, 0, NULL);
    assert_string_equal(kv_said(f, 81)->state, "sent");
    assert_int_equal(kv_said(f, 81)->moved_bytes, bytes);
}

static void what_leaves_outlives_a_pause_of_the_agent(void **state)
{
    struct kv_fixture *f = *state;
    uint64_t ticket = 0, bytes = 0;
    make_whole(f, 1);
    struct message m = export_of(1, LENGTH);
    tell(f, &m);
    assert_int_equal(pieces_take(f, &ticket, &bytes), 2);
    wake_at(f, 1000 + 3 * AGENT_KV_LIMIT_MS);
    assert_null(said(f, MESSAGE_KV_STATE));
    left(f, ticket, 0, NULL);
    left(f, ticket, 0, NULL);
    assert_string_equal(kv_said(f, 81)->state, "sent");
}

static void an_export_that_cannot_go_on_ends_with_its_reason(void **state)
{
    struct kv_fixture *f = *state;
    uint64_t ticket = 0, bytes = 0;
    make_whole(f, 1);
    struct message m = export_of(1, LENGTH);
    tell(f, &m);
    pieces_take(f, &ticket, &bytes);
    left(f, ticket, HP_ELINK, NULL);
    assert_string_equal(kv_said(f, 81)->code, "link");
    assert_non_null(did(f, AGENT_DO_KV_DROP, 0));
    assert_int_equal(agent_core_view(f->core).n_sequences, 1); /* which goes on here */
    tell(f, &m);
    pieces_take(f, &ticket, &bytes);
    tick_to(f, 1000 + AGENT_KV_LIMIT_MS);
    assert_string_equal(kv_said(f, 81)->code, "timeout");
    tell(f, &m);
    struct message close = {.type = MESSAGE_SEQUENCE_CLOSE};
    close.u.sequence_close = (struct message_sequence_close){
        .deployment = DEPLOYMENT, .generation = GENERATION, .stage = STAGE, .sequence = 1};
    tell(f, &close);
    assert_string_equal(kv_said(f, 81)->code, "canceled");
    assert_non_null(did(f, AGENT_DO_KV_DROP, 0));
    make_whole(f, 2);
    m = export_of(2, LENGTH);
    tell(f, &m);
    struct message unload = {.type = MESSAGE_STAGE_UNLOAD};
    unload.u.stage_unload = (struct message_stage_unload){DEPLOYMENT, GENERATION};
    tell(f, &unload);
    assert_string_equal(kv_said(f, 82)->code, "canceled");
}

static void exports_that_make_no_sense_are_refused(void **state)
{
    struct kv_fixture *f = *state;
    make_whole(f, 1);
    open_at(f, 2, LENGTH, 0);
    opened(f, 2, 0, 3); /* has not come itself */
    static const struct {
        const char *code;
        int field;
        uint64_t value;
    } cases[] = {
        {"stale", 0, 8},         {"stale", 1, 1},
        {"stale", 2, 0},         {"not_found", 3, 9},
        {"invalid", 3, 2},       {"invalid", 4, 0},
        {"invalid", 4, 151},     {"invalid", 5, 0},
        {"invalid", 6, 1 << 16}, {"invalid", 7, UINT64_C(1) << 32},
        {"invalid", 8, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct message m = export_of(1, LENGTH);
        struct message_kv_export *o = &m.u.kv_export;
        uint64_t size = 5;
        uint64_t *fields[] = {&o->deployment, &o->generation,    &o->stage,
                              &o->sequence,   &o->length,        &o->session,
                              &o->to_stage,   &o->to_generation, &size};
        *fields[cases[i].field] = cases[i].value;
        o->to_address.size = size;
        tell(f, &m);
        assert_string_equal(kv_said(f, 81)->state, "failed");
        assert_string_equal(kv_said(f, 81)->code, cases[i].code);
        assert_null(did(f, AGENT_DO_KV_EXPORT, 0));
    }
    static const struct message_kv_blocks bad[] = {
        {2, 0, 1}, {0, 1, 1}, {0, 4, 2}, {0, 2, 0}, {UINT64_C(1) << 40, 0, 1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct message m = export_of(1, LENGTH);
        m.u.kv_export.blocks = (struct pack_list){(void *)(uintptr_t)&bad[i], 1};
        tell(f, &m);
        assert_string_equal(kv_said(f, 81)->code, "invalid");
    }
    static const struct message_kv_blocks twice[] = {{0, 2, 1}, {0, 3, 1}};
    struct message m = export_of(1, LENGTH);
    m.u.kv_export.blocks = (struct pack_list){(void *)(uintptr_t)twice, 2};
    tell(f, &m);
    assert_string_equal(kv_said(f, 81)->code, "invalid");
    m = export_of(1, LENGTH);
    for (int i = 0; i < AGENT_MAX_KV_EXPORTS; i++) {
        tell(f, &m);
        assert_null(said(f, MESSAGE_KV_STATE));
    }
    tell(f, &m);
    assert_string_equal(kv_said(f, 81)->code, "busy");
}

#define KV_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        KV_TEST(a_sequence_runs_once_all_that_it_begins_with_has_come),
        KV_TEST(a_stage_that_keeps_nothing_awaits_nothing),
        KV_TEST(a_shared_beginning_needs_no_frames),
        KV_TEST(imports_that_make_no_sense_are_refused),
        KV_TEST(frames_of_others_are_dropped_and_those_that_fit_nothing_fail_the_sequence),
        KV_TEST(frames_of_another_format_are_taken_as_what_they_say),
        KV_TEST(what_does_not_come_fails_the_sequence_in_its_time),
        KV_TEST(a_piece_that_comes_again_and_again_is_no_sign_of_life),
        KV_TEST(a_lease_is_kept_by_signs_of_life_of_its_sender_alone),
        KV_TEST(what_is_still_being_computed_goes_page_by_page),
        KV_TEST(a_piece_that_waits_for_a_long_batch_is_waited_for),
        KV_TEST(what_an_executor_cannot_take_fails_the_sequence),
        KV_TEST(each_sender_is_told_what_came_from_it),
        KV_TEST(what_awaits_keys_and_values_outlives_a_pause_of_the_agent),
        KV_TEST(a_sequence_goes_piece_by_piece_and_says_when_all_has_left),
        KV_TEST(what_goes_crosses_in_the_format_of_fewer_bytes),
        KV_TEST(a_piece_without_a_buffer_is_tried_again),
        KV_TEST(what_leaves_outlives_a_pause_of_the_agent),
        KV_TEST(an_export_that_cannot_go_on_ends_with_its_reason),
        KV_TEST(exports_that_make_no_sense_are_refused),
    };
    return cmocka_run_group_tests_name("core_kv", tests, NULL, NULL);
}
