#include <stdlib.h>
#include <string.h>

#include "tests/test.h"
#include "transport/frame_tensors.h"

static const struct frame_leg two_legs[] = {{3, 1, 10, 20, 30, 40, 50}, {7, 2, 60, 70, 0, 0, 0}};

/* A payload of two tensors on two legs; what is returned is freed by the caller. */
static uint8_t *payload_make(struct frame_header *h, struct frame_tensor tensors[2])
{
    static const float values[6] = {1, 2, 3, 4, 5, 6};
    static const uint8_t bytes[5] = {9, 8, 7, 6, 5};
    tensors[0] = (struct frame_tensor){1, 2, {2, 3}, values, sizeof values};
    tensors[1] = (struct frame_tensor){2, 1, {5}, bytes, sizeof bytes};
    *h = (struct frame_header){.kind = FRAME_TENSORS, .n_runs = 2, .n_tokens = 2};
    h->payload_bytes = frame_tensors_size(2, tensors, 2);
    uint8_t *payload = malloc(h->payload_bytes);
    assert_non_null(payload);
    frame_tensors_encode(two_legs, 2, tensors, 2, payload);
    return payload;
}

TEST(legs_and_tensors_come_back_as_they_went)
{
    struct frame_header h;
    struct frame_tensor sent[2], got[4];
    struct frame_leg legs[FRAME_MAX_LEGS];
    uint8_t *payload = payload_make(&h, sent);
    int n = 0;
    assert_int_equal(frame_tensors_decode(&h, payload, legs, got, 4, &n, NULL), 0);
    assert_int_equal(n, 2);
    assert_memory_equal(legs, two_legs, sizeof two_legs);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(got[i].type, sent[i].type);
        assert_int_equal(got[i].n_dims, sent[i].n_dims);
        assert_memory_equal(got[i].dims, sent[i].dims, sent[i].n_dims * sizeof(int64_t));
        assert_int_equal(got[i].bytes, sent[i].bytes);
        assert_memory_equal(got[i].data, sent[i].data, sent[i].bytes);
        assert_int_equal(((const uint8_t *)got[i].data - payload) % FRAME_TENSOR_ALIGNMENT, 0);
    }
    free(payload);
}

TEST(what_does_not_add_up_is_refused)
{
    struct frame_header h;
    struct frame_tensor sent[2], got[2];
    struct frame_leg legs[FRAME_MAX_LEGS];
    uint8_t *payload = payload_make(&h, sent);
    const uint64_t whole = h.payload_bytes;
    struct err e;
    int n;
    for (h.payload_bytes = 0; h.payload_bytes < whole; h.payload_bytes++)
        assert_int_equal(frame_tensors_decode(&h, payload, legs, got, 2, &n, &e), HP_EPROTO);
    assert_int_equal(frame_tensors_decode(&h, payload, legs, got, 1, &n, &e), HP_EPROTO);
    h.n_runs = FRAME_MAX_LEGS + 1;
    assert_int_equal(frame_tensors_decode(&h, payload, legs, got, 2, &n, &e), HP_EPROTO);
    h.n_runs = 2;
    h.first_position = 3;
    assert_int_equal(frame_tensors_decode(&h, payload, legs, got, 2, &n, &e), HP_EPROTO);
    h.first_position = 2;
    h.n_tokens = 0;
    assert_int_equal(frame_tensors_decode(&h, payload, legs, got, 2, &n, &e), HP_EPROTO);
    free(payload);
}

TEST(what_a_frame_cannot_hold_has_no_size)
{
    struct frame_tensor big[2] = {{.bytes = FRAME_MAX_PAYLOAD_BYTES},
                                  {.bytes = FRAME_MAX_PAYLOAD_BYTES}};
    assert_int_equal(frame_tensors_size(1, big, 1), 0);
    assert_int_equal(frame_tensors_size(1, big, 2), 0);
    big[0].bytes = UINT64_MAX;
    assert_int_equal(frame_tensors_size(1, big, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(legs_and_tensors_come_back_as_they_went),
        cmocka_unit_test(what_does_not_add_up_is_refused),
        cmocka_unit_test(what_a_frame_cannot_hold_has_no_size),
    };
    return cmocka_run_group_tests_name("frame_tensors", tests, NULL, NULL);
}
