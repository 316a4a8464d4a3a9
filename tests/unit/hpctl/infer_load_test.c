/* Loads of models of fixed shape: when requests arrive, what they carry, and what is said of what
 * came of them, from results made by hand. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/fs.h"
#include "coordinator/gateway/infer.h"
#include "hpctl/infer_drawing.h"
#include "hpctl/infer_report.h"
#include "hpctl/shown.h"
#include "tests/test.h"

static const char *const names[] = {"a", "b"};
static const double parts[] = {0.75, 0.25};

static struct infer_options infer_options_of(enum arrivals_kind kind, double rate, double seconds)
{
    return (struct infer_options){.kind = kind,
                                  .names = names,
                                  .parts = parts,
                                  .n_models = 2,
                                  .only = -1,
                                  .rate_per_s = rate,
                                  .seconds = seconds,
                                  .seed = 7};
}

TEST(models_arrive_in_their_proportions_and_come_again_with_the_seed)
{
    for (int kind = 0; kind < ARRIVALS_TRACE; kind++) {
        struct infer_options o = infer_options_of((enum arrivals_kind)kind, 100, 40);
        struct infer_plan p, again;
        size_t of[2] = {0};
        assert_int_equal(infer_plan_make(&o, &p, NULL), 0);
        assert_int_equal(infer_plan_make(&o, &again, NULL), 0);
        assert_true(p.n == again.n && p.n > 3500 && p.n < 4500);
        for (size_t i = 0; i < p.n; i++) {
            assert_true(p.requests[i].at_s == again.requests[i].at_s);
            assert_true(i == 0 || p.requests[i].at_s >= p.requests[i - 1].at_s);
            of[p.requests[i].model]++;
        }
        assert_true(fabs((double)of[0] / (double)p.n - 0.75) < 0.05);
        infer_plan_free(&p);
        infer_plan_free(&again);
    }
}

static int plan_of_file(const char *text, struct infer_options *o, struct infer_plan *p,
                        struct err *e)
{
    char path[] = "/tmp/hp-infer-load-XXXXXX";
    close(mkstemp(path));
    assert_int_equal(fs_file_write(path, text, strlen(text), 0600, NULL), 0);
    o->kind = ARRIVALS_TRACE;
    o->file = path;
    int rc = infer_plan_make(o, p, e);
    unlink(path);
    return rc;
}

TEST(a_file_of_models_keeps_its_pace_or_is_stretched)
{
    struct infer_options o = infer_options_of(ARRIVALS_TRACE, 0, INFINITY);
    struct infer_plan p;
    struct err e = {0};
    static const char text[] = "seconds,model\n0,a\n1,b\n2,a\n4,a\n";
    assert_int_equal(plan_of_file(text, &o, &p, &e), 0);
    assert_int_equal(p.n, 4);
    assert_true(p.requests[1].model == 1 && p.requests[3].at_s == 4 && p.seconds == 4);
    infer_plan_free(&p);
    o.rate_per_s = 2;
    assert_int_equal(plan_of_file(text, &o, &p, &e), 0);
    assert_true(fabs(p.requests[3].at_s - 2) < 1e-9);
    infer_plan_free(&p);
    o.only = 1;
    o.rate_per_s = 0;
    assert_int_equal(plan_of_file(text, &o, &p, &e), 0);
    assert_true(p.n == 1 && p.requests[0].at_s == 1);
    infer_plan_free(&p);
    o.only = -1;
    assert_int_equal(plan_of_file("0,c\n", &o, &p, &e), HP_EPARSE);
    assert_non_null(strstr(e.text, "no model \"c\""));
}

TEST(a_body_of_a_length_has_a_mask_of_ones_and_a_head_as_long_as_others)
{
    static const struct infer_tensor inputs[] = {{"input_ids", ND_I64, 2, {-1, -1}},
                                                 {"attention_mask", ND_I64, 2, {-1, -1}}};
    static const struct infer_model model = {"m", inputs, inputs, 2, 1, 1 << 20, false};
    struct buffer said = {0};
    struct err e = {0};
    size_t json_bytes, before = 0;
    infer_metadata_write(&model, &said);
    json_t *metadata = json_loads(buffer_cstr(&said), 0, NULL);
    for (int64_t length = 9317; length > 0; length /= 11) {
        const struct infer_body_ask ask = {
            .seed = 1, .length = length, .mask = "attention_mask", .json_room = before};
        struct buffer body = {0};
        struct infer_request r;
        assert_int_equal(infer_body_make(metadata, &ask, &body, &json_bytes, &e), 0);
        assert_true(before == 0 || json_bytes == before);
        before = json_bytes;
        if (infer_request_read(&model, &body, json_bytes, &r, &e) < 0)
            fail_msg("%s", e.text);
        for (int i = 0; i < 2; i++)
            assert_true(r.inputs[i].dims[0] == 1 && r.inputs[i].dims[1] == length);
        for (int64_t i = 0; i < length; i++)
            assert_int_equal(ndarray_i64(&r.inputs[1], i), 1);
        infer_request_free(&r);
    }
    json_decref(metadata);
    buffer_free(&said);
}

TEST(a_body_has_tensors_that_fit_and_asks_for_its_times)
{
    static const struct infer_tensor inputs[] = {{"pix\"els", ND_F32, 2, {-1, 3}},
                                                 {"ids", ND_I64, 1, {2}}};
    static const struct infer_tensor outputs[] = {{"y", ND_F32, 1, {-1}}};
    static const struct infer_model model = {"m", inputs, outputs, 2, 1, 1024, false};
    struct buffer said = {0}, body = {0};
    static const struct infer_body_ask ask = {.seed = 1, .timeout_us = 5000};
    struct infer_request r;
    struct err e = {0};
    size_t json_bytes;
    infer_metadata_write(&model, &said);
    json_t *metadata = json_loads(buffer_cstr(&said), 0, NULL);
    assert_int_equal(infer_body_make(metadata, &ask, &body, &json_bytes, &e), 0);
    assert_int_equal(body.size, json_bytes + 12 + 16);
    if (infer_request_read(&model, &body, json_bytes, &r, &e) < 0)
        fail_msg("%s", e.text);
    assert_true(r.timings && r.timeout_us == 5000 && r.binary[0]);
    for (int i = 0; i < 3; i++)
        assert_true(fabs(ndarray_f64(&r.inputs[0], i)) <= 1);
    infer_request_free(&r);
    json_decref(metadata);
    metadata = json_pack("{s:[{s:s}]}", "inputs", "name", "x");
    assert_int_equal(infer_body_make(metadata, &ask, &body, &json_bytes, &e), HP_EUNSUPPORTED);
    assert_non_null(strstr(e.text, "\"x\""));
    json_decref(metadata);
    buffer_free(&said);
    buffer_free(&body);
}

/* ---- reports ---- */

