#include <math.h>

#include "coordinator/clocks.h"
#include "coordinator/decode_steps.h"
#include "coordinator/late_links.h"
#include "coordinator/member.h"
#include "coordinator/paces.h"
#include "coordinator/plan_drift.h"
#include "coordinator/plan_vs_actual.h"
#include "coordinator/planner_inputs.h"
#include "coordinator/profiles.h"
#include "tests/unit/coordinator/core_fixture.h"

#define assert_near(a, b, within) assert_true(fabs((a) - (b)) <= (within))

enum { LAYERS = 4, SLICES = 2, SLICE_TOKENS = 50 };
static struct layer_facts layers[LAYERS];
static struct model_facts facts = {.architecture = "test",
                                   .layers = layers,
                                   .n_layers = LAYERS,
                                   .vocabulary = 1000,
                                   .width = 64,
                                   .context = 1024};

static int prepare_facts(void **state)
{
    (void)state;
    for (int i = 0; i < LAYERS; i++)
        layers[i] = (struct layer_facts){.name = "layer",
                                         .class_name = "mlp",
                                         .param_bytes = 1000000,
                                         .elements = 1000000,
                                         .state_bytes_per_token = 100,
                                         .output_bytes_per_token = 256,
                                         .flops_per_token = 2e8};
    return 0;
}

/* A kind of device that takes 1 ms a token and layer, as measured. */
static void learn_costs(struct fixture *f, const char *model, const char *kind)
{
    json_t *tables = json_loads(
        "{\"mlp\": {\"slice\": [50, 100], \"prefix\": [0], \"seconds\": [[0.05], [0.1]]}}", 0,
        NULL);
    profiles_set(f->core, model, kind, "auto", tables, NULL);
}

/* Four layers on a0 and a1; whoever has some says that it is ready. */
static struct deployment *serve_layers(struct fixture *f, const char *kind0, const char *kind1,
                                       const char *places)
{
    char options[96];
    snprintf(options, sizeof options, "{\"name\": \"x\", \"options\": {\"layers\": \"%s\"}}",
             places);
    static const uint8_t head[4] = "head";
    struct manifest_file file = {"m.gguf", 4096};
    struct manifest_head first = {0, 0, {head, sizeof head}};
    struct manifest m = {.name = "m", .files = {&file, 1}, .heads = {&first, 1}};
    struct buffer blob = {0};
    manifest_encode(&m, &blob);
    f->facts = &facts;
    fixture_agent(f, 0, kind0, 8e9);
    fixture_agent(f, 1, kind1, 8e9);
    fixture_ask(f, "deploy", options, &blob);
    buffer_free(&blob);
    struct deployment *d = deployment_find(f->core, "x");
    assert_non_null(d);
    for (int i = 0; i < d->n_stages; i++) {
        struct message ready = {.type = MESSAGE_STAGE_STATE};
        ready.u.stage_state = (struct message_stage_state){.deployment = d->id,
                                                           .generation = d->generation,
                                                           .stage = (uint64_t)i,
                                                           .state = "ready",
                                                           .code = "",
                                                           .text = ""};
        fixture_say(f, 10 + (uint64_t)i, fixture_key(i), &ready);
    }
    assert_int_equal(d->state, DEPLOYMENT_SERVING);
    learn_costs(f, d->model->id, kind0);
    learn_costs(f, d->model->id, kind1);
    return d;
}

static struct deployment *serve_on(struct fixture *f, const char *kind0, const char *kind1)
{
    return serve_layers(f, kind0, kind1, "0-1:a0,2-3:a1");
}

static struct deployment *serve(struct fixture *f)
{
    return serve_on(f, "k", "k");
}

static bool prompt_loading; /* whether stages say that weights were missing meanwhile */

/* One prompt of two slices, each taking `slice_ms` on each stage, `hop_ms` between them; the
 * agents' clock is ahead. */
static void tell_prompt_now(struct fixture *f, const struct deployment *d, uint64_t sequence,
                            uint64_t slice_ms, uint64_t hop_ms, int stages)
{
    const uint64_t ms = 1000000, clock = f->clock.now_ns + 3000 * ms;
    for (int j = 0; j < stages; j++) {
        struct message_prefill_slice s[SLICES];
        for (uint64_t k = 0; k < SLICES; k++) {
            uint64_t start = clock + ((uint64_t)j * (slice_ms + hop_ms) + k * slice_ms) * ms;
            s[k] = (struct message_prefill_slice){
                k * SLICE_TOKENS, SLICE_TOKENS, j ? start : 0, start, start + slice_ms * ms, 1};
        }
        struct message m = {.type = MESSAGE_PREFILL};
        m.u.prefill = (struct message_prefill){
            d->id,       d->generation,  sequence, (uint64_t)j, f->clock.now_ns + 3000 * ms,
            {s, SLICES}, prompt_loading, false};
        fixture_say(f, 10 + (uint64_t)j, fixture_key(j), &m);
    }
}

static void tell_prompt(struct fixture *f, const struct deployment *d, uint64_t sequence,
                        uint64_t slice_ms, uint64_t hop_ms, int stages)
{
    fixture_pass_ms(f, 100);
    tell_prompt_now(f, d, sequence, slice_ms, hop_ms, stages);
}

/* The first of a generation, which is not among those that are counted. */
static void tell_warm_up(struct fixture *f, const struct deployment *d)
{
    tell_prompt(f, d, 999, 200, 1, 2);
}

/* One prompt in two slices that take so long on each stage, in batches of so many. */
static void tell_times(struct fixture *f, const struct deployment *d, const uint64_t *slice_ms,
                       uint64_t runs)
{
    static uint64_t sequence = 1000;
    const uint64_t ms = 1000000, clock = f->clock.now_ns + 3000 * ms;
    fixture_pass_ms(f, PLAN_VS_ACTUAL_PREDICT_MS); /* and nobody is missed yet */
    sequence++;
    for (int j = 0; j < d->n_stages; j++) {
        struct message_prefill_slice s[SLICES];
        for (uint64_t k = 0; k < SLICES; k++) {
            uint64_t start = clock + (uint64_t)j * 5000 * ms + k * slice_ms[j] * ms;
            s[k] = (struct message_prefill_slice){
                k * SLICE_TOKENS,         SLICE_TOKENS, j ? start : 0, start,
                start + slice_ms[j] * ms, runs};
        }
        struct message m = {.type = MESSAGE_PREFILL};
        m.u.prefill = (struct message_prefill){
            d->id,       d->generation, sequence, (uint64_t)j, f->clock.now_ns + 3000 * ms,
            {s, SLICES}, false,         false};
        fixture_say(f, 10 + (uint64_t)j, fixture_key(j), &m);
    }
}

