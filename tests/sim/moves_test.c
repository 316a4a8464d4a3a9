/* A sequence moves from one agent to another in the middle of its answer, under virtual time:
 * frames of keys and values are lost, come twice, late and out of order, as a seed draws it. It
 * goes on with exactly the tokens that it would have had, or fails with a reason; every order is
 * answered, and nothing is left over. Cores and stages are the real ones, the model is tiny. */
#include <stdlib.h>
#include <string.h>

#include "agent/agent_core.h"
#include "agent/backend/backend.h"
#include "agent/engine/stage_int.h"
#include "common/log.h"
#include "tests/message_fixture.h"
#include "tests/test.h"
#include "tests/unit/agent/engine/tiny_model.h"

enum { A, B, BOXES, MOST_PROMPT = 300, ANSWER = 12, SESSION = 500, PLACES = 256 };
static const uint64_t msec = 1000000;
static struct tiny_model *tiny;
static struct device *device;

struct move_box { /* an agent with one stage of its own deployment */
    struct agent_core *core;
    struct agent_core_config config;
    struct agent_actions actions;
    struct stage *stage;
    uint64_t slot;
    uint32_t got[ANSWER], picked;
    int n_got;
    bool finished, failed;
    const char *import_state, *export_state; /* what was told last */
    int buffers;                             /* that the core has */
};

enum what { FRAME, DONE };
struct happening {
    uint64_t at_ns;
    enum what what;
    int box;
    struct agent_event event;
    struct frame_header header; /* FRAME */
    uint8_t *payload;
    size_t size;
};

struct move_scene {
    uint64_t random;
    struct env_virtual clock;
    struct env env;
    struct move_box boxes[BOXES];
    struct happening places[PLACES];
    int n;
    double lose, twice;
    uint64_t late_ns;
    uint64_t timers[BOXES];
};

static uint64_t draw(struct move_scene *s, uint64_t n)
{
    return n ? random_next(&s->random) % n : 0;
}

static bool chance(struct move_scene *s, double p)
{
    return random_unit(&s->random) < p;
}

static struct happening *later(struct move_scene *s, enum what what, int box, uint64_t after_ns)
{
    assert_true(s->n < PLACES);
    struct happening *h = &s->places[s->n++];
    *h = (struct happening){.at_ns = s->clock.now_ns + after_ns, .what = what, .box = box};
    return h;
}

/* ---- what executor and data channel do ---- */

static void done_later(struct move_scene *s, int box, const struct agent_event *ev)
{
    later(s, DONE, box, draw(s, 2 * msec))->event = *ev;
}

static void frame_later(struct move_scene *s, const struct frame_header *h, const uint8_t *payload,
                        size_t size)
{
    struct happening *f = later(s, FRAME, B, draw(s, s->late_ns));
    f->header = *h;
    f->header.payload_bytes = size;
    f->payload = malloc(size);
    f->size = size;
    memcpy(f->payload, payload, size);
}

static void kv_export(struct move_scene *s, int box, const struct agent_action *a)
{
    struct agent_event ev = {.kind = AGENT_EVENT_KV_LEFT};
    struct kv_shape shape = stage_kv_shape(s->boxes[box].stage);
    size_t size = FRAME_KV_BYTES + kv_shape_bytes(&shape, &a->u.kv_export.range);
    uint8_t *payload = calloc(1, size);
    struct err e = {0};
    frame_kv_encode(&a->u.kv_export.range, payload);
    if (stage_kv_export(s->boxes[box].stage, a->u.kv_export.sequence, &a->u.kv_export.range,
                        payload + FRAME_KV_BYTES, &e) < 0)
        fail_msg("%s", e.text);
    if (!chance(s, s->lose))
        frame_later(s, &a->u.kv_export.header, payload, size);
    if (chance(s, s->twice))
        frame_later(s, &a->u.kv_export.header, payload, size);
    free(payload);
    ev.u.kv_left.ticket = a->u.kv_export.ticket;
    if (chance(s, s->lose)) { /* no buffer now */
        ev.u.kv_left.status = HP_EBUSY;
        ev.u.kv_left.range = a->u.kv_export.range;
    }
    done_later(s, box, &ev);
}

