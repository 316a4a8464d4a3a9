/* Messages of KServe v2 over gRPC, good, damaged and without memory. */
#include <stdlib.h>
#include <string.h>

#include "coordinator/gateway/infer_message.h"
#include "coordinator/gateway/protobuf_write.h"
#include "model/files/protobuf.h"
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

static const float pixels[4] = {1, 2, 3.5f, -4};
static const int64_t ids[2] = {7, -8};

/* An InferInputTensor; `contents` (freed) may be NULL. */
static void tensor_put(struct buffer *out, const char *name, const char *type, const int64_t *shape,
                       int n, struct buffer *contents)
{
    struct buffer t = {0};
    pb_put_text(&t, 1, name);
    pb_put_text(&t, 2, type);
    pb_put_numbers(&t, 3, shape, n);
    if (contents)
        pb_put_message(&t, 5, contents);
    pb_put_message(out, 5, &t);
}

/* Both inputs, in an order that is not the model's. */
static struct buffer raw_message(void)
{
    struct buffer out = {0}, output = {0};
    pb_put_text(&out, 1, "m");
    pb_put_text(&out, 3, "a");
    tensor_put(&out, "ids", "INT64", (int64_t[]){2}, 1, NULL);
    tensor_put(&out, "pixels", "FP32", (int64_t[]){1, 2, 2}, 3, NULL);
    pb_put_text(&output, 1, "sure");
    pb_put_message(&out, 6, &output);
    pb_put_bytes(&out, 7, ids, sizeof ids);
    pb_put_bytes(&out, 7, pixels, sizeof pixels);
    return out;
}

TEST(raw_contents_are_read_into_the_models_order)
{
    struct infer_request r;
    struct err e = {0};
    struct buffer message = raw_message();
    assert_int_equal(infer_message_read(&model, &message, &r, &e), 0);
    assert_null(message.data);
    assert_string_equal(r.id, "a");
    assert_memory_equal(r.inputs[0].data, pixels, sizeof pixels);
    assert_memory_equal(r.inputs[1].data, ids, sizeof ids);
    assert_int_equal(r.n_outputs, 1);
    assert_int_equal(r.outputs[0], 1);
    infer_request_free(&r);
}

TEST(numbers_of_their_own_are_read_packed_and_alone)
{
    struct infer_request r;
    struct err e = {0};
    struct buffer message = {0}, packed = {0}, alone = {0};
    pb_put_bytes(&packed, 6, pixels, sizeof pixels);
    pb_put_number(&alone, 3, (uint64_t)ids[0]);
    pb_put_number(&alone, 3, (uint64_t)ids[1]);
    tensor_put(&message, "pixels", "FP32", (int64_t[]){1, 2, 2}, 3, &packed);
    tensor_put(&message, "ids", "INT64", (int64_t[]){2}, 1, &alone);
    assert_int_equal(infer_message_read(&model, &message, &r, &e), 0);
    assert_memory_equal(r.inputs[0].data, pixels, sizeof pixels);
    assert_memory_equal(r.inputs[1].data, ids, sizeof ids);
    assert_int_equal(r.n_outputs, 2);
    infer_request_free(&r);
}

/* A shape says more than its bytes can fill: that much is not allocated. */
TEST(an_input_of_a_few_bytes_takes_no_memory_of_the_shape_that_it_claims)
{
    struct infer_model large = model;
    struct infer_request r;
    struct err e = {0};
    struct buffer message = {0}, few = {0};
    large.limit_bytes = 1ull << 50;
    pb_put_bytes(&few, 6, pixels, sizeof pixels);
    tensor_put(&message, "pixels", "FP32", (int64_t[]){1ll << 40, 2, 2}, 3, &few);
    assert_int_equal(infer_message_read(&large, &message, &r, &e), HP_EINVAL);
    assert_non_null(strstr(e.text, "pixels: data has"));
}

TEST(an_answer_has_the_outputs_that_were_asked_for_as_raw_contents)
{
    struct infer_request r;
    struct err e = {0};
    struct buffer message = raw_message(), out = {0};
    bool sure = true;
    const struct ndarray made[] = {{ND_F32, 2, {1, 3}, 3, (float[]){1, 2, 3}, false},
                                   {ND_BOOL, 1, {1}, 1, &sure, false}};
    struct pb_field f;
    assert_int_equal(infer_message_read(&model, &message, &r, &e), 0);
    infer_message_write(&model, &r, made, &out);
    struct pb p = pb_of(out.data, out.size);
    int tensors = 0, raw = 0;
    while (pb_next(&p, &f)) {
        tensors += f.number == 5;
        if (f.number == 6) {
            raw++;
            assert_int_equal(pb_size(&f.bytes), 1);
            assert_int_equal(*f.bytes.at, 1);
        }
    }
    assert_false(p.failed);
    assert_true(tensors == 1 && raw == 1);
    buffer_free(&out);
    infer_request_free(&r);
}

TEST(damaged_messages_are_read_or_refused_with_a_reason)
{
    unsigned refused = 0;
    for (int round = 0; round < 20000; round++) {
        struct infer_request r;
        struct infer_message_head head;
        struct err e = {0};
        struct buffer message = raw_message();
        for (int k = 0; k < 1 + round % 3; k++)
            message.data[(size_t)rand() % message.size] = (uint8_t)rand();
        if (round % 5 == 0)
            message.size = 1 + (size_t)rand() % (message.size - 1);
        int rc = infer_message_head(&message, &head, &e);
        assert_true(rc == 0 || e.text[0]);
        e.text[0] = '\0';
        rc = infer_message_read(&model, &message, &r, &e);
        assert_null(message.data);
        assert_true(rc == 0 || e.text[0]);
        refused += rc < 0;
        if (rc == 0)
            assert_true(r.inputs[0].count >= 4 && r.inputs[0].data);
        infer_request_free(&r);
    }
    assert_true(refused > 5000);
}

int main(void)
{
    srand(13);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(raw_contents_are_read_into_the_models_order),
        cmocka_unit_test(numbers_of_their_own_are_read_packed_and_alone),
        cmocka_unit_test(an_input_of_a_few_bytes_takes_no_memory_of_the_shape_that_it_claims),
        cmocka_unit_test(an_answer_has_the_outputs_that_were_asked_for_as_raw_contents),
        cmocka_unit_test(damaged_messages_are_read_or_refused_with_a_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