static bool was_corrected(const struct fixture *f, const struct deployment *d, const char *kind)
{
    return json_object_get(profiles_find(f->core, d->model->id, kind, "auto")->record, "corrected");
}

static bool kind_was_corrected(const struct fixture *f, const struct deployment *d)
{
    return was_corrected(f, d, "k");
}

TEST(a_prompt_is_compared_once_every_stage_has_told)
{
    struct fixture f;
    fixture_open(&f);
    struct deployment *d = serve(&f);
    tell_prompt(&f, d, 1, 100, 1, 1);
    assert_int_equal(plan_vs_actual_totals(d).prefills, 0);
    assert_near(plan_vs_actual_planned(f.core, d, 1), 0.3, 1e-3); /* for the reply */
    tell_warm_up(&f, d);
    tell_prompt(&f, d, 2, 100, 1, 2);
    struct plan_vs_actual_totals t = plan_vs_actual_totals(d);
    assert_int_equal(t.prefills, 1);
    assert_near(t.measured_s, 0.301, 1e-6);
    /* two layers of 50 tokens: 100 ms a slice; a hop of 50 x 256 bytes over a nic of 1e9 and twice
     * its latency */
    assert_near(t.planned_s, 0.3 + 50 * 256 / 1e9 + 2e-4, 1e-6);
    json_t *said = plan_vs_actual_describe(f.core, d, 5),
           *r = json_array_get(json_object_get(said, "records"), 0);
    assert_int_equal(json_array_size(json_object_get(said, "records")), 2);
    assert_int_equal(json_integer_value(json_object_get(r, "sequence")), 2);
    const json_t *second =
        json_object_get(json_array_get(json_object_get(r, "stages"), 1), "measured");
    assert_near(json_number_value(json_array_get(json_object_get(second, "arrive_s"), 0)), 0.101,
                1e-6);
    assert_near(json_number_value(json_array_get(json_object_get(second, "end_s"), 1)), 0.301,
                1e-6);
    json_decref(said);
    fixture_close(&f);
}

TEST(the_first_prompt_after_loading_is_told_apart_from_the_sums)
{
    struct fixture f;
    fixture_open(&f);
    struct deployment *d = serve(&f);
    tell_prompt(&f, d, 1, 900, 30, 2);
    assert_int_equal(plan_vs_actual_totals(d).prefills, 0);
    tell_prompt(&f, d, 2, 100, 1, 2);
    tell_prompt(&f, d, 3, 100, 1, 2);
    struct plan_vs_actual_totals t = plan_vs_actual_totals(d);
    assert_int_equal(t.prefills, 2);
    assert_near(t.measured_s, 2 * 0.301, 1e-6);
    assert_near(t.first_measured_s, 3 * 0.9 + 0.03, 1e-6);
    json_t *said = plan_vs_actual_describe(f.core, d, 1);
    assert_near(json_number_value(json_object_get(said, "error")), 0, 0.01);
    assert_near(json_number_value(json_object_get(json_object_get(said, "first"), "error")), 8.1,
                0.01);
    json_decref(said);
    d->generation++; /* loaded anew: there is a first one again */
    tell_prompt(&f, d, 4, 500, 30, 2);
    t = plan_vs_actual_totals(d);
    assert_int_equal(t.prefills, 2);
    assert_near(t.first_measured_s, 3 * 0.5 + 0.03, 1e-6);
    fixture_close(&f);
}

TEST(a_prompt_that_waited_for_weights_is_no_error_of_the_plan)
{
    struct fixture f;
    fixture_open(&f);
    struct deployment *d = serve(&f);
    prompt_loading = true;
    for (uint64_t i = 1; i <= 3; i++)
        tell_prompt(&f, d, i, 9000, 30, 2);
    prompt_loading = false;
    struct plan_vs_actual_totals t = plan_vs_actual_totals(d);
    assert_int_equal(t.prefills, 0);
    assert_int_equal(t.corrections, 0);
    assert_near(t.first_measured_s, 0, 1e-9);
    assert_false(kind_was_corrected(&f, d));
    json_t *said = plan_vs_actual_describe(f.core, d, 1);
    const json_t *r = json_array_get(json_object_get(said, "records"), 0);
    assert_true(json_is_true(json_object_get(r, "loading")));
    assert_null(json_object_get(r, "planned_s"));
    assert_near(json_number_value(json_object_get(r, "measured_s")), 3 * 9 + 0.03, 1e-6);
    json_decref(said);
    tell_prompt(&f, d, 4, 100, 1, 2);
    tell_prompt(&f, d, 5, 100, 1, 2);
    assert_near(plan_vs_actual_totals(d).first_measured_s, 0.301, 1e-6);
    assert_int_equal(plan_vs_actual_totals(d).prefills, 1);
    fixture_close(&f);
}

/* Two on one box have one clock, of which the better guess holds; not so two boxes that were made
 * from one image, or an agent that says anything. */
TEST(a_clock_that_is_far_off_is_not_that_of_its_box)
{
    struct fixture f;
    fixture_open(&f);
    serve(&f);
    struct member *a = f.core->members[0], *b = f.core->members[1];
    snprintf(b->machine, sizeof b->machine, "%s", a->machine);
    a->clock_heard_ns = b->clock_heard_ns = 1;
    a->clock_offset_ns = -3000000000;
    b->clock_offset_ns = -3000200000;
    assert_near(clock_offset_s(f.core, a), -3.0002, 1e-9);
    b->clock_offset_ns = -4100000000;
    assert_near(clock_offset_s(f.core, a), -3, 1e-9);
    b->clock_offset_ns = INT64_MIN / 4;
    assert_near(clock_offset_s(f.core, a), -3, 1e-9);
    fixture_close(&f);
}

TEST(the_last_of_many_quick_prompts_is_shown_beside_its_plan)
{
    struct fixture f;
    fixture_open(&f);
    struct deployment *d = serve(&f);
    tell_warm_up(&f, d);
    tell_prompt(&f, d, 1, 100, 1, 2);
    tell_prompt_now(&f, d, 2, 100, 1, 2);
    assert_int_equal(plan_vs_actual_totals(d).prefills, 1);
    assert_near(plan_vs_actual_planned(f.core, d, 2), 0.3, 1e-3);
    assert_near(plan_vs_actual_planned(f.core, d, 3), 0, 0);
    json_t *said = plan_vs_actual_describe(f.core, d, 1),
           *r = json_array_get(json_object_get(said, "records"), 0);
    assert_int_equal(json_integer_value(json_object_get(r, "sequence")), 2);
    assert_near(json_number_value(json_object_get(r, "planned_s")), 0.3, 1e-3);
    assert_non_null(json_object_get(json_array_get(json_object_get(r, "stages"), 1), "planned"));
    json_decref(said);
    fixture_close(&f);
}