static void kv_import(struct move_scene *s, int box, const struct agent_action *a)
{
    struct move_box *b = &s->boxes[box];
    struct agent_event ev = {.kind = AGENT_EVENT_KV_IMPORTED};
    uint8_t *payload = a->u.kv_import.buffer;
    ev.u.kv_imported.slot = a->u.kv_import.slot;
    ev.u.kv_imported.ticket = a->u.kv_import.ticket;
    ev.u.kv_imported.sequence = a->u.kv_import.sequence;
    ev.u.kv_imported.status = stage_kv_import(
        b->stage, a->u.kv_import.sequence, &a->u.kv_import.range, payload + FRAME_KV_BYTES, NULL);
    ev.u.kv_imported.awaited = stage_kv_awaited(b->stage, a->u.kv_import.sequence);
    b->buffers--;
    free(payload);
    done_later(s, box, &ev);
}

static uint32_t heaviest(const float *logits)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < TINY_VOCABULARY; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

static void run(struct move_scene *s, int box, const struct agent_action *a)
{
    static float logits[TINY_VOCABULARY];
    const struct batch *b = a->u.run.batch;
    struct agent_event ev = {.kind = AGENT_EVENT_BATCH_DONE};
    struct err e = {0};
    if (stage_run(s->boxes[box].stage, b->runs, (int)b->n_runs, b->ids, logits, &e) < 0)
        fail_msg("%s", e.text);
    s->boxes[box].picked = heaviest(logits);
    ev.u.batch_done.slot = a->u.run.slot;
    ev.u.batch_done.ticket = a->u.run.ticket;
    ev.u.batch_done.seconds = 1e-4;
    ev.u.batch_done.picked = &s->boxes[box].picked;
    done_later(s, box, &ev);
}

static void sequence_open(struct move_scene *s, int box, const struct agent_action *a)
{
    const struct message_sequence_open *o = a->u.sequence_open.open;
    struct agent_event ev = {.kind = AGENT_EVENT_SEQUENCE_OPENED};
    ev.u.sequence_opened.slot = a->u.sequence_open.slot;
    ev.u.sequence_opened.ticket = a->u.sequence_open.ticket;
    ev.u.sequence_opened.sequence = o->sequence;
    ev.u.sequence_opened.status =
        stage_sequence_open_at(s->boxes[box].stage, o->sequence, (uint32_t)o->kv_tokens,
                               (uint32_t)o->length, o->share, NULL);
    ev.u.sequence_opened.awaited = stage_kv_awaited(s->boxes[box].stage, o->sequence);
    done_later(s, box, &ev);
}

static void heard(struct move_box *b, const struct message *m)
{
    const struct message_kv_state *k = &m->u.kv_state;
    if (m->type == MESSAGE_TOKENS) {
        const struct message_said *said = m->u.tokens.said.items;
        for (size_t i = 0; i < said->ids.count; i++)
            b->got[b->n_got++] = said->ids.items[i];
        b->finished = said->finish[0] != '\0';
    } else if (m->type == MESSAGE_SEQUENCE_FAILED) {
        b->failed = true;
    } else if (m->type == MESSAGE_KV_STATE && m->id == 1) {
        b->import_state = strcmp(k->state, "awaited") == 0    ? "awaited"
                          : strcmp(k->state, "received") == 0 ? "received"
                                                              : "failed";
    } else if (m->type == MESSAGE_KV_STATE) {
        b->export_state = strcmp(k->state, "sent") == 0 ? "sent" : "failed";
    }
}

