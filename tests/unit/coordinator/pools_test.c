/* Pools of devices: a workload is applied, planned, made ready, served, and moves when agents come
 * and go. The test plays the agents. */
#include <sodium.h>
#include <stdio.h>

#include "coordinator/api_keys.h"
#include "coordinator/pools/pools.h"
#include "tests/unit/coordinator/core_fixture.h"
#include "transport/frame_tensors.h"

static char document[8192];

/* One model of two blocks, input and output float32 [batch, 2]; kinds "fast" and "slow". */
static const char *document_of(double slo_s)
{
    static char manifest_hex[2048];
    static const uint8_t digest[32] = {7};
    struct manifest_file file = {"m.onnx", 100};
    struct manifest_chunk chunk = {0, 0, 100, {digest, sizeof digest}};
    struct manifest m = {.name = "m", .files = {&file, 1}, .chunks = {&chunk, 1}};
    struct buffer bytes = {0};
    manifest_encode(&m, &bytes);
    sodium_bin2hex(manifest_hex, sizeof manifest_hex, bytes.data, bytes.size);
    buffer_free(&bytes);
    static const char tensor[] = "{\"name\": \"x\", \"type\": 1, \"dims\": [-1, 2]}";
    static const char table[] =
        "{\"share\": [1], \"batch\": [1, 2, 4], \"seconds\": [[%g, %g, %g]]}";
    char tables[2][200];
    snprintf(tables[0], sizeof tables[0], table, 0.004, 0.005, 0.006);
    snprintf(tables[1], sizeof tables[1], table, 0.012, 0.014, 0.016);
    snprintf(document, sizeof document,
             "{\"workload\": {\"format\": \"hp-workload/1\", \"models\": [{\"name\": \"m\", "
             "\"profile\": \"m.json\", \"weight\": 1, \"slo_s\": %g}], \"slo_margin\": 0.2, "
             "\"max_stages\": 2}, \"profiles\": {\"m\": {\"format\": \"hp-profile/1\", "
             "\"model\": \"m\", \"layers\": [{\"name\": \"b0\", \"class\": \"b\", "
             "\"output_bytes\": 8}, {\"name\": \"b1\", \"class\": \"b\", \"output_bytes\": 8}], "
             "\"latency\": {\"fast\": {\"b\": %s}, \"slow\": {\"b\": %s}}}}, "
             "\"source_machine\": \"a0\", \"networks\": [{\"name\": \"m\", \"manifest\": \"%s\", "
             "\"source_path\": \"/m.onnx\", \"limit_bytes\": 1000, \"inputs\": [%s], "
             "\"outputs\": [%s]}]}",
             slo_s, tables[0], tables[1], manifest_hex, tensor, tensor);
    return document;
}

static const struct message_answer *apply(struct fixture *f, double slo_s)
{
    static char arguments[9000];
    snprintf(arguments, sizeof arguments, "{\"document\": %s}", document_of(slo_s));
    return fixture_ask(f, "apply", arguments, NULL);
}

/* Every share that was told to prepare says that it is ready. */
static void shares_ready(struct fixture *f, size_t from)
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

static json_t *described(struct fixture *f)
{
    return pools_describe(f->core);
}

static void assert_state(struct fixture *f, const char *state)
{
    json_t *d = described(f);
    assert_string_equal(json_string_value(json_object_get(d, "state")), state);
    json_decref(d);
}

static json_int_t counted(struct fixture *f, const char *key)
{
    json_t *d = described(f);
    json_int_t n =
        json_integer_value(json_object_get(json_array_get(json_object_get(d, "models"), 0), key));
    json_decref(d);
    return n;
}

static void beats(struct fixture *f, int agents, uint64_t ms)
{
    for (; ms >= 500; ms -= 500) {
        fixture_pass_ms(f, 500);
        for (int i = 0; i < agents; i++)
            fixture_beat(f, 10 + (uint64_t)i, fixture_key(i));
    }
    fixture_pass_ms(f, ms);
}

static void serve(struct fixture *f, const char *const *kinds, int agents, double slo_s)
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

static void on_answered(void *ctx, struct ndarray *outputs, const struct infer_times *times)
{
    struct infer_answer *a = ctx;
    assert_int_equal(a->status, 1);
    a->status = 0;
    a->times = *times;
    a->samples = outputs->dims[0];
    memcpy(a->values, outputs->data, ndarray_bytes(outputs));
    ndarray_free(outputs);
    free(outputs);
}

