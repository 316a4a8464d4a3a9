/* Buffers: what they cost, which budget pays, and that no purpose waits for another. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/test.h"
#include "transport/data_pool.h"

enum { KB = 1 << 10, MB = 1 << 20 };

TEST(a_buffer_is_at_most_an_eighth_larger_than_asked)
{
    struct data_pool p;
    data_pool_init(&p, (uint64_t)4 << 30);
    static const size_t sizes[] = {
        1024, 1025, 65537, 1 << 20, (1 << 20) + 24, (4 << 20) + 32, (128 << 20) + 24, 1 << 30};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct data_buffer *b = data_pool_get(&p, POOL_RECEIVED, sizes[i]);
        assert_non_null(b);
        assert_int_equal(b->size, sizes[i]);
        assert_true(b->capacity >= sizes[i]);
        assert_true(b->capacity <= sizes[i] + sizes[i] / 8 + 1);
        assert_int_equal((uintptr_t)b->bytes % 64, 0);
        data_pool_release(&p, b);
    }
    assert_null(data_pool_get(&p, POOL_RECEIVED, ((size_t)1 << 30) + 1));
    data_pool_fini(&p);
}

TEST(frames_to_send_do_not_wait_for_received_ones)
{
    struct data_pool p;
    data_pool_init(&p, 4 * MB);
    struct data_buffer *in[4];
    for (int i = 0; i < 4; i++)
        assert_non_null(in[i] = data_pool_get(&p, POOL_RECEIVED, MB));
    assert_null(data_pool_get(&p, POOL_RECEIVED, MB));
    struct data_buffer *out = data_pool_get(&p, POOL_SENT, MB);
    assert_non_null(out);
    assert_null(data_pool_get(&p, POOL_SENT, MB)); /* a quarter */
    data_pool_release(&p, out);
    for (int i = 0; i < 4; i++)
        data_pool_release(&p, in[i]);
    assert_int_equal(data_pool_out_bytes(&p), 0);
    data_pool_fini(&p);
}

TEST(chunks_take_a_quarter_of_the_room_for_received_frames)
{
    struct data_pool p;
    data_pool_init(&p, 4 * MB);
    enum pool_use chunk = data_pool_use_of(FRAME_CHUNK, MB),
                  batch = data_pool_use_of(FRAME_ACTIVATION, MB);
    struct data_buffer *c = data_pool_get(&p, chunk, MB), *b[3];
    assert_non_null(c);
    assert_null(data_pool_get(&p, chunk, MB));
    for (int i = 0; i < 3; i++)
        assert_non_null(b[i] = data_pool_get(&p, batch, MB));
    assert_null(data_pool_get(&p, batch, MB)); /* chunks count */
    assert_true(data_pool_release(&p, c));     /* and somebody waits */
    assert_non_null(c = data_pool_get(&p, batch, MB));
    data_pool_release(&p, c);
    for (int i = 0; i < 3; i++)
        data_pool_release(&p, b[i]);
    data_pool_fini(&p);
}

TEST(small_payloads_never_wait_for_large_ones)
{
    struct data_pool p;
    data_pool_init(&p, MB);
    struct data_buffer *in = data_pool_get(&p, POOL_RECEIVED, MB),
                       *out = data_pool_get(&p, POOL_SENT, MB), *small[64];
    assert_non_null(in);
    assert_non_null(out);
    for (int i = 0; i < 64; i++)
        assert_non_null(
            small[i] = data_pool_get(
                &p, i % 2 ? POOL_CONTROL_SENT : data_pool_use_of(FRAME_TOKEN, 64 * KB), 64 * KB));
    for (int i = 0; i < 64; i++)
        data_pool_release(&p, small[i]);
    data_pool_release(&p, in);
    data_pool_release(&p, out);
    data_pool_fini(&p);
}

TEST(small_payloads_are_bounded_in_number)
{
    struct data_pool p;
    data_pool_init(&p, MB);
    static struct data_buffer *held[POOL_MAX_CONTROL_BUFFERS];
    for (int i = 0; i < POOL_MAX_CONTROL_BUFFERS; i++)
        assert_non_null(held[i] = data_pool_get(&p, POOL_CONTROL_RECEIVED, 24));
    assert_null(data_pool_get(&p, POOL_CONTROL_RECEIVED, 24));
    struct data_buffer *own = data_pool_get(
        &p, POOL_CONTROL_SENT, 24); /* what others send takes nothing from what is ours to send */
    assert_non_null(own);
    data_pool_release(&p, own);
    for (int i = 0; i < POOL_MAX_CONTROL_BUFFERS; i++)
        data_pool_release(&p, held[i]);
    data_pool_fini(&p);
}

TEST(a_frame_larger_than_the_limit_passes_alone)
{
    struct data_pool p;
    data_pool_init(&p, 600000);
    struct data_buffer *b = data_pool_get(&p, POOL_RECEIVED, MB);
    assert_non_null(b);
    assert_null(data_pool_get(&p, POOL_RECEIVED, 100000));
    assert_true(data_pool_release(&p, b));
    assert_non_null(b = data_pool_get(&p, POOL_RECEIVED, 100000));
    data_pool_release(&p, b);
    data_pool_fini(&p);
}