/* `n` steps behind the prompt, each taking `step_ms` on each stage and `hop_ms` from one to the
 * next and back, the last of these before it starts, in batches of so many. */
static void tell_answer_over(struct fixture *f, const struct deployment *d, uint64_t sequence,
                             const int n[2], uint64_t step_ms, uint64_t hop_ms, uint64_t runs)
{
    const uint64_t ms = 1000000, clock = f->clock.now_ns + 3000 * ms,
                   round = 2 * (step_ms + hop_ms);
    for (int j = 0; j < 2; j++) {
        struct message_prefill_slice s[DECODE_STEPS_MOST + 8];
        for (int k = 0; k < n[j]; k++) {
            uint64_t start = clock + ((uint64_t)k * round + (uint64_t)j * (step_ms + hop_ms)) * ms;
            s[k] = (struct message_prefill_slice){
                2 * SLICE_TOKENS + (uint64_t)k, 1, start - ms, start, start + step_ms * ms, runs};
        }
        struct message m = {.type = MESSAGE_DECODE};
        m.u.decode = (struct message_decode){d->id,
                                             d->generation,
                                             sequence,
                                             (uint64_t)j,
                                             f->clock.now_ns + 3000 * ms,
                                             {s, (size_t)n[j]}};
        fixture_say(f, 10 + (uint64_t)j, fixture_key(j), &m);
    }
}

static void tell_answer(struct fixture *f, const struct deployment *d, uint64_t sequence,
                        const int n[2], uint64_t step_ms, uint64_t runs)
{
    tell_answer_over(f, d, sequence, n, step_ms, 2, runs);
}

/* Of the latest prompt's answer; for the caller to release. */
static json_t *answer_said(struct fixture *f, struct deployment *d)
{
    json_t *said = plan_vs_actual_describe(f->core, d, 1);
    json_t *record = json_array_get(json_object_get(said, "records"), 0);
    json_t *decode = json_incref(json_object_get(record, "decode"));
    json_decref(said);
    return decode;
}

static double time_said(const json_t *decode, size_t stage, const char *side, const char *what,
                        size_t step)
{
    const json_t *s = json_array_get(json_object_get(decode, "stages"), stage);
    return json_number_value(json_array_get(json_object_get(json_object_get(s, side), what), step));
}

TEST(the_first_steps_of_an_answer_stand_behind_its_prompt_planned_and_measured)
{
    struct fixture f;
    fixture_open(&f);
    struct deployment *d = serve(&f);
    tell_prompt(&f, d, 1, 100, 1, 2);
    assert_null(answer_said(&f, d));
    tell_answer(&f, d, 1, (const int[2]){4, 3}, 3, 1); /* the last stage did not need the fourth */
    json_t *a = answer_said(&f, d);
    assert_int_equal(json_array_size(json_object_get(a, "steps")), 3);
    assert_int_equal(json_integer_value(json_object_get(a, "position")), 2 * SLICE_TOKENS);
    assert_near(json_number_value(json_object_get(a, "measured_s")), 0.028, 1e-6);
    assert_near(time_said(a, 1, "measured", "start_s", 1), 0.015, 1e-6);
    assert_near(time_said(a, 1, "measured", "arrive_s", 1), 0.014, 1e-6);
    /* A token takes two layers of each stage 1 ms each, and a hop there and one back. */
    double hop = 1e-4 * 2, there = hop + 256 / 1e9;
    assert_near(time_said(a, 0, "planned", "start_s", 1), 0.004 + there + hop, 1e-6);
    assert_near(time_said(a, 1, "planned", "arrive_s", 0), 0.002 + there, 1e-6);
    assert_near(json_number_value(json_object_get(a, "planned_s")), 3 * (0.004 + there) + 2 * hop,
                1e-6);
    json_decref(a);
    fixture_close(&f);
}