static void feed(struct move_scene *s, int box, const struct agent_event *ev)
{
    struct move_box *b = &s->boxes[box];
    agent_core_event(b->core, ev, &b->actions);
    for (size_t i = 0; i < b->actions.count; i++) {
        const struct agent_action *a = &b->actions.items[i];
        struct agent_event done = {0};
        switch (a->kind) {
        case AGENT_DO_SEND: heard(b, &a->u.message); break;
        case AGENT_DO_FETCH:
        case AGENT_DO_LOAD:
            done.kind = a->kind == AGENT_DO_FETCH ? AGENT_EVENT_FETCHED : AGENT_EVENT_LOADED;
            done.u.progress = (struct agent_progress){.slot = a->u.work.slot,
                                                      .ticket = a->u.work.ticket,
                                                      .vocabulary = TINY_VOCABULARY,
                                                      .kv = stage_kv_shape(b->stage)};
            done_later(s, box, &done);
            break;
        case AGENT_DO_SEQUENCE_OPEN: sequence_open(s, box, a); break;
        case AGENT_DO_SEQUENCE_CLOSE:
            stage_sequence_close(b->stage, a->u.sequence_close.sequence);
            break;
        case AGENT_DO_RUN: run(s, box, a); break;
        case AGENT_DO_KV_EXPORT: kv_export(s, box, a); break;
        case AGENT_DO_KV_IMPORT: kv_import(s, box, a); break;
        case AGENT_DO_RELEASE:
            b->buffers -= a->u.release.buffer != NULL;
            free(a->u.release.buffer);
            break;
        case AGENT_DO_TIMER: s->timers[box] = a->u.timer.at_ns; break;
        default: break;
        }
    }
}

static void tell(struct move_scene *s, int box, const struct message *m)
{
    struct agent_event ev = {.kind = AGENT_EVENT_MESSAGE};
    ev.u.message = message_of_test(m);
    feed(s, box, &ev);
    message_ref_release(ev.u.message);
}

/* ---- time ---- */

/* Does what is next: something that happens, or an agent's timer. */
static void step(struct move_scene *s)
{
    int next = -1;
    for (int i = 0; i < s->n; i++)
        if (next < 0 || s->places[i].at_ns < s->places[next].at_ns)
            next = i;
    int first = s->timers[A] <= s->timers[B] ? A : B;
    if (next < 0 || s->timers[first] < s->places[next].at_ns) {
        s->clock.now_ns = s->timers[first] > s->clock.now_ns ? s->timers[first] : s->clock.now_ns;
        s->timers[first] = UINT64_MAX;
        feed(s, first, &(struct agent_event){.kind = AGENT_EVENT_TIMER});
        return;
    }
    struct happening h = s->places[next];
    s->places[next] = s->places[--s->n];
    s->clock.now_ns = h.at_ns > s->clock.now_ns ? h.at_ns : s->clock.now_ns;
    if (h.what == FRAME) {
        struct err e = {0};
        h.event.kind = AGENT_EVENT_FRAME;
        h.event.u.frame.header = &h.header;
        h.event.u.frame.buffer = h.payload;
        assert_int_equal(frame_kv_decode(&h.header, h.payload, &h.event.u.frame.kv, &e), 0);
        s->boxes[h.box].buffers++;
    }
    feed(s, h.box, &h.event);
}

static bool run_until(struct move_scene *s, bool (*so)(const struct move_scene *s),
                      uint64_t limit_ms)
{
    uint64_t end = s->clock.now_ns + limit_ms * msec;
    while (!so(s) && s->clock.now_ns < end)
        step(s);
    return so(s);
}

/* ---- the play ---- */

static void scene_open(struct move_scene *s, uint64_t seed)
{
    static const uint8_t model_id[32] = {1};
    *s = (struct move_scene){.random = seed};
    s->env = env_virtual_init(&s->clock, 1);
    for (int i = 0; i < BOXES; i++) {
        struct move_box *b = &s->boxes[i];
        struct stage_config c = {.end_layer = TINY_LAYERS,
                                 .device = device,
                                 .compute = COMPUTE_F32,
                                 .kv_tokens = 1024,
                                 .max_sequences = 4,
                                 .max_batch_tokens = MOST_PROMPT};
        assert_int_equal(stage_load_graph(&tiny->graph, &tiny->config, &c, &b->stage, NULL), 0);
        b->config = (struct agent_core_config){.name = "a",
                                               .secret = "",
                                               .program = "1",
                                               .machine = "m",
                                               .hostname = "h",
                                               .node_json = "{}"};
        assert_int_equal(agent_core_create(&s->env, &b->config, &b->core, NULL), 0);
        s->timers[i] = UINT64_MAX;
        struct message m = {.type = MESSAGE_STAGE_PREPARE};
        m.u.stage_prepare = (struct message_stage_prepare){.deployment = 1 + (uint64_t)i,
                                                           .generation = 1,
                                                           .n_stages = 1,
                                                           .session = 77,
                                                           .model = {model_id, 32},
                                                           .end_layer = TINY_LAYERS,
                                                           .compute = "f32",
                                                           .context = 1000,
                                                           .kv_tokens = 1024,
                                                           .max_sequences = 4,
                                                           .max_batch_tokens = MOST_PROMPT};
        feed(s, i, &(struct agent_event){.kind = AGENT_EVENT_START});
        tell(s, i, &m);
    }
    while (s->n)
        step(s);
}

