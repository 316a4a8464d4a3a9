#include <math.h>
#include <string.h>

#include "common/fs.h"
#include "model/files/npz.h"
#include "tests/test.h"
#include "tests/unit/folder.h"

static void array_fill(struct ndarray *a, enum ndarray_type type, int n_dims, const int64_t *dims)
{
    struct err e;
    assert_int_equal(ndarray_make(a, type, n_dims, dims, UINT64_MAX, &e), 0);
    for (int64_t i = 0; i < a->count; i++)
        ndarray_set_i64(a, i, i % 2);
}

/* An archive of an array of every type, and of one scalar and an empty one. */
static void archive_make(struct npz *z)
{
    static const int64_t dims[] = {2, 3, 5}, none[] = {4, 0};
    struct ndarray a;
    struct err e;
    for (int type = 1; type < ND_TYPE_COUNT; type++) {
        if (!ndarray_type_bytes((enum ndarray_type)type))
            continue;
        array_fill(&a, (enum ndarray_type)type, type % 4, dims);
        assert_int_equal(npz_add(z, ndarray_type_name((enum ndarray_type)type), &a, &e), 0);
    }
    array_fill(&a, ND_F32, 2, none);
    assert_int_equal(npz_add(z, "case/none", &a, &e), 0);
}

TEST(what_is_written_is_read_again)
{
    char folder[256], path[300];
    struct npz written = {0}, read = {0};
    struct err e;
    test_folder_make(folder);
    snprintf(path, sizeof path, "%s/a.npz", folder);
    archive_make(&written);
    assert_int_equal(npz_write(path, &written, &e), 0);
    assert_int_equal(npz_read(path, &read, &e), 0);
    assert_int_equal(read.n_arrays, written.n_arrays);
    for (int i = 0; i < read.n_arrays; i++) {
        const struct ndarray *a = &written.arrays[i].array, *b = &read.arrays[i].array;
        assert_string_equal(read.arrays[i].name, written.arrays[i].name);
        assert_int_equal(a->type, b->type);
        assert_true(ndarray_same_shape(a, b));
        assert_memory_equal(a->data, b->data, ndarray_bytes(a));
    }
    assert_null(npz_find(&read, "none"));
    assert_non_null(npz_find(&read, "case/none"));
    npz_free(&written);
    npz_free(&read);
    test_folder_remove(folder);
}

TEST(what_was_cut_or_flipped_is_refused_or_the_same)
{
    char folder[256], path[300];
    struct npz written = {0};
    struct buffer file = {0};
    struct err e;
    test_folder_make(folder);
    snprintf(path, sizeof path, "%s/a.npz", folder);
    archive_make(&written);
    assert_int_equal(npz_write(path, &written, &e), 0);
    assert_int_equal(fs_file_read(path, SIZE_MAX, &file, &e), 0);
    for (size_t size = 0; size < file.size; size++) {
        struct npz z = {0};
        assert_true(npz_parse("a.npz", file.data, size, &z, &e) < 0);
        npz_free(&z);
    }
    int refused = 0;
    for (size_t at = 0; at < file.size; at++) {
        struct npz z = {0};
        file.data[at] ^= 0x40;
        refused += npz_parse("a.npz", file.data, file.size, &z, &e) < 0;
        file.data[at] ^= 0x40;
        npz_free(&z);
    }
    assert_true(refused > 1000); /* all that is under a checksum */
    npz_free(&written);
    buffer_free(&file);
    test_folder_remove(folder);
}

TEST(numbers_become_integers_toward_zero_and_within_their_range)
{
    struct ndarray a;
    struct err e;
    static const double given[] = {-2.9, 2.9, 1e30, -1e30, NAN};
    static const int64_t wanted[] = {-2, 2, INT64_MAX, INT64_MIN, 0}, dims[] = {5};
    assert_int_equal(ndarray_make(&a, ND_F64, 1, dims, UINT64_MAX, &e), 0);
    for (int i = 0; i < 5; i++) {
        ndarray_set_f64(&a, i, given[i]);
        assert_int_equal(ndarray_i64(&a, i), wanted[i]);
    }
    ndarray_free(&a);
}

TEST(arrays_beyond_their_limit_or_all_bounds_are_refused)
{
    struct ndarray a;
    struct err e;
    static const int64_t large[] = {1 << 30, 1 << 30, 1 << 30}, negative[] = {-1}, some[] = {100};
    assert_int_equal(ndarray_make(&a, ND_F32, 3, large, UINT64_MAX, &e), HP_EINVAL);
    assert_int_equal(ndarray_make(&a, ND_F32, 1, negative, UINT64_MAX, &e), HP_EINVAL);
    assert_int_equal(ndarray_make(&a, ND_F32, 1, some, 399, &e), HP_ELIMIT);
    assert_int_equal(ndarray_make(&a, ND_F32, ND_DIMS_MAX + 1, some, UINT64_MAX, &e), HP_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read_again),
        cmocka_unit_test(what_was_cut_or_flipped_is_refused_or_the_same),
        cmocka_unit_test(numbers_become_integers_toward_zero_and_within_their_range),
        cmocka_unit_test(arrays_beyond_their_limit_or_all_bounds_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
