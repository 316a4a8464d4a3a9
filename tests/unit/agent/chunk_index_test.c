#include <string.h>

#include "agent/chunk_index.h"
#include "tests/test.h"

enum { N = 500 };

TEST(every_chunk_is_found_by_its_digest_with_those_that_are_the_same)
{
    static struct digest digests[N];
    static struct manifest_chunk chunks[N];
    struct manifest m = {.chunks = {chunks, N}};
    struct chunk_index x;
    const uint32_t *numbers;
    for (uint32_t i = 0; i < N; i++) {
        uint32_t content = i % 10 == 0 ? 0 : i; /* each tenth is the same */
        digests[i] = digest_of(&content, sizeof content);
        chunks[i] = (struct manifest_chunk){.digest = {digests[i].bytes, DIGEST_BYTES}};
    }
    assert_int_equal(chunk_index_make(&m, &x, NULL), 0);
    for (uint32_t i = 0; i < N; i++) {
        size_t n = chunk_index_find(&x, digests[i].bytes, &numbers);
        assert_int_equal(n, i % 10 == 0 ? N / 10 : 1);
        for (size_t k = 0; k < n; k++)
            assert_int_equal(numbers[k], i % 10 == 0 ? 10 * k : i);
    }
    struct digest none = digest_of("none", 4);
    assert_int_equal(chunk_index_find(&x, none.bytes, &numbers), 0);
    memset(none.bytes, 0xFF, sizeof none.bytes);
    assert_int_equal(chunk_index_find(&x, none.bytes, &numbers), 0);
    memset(none.bytes, 0, sizeof none.bytes);
    assert_int_equal(chunk_index_find(&x, none.bytes, &numbers), 0);
    chunk_index_free(&x);
}

TEST(a_model_without_chunks_has_none)
{
    struct manifest m = {0};
    struct chunk_index x;
    struct digest d = digest_of("x", 1);
    const uint32_t *numbers;
    assert_int_equal(chunk_index_make(&m, &x, NULL), 0);
    assert_int_equal(chunk_index_find(&x, d.bytes, &numbers), 0);
    chunk_index_free(&x);
    assert_int_equal(chunk_index_find(&x, d.bytes, &numbers), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_chunk_is_found_by_its_digest_with_those_that_are_the_same),
        cmocka_unit_test(a_model_without_chunks_has_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