static void free_payload(void *ctx, void *buffer)
{
    ((struct move_box *)ctx)->buffers--;
    free(buffer);
}

static void scene_close(struct move_scene *s)
{
    while (s->n) {
        s->n--;
        free(s->places[s->n].payload);
    }
    for (int i = 0; i < BOXES; i++) {
        agent_core_destroy(&s->boxes[i].core, free_payload, &s->boxes[i]);
        agent_actions_free(&s->boxes[i].actions);
        stage_unload(&s->boxes[i].stage);
        assert_int_equal(s->boxes[i].buffers, 0);
    }
}

static bool first_half(const struct move_scene *s)
{
    return s->boxes[A].finished;
}

static bool awaited(const struct move_scene *s)
{
    return s->boxes[B].import_state != NULL;
}

static bool over(const struct move_scene *s)
{
    return (s->boxes[B].finished || s->boxes[B].failed) && s->boxes[A].export_state &&
           strcmp(s->boxes[B].import_state, "awaited") != 0;
}

static void sequence_tell(struct move_scene *s, int box, const uint32_t *ids, uint32_t n,
                          uint64_t max_tokens, uint32_t length, uint32_t sampled)
{
    struct message m = {.type = MESSAGE_SEQUENCE_OPEN};
    m.u.sequence_open = (struct message_sequence_open){.deployment = 1 + (uint64_t)box,
                                                       .generation = 1,
                                                       .sequence = 4 + (uint64_t)box,
                                                       .prompt = {ids, n},
                                                       .max_tokens = max_tokens,
                                                       .kv_tokens = MOST_PROMPT + ANSWER,
                                                       .length = length,
                                                       .sampled = sampled};
    tell(s, box, &m);
}

static void move_over(struct move_scene *s, uint32_t length)
{
    static const uint8_t key[KEY_BYTES] = {2};
    struct message m = {.type = MESSAGE_KV_IMPORT, .id = 1};
    m.u.kv_import = (struct message_kv_import){2, 1, 0, 4 + B, SESSION, {key, KEY_BYTES}};
    tell(s, B, &m);
    assert_true(run_until(s, awaited, 1000));
    m = (struct message){.type = MESSAGE_KV_EXPORT, .id = 2};
    m.u.kv_export = (struct message_kv_export){.deployment = 1,
                                               .generation = 1,
                                               .sequence = 4 + A,
                                               .length = length,
                                               .session = SESSION,
                                               .to_address = {(const uint8_t *)"b", 1},
                                               .to_deployment = 2,
                                               .to_generation = 1,
                                               .to_sequence = 4 + B};
    tell(s, A, &m);
}

/* The whole answer, without anybody moving. */
static void answer_of(const uint32_t *prompt, uint32_t n, uint32_t out[ANSWER])
{
    static float logits[TINY_VOCABULARY];
    struct stage_config c = {.end_layer = TINY_LAYERS,
                             .device = device,
                             .compute = COMPUTE_F32,
                             .kv_tokens = 1024,
                             .max_sequences = 1,
                             .max_batch_tokens = MOST_PROMPT};
    struct stage *stage;
    assert_int_equal(stage_load_graph(&tiny->graph, &tiny->config, &c, &stage, NULL), 0);
    assert_int_equal(stage_sequence_open(stage, 1, MOST_PROMPT + ANSWER, NULL), 0);
    struct batch_run r = {.sequence = 1, .n_tokens = n, .n_logits = 1};
    for (int i = 0; i < ANSWER; i++) {
        assert_int_equal(stage_run(stage, &r, 1, i ? &out[i - 1] : prompt, logits, NULL), 0);
        out[i] = heaviest(logits);
        r.first_position += r.n_tokens;
        r.n_tokens = 1;
    }
    stage_unload(&stage);
}