TEST(the_limit_changes_while_buffers_are_out)
{
    struct data_pool p;
    data_pool_init(&p, 2 * MB);
    struct data_buffer *a = data_pool_get(&p, POOL_RECEIVED, MB),
                       *b = data_pool_get(&p, POOL_RECEIVED, MB), *c;
    assert_null(data_pool_get(&p, POOL_RECEIVED, MB));
    data_pool_resize(&p, 3 * MB);
    assert_non_null(c = data_pool_get(&p, POOL_RECEIVED, MB));
    data_pool_resize(&p, MB);
    data_pool_release(&p, a);
    assert_null(data_pool_get(&p, POOL_RECEIVED, MB));
    data_pool_release(&p, b);
    data_pool_release(&p, c);
    assert_non_null(a = data_pool_get(&p, POOL_RECEIVED, MB));
    data_pool_release(&p, a);
    assert_true(p.cached_bytes <= MB + MB / 4);
    data_pool_fini(&p);
}

TEST(freed_buffers_serve_again_and_make_room_for_other_sizes)
{
    struct data_pool p;
    data_pool_init(&p, 8 * MB);
    struct data_buffer *b = data_pool_get(&p, POOL_RECEIVED, 6 * MB);
    uint8_t *bytes = b->bytes;
    data_pool_release(&p, b);
    b = data_pool_get(&p, POOL_RECEIVED, 6 * MB);
    assert_ptr_equal(b->bytes, bytes);
    data_pool_release(&p, b);
    assert_int_equal(p.cached_bytes, 6 * MB);
    b = data_pool_get(&p, POOL_RECEIVED, 5 * MB); /* the cache goes, the limit stays */
    assert_non_null(b);
    assert_int_equal(p.cached_bytes, 0);
    data_pool_release(&p, b);
    data_pool_fini(&p);
}

TEST(buffers_of_many_sizes_are_kept_no_longer_than_there_was_need_for_at_once)
{
    struct data_pool p;
    data_pool_init(&p, 64 * MB);
    for (size_t i = 0; i < 400; i++) {
        struct data_buffer *b = data_pool_get(&p, POOL_RECEIVED, (1 + i % 20) * MB / 8);
        assert_non_null(b);
        data_pool_release(&p, b);
        assert_true(p.cached_bytes <= 20 * MB / 8);
    }
    struct data_buffer *lately = data_pool_get(&p, POOL_RECEIVED, MB), *other;
    uint8_t *bytes = lately->bytes;
    data_pool_release(&p, lately);
    other = data_pool_get(&p, POOL_RECEIVED, MB + MB / 2); /* what was used last is kept */
    lately = data_pool_get(&p, POOL_RECEIVED, MB);
    assert_ptr_equal(lately->bytes, bytes);
    data_pool_release(&p, lately);
    data_pool_release(&p, other);
    data_pool_fini(&p);
}

TEST(a_reserve_is_there_when_everything_else_is_spent)
{
    struct data_pool p;
    data_pool_init(&p, MB);
    struct data_reserve *r;
    struct err e = {0};
    assert_int_equal(data_pool_reserve(&p, 2, 300000, NULL, &r, &e), 0);
    struct data_buffer *in = data_pool_get(&p, POOL_RECEIVED, MB),
                       *sent = data_pool_get(&p, POOL_SENT, MB);
    struct data_buffer *one = data_reserve_get(r, 300000), *two = data_reserve_get(r, 100);
    assert_non_null(one);
    assert_non_null(two);
    assert_int_equal(two->size, 100);
    assert_null(data_reserve_get(r, 100));
    data_pool_release(&p, one);
    assert_ptr_equal(data_reserve_get(r, 5), one);
    assert_null(data_reserve_get(r, 300001));
    data_pool_release(&p, in);
    data_pool_release(&p, sent);
    data_pool_release(&p, one);
    data_reserve_close(&r);
    assert_null(r);
    assert_true(data_pool_out_bytes(&p) >= 300000); /* `two` is out yet */
    data_pool_release(&p, two);
    assert_int_equal(data_pool_out_bytes(&p), 0);
    data_pool_fini(&p);
}

TEST(reserves_that_make_no_sense_are_refused)
{
    struct data_pool p;
    data_pool_init(&p, MB);
    struct data_reserve *r = NULL;
    struct err e = {0};
    assert_int_equal(data_pool_reserve(&p, 0, 100, NULL, &r, &e), HP_EINVAL);
    assert_int_equal(data_pool_reserve(&p, 1, 0, NULL, &r, &e), HP_EINVAL);
    assert_int_equal(data_pool_reserve(&p, 1, SIZE_MAX, NULL, &r, &e), HP_EINVAL);
    assert_null(r);
    data_pool_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_buffer_is_at_most_an_eighth_larger_than_asked),
        cmocka_unit_test(frames_to_send_do_not_wait_for_received_ones),
        cmocka_unit_test(chunks_take_a_quarter_of_the_room_for_received_frames),
        cmocka_unit_test(small_payloads_never_wait_for_large_ones),
        cmocka_unit_test(small_payloads_are_bounded_in_number),
        cmocka_unit_test(a_frame_larger_than_the_limit_passes_alone),
        cmocka_unit_test(the_limit_changes_while_buffers_are_out),
        cmocka_unit_test(freed_buffers_serve_again_and_make_room_for_other_sizes),
        cmocka_unit_test(buffers_of_many_sizes_are_kept_no_longer_than_there_was_need_for_at_once),
        cmocka_unit_test(a_reserve_is_there_when_everything_else_is_spent),
        cmocka_unit_test(reserves_that_make_no_sense_are_refused),
    };
    return cmocka_run_group_tests_name("data_pool", tests, NULL, NULL);
}