static void on_failed(void *ctx, const struct err *why)
{
    struct infer_answer *a = ctx;
    assert_int_equal(a->status, 1);
    a->status = why->code;
    a->why = *why;
}

static int ask_as(struct fixture *f, const char *client, const struct ndarray *input,
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

static int ask_infer(struct fixture *f, const struct ndarray *input, struct infer_answer *a,
                     struct err *e)
{
    uint32_t unused;
    return ask_as(f, NULL, input, a, &unused, e);
}

static struct ndarray input_of(float *values, int64_t samples)
{
    return (struct ndarray){ND_F32, 2, {samples, 2}, samples * 2, values, false};
}

static void pools_go(struct fixture *f)
{
    coord_pools_run(f->core);
    fixture_settle(f);
}

/* What a frame's agents would send back: inputs doubled, taking as long as was planned. */
static void frame_answer(struct fixture *f, const struct coord_frame *sent)
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
        legs[i].began_ns = f->clock.now_ns + 1;
        legs[i].ended_ns = f->clock.now_ns + 2;
    }
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

TEST(a_workload_is_planned_prepared_and_served)
{
    struct fixture f;
    struct infer_answer a;
    struct err e;
    float values[2] = {1.5f, 2};
    struct ndarray input = input_of(values, 1);
    serve(&f, two_fast, 2, 0.1);
    assert_non_null(fixture_last(&f, 10, MESSAGE_SHARE_CONNECT));
    assert_int_equal(ask_infer(&f, &input, &a, &e), 0);
    assert_int_equal(f.n_frames, 0);
    for (int i = 0; i < 200 && f.n_frames == 0; i++) { /* it waits for others to share a batch */
        f.clock.now_ns += 1000000;
        pools_go(&f);
    }
    assert_int_equal(f.n_frames, 1);
    frame_answer(&f, f.frames[0]);
    assert_int_equal(a.status, 0);
    assert_true(a.values[0] == 3 && a.values[1] == 4);
    assert_int_equal(counted(&f, "on_time"), 1);
    /* What was planned and what came of it, by this clock. */
    const struct infer_stage_times *s = &a.times.stages[0];
    assert_true(a.times.n_stages >= 1 && a.times.samples == 1);
    assert_true(a.times.deadline_ns - a.times.arrived_ns == 100000000);
    assert_true(a.times.sent_ns > a.times.arrived_ns && a.times.answered_ns >= a.times.sent_ns);
    assert_true(s->planned_start_ns >= a.times.sent_ns && s->planned_end_ns > s->planned_start_ns);
    assert_int_equal(s->ended_ns - s->began_ns, 1);
    fixture_close(&f);
}

TEST(requests_share_batches_and_each_gets_its_own)
{
    struct fixture f;
    struct infer_answer a[4];
    struct err e;
    float values[4][4] = {{1, 2}, {3, 4}, {5, 6, 7, 8}, {9, 10}};
    int64_t samples[4] = {1, 1, 2, 1};
    struct ndarray inputs[4];
    serve(&f, two_fast, 1, 0.1);
    for (int i = 0; i < 4; i++) {
        inputs[i] = input_of(values[i], samples[i]);
        assert_int_equal(ask_infer(&f, &inputs[i], &a[i], &e), 0);
    }
    for (int i = 0; i < 300; i++) {
        f.clock.now_ns += 1000000;
        pools_go(&f);
    }
    assert_true(f.n_frames >= 1 && f.n_frames < 5);
    for (size_t i = 0; i < f.n_frames; i++)
        frame_answer(&f, f.frames[i]);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(a[i].status, 0);
        assert_int_equal(a[i].samples, samples[i]);
        for (int64_t k = 0; k < 2 * samples[i]; k++)
            assert_true(a[i].values[k] == 2 * values[i][k]);
    }
    fixture_close(&f);
}

TEST(what_cannot_be_on_time_is_dropped_with_what_would_be_possible)
{
    struct fixture f;
    struct infer_answer a[60];
    struct err e;
    float values[2] = {1, 2};
    struct ndarray input = input_of(values, 1);
    serve(&f, two_fast, 1, 0.02);
    for (int i = 0; i < 60; i++)
        assert_int_equal(ask_infer(&f, &input, &a[i], &e), 0);
    for (int i = 0; i < 100; i++) {
        pools_go(&f);
        f.clock.now_ns += 1000000;
    }
    int dropped = 0;
    for (int i = 0; i < 60; i++)
        if (a[i].status == HP_ETIMEOUT) {
            dropped++;
            assert_non_null(strstr(a[i].why.text, "the deadline is 20.0 ms"));
        }
    assert_true(dropped > 30 && dropped < 60);
    fixture_close(&f);
}