/* True when it went on at the other one. */
static bool play(uint64_t seed, double lose, double twice, uint64_t late_ms)
{
    static struct move_scene s; /* large */
    uint32_t ids[MOST_PROMPT + ANSWER], want[ANSWER];
    scene_open(&s, seed);
    uint32_t n = 1 + (uint32_t)draw(&s, MOST_PROMPT - 1), half = 1 + (uint32_t)draw(&s, ANSWER - 1);
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (uint32_t)draw(&s, TINY_VOCABULARY);
    answer_of(ids, n, want);
    sequence_tell(&s, A, ids, n, half, 0, 0);
    assert_true(run_until(&s, first_half, 1000));
    assert_memory_equal(s.boxes[A].got, want, half * sizeof *want);
    memcpy(ids + n, want, half * sizeof *want);
    s.lose = lose;
    s.twice = twice;
    s.late_ns = 1 + late_ms * msec;
    sequence_tell(&s, B, ids, n + half, ANSWER, n + half - 1, half);
    move_over(&s, n + half - 1);
    if (!run_until(&s, over, 10 * AGENT_KV_LIMIT_MS))
        fail_msg("seed %llu: no end: import %s, export %s", (unsigned long long)seed,
                 s.boxes[B].import_state, s.boxes[A].export_state);
    struct move_box *b = &s.boxes[B];
    bool went_on = b->finished;
    assert_string_equal(b->import_state, went_on ? "received" : "failed");
    if (went_on && (b->n_got != (int)(ANSWER - half) ||
                    memcmp(b->got, want + half, (ANSWER - half) * sizeof *want) != 0))
        fail_msg("seed %llu: other tokens after the move", (unsigned long long)seed);
    assert_int_equal(agent_core_view(s.boxes[A].core).n_sequences, 1); /* it may try again */
    assert_int_equal(stage_sequence_length(s.boxes[B].stage, 4 + B) >= 0, went_on);
    scene_close(&s);
    return went_on;
}

TEST(a_move_over_a_good_link_loses_nothing)
{
    for (uint64_t seed = 1; seed <= 30; seed++)
        assert_true(play(seed, 0, 0, 0));
}

TEST(frames_of_keys_and_values_that_come_twice_and_out_of_order_change_no_token)
{
    for (uint64_t seed = 100; seed < 130; seed++)
        assert_true(play(seed, 0, 0.5, 3000));
}

TEST(a_move_whose_frames_are_lost_ends_and_is_answered)
{
    int went_on = 0, ended = 0;
    for (uint64_t seed = 200; seed < 260; seed++)
        *(play(seed, 0.2, 0.1, 500) ? &went_on : &ended) += 1;
    assert_true(went_on > 5 && ended > 5);
}

static int set_up(void **state)
{
    (void)state;
    struct device_config d = {.n_threads = 1};
    log_set_level(LOG_ERROR);
    tiny = tiny_model_make(5);
    /* Layers of two kinds. */
    struct graph_op *ops = (struct graph_op *)(uintptr_t)tiny->graph.ops;
    for (int i = 0; i < tiny->graph.n_ops; i++)
        if (ops[i].kind == OP_ATTENTION && ops[i].u.attention.block == 1)
            ops[i].u.attention.window = 90;
    return device_open(&d, &device, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    device_close(&device);
    tiny_model_free(&tiny);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_move_over_a_good_link_loses_nothing),
        cmocka_unit_test(
            frames_of_keys_and_values_that_come_twice_and_out_of_order_change_no_token),
        cmocka_unit_test(a_move_whose_frames_are_lost_ends_and_is_answered),
    };
    return cmocka_run_group_tests_name("moves", tests, set_up, tear_down);
}