enum { REQUESTS = 12 };

struct infer_bed {
    struct infer_arrival requests[REQUESTS];
    struct infer_result results[REQUESTS];
    struct infer_stage stages[2];
    struct infer_options options;
    struct infer_plan plan;
    struct infer_target target;
    struct infer_run run;
    struct infer_report report;
};

/* Ten answers of model a, two to a batch, the last two of which are late; one of b is refused, and
 * one never came back. */
static void infer_bed_make(struct infer_bed *b)
{
    *b = (struct infer_bed){
        .options = infer_options_of(ARRIVALS_UNIFORM, 10, 1.2),
        .stages = {{0, {0, 0}, {0.002, 0.010}, 0.0015, {0.002, 0.011}},
                   {1, {0.010, 0.012}, {0.012, 0.020}, 0.013, {0.014, 0.022}}},
        .plan = {.n = REQUESTS, .seconds = 1.2},
        .target = {.n = 2, .models = {{.name = "a", .slo_s = 0.1}, {.name = "b", .slo_s = 0.1}}},
        .run = {.seconds = 2, .n_causes = 1}};
    for (int i = 0; i < REQUESTS; i++) {
        double at_s = 0.1 * i;
        b->requests[i] = (struct infer_arrival){at_s, i >= 10};
        b->results[i] = (struct infer_result){.outcome = LOAD_DONE,
                                              .cause = -1,
                                              .sent_s = at_s,
                                              .end_s = at_s + (i < 8 ? 0.025 : 0.2),
                                              .came_s = 1000 + at_s,
                                              .batched_s = 0.001,
                                              .total_s = 0.024,
                                              .plan = 1,
                                              .batch = (uint32_t)i / 2,
                                              .samples = 2,
                                              .n_stages = 2,
                                              .stages = b->stages};
    }
    b->results[10] = (struct infer_result){.outcome = LOAD_REFUSED, .end_s = 1.001};
    b->results[11] = (struct infer_result){.outcome = LOAD_OPEN, .cause = -1};
    strcpy(b->run.causes[0].kind, "429 too late");
    b->plan.requests = b->requests;
    b->run.results = b->results;
    b->run.plan = &b->plan;
    b->run.target = &b->target;
    b->report = (struct infer_report){&b->options, &b->run, NULL};
}