TEST(what_was_on_a_lost_agent_is_sent_again_where_its_deadline_allows)
{
    struct fixture f;
    struct infer_answer a[4];
    struct err e;
    float values[2] = {1, 2};
    struct ndarray input = input_of(values, 1);
    serve(&f, two_fast, 2, 20);
    for (int i = 0; i < 4; i++)
        assert_int_equal(ask_infer(&f, &input, &a[i], &e), 0);
    for (int i = 0; i < 20 && f.n_frames == 0; i++) {
        beats(&f, 2, 500);
        pools_go(&f);
    }
    assert_int_equal(f.n_frames, 1);
    int gone = f.frames[0]->address[1] - '0', stays = 1 - gone;
    for (int i = 0; i < 12; i++) {
        fixture_pass_ms(&f, 300);
        fixture_beat(&f, 10 + (uint64_t)stays, fixture_key(stays));
        pools_go(&f);
    }
    for (int i = 0; i < 40 && f.n_frames < 2; i++) {
        fixture_pass_ms(&f, 400);
        fixture_beat(&f, 10 + (uint64_t)stays, fixture_key(stays));
        shares_ready(&f, f.n_sent > 40 ? f.n_sent - 40 : 0);
        pools_go(&f);
    }
    assert_true(f.n_frames >= 2);
    assert_int_equal(f.frames[1]->address[1] - '0', stays);
    frame_answer(&f, f.frames[1]);
    assert_int_equal(a[0].status, 0);
    json_t *d = described(&f);
    assert_true(json_integer_value(json_object_get(d, "sent_again")) >= 4);
    assert_true(json_integer_value(json_object_get(d, "lost_shares")) >= 1);
    json_decref(d);
    fixture_close(&f);
}

TEST(another_agent_that_comes_is_used_by_the_next_plan_without_a_gap)
{
    struct fixture f;
    struct infer_answer a;
    struct err e;
    float values[2] = {1, 2};
    struct ndarray input = input_of(values, 1);
    serve(&f, two_fast, 1, 0.1);
    fixture_agent(&f, 1, "fast", 1e9);
    size_t before = f.n_sent;
    beats(&f, 2, 2000);
    assert_state(&f, "moving");
    assert_int_equal(ask_infer(&f, &input, &a, &e), 0); /* the one that serves takes it */
    shares_ready(&f, before);
    beats(&f, 2, 200);
    assert_state(&f, "serving");
    json_t *d = described(&f);
    assert_int_equal(json_integer_value(json_object_get(d, "moved")), 1);
    assert_int_equal(json_array_size(json_object_get(json_object_get(d, "current"), "shares")), 2);
    json_decref(d);
    for (int i = 0; i < 200; i++) {
        f.clock.now_ns += 1000000;
        pools_go(&f);
    }
    assert_true(f.n_frames == 1 || a.status == HP_ETIMEOUT);
    fixture_close(&f);
}

static int models_of(struct fixture *f, const char *client)
{
    struct pool_requests r;
    const struct infer_model *models[POOL_MAX_MODELS];
    coord_pool_requests(f->core, &r);
    return r.models(r.ctx, client, models);
}

static uint64_t tokens_of(struct fixture *f, const char *key)
{
    return api_keys_named(f->core, key)->meter.prompt_tokens;
}

TEST(keys_hold_their_clients_to_models_and_to_samples)
{
    struct fixture f;
    struct infer_answer a;
    struct err e;
    uint32_t again_s = 0;
    float values[6] = {1, 2, 3, 4, 5, 6};
    struct ndarray one = input_of(values, 1), three = input_of(values, 3);
    serve(&f, two_fast, 1, 0.1);
    fixture_ask(&f, "key.create",
                "{\"name\": \"mine\", \"models\": [\"m\"], "
                "\"tokens_total\": 5}",
                NULL);
    fixture_ask(&f, "key.create", "{\"name\": \"other\", \"models\": [\"n\"]}", NULL);
    assert_int_equal(models_of(&f, "key mine"), 1);
    assert_int_equal(models_of(&f, "address 1"), 1);
    assert_int_equal(models_of(&f, NULL), 1);
    assert_int_equal(models_of(&f, "key other"), 0);
    assert_int_equal(models_of(&f, "key taken back"), 0);
    assert_int_equal(ask_as(&f, "key other", &one, &a, &again_s, &e), HP_EDENIED);
    assert_non_null(strstr(e.text, "\"other\""));
    assert_int_equal(ask_as(&f, "key mine", &three, &a, &again_s, &e), 0);
    assert_int_equal(tokens_of(&f, "mine"), 3);
    struct infer_answer refused;
    assert_int_equal(ask_as(&f, "key mine", &three, &refused, &again_s, &e), HP_EQUOTA);
    assert_int_equal(again_s, KEY_DAY_S);
    for (int i = 0; i < 200 && f.n_frames == 0; i++) {
        f.clock.now_ns += 1000000;
        pools_go(&f);
    }
    frame_answer(&f, f.frames[0]);
    assert_int_equal(a.status, 0);
    assert_int_equal(tokens_of(&f, "mine"), 3);
    fixture_close(&f);
}