TEST(steps_that_others_shared_have_no_plan_and_nonsense_of_steps_is_dropped)
{
    struct fixture f;
    fixture_open(&f);
    struct deployment *d = serve(&f);
    tell_answer(&f, d, 7, (const int[2]){2, 2}, 3, 1); /* of a prompt that nobody knows */
    tell_prompt(&f, d, 1, 100, 1, 2);
    struct message_prefill_slice back[2] = {{100, 1, 0, 5, 6, 1}, {100, 1, 0, 6, 7, 1}},
                                 early[1] = {{100, 1, 0, 6, 5, 1}};
    struct message m = {.type = MESSAGE_DECODE};
    const struct message_decode cases[] = {{d->id, d->generation, 1, 0, 9, {back, 2}},
                                           {d->id, d->generation, 1, 0, 9, {early, 1}},
                                           {d->id, d->generation, 1, 0, 9, {NULL, 0}},
                                           {d->id, d->generation, 1, 9, 9, {back, 1}},
                                           {d->id, d->generation + 1, 1, 0, 9, {back, 1}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        m.u.decode = cases[i];
        fixture_say(&f, 10, fixture_key(0), &m);
    }
    int most = DECODE_STEPS_MOST + 8;
    tell_answer(&f, d, 1, (const int[2]){most, most}, 3, 2);
    json_t *a = answer_said(&f, d);
    assert_int_equal(json_array_size(json_object_get(a, "steps")), DECODE_STEPS_MOST);
    assert_true(json_is_true(json_object_get(a, "shared")));
    assert_null(json_object_get(a, "planned_s"));
    json_decref(a);
    fixture_close(&f);
}

static void on_nothing(void *ctx, uint64_t request, const struct err *why,
                       const struct request_usage *usage)
{
    (void)ctx, (void)request, (void)why, (void)usage;
}

/* Whose batches go between its steps and are none of them. */
TEST(steps_beside_a_request_of_somebody_else_have_no_plan)
{
    static const uint32_t prompt[] = {1, 2, 3};
    struct fixture f;
    struct requests r;
    struct err e = {0};
    uint64_t id;
    fixture_open(&f);
    struct deployment *d = serve(&f);
    tell_prompt(&f, d, 70, 100, 1, 2);
    coord_requests(f.core, &r);
    const struct request_spec other = {.model = "x",
                                       .prompt = prompt,
                                       .n_prompt = 3,
                                       .max_tokens = 5,
                                       .callbacks = {.failed = on_nothing}};
    if (r.open(r.ctx, &other, &id, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(d->n_active, 1);
    tell_answer(&f, d, 70, (const int[2]){4, 4}, 3, 1);
    json_t *a = answer_said(&f, d);
    assert_true(json_is_true(json_object_get(a, "shared")));
    assert_null(json_object_get(a, "planned_s"));
    json_decref(a);
    fixture_close(&f);
}

TEST(what_makes_no_sense_is_dropped)
{
    struct fixture f;
    fixture_open(&f);
    struct deployment *d = serve(&f);
    struct message_prefill_slice gap[SLICES] = {{0, 50, 0, 1, 2, 1}, {60, 50, 0, 2, 3, 1}},
                                 backwards[1] = {{0, 50, 0, 5, 2, 1}};
    struct message m = {.type = MESSAGE_PREFILL};
    const struct message_prefill cases[] = {
        {d->id, d->generation, 1, 0, 9, {gap, SLICES}, false, false},
        {d->id, d->generation, 2, 0, 9, {backwards, 1}, false, false},
        {d->id, d->generation, 3, 0, 9, {NULL, 0}, false, false},
        {d->id, d->generation, 4, 7, 9, {gap, 1}, false, false},
        {d->id, d->generation + 1, 5, 0, 9, {gap, 1}, false, false},
        {d->id + 1, d->generation, 6, 0, 9, {gap, 1}, false, false},
        {d->id, d->generation, 7, 1 /* a1's */, 9, {gap, 1}, false, false},
    };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        m.u.prefill = cases[i / 2];
        m.u.prefill.part = i % 2;
        fixture_say(&f, 10, fixture_key(0), &m);
    }
    tell_warm_up(&f, d);
    assert_int_equal(plan_vs_actual_totals(d).prefills, 0);
    tell_prompt(&f, d, 9, 100, 1, 2);
    assert_int_equal(plan_vs_actual_totals(d).prefills, 1);
    fixture_close(&f);
}

TEST(a_profile_that_drifts_is_corrected_for_the_next_plan)
{
    struct fixture f;
    fixture_open(&f);
    struct deployment *d = serve(&f);
    for (uint64_t i = 1; i < PLAN_DRIFT_PREFILLS; i++)
        tell_prompt(&f, d, i, 150, 1, 2);
    assert_int_equal(plan_vs_actual_totals(d).corrections, 0);
    tell_prompt(&f, d, 90, 150, 1, 2);
    assert_int_equal(plan_vs_actual_totals(d).corrections, 1);
    const json_t *tables = profiles_find(f.core, d->model->id, "k", "auto")->record;
    assert_near(json_number_value(json_object_get(tables, "corrected")), 1.5, 1e-6);
    tell_prompt(&f, d, 91, 150, 1, 2);
    assert_true(fabs(plan_vs_actual_totals(d).error) < 0.01);
    fixture_close(&f);
}

TEST(one_of_a_kind_that_is_ten_times_slower_is_a_kind_of_its_own)
{
    struct fixture f;
    fixture_open(&f);
    struct deployment *d = serve(&f);
    const uint64_t slow[2] = {100, 1000}, even[2] = {100, 100};
    struct member *a1 = d->stages[1].agent;
    for (int i = 0; i < PLAN_DRIFT_PREFILLS; i++)
        tell_times(&f, d, slow, 1);
    assert_near(pace_of(d, a1, 0), 10, 0.5);
    assert_near(pace_of(d, d->stages[0].agent, 0), 1, 1e-9);
    assert_false(kind_was_corrected(&f, d));
    tell_times(&f, d, slow, 1);
    struct planner_inputs *in = NULL;
    assert_int_equal(planner_inputs_get(f.core, d, &in, NULL), 0);
    assert_int_equal(in->profile.n_kinds, 2);
    assert_int_equal(in->cluster.n_pools, 2);
    planner_inputs_release(&in);
    json_t *said = plan_vs_actual_describe(f.core, d, 1),
           *r = json_array_get(json_object_get(said, "records"), 0),
           *second = json_object_get(json_array_get(json_object_get(r, "stages"), 1), "planned");
    assert_near(json_number_value(json_array_get(json_object_get(second, "end_s"), 0)) -
                    json_number_value(json_array_get(json_object_get(second, "start_s"), 0)),
                1, 0.05);
    json_decref(said);
    for (int i = 0; i < 2 * PLAN_DRIFT_PREFILLS; i++) /* it has come back */
        tell_times(&f, d, even, 1);
    assert_near(pace_of(d, a1, 0), 1, 1e-9);
    fixture_close(&f);
}

/* Boxes are seldom alike: a kind of one device is what that device was when it was measured. */
TEST(the_only_one_of_its_kind_that_is_ten_times_slower_is_off_its_own_profile)
{
    struct fixture f;
    fixture_open(&f);
    struct deployment *d = serve_on(&f, "k", "other");
    const uint64_t slow[2] = {100, 1000}, even[2] = {100, 100}, less[2] = {100, 150};
    struct member *a1 = d->stages[1].agent;
    int told;
    for (int i = 0; i < PLAN_DRIFT_PREFILLS; i++)
        tell_times(&f, d, slow, 1);
    assert_near(pace_of(d, a1, 0), 10, 0.5);
    assert_true(pace_is_degraded(d, a1, 0, &told));
    assert_near(pace_of(d, d->stages[0].agent, 0), 1, 1e-9);
    for (int i = 0; i < 3 * PLAN_DRIFT_PREFILLS; i++) /* it has come back */
        tell_times(&f, d, even, 1);
    assert_near(pace_of(d, a1, 0), 1, 1e-9);
    assert_false(was_corrected(&f, d, "k") || was_corrected(&f, d, "other"));
    for (int i = 0; i < PLAN_DRIFT_PREFILLS; i++)
        tell_times(&f, d, less, 1);
    assert_near(pace_of(d, a1, 0), 1, 1e-9);
    assert_true(!was_corrected(&f, d, "k") && was_corrected(&f, d, "other"));
    fixture_close(&f);
}

TEST(a_slow_prompt_says_as_much_as_the_short_ones_that_would_take_as_long)
{
    static const struct {
        uint64_t slice_ms;
        int prompts;
    } cases[] = {{500, 5}, {700, 3}, {1500, 2}, {2600, 1}}; /* two slices each */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        fixture_open(&f);
        struct deployment *d = serve(&f);
        struct member *a1 = d->stages[1].agent;
        const uint64_t slow[2] = {100, cases[i].slice_ms};
        for (int k = 0; k < cases[i].prompts; k++) {
            assert_near(pace_of(d, a1, 0), 1, 1e-9);
            tell_times(&f, d, slow, 1);
        }
        assert_true(pace_of(d, a1, 0) > PACE_DEGRADED);
        fixture_close(&f);
    }
}

/* What links_paths gives to planners of the way from one agent to another. */
static double way_latency_s(const struct member *from, const struct member *to)
{
    struct links_path paths[2];
    int n = links_paths(from, to, paths);
    for (int i = 0; i < n; i++)
        if (paths[i].from == from)
            return paths[i].wire.latency_s;
    return -1;
}

TEST(a_link_whose_frames_come_late_is_planned_with_until_it_is_measured)
{
    struct fixture f;
    fixture_open(&f);
    struct deployment *d = serve(&f);
    struct member *a0 = d->stages[0].agent, *a1 = d->stages[1].agent;
    struct member_link *l = links_make(a0, a1);
    for (int way = 0; way < 2; way++) {
        struct member_link *one = way ? links_make(a1, a0) : l;
        one->bandwidth_bytes_per_s = 1e9;
        one->latency_s = 1e-4;
        one->measured_s = 1;
    }
    f.core->links_version++;
    uint64_t before = late_links_hash(f.core).which, told = late_links_hash(f.core).told;
    tell_prompt(&f, d, 1, 100, 50, 2);
    tell_prompt(&f, d, 2, 100, 50, 2);
    tell_prompt(&f, d, 3, 100, 1, 2); /* and so they are not late each time */
    for (uint64_t i = 4; i < 8; i++)
        tell_prompt(&f, d, i, 100, 50 + i, 2);
    assert_near(l->late_s, 0, 0);
    tell_prompt(&f, d, 8, 100, 50, 2);
    assert_near(way_latency_s(a0, a1), 0.05, 1e-3);
    assert_near(way_latency_s(a1, a0), 0.05, 1e-3); /* of a pair that goes round both ways count */
    assert_true(late_links_hash(f.core).which != before && late_links_hash(f.core).told != told);
    tell_prompt(&f, d, 9, 100, 50, 2);
    assert_near(plan_vs_actual_totals(d).error, 0, 0.01);
    for (uint64_t i = 10; i < 15; i++) /* it is as it was */
        tell_prompt(&f, d, i, 100, 1, 2);
    assert_near(l->late_s, 0, 0);
    assert_true(late_links_hash(f.core).which == before);
    for (int turn = 0; turn < 2; turn++) { /* late, and later still */
        const struct hop_seconds hop = {0.05 * turn, 0.05 + 0.1 * turn};
        told = late_links_hash(f.core).told;
        for (int i = 0; i < 5; i++)
            late_links_hear(f.core, d, 0, &hop);
        assert_true(late_links_hash(f.core).told != told);
    }
    assert_near(l->late_s, 0.15, 1e-9);
    assert_false(late_links_measured(a0, l, 0.15));
    assert_near(l->late_s, 0.1499, 1e-9); /* that has not made it any faster */
    assert_true(late_links_hash(f.core).which != before);
    const struct hop_seconds again = {0.15, 1e-3};
    for (int i = 0; i < 5; i++) /* nor is that what it is known by */
        late_links_hear(f.core, d, 0, &again);
    assert_near(l->late_s, 0, 0);
    assert_near(l->latency_s, 1e-4, 0);
    assert_true(late_links_hash(f.core).which == before);
    fixture_close(&f);
}

TEST(a_link_that_nobody_measured_is_as_late_as_it_is_and_no_later)
{
    for (int back = 0; back < 2; back++) { /* measured is the way back, or neither */
        struct fixture f;
        fixture_open(&f);
        struct deployment *d = serve(&f);
        struct member *a0 = d->stages[0].agent, *a1 = d->stages[1].agent;
        if (back) {
            struct member_link *l = links_make(a1, a0);
            l->bandwidth_bytes_per_s = 1e9;
            l->latency_s = 1e-4;
            l->measured_s = 1;
            f.core->links_version++;
        }
        tell_prompt(&f, d, 1, 100, 1, 2);
        for (uint64_t i = 2; i < 30; i++)
            tell_prompt(&f, d, i, 100, 50, 2);
        assert_near(links_make(a0, a1)->late_s, 0.05, 1e-3);
        assert_near(way_latency_s(a0, a1), 0.05, 1e-3);
        struct member_link *there = links_make(a0, a1);
        if (back) { /* a way that is as far as the way back is not late */
            links_make(a1, a0)->latency_s = 0.04;
            there->late_s = 0;
            for (int i = 0; i < 10; i++)
                late_links_hear_steps(f.core, d, 0, 0.0405, 100);
            assert_false(there->late_s > 0);
            assert_near(way_latency_s(a1, a0), 0.04, 1e-9);
        }
        fixture_close(&f);
    }
}

TEST(an_answer_of_some_seconds_whose_tokens_all_come_late_says_so_at_once)
{
    struct fixture f;
    fixture_open(&f);
    struct deployment *d = serve(&f);
    struct member_link *l = links_make(d->stages[0].agent, d->stages[1].agent);
    const struct hop_seconds soon = {1e-4, 1e-4};
    late_links_hear_steps(f.core, d, 0, 0.05, 100); /* it may be far away */
    assert_false(l->late_s > 0);
    late_links_hear(f.core, d, 0, &soon);
    late_links_hear_steps(f.core, d, 0, 0.05, 4.9); /* four of five */
    assert_false(l->late_s > 0);
    late_links_hear(f.core, d, 0, &soon); /* a prompt is not late: from the beginning */
    late_links_hear_steps(f.core, d, 0, 0.05, 4.9);
    late_links_hear_steps(f.core, d, 0, 0.009, 100); /* that is nothing */
    assert_false(l->late_s > 0);
    tell_prompt(&f, d, 1, 100, 1, 2);
    tell_answer(&f, d, 1, (const int[2]){32, 32}, 90, 1); /* 5.9 s, each token 1 ms on its way */
    assert_false(l->late_s > 0);
    tell_prompt(&f, d, 2, 100, 1, 2);
    tell_answer_over(&f, d, 2, (const int[2]){32, 32}, 30, 52, 1); /* 5.2 s, and 51 ms */
    assert_true(l->late_s > 0);
    assert_near(l->late_s, 0.051, 1e-9);
    assert_true(late_links_measured(d->stages[0].agent, l, 0.06)); /* for the first time */
    assert_true(l->late_s > 0.05);
    fixture_close(&f);
}

/* Prompts do not go that way, and short answers are all that is heard of it. */
TEST(tokens_that_come_back_late_to_the_first_stage_say_so_of_that_link)
{
    struct fixture f;
    fixture_open(&f);
    struct deployment *d = serve(&f);
    struct member_link *there = links_make(d->stages[0].agent, d->stages[1].agent),
                       *back = links_make(d->stages[1].agent, d->stages[0].agent);
    const uint64_t late_ms[] = {2, 52, 52, 52, 2, 52, 52, 52, 52, 52};
    for (uint64_t i = 0; i < 10; i++) {
        assert_false(back->late_s > 0); /* not before five in a row */
        tell_prompt(&f, d, i + 1, 100, 1, 2);
        tell_answer_over(&f, d, i + 1, (const int[2]){4, 4}, 30, late_ms[i], 1);
    }
    assert_true(back->late_s > 0 && there->late_s <= 0);
    assert_near(back->late_s, 0.051, 1e-9);
    tell_prompt(&f, d, 11, 100, 1, 2);
    tell_answer_over(&f, d, 11, (const int[2]){1, 1}, 30, 200, 1); /* no way back in it */
    assert_near(back->late_s, 0.051, 1e-9);
    fixture_close(&f);
}

/* A link is measured where nothing runs, which may be before prompts have shown anything. */
TEST(a_link_that_is_measured_to_take_far_longer_than_before_is_late)
{
    struct fixture f;
    fixture_open(&f);
    struct deployment *d = serve(&f);
    struct member *a0 = d->stages[0].agent;
    struct member_link *l = links_make(a0, d->stages[1].agent);
    const struct late_hashes begun = late_links_hash(f.core);
    late_links_measured(a0, l, 0.05); /* far away it is, and not late */
    l->measured_s = 1;
    const double usual[] = {0.09, 1e-4, 0.009, 1e-4};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        assert_true(late_links_measured(a0, l, usual[i])); /* news for plans */
        assert_near(l->latency_s, usual[i], 0);
        assert_false(late_links_measured(a0, l, usual[i] + 1e-3));
    }
    late_links_measured(a0, l, 1e-4);
    assert_true(late_links_hash(f.core).which == begun.which);
    assert_true(late_links_measured(a0, l, 0.05));
    assert_near(l->latency_s, 1e-4, 0);
    assert_near(l->late_s, 0.0499, 1e-9);
    const struct late_hashes late = late_links_hash(f.core);
    assert_true(late.which != begun.which && late.told != begun.told);
    assert_true(late_links_measured(a0, l, 0.06)); /* as it was, but for plans */
    assert_true(late_links_hash(f.core).told == late.told);
    assert_true(late_links_measured(a0, l, 0.2)); /* later still */
    assert_true(late_links_hash(f.core).told != late.told);
    assert_true(late_links_measured(a0, l, 1e-4));
    assert_near(l->late_s, 0, 0);
    assert_true(late_links_hash(f.core).which == begun.which);
    fixture_close(&f);
}

