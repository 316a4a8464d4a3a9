/* Bodies of the KServe v2 protocol, good and damaged. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/gateway/infer.h"
#include "tests/test.h"

static const struct infer_tensor inputs[] = {
    {"pixels", ND_F32, 3, {-1, 2, 2}},
    {"ids", ND_I64, 1, {2}},
};
static const struct infer_tensor outputs[] = {
    {"classes", ND_F32, 2, {-1, 3}},
    {"sure", ND_BOOL, 1, {-1}},
};
static const struct infer_model model = {"m", inputs, outputs, 2, 2, 1024, false};

static const char both[] =
    "{\"id\":\"a\",\"inputs\":["
    "{\"name\":\"ids\",\"shape\":[2],\"datatype\":\"INT64\",\"data\":[7,-8]},"
    "{\"name\":\"pixels\",\"shape\":[1,2,2],\"datatype\":\"FP32\","
    "\"parameters\":{\"binary_data_size\":16}}],"
    "\"outputs\":[{\"name\":\"sure\",\"parameters\":{\"binary_data\":true}},"
    "{\"name\":\"classes\"}]}";

static const float pixels[4] = {1, 2, 3.5f, -4};

static struct buffer body_of(const char *json, const void *tail, size_t n)
{
    struct buffer b = {0};
    buffer_append(&b, json, strlen(json));
    buffer_append(&b, tail, n);
    return b;
}

TEST(json_and_binary_tensors_are_read_into_the_models_order)
{
    struct infer_request r;
    struct err e = {0};
    struct buffer body = body_of(both, pixels, sizeof pixels);
    assert_int_equal(infer_request_read(&model, &body, sizeof both - 1, &r, &e), 0);
    assert_string_equal(r.id, "a");
    assert_memory_equal(r.inputs[0].data, pixels, sizeof pixels);
    assert_int_equal(ndarray_i64(&r.inputs[1], 0), 7);
    assert_int_equal(ndarray_i64(&r.inputs[1], 1), -8);
    assert_int_equal(r.n_outputs, 2);
    assert_int_equal(r.outputs[0], 1);
    assert_true(r.binary[0] && !r.binary[1]);
    infer_request_free(&r);
}

TEST(tensors_behind_json_of_any_length_stay_where_they_are_where_they_are_copied_anyway)
{
    struct infer_model copied = model;
    copied.copies_inputs = true;
    char json[sizeof both + 8] = "";
    for (size_t spaces = 0; spaces < 8; spaces++) {
        struct infer_request r;
        struct err e = {0};
        snprintf(json, sizeof json, "%s%.*s", both, (int)spaces, "        ");
        for (int copies = 0; copies < 2; copies++) {
            struct buffer body = body_of(json, pixels, sizeof pixels);
            assert_int_equal(
                infer_request_read(copies ? &copied : &model, &body, strlen(json), &r, &e), 0);
            bool in_body = r.inputs[0].data == r.body.data + strlen(json);
            bool aligned = (uintptr_t)(r.body.data + strlen(json)) % sizeof *pixels == 0;
            assert_int_equal(in_body, copies || aligned);
            assert_memory_equal(r.inputs[0].data, pixels, sizeof pixels);
            infer_request_free(&r);
        }
    }
}

TEST(an_answer_has_the_outputs_that_were_asked_for_and_null_for_what_is_no_number)
{
    struct infer_request r;
    struct err e = {0};
    struct buffer body = body_of(both, pixels, sizeof pixels), out = {0};
    float values[3] = {0.5f, 0, 1e-3f};
    bool sure = true;
    const uint32_t nan_bits = 0x7fc00000;
    memcpy(&values[1], &nan_bits, sizeof nan_bits);
    const struct ndarray made[] = {{ND_F32, 2, {1, 3}, 3, values, false},
                                   {ND_BOOL, 1, {1}, 1, &sure, false}};
    assert_int_equal(infer_request_read(&model, &body, sizeof both - 1, &r, &e), 0);
    size_t n = infer_answer_write(&model, &r, made, &out);
    assert_int_equal(out.size, n + 1);
    assert_int_equal(out.data[n], 1);
    out.size = n;
    assert_string_equal(buffer_cstr(&out),
                        "{\"model_name\":\"m\",\"model_version\":\"1\",\"id\":\"a\",\"outputs\":["
                        "{\"name\":\"sure\",\"datatype\":\"BOOL\",\"shape\":[1],"
                        "\"parameters\":{\"binary_data_size\":1}},"
                        "{\"name\":\"classes\",\"datatype\":\"FP32\",\"shape\":[1,3],"
                        "\"data\":[0.5,null,0.00100000005]}]}");
    buffer_free(&out);
    infer_request_free(&r);
}

TEST(what_it_took_is_told_where_it_was_asked_for)
{
    static const char asking[] =
        "{\"parameters\":{\"timings\":true},\"inputs\":["
        "{\"name\":\"ids\",\"shape\":[2],\"datatype\":\"INT64\",\"data\":[7,-8]},"
        "{\"name\":\"pixels\",\"shape\":[1,2,2],\"datatype\":\"FP32\",\"data\":[1,2,3,4]}],"
        "\"outputs\":[{\"name\":\"sure\"}]}";
    static const struct infer_times times = {
        .plan = 3,
        .batch = 17,
        .samples = 4,
        .arrived_ns = 5000000000,
        .sent_ns = 5001000000,
        .answered_ns = 5020000000,
        .deadline_ns = 5100000000,
        .n_stages = 2,
        .stages = {{1, 0, 0, 5002000000, 5004000000, 5001500000, 5002000000, 5004500000},
                   {2, 5004000000, 5006000000, 5006000000, 5010000000, 5006500000, 5007000000,
                    5011000000}}};
    struct infer_request r;
    struct err e = {0};
    struct buffer body = body_of(asking, "", 0), out = {0};
    bool sure = true;
    const struct ndarray made[] = {{ND_F32, 2, {1, 3}, 3, (float[]){1, 2, 3}, false},
                                   {ND_BOOL, 1, {1}, 1, &sure, false}};
    assert_int_equal(infer_request_read(&model, &body, SIZE_MAX, &r, &e), 0);
    assert_true(r.timings && !r.times);
    r.times = malloc(sizeof *r.times);
    *r.times = times;
    infer_answer_write(&model, &r, made, &out);
    assert_non_null(
        strstr(buffer_cstr(&out),
               "],\"timings\":{\"at_s\":5.000000,\"plan\":3,\"batch\":17,\"samples\":4,"
               "\"deadline_s\":0.100000,\"sent_s\":0.001000,\"total_s\":0.020000,\"stages\":["
               "{\"share\":1,\"planned_s\":[0.002000,0.004000],\"arrived_s\":0.001500,"
               "\"ran_s\":[0.002000,0.004500]},"
               "{\"share\":2,\"planned_transfer_s\":[0.004000,0.006000],"
               "\"planned_s\":[0.006000,0.010000],\"arrived_s\":0.006500,"
               "\"ran_s\":[0.007000,0.011000]}]}}"));
    buffer_free(&out);
    infer_request_free(&r);
    body = body_of("{\"parameters\":{\"timings\":1},\"inputs\":[]}", "", 0);
    assert_int_equal(infer_request_read(&model, &body, SIZE_MAX, &r, &e), HP_EINVAL);
    assert_non_null(strstr(e.text, "timings"));
}

TEST(rows_in_rows_are_read_as_one_list)
{
    static const char json[] =
        "{\"inputs\":[{\"name\":\"ids\",\"shape\":[2],\"datatype\":\"INT64\",\"data\":[[1],[2]]},"
        "{\"name\":\"pixels\",\"shape\":[1,2,2],\"datatype\":\"FP32\","
        "\"data\":[[[1,2],[3.5,-4]]]}]}";
    struct infer_request r;
    struct err e = {0};
    struct buffer body = body_of(json, "", 0);
    assert_int_equal(infer_request_read(&model, &body, SIZE_MAX, &r, &e), 0);
    assert_memory_equal(r.inputs[0].data, pixels, sizeof pixels);
    assert_int_equal(r.n_outputs, 2);
    infer_request_free(&r);
}

/* Whatever is changed, a body is read or refused with a reason, and nothing lies beyond it. */
TEST(damaged_bodies_are_read_or_refused_with_a_reason)
{
    unsigned refused = 0;
    for (int round = 0; round < 4000; round++) {
        struct infer_request r;
        struct err e = {0};
        struct buffer body = body_of(both, pixels, sizeof pixels);
        size_t json_bytes = sizeof both - 1;
        for (int k = 0; k < 1 + round % 3; k++)
            body.data[(size_t)rand() % body.size] = (uint8_t)("0123456789\"[]{},:-e "[rand() % 20]);
        if (round % 5 == 0)
            body.size = (size_t)rand() % body.size;
        if (round % 7 == 0)
            json_bytes = (size_t)rand() % (2 * sizeof both);
        int rc = infer_request_read(&model, &body, json_bytes, &r, &e);
        assert_null(body.data);
        assert_true(rc == 0 || e.text[0]);
        refused += rc < 0;
        if (rc == 0)
            assert_true(r.inputs[0].count >= 4 && r.inputs[0].data);
        infer_request_free(&r);
    }
    assert_true(refused > 2000);
}

int main(void)
{
    srand(13);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_and_binary_tensors_are_read_into_the_models_order),
        cmocka_unit_test(
            tensors_behind_json_of_any_length_stay_where_they_are_where_they_are_copied_anyway),
        cmocka_unit_test(
            an_answer_has_the_outputs_that_were_asked_for_and_null_for_what_is_no_number),
        cmocka_unit_test(what_it_took_is_told_where_it_was_asked_for),
        cmocka_unit_test(rows_in_rows_are_read_as_one_list),
        cmocka_unit_test(damaged_bodies_are_read_or_refused_with_a_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