static double infer_number_at(const json_t *o, const char *key, const char *inner)
{
    const json_t *v = json_object_get(o, key);
    return json_number_value(inner ? json_object_get(v, inner) : v);
}

static void infer_close_to(double got, double want)
{
    if (!(fabs(got - want) < 1e-9))
        fail_msg("%.12g, expected %.12g", got, want);
}

TEST(attainment_counts_from_arrival_and_what_was_planned_stands_beside_what_was)
{
    struct infer_bed b;
    infer_bed_make(&b);
    json_t *o = infer_report_json(&b.report);
    infer_close_to(infer_number_at(o, "requests", NULL), 12);
    infer_close_to(infer_number_at(o, "done", NULL), 10);
    infer_close_to(infer_number_at(o, "good", NULL), 8);
    infer_close_to(infer_number_at(o, "attainment", NULL), 8.0 / 12);
    infer_close_to(infer_number_at(o, "goodput_per_s", NULL), 8 / 1.2);
    infer_close_to(infer_number_at(o, "refused", NULL), 1);
    infer_close_to(infer_number_at(o, "open", NULL), 1);
    infer_close_to(infer_number_at(o, "in_time_at_coordinator", NULL), 10);
    infer_close_to(infer_number_at(o, "planned_s", "p50"), 0.020);
    infer_close_to(infer_number_at(o, "computed_s", "p50"), 0.022);
    infer_close_to(infer_number_at(o, "off_plan_s", "max"), 0.002);
    infer_close_to(infer_number_at(o, "answer_s", "p99"), 0.002);
    const json_t *stages = json_object_get(o, "stages"), *second = json_array_get(stages, 1);
    assert_int_equal(json_array_size(stages), 2);
    infer_close_to(infer_number_at(second, "transfer_s", "p50"), 0.002);
    infer_close_to(infer_number_at(second, "waiting_s", "p50"), 0.001);
    infer_close_to(infer_number_at(second, "computing_s", "p50"), 0.008);
    infer_close_to(infer_number_at(second, "late_s", "p50"), 0.002);
    const json_t *models = json_object_get(o, "models"), *refused = json_array_get(models, 1);
    assert_int_equal(json_array_size(models), 2);
    infer_close_to(infer_number_at(json_array_get(models, 0), "attainment", NULL), 0.8);
    const json_t *cause = json_array_get(json_object_get(refused, "causes"), 0);
    assert_string_equal(string_member(cause, "cause"), "429 too late");
    infer_close_to(infer_number_at(cause, "count", NULL), 1);
    json_decref(o);
}

TEST(every_request_and_every_batch_is_drawn_once_as_planned_and_as_it_was)
{
    struct infer_bed b;
    char path[] = "/tmp/hp-infer-trace-XXXXXX";
    size_t i, planned = 0, waits = 0, links = 0, refused = 0;
    json_t *event;
    close(mkstemp(path));
    infer_bed_make(&b);
    assert_int_equal(infer_draw(&b.run, "pools", NULL, path, NULL), 0);
    json_t *trace = json_load_file(path, 0, NULL);
    json_array_foreach(json_object_get(trace, "traceEvents"), i, event)
    {
        const char *name = string_member(event, "name");
        if (strcmp(string_member(event, "ph"), "X") != 0)
            continue;
        planned += strstr(name, ", planned") != NULL;
        waits += strstr(name, "waits") != NULL;
        refused += strstr(name, "refused") != NULL;
        links += strncmp(name, "batch", 5) == 0 && !strstr(name, "planned");
    }
    assert_int_equal(planned, 5 * 4); /* two shares, an uplink and a downlink for each of 5 */
    assert_int_equal(links, 5 * 4);
    assert_int_equal(waits, 10);
    assert_int_equal(refused, 1);
    json_decref(trace);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_arrive_in_their_proportions_and_come_again_with_the_seed),
        cmocka_unit_test(a_file_of_models_keeps_its_pace_or_is_stretched),
        cmocka_unit_test(a_body_has_tensors_that_fit_and_asks_for_its_times),
        cmocka_unit_test(a_body_of_a_length_has_a_mask_of_ones_and_a_head_as_long_as_others),
        cmocka_unit_test(
            attainment_counts_from_arrival_and_what_was_planned_stands_beside_what_was),
        cmocka_unit_test(every_request_and_every_batch_is_drawn_once_as_planned_and_as_it_was),
    };
    return cmocka_run_group_tests_name("infer load", tests, NULL, NULL);
}
