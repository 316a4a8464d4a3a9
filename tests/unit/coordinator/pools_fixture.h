/* Pools of devices of which the test plays the agents: one model of two blocks, which doubles what
 * it is asked. */
#ifndef HP_TESTS_UNIT_COORDINATOR_POOLS_FIXTURE_H
#define HP_TESTS_UNIT_COORDINATOR_POOLS_FIXTURE_H

#include <stdio.h>

#include "coordinator/pools/pools.h"
#include "tests/manifest_fixture.h"
#include "tests/unit/coordinator/core_fixture.h"
#include "transport/frame_tensors.h"

static char document[8192];
static double pools_replan_margin;        /* of what is applied */
static uint64_t pools_batch_takes_ns = 1; /* as agents tell */
static int64_t pools_agents_ahead_ns;     /* their clocks, of ours */

/* One model of two blocks, input and output float32 [batch, 2]; kinds "fast" and "slow". */
static inline const char *document_of(double slo_s)
{
    json_t *manifest = manifest_json_of("m.onnx", 100);
    static const char tensor[] = "{\"name\": \"x\", \"type\": 1, \"dims\": [-1, 2]}";
    static const char table[] =
        "{\"share\": [1], \"batch\": [1, 2, 4], \"seconds\": [[%g, %g, %g]]}";
    char tables[2][200];
    snprintf(tables[0], sizeof tables[0], table, 0.004, 0.005, 0.006);
    snprintf(tables[1], sizeof tables[1], table, 0.012, 0.014, 0.016);
    snprintf(document, sizeof document,
             "{\"workload\": {\"format\": \"hp-workload/1\", \"models\": [{\"name\": \"m\", "
             "\"profile\": \"m.json\", \"weight\": 1, \"slo_s\": %g}], \"slo_margin\": 0.2, "
             "\"replan_margin\": %g, "
             "\"max_stages\": 2}, \"profiles\": {\"m\": {\"format\": \"hp-profile/1\", "
             "\"model\": \"m\", \"layers\": [{\"name\": \"b0\", \"class\": \"b\", "
             "\"output_bytes\": 8}, {\"name\": \"b1\", \"class\": \"b\", \"output_bytes\": 8}], "
             "\"latency\": {\"fast\": {\"b\": %s}, \"slow\": {\"b\": %s}}}}, "
             "\"source_machine\": \"a0\", \"networks\": [{\"name\": \"m\", \"manifest\": \"%s\", "
             "\"source_path\": \"/m.onnx\", \"limit_bytes\": 1000, \"inputs\": [%s], "
             "\"outputs\": [%s]}]}",
             slo_s, pools_replan_margin, tables[0], tables[1], json_string_value(manifest), tensor,
             tensor);
    json_decref(manifest);
    return document;
}

static inline const struct message_answer *apply(struct fixture *f, double slo_s)
{
    static char arguments[9000];
    snprintf(arguments, sizeof arguments, "{\"document\": %s}", document_of(slo_s));
    return fixture_ask(f, "apply", arguments, NULL);
}

/* Every share that was told to prepare says that it is ready. */
static inline void shares_ready(struct fixture *f, size_t from)
{
    for (size_t i = from; i < f->n_sent; i++) {
        const struct message_stage_prepare *p = &f->sent[i].m.u.stage_prepare;
        if (f->sent[i].type != MESSAGE_STAGE_PREPARE)
            continue;
        assert_int_equal(p->share.count, 1);
        struct message m = {.type = MESSAGE_STAGE_STATE};
        m.u.stage_state = (struct message_stage_state){.deployment = p->deployment,
                                                       .generation = p->generation,
                                                       .stage = p->stage,
                                                       .state = "ready",
                                                       .code = "",
                                                       .text = "",
                                                       .hint = ""};
        fixture_say(f, f->sent[i].peer, fixture_key((int)f->sent[i].peer - 10), &m);
    }
}

static inline json_t *described(struct fixture *f)
{
    return pools_describe(f->core);
}

static inline void assert_state(struct fixture *f, const char *state)
{
    json_t *d = described(f);
    assert_string_equal(json_string_value(json_object_get(d, "state")), state);
    json_decref(d);
}

static inline json_int_t counted(struct fixture *f, const char *key)
{
    json_t *d = described(f);
    json_int_t n =
        json_integer_value(json_object_get(json_array_get(json_object_get(d, "models"), 0), key));
    json_decref(d);
    return n;
}

static inline void beats(struct fixture *f, int agents, uint64_t ms)
{
    for (; ms >= 500; ms -= 500) {
        fixture_pass_ms(f, 500);
        for (int i = 0; i < agents; i++)
            fixture_beat(f, 10 + (uint64_t)i, fixture_key(i));
    }
    fixture_pass_ms(f, ms);
}

