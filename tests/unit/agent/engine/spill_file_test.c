#include <stdlib.h>
#include <string.h>

#include "agent/engine/spill_file.h"
#include "tests/test.h"

enum { PAGES = 2 };

static struct spill_head head_make(struct digest pages[PAGES])
{
    pages[0] = digest_of("first", 5);
    pages[1] = digest_of("second", 6);
    struct digest identity = digest_of("model", 5);
    struct kv_shape shape = {.n_groups = 1, .groups = {{2, 3, 0, 32, KV_F16}}};
    return spill_head_whole(&identity, pages, PAGES, &shape);
}

static void file_make(struct buffer *b, const struct spill_head *h)
{
    size_t n = 3 * PAGES * KV_PAGE_TOKENS * 32;
    uint8_t *keys = spill_file_begin(b, h);
    for (size_t i = 0; i < n; i++)
        keys[i] = (uint8_t)(i * 31);
    spill_file_seal(b->data, b->size);
    assert_int_equal(b->size, spill_file_bytes(h));
}

TEST(what_was_spilled_comes_back)
{
    struct digest pages[PAGES];
    struct spill_head h = head_make(pages), got;
    struct buffer b = {0};
    struct err e = {0};
    size_t begin;
    file_make(&b, &h);
    assert_int_equal(spill_file_check(b.data, b.size, &e), 0);
    assert_int_equal(spill_file_head(b.data, b.size, &got, &begin, &e), 0);
    assert_memory_equal(&got.identity, &h.identity, sizeof h.identity);
    assert_int_equal(got.n_pages, PAGES);
    assert_memory_equal(got.pages, pages, sizeof pages);
    assert_true(spill_shape_same(&got.shape, &h.shape));
    struct kv_cursor at = {0};
    struct kv_range r;
    unsigned n = 0;
    for (size_t k = 0; spill_file_next(&got, &at, &r); k += KV_PAGE_TOKENS * 32, n++) {
        assert_int_equal(r.n_blocks, 1);
        assert_int_equal(r.count, KV_PAGE_TOKENS);
        assert_int_equal(b.data[begin + k + 1], (uint8_t)((k + 1) * 31));
    }
    assert_int_equal(n, 3 * PAGES);
    buffer_free(&b);
}

TEST(a_file_cut_short_or_flipped_anywhere_is_refused)
{
    struct digest pages[PAGES];
    struct spill_head h = head_make(pages);
    struct buffer b = {0};
    struct err e = {0};
    file_make(&b, &h);
    for (size_t i = 0; i < b.size; i += 61) {
        assert_int_equal(spill_file_check(b.data, i, &e), HP_EPARSE);
        b.data[i] ^= 4;
        assert_int_equal(spill_file_check(b.data, b.size, &e), HP_EPARSE);
        b.data[i] ^= 4;
    }
    uint8_t *longer = malloc(b.size + 1);
    memcpy(longer, b.data, b.size);
    longer[b.size] = 0;
    assert_int_equal(spill_file_check(longer, b.size + 1, &e), HP_EPARSE);
    free(longer);
    buffer_free(&b);
}

TEST(shapes_differ_by_layers_format_and_width)
{
    struct kv_shape a = {.n_groups = 1, .groups = {{2, 3, 0, 32, KV_F16}}}, b = a;
    assert_true(spill_shape_same(&a, &b));
    b.groups[0].first_block++;
    assert_false(spill_shape_same(&a, &b));
    b = a;
    b.groups[0].format = KV_F32;
    assert_false(spill_shape_same(&a, &b));
    b = a;
    b.n_groups = 2;
    assert_false(spill_shape_same(&a, &b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_spilled_comes_back),
        cmocka_unit_test(a_file_cut_short_or_flipped_anywhere_is_refused),
        cmocka_unit_test(shapes_differ_by_layers_format_and_width),
    };
    return cmocka_run_group_tests_name("spill_file", tests, NULL, NULL);
}