TEST(what_was_dropped_before_it_was_computed_costs_its_key_nothing)
{
    struct fixture f;
    struct infer_answer a[60];
    struct err e;
    uint32_t again_s;
    float values[2] = {1, 2};
    struct ndarray input = input_of(values, 1);
    serve(&f, two_fast, 1, 0.02);
    fixture_ask(&f, "key.create", "{\"name\": \"mine\"}", NULL);
    for (int i = 0; i < 60; i++)
        assert_int_equal(ask_as(&f, "key mine", &input, &a[i], &again_s, &e), 0);
    assert_int_equal(tokens_of(&f, "mine"), 60);
    for (int i = 0; i < 100; i++) {
        pools_go(&f);
        f.clock.now_ns += 1000000;
    }
    uint64_t dropped = 0;
    for (int i = 0; i < 60; i++)
        dropped += a[i].status == HP_ETIMEOUT;
    assert_true(dropped > 30 && dropped < 60);
    assert_int_equal(tokens_of(&f, "mine"), 60 - dropped);
    fixture_close(&f);
}

TEST(what_was_applied_outlives_the_coordinator)
{
    struct fixture f;
    serve(&f, two_fast, 1, 0.1);
    fixture_restart(&f);
    fixture_join(&f, 10, fixture_key(0), "a0", "", fixture_node("fast", 1e9));
    fixture_beat(&f, 10, fixture_key(0));
    size_t before = f.n_sent;
    beats(&f, 1, 1500);
    assert_state(&f, "preparing");
    shares_ready(&f, before);
    beats(&f, 1, 200);
    assert_state(&f, "serving");
    fixture_ask(&f, "pools.remove", "{}", NULL);
    beats(&f, 1, 500);
    assert_state(&f, "none");
    assert_non_null(fixture_last(&f, 10, MESSAGE_STAGE_UNLOAD));
    fixture_close(&f);
}

TEST(a_workload_that_is_wrong_is_refused_by_place)
{
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "fast", 1e9);
    const struct message_answer *a =
        fixture_ask(&f, "apply", "{\"document\": {\"workload\": {}}}", NULL);
    assert_string_equal(a->code, "malformed");
    a = fixture_ask(&f, "apply", "{\"document\": 3}", NULL);
    assert_string_equal(a->code, "malformed");
    size_t before = f.n_sent;
    apply(&f, 0.001); /* nothing is so fast */
    beats(&f, 1, 100);
    bool told = false;
    for (size_t i = before; i < f.n_sent; i++)
        told = told ||
               (f.sent[i].peer == ADMIN && strcmp(f.sent[i].m.u.answer.code, "infeasible") == 0);
    assert_true(told);
    a = fixture_ask(&f, "pools.remove", "{}", NULL);
    assert_string_equal(a->code, "ok");
    a = fixture_ask(&f, "pools.remove", "{}", NULL);
    assert_string_equal(a->code, "not_found");
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_workload_is_planned_prepared_and_served),
        cmocka_unit_test(requests_share_batches_and_each_gets_its_own),
        cmocka_unit_test(what_cannot_be_on_time_is_dropped_with_what_would_be_possible),
        cmocka_unit_test(what_was_on_a_lost_agent_is_sent_again_where_its_deadline_allows),
        cmocka_unit_test(another_agent_that_comes_is_used_by_the_next_plan_without_a_gap),
        cmocka_unit_test(keys_hold_their_clients_to_models_and_to_samples),
        cmocka_unit_test(what_was_dropped_before_it_was_computed_costs_its_key_nothing),
        cmocka_unit_test(what_was_applied_outlives_the_coordinator),
        cmocka_unit_test(a_workload_that_is_wrong_is_refused_by_place),
    };
    return cmocka_run_group_tests_name("pools", tests, NULL, NULL);
}