/* A measurement has half of it each way, again and again; frames tell the ways apart. */
TEST(a_link_that_is_late_one_way_is_told_once_however_often_it_is_measured)
{
    struct fixture f;
    fixture_open(&f);
    struct deployment *d = serve(&f);
    struct member *ends[] = {d->stages[0].agent, d->stages[1].agent};
    struct member_link *ways[] = {links_make(ends[0], ends[1]), links_make(ends[1], ends[0])};
    const double frames_s[] = {0.0605, 5e-4};
    for (int w = 0; w < 2; w++) {
        late_links_measured(ends[w], ways[w], 1e-4);
        ways[w]->measured_s = 1;
    }
    struct late_hashes known = {0};
    for (int i = 0; i < 4; i++) {
        for (int w = 0; w < 2; w++)
            late_links_hear_steps(f.core, d, w, frames_s[w], 100);
        if (i == 1)
            known = late_links_hash(f.core);
        for (int w = 0; w < 2 && i > 0; w++)
            assert_false(late_links_measured(ends[w], ways[w], 0.03015));
        assert_near(ways[0]->late_s, 0.0604, 1e-9);
        assert_near(ways[1]->late_s, 0, 0);
    }
    assert_true(late_links_hash(f.core).told == known.told);
    for (int w = 0; w < 2; w++) /* it is over */
        assert_int_equal(late_links_measured(ends[w], ways[w], 1e-4), w == 0);
    assert_near(ways[0]->late_s, 0, 0);
    for (int w = 0; w < 2; w++) /* both ways are late, as nobody showed otherwise */
        assert_true(late_links_measured(ends[w], ways[w], 0.05));
    fixture_close(&f);
}