/* Applies what no device is fast enough for; whoever asked is told so. */
static inline void apply_too_fast(struct fixture *f, int agents)
{
    size_t before = f->n_sent;
    bool told = false;
    apply(f, 0.001);
    beats(f, agents, 100);
    for (size_t i = before; i < f->n_sent; i++)
        told = told ||
               (f->sent[i].peer == ADMIN && strcmp(f->sent[i].m.u.answer.code, "infeasible") == 0);
    assert_true(told);
}

static inline void serve(struct fixture *f, const char *const *kinds, int agents, double slo_s)
{
    fixture_open(f);
    for (int i = 0; i < agents; i++)
        fixture_agent(f, i, kinds[i], 1e9);
    size_t before = f->n_sent;
    apply(f, slo_s);
    assert_state(f, "preparing");
    shares_ready(f, before);
    beats(f, agents, 200);
    assert_state(f, "serving");
}

/* ---- requests ---- */

struct infer_answer {
    int status; /* 1: not yet; 0: answered */
    float values[8];
    int64_t samples;
    struct infer_times times;
    struct err why;
};

static inline void on_answered(void *ctx, struct ndarray *outputs, const struct infer_times *times)
{
    struct infer_answer *a = ctx;
    assert_int_equal(a->status, 1);
    a->status = 0;
    a->times = *times;
    a->samples = outputs->dims[0];
    size_t bytes = ndarray_bytes(outputs);
    memcpy(a->values, outputs->data, bytes < sizeof a->values ? bytes : sizeof a->values);
    ndarray_free(outputs);
    free(outputs);
}

static inline void on_failed(void *ctx, const struct err *why)
{
    struct infer_answer *a = ctx;
    assert_int_equal(a->status, 1);
    a->status = why->code;
    a->why = *why;
}

static inline int ask_as(struct fixture *f, const char *client, const struct ndarray *input,
                         struct infer_answer *a, uint32_t *retry_after_s, struct err *e)
{
    struct pool_requests r;
    uint64_t id;
    struct pool_call call = {.client = client,
                             .model = "m",
                             .inputs = input,
                             .ctx = a,
                             .answered = on_answered,
                             .failed = on_failed};
    coord_pool_requests(f->core, &r);
    a->status = 1;
    return r.infer(r.ctx, &call, &id, retry_after_s, e);
}

static inline int ask_infer(struct fixture *f, const struct ndarray *input, struct infer_answer *a,
                            struct err *e)
{
    uint32_t unused;
    return ask_as(f, NULL, input, a, &unused, e);
}

static inline struct ndarray input_of(float *values, int64_t samples)
{
    return (struct ndarray){ND_F32, 2, {samples, 2}, samples * 2, values, false};
}

static inline void pools_go(struct fixture *f)
{
    coord_pools_run(f->core);
    fixture_settle(f);
}

/* What a frame's agents would send back: inputs doubled, taking as long as was planned. */
static inline void frame_answer(struct fixture *f, const struct coord_frame *sent)
{
    struct frame_leg legs[FRAME_MAX_LEGS];
    struct frame_tensor t;
    float doubled[64];
    int n;
    struct frame_header h = sent->header;
    assert_int_equal(frame_tensors_decode(&h, sent->payload, legs, &t, 1, &n, NULL), 0);
    assert_int_equal(n, 1);
    assert_true(t.bytes <= sizeof doubled);
    memcpy(doubled, t.data, t.bytes);
    for (size_t i = 0; i < t.bytes / sizeof *doubled; i++)
        doubled[i] *= 2;
    t.data = doubled;
    for (int i = 0; i < h.n_runs; i++) {
        legs[i].began_ns = f->clock.now_ns + 1 + (uint64_t)pools_agents_ahead_ns;
        legs[i].ended_ns = legs[i].began_ns + pools_batch_takes_ns;
    }
    f->clock.now_ns += 1 + pools_batch_takes_ns;
    uint64_t session = 0;
    assert_int_equal(coord_pool_sessions(f->core, &session, 1), 1);
    h.session = session;
    h.first_position = h.n_runs;
    h.payload_bytes = frame_tensors_size(h.n_runs, &t, 1);
    uint8_t *payload = malloc(h.payload_bytes);
    frame_tensors_encode(legs, h.n_runs, &t, 1, payload);
    coord_frame_in(f->core, &h, payload);
    free(payload);
    fixture_settle(f);
}

static const char *const two_fast[] = {"fast", "fast", "fast"};

/* Time passes, a millisecond at a time, until so many frames have left. */
static inline void frames_await(struct fixture *f, size_t n)
{
    for (int i = 0; i < 3000 && f->n_frames < n; i++) {
        f->clock.now_ns += 1000000;
        pools_go(f);
    }
    assert_true(f->n_frames >= n);
}

#endif