TEST(beside_other_work_only_what_is_gross_counts)
{
    struct fixture f;
    fixture_open(&f);
    struct deployment *d = serve(&f);
    const uint64_t busy[2] = {400, 800}, slow[2] = {200, 1600}, back[2] = {200, 200};
    for (int i = 0; i < PLAN_DRIFT_PREFILLS; i++)
        tell_times(&f, d, busy, 3);
    assert_int_equal(plan_vs_actual_totals(d).corrections, 0);
    for (int i = 0; i < PLAN_DRIFT_PREFILLS; i++)
        tell_times(&f, d, slow, 3);
    assert_near(pace_of(d, d->stages[1].agent, 0), 8, 0.5);
    for (int i = 0; i < 2 * PLAN_DRIFT_PREFILLS; i++)
        tell_times(&f, d, back, 3);
    assert_near(pace_of(d, d->stages[1].agent, 0), 1, 0.11);
    assert_near(pace_of(d, d->stages[0].agent, 0), 1, 1e-9);
    assert_false(kind_was_corrected(&f, d));
    assert_int_equal(plan_vs_actual_totals(d).prefills, 0);
    fixture_close(&f);
}

/* The first slices of a prompt, `n` of two, which take so long in batches of so many. */
static void tell_slices(struct fixture *f, const struct deployment *d, uint64_t sequence, int stage,
                        uint64_t slice_ms, uint64_t runs, size_t n)
{
    const uint64_t ms = 1000000, clock = f->clock.now_ns + 3000 * ms;
    struct message_prefill_slice s[SLICES];
    struct message m = {.type = MESSAGE_PREFILL};
    for (uint64_t k = 0; k < n; k++)
        s[k] = (struct message_prefill_slice){k * SLICE_TOKENS,
                                              SLICE_TOKENS,
                                              0,
                                              clock + k * slice_ms * ms,
                                              clock + (k + 1) * slice_ms * ms,
                                              runs};
    m.u.prefill = (struct message_prefill){d->id, d->generation, sequence, (uint64_t)stage,
                                           clock, {s, n},        false,    n < SLICES};
    fixture_pass_ms(f, PLAN_VS_ACTUAL_PREDICT_MS);
    fixture_say(f, 10 + (uint64_t)stage, fixture_key(stage), &m);
}

/* What a slice is planned to take is 200 ms. */
TEST(a_prompt_that_goes_on_says_who_is_far_slower_and_no_more)
{
    struct fixture f;
    fixture_open(&f);
    struct deployment *d = serve_on(&f, "k0", "k1");
    const struct member *a1 = d->stages[1].agent;
    tell_slices(&f, d, 1, 1, 500, 1, 1);   /* is not far slower */
    tell_slices(&f, d, 2, 1, 18000, 3, 1); /* others may be slow as well */
    assert_near(pace_of(d, a1, 0), 1, 1e-9);
    tell_slices(&f, d, 3, 0, 200, 1, 2);
    tell_slices(&f, d, 3, 1, 200, 1, 2);
    tell_slices(&f, d, 3, 1, 6000, 1, 1); /* of one that was through */
    assert_near(pace_of(d, a1, 0), 1, 1e-9);
    tell_slices(&f, d, 4, 0, 200, 3, 2);
    tell_slices(&f, d, 4, 1, 6000, 3, 1); /* beside stages that are not; 2 s of it are its own */
    assert_near(pace_of(d, a1, 0), 1, 1e-9);
    tell_slices(&f, d, 4, 1, 16000, 3, 1);
    assert_near(pace_of(d, a1, 0), 10, 0.2); /* no more at once */
    assert_near(pace_of(d, d->stages[0].agent, 0), 1, 1e-9);
    assert_int_equal(plan_vs_actual_totals(d).corrections, 1);
    tell_slices(&f, d, 5, 0, 6000, 1, 1);
    assert_near(pace_of(d, d->stages[0].agent, 0), 10, 0.2);
    assert_false(was_corrected(&f, d, "k0") || was_corrected(&f, d, "k1"));
    fixture_close(&f);
}

TEST(an_agent_that_tells_of_centuries_again_and_again_is_heard_until_it_is_as_slow_as_can_be)
{
    struct fixture f;
    fixture_open(&f);
    struct deployment *d = serve_on(&f, "k0", "k1");
    const struct member *a1 = d->stages[1].agent;
    for (uint64_t i = 0; i < 4; i++)
        tell_slices(&f, d, 1 + i, 1, UINT64_C(9000000000000), 1, 1);
    assert_near(pace_of(d, a1, 0), 97, 1);
    uint64_t planned_by = f.core->paces_version, corrections = plan_vs_actual_totals(d).corrections;
    for (uint64_t i = 0; i < 4; i++)
        tell_slices(&f, d, 9 + i, 1, UINT64_C(9000000000000), 1, 1);
    assert_int_equal(f.core->paces_version, planned_by);
    assert_int_equal(plan_vs_actual_totals(d).corrections, corrections);
    fixture_close(&f);
}

/* One prompt after the other of which a1's word takes 40 ms to the coordinator. */
static void tell_from_afar(struct fixture *f, const struct deployment *d, uint64_t hop_ms)
{
    static uint64_t sequence = 5000;
    const uint64_t ms = 1000000;
    for (int i = 0; i < 5; i++) {
        fixture_pass_ms(f, PLAN_VS_ACTUAL_PREDICT_MS);
        sequence++;
        for (uint64_t j = 0; j < 2; j++) {
            uint64_t now = f->clock.now_ns + 3000 * ms, start = now - (j ? 300 - hop_ms : 400) * ms;
            struct message_prefill_slice s = {0, 50, j ? start : 0, start, start + 100 * ms, 1};
            struct message m = {.type = MESSAGE_PREFILL};
            m.u.prefill = (struct message_prefill){
                d->id, d->generation, sequence, j, now - (j ? 40 * ms : 0), {&s, 1}, false, false};
            fixture_say(f, 10 + j, fixture_key((int)j), &m);
        }
    }
}

/* The clock of who is far away is guessed to be as much ahead as its word takes. */
TEST(a_link_to_an_agent_far_away_is_not_late_by_how_far_that_is)
{
    struct fixture f;
    fixture_open(&f);
    struct deployment *d = serve(&f);
    struct member *a0 = d->stages[0].agent, *a1 = d->stages[1].agent;
    struct member_link *l = links_make(a0, a1);
    strcpy(a1->machine, "another");
    *l = (struct member_link){
        .to = a1, .latency_s = 0.04, .bandwidth_bytes_per_s = 1e8, .measured_s = 1};
    tell_from_afar(&f, d, 41);
    assert_near(l->late_s, 0, 0);
    tell_from_afar(&f, d, 120);
    assert_true(l->late_s > 0.07);
    fixture_close(&f);
}

/* What was guessed of a device that nobody has measured is the guess's fault, as at the end. */
TEST(a_prompt_that_goes_on_says_nothing_of_a_device_whose_profile_is_a_guess)
{
    struct fixture f;
    fixture_open(&f);
    struct deployment *d = serve_on(&f, "k0", "k1");
    int removed;
    assert_int_equal(profiles_remove(f.core, d->model->id, "k1", &removed, NULL), 0);
    for (uint64_t i = 0; i < 2; i++) {
        tell_slices(&f, d, 1 + i, 0, 200, 1 + 2 * i, 2);
        tell_slices(&f, d, 1 + i, 1, 60000, 1 + 2 * i, 1);
        assert_near(pace_of(d, d->stages[1].agent, 0), 1, 1e-9);
    }
    fixture_close(&f);
}

/* All of the model on a0. Batches of three that take long may be the others'; of those that would
 * be long for one of three alike it is sure, and of those that are short for all of them, too. */
TEST(of_one_stage_beside_other_work_that_counts_which_is_gross_whoever_took_the_time)
{
    struct fixture f;
    fixture_open(&f);
    struct deployment *d = serve_layers(&f, "k", "k", "0-3:a0");
    const struct member *a0 = d->stages[0].agent;
    static const struct {
        uint64_t slice_ms, runs;
        double pace;
    } cases[] = {{200, 3, 1}, {1700, 3, 1}, {4800, 3, 8}, {200, 3, 1}, {400, 1, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int k = 0; k < PLAN_DRIFT_PREFILLS; k++)
            tell_times(&f, d, &cases[i].slice_ms, cases[i].runs);
        if (fabs(pace_of(d, a0, 0) - cases[i].pace) > 0.12 * cases[i].pace)
            fail_msg("case %zu: %f", i, pace_of(d, a0, 0));
    }
    assert_false(kind_was_corrected(&f, d));
    fixture_close(&f);
}

TEST(what_some_of_a_kind_take_says_nothing_of_the_others)
{
    struct fixture f;
    fixture_open(&f);
    struct deployment *d = serve(&f);
    const uint64_t off[2] = {150, 150};
    fixture_agent(&f, 2, "k", 8e9);
    for (int i = 0; i < PLAN_DRIFT_PREFILLS; i++)
        tell_times(&f, d, off, 1);
    assert_false(kind_was_corrected(&f, d));
    assert_near(pace_of(d, d->stages[0].agent, 0), 1.5, 0.08);
    assert_near(pace_of(d, d->stages[1].agent, 0), 1.5, 0.08);
    assert_near(pace_of(d, f.core->members[2], 0), 1, 1e-9);
    fixture_close(&f);
}

/* It is tried again, and when it is as slow still, later. */
TEST(a_pace_that_nothing_confirms_is_forgotten)
{
    struct fixture f;
    fixture_open(&f);
    struct deployment *d = serve(&f);
    struct member *m = d->stages[1].agent;
    uint64_t before = paces_hash(f.core, d).which;
    for (uint64_t kept = PACE_KEPT_MS; kept <= 2 * PACE_KEPT_MS; kept *= 2) {
        pace_change(f.core, d, m, 0, 8);
        assert_true(paces_hash(f.core, d).which != before);
        f.core->now_ns += coord_ms(kept) - 1;
        paces_tick(f.core);
        assert_near(pace_of(d, m, 0), 8, 0.5);
        f.core->now_ns += 1;
        paces_tick(f.core);
        assert_near(pace_of(d, m, 0), 1, 1e-9);
        assert_true(paces_hash(f.core, d).which == before);
    }
    pace_change(f.core, d, m, 0, 1e9);
    assert_true(pace_of(d, m, 0) <= 100);
    for (int i = 0; i < 2 * MEMBER_PACES; i++) /* others' are forgotten first */
        pace_change(f.core, d, m, i, 2);
    assert_near(pace_of(d, m, 2 * MEMBER_PACES - 1), 2, 0.1);
    fixture_close(&f);
}

TEST(only_what_is_off_to_one_side_is_drift)
{
    static const struct {
        double ratios[PLAN_DRIFT_PREFILLS];
        double factor;
    } cases[] = {
        {{1.0, 1.05, 0.95, 1.0, 1.02}, 0},     {{1.5, 1.5, 1.0, 1.5, 1.5}, 0},
        {{1.5, 0.5, 1.5, 0.5, 1.5}, 0},        {{1.2, 1.3, 1.4, 1.5, 1.3}, 1.3},
        {{0.5, 0.6, 0.4, 0.5, 0.7}, 0.5},      {{90, 90, 90, 90, 90}, 10},
        {{0.01, 0.01, 0.01, 0.01, 0.01}, 0.1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan_drift d = {0};
        double got = 0;
        for (int k = 0; k < PLAN_DRIFT_PREFILLS; k++) {
            assert_near(plan_drift_add(&d, "other", 1), 0, 0);
            got = plan_drift_add(&d, "k", cases[i].ratios[k]);
            assert_true(k + 1 == PLAN_DRIFT_PREFILLS || got <= 0);
        }
        assert_near(got, cases[i].factor, 1e-12);
    }
}

TEST(kinds_beyond_the_limit_are_left_alone)
{
    struct plan_drift d = {0};
    char kind[8];
    for (int k = 0; k < PLAN_DRIFT_KINDS + 3; k++)
        for (int i = 0; i < PLAN_DRIFT_PREFILLS; i++) {
            snprintf(kind, sizeof kind, "k%d", k);
            double got = plan_drift_add(&d, kind, 2);
            assert_true(i + 1 < PLAN_DRIFT_PREFILLS || k >= PLAN_DRIFT_KINDS ? got <= 0
                                                                             : got > 1.9);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prompt_is_compared_once_every_stage_has_told),
        cmocka_unit_test(a_prompt_that_waited_for_weights_is_no_error_of_the_plan),
        cmocka_unit_test(the_first_prompt_after_loading_is_told_apart_from_the_sums),
        cmocka_unit_test(a_clock_that_is_far_off_is_not_that_of_its_box),
        cmocka_unit_test(the_last_of_many_quick_prompts_is_shown_beside_its_plan),
        cmocka_unit_test(the_first_steps_of_an_answer_stand_behind_its_prompt_planned_and_measured),
        cmocka_unit_test(steps_that_others_shared_have_no_plan_and_nonsense_of_steps_is_dropped),
        cmocka_unit_test(steps_beside_a_request_of_somebody_else_have_no_plan),
        cmocka_unit_test(what_makes_no_sense_is_dropped),
        cmocka_unit_test(a_profile_that_drifts_is_corrected_for_the_next_plan),
        cmocka_unit_test(one_of_a_kind_that_is_ten_times_slower_is_a_kind_of_its_own),
        cmocka_unit_test(the_only_one_of_its_kind_that_is_ten_times_slower_is_off_its_own_profile),
        cmocka_unit_test(a_slow_prompt_says_as_much_as_the_short_ones_that_would_take_as_long),
        cmocka_unit_test(a_link_whose_frames_come_late_is_planned_with_until_it_is_measured),
        cmocka_unit_test(a_link_that_nobody_measured_is_as_late_as_it_is_and_no_later),
        cmocka_unit_test(an_answer_of_some_seconds_whose_tokens_all_come_late_says_so_at_once),
        cmocka_unit_test(tokens_that_come_back_late_to_the_first_stage_say_so_of_that_link),
        cmocka_unit_test(a_link_that_is_measured_to_take_far_longer_than_before_is_late),
        cmocka_unit_test(a_link_that_is_late_one_way_is_told_once_however_often_it_is_measured),
        cmocka_unit_test(a_link_to_an_agent_far_away_is_not_late_by_how_far_that_is),
        cmocka_unit_test(beside_other_work_only_what_is_gross_counts),
        cmocka_unit_test(a_prompt_that_goes_on_says_who_is_far_slower_and_no_more),
        cmocka_unit_test(a_prompt_that_goes_on_says_nothing_of_a_device_whose_profile_is_a_guess),
        cmocka_unit_test(
            an_agent_that_tells_of_centuries_again_and_again_is_heard_until_it_is_as_slow_as_can_be),
        cmocka_unit_test(
            of_one_stage_beside_other_work_that_counts_which_is_gross_whoever_took_the_time),
        cmocka_unit_test(what_some_of_a_kind_take_says_nothing_of_the_others),
        cmocka_unit_test(a_pace_that_nothing_confirms_is_forgotten),
        cmocka_unit_test(only_what_is_off_to_one_side_is_drift),
        cmocka_unit_test(kinds_beyond_the_limit_are_left_alone),
    };
    return cmocka_run_group_tests(tests, prepare_facts, NULL);
}
