#include <malloc.h>
#include <stdbool.h>
#include <stdlib.h>

#include "common/heap.h"
#include "tests/test.h"

/* Where a sanitizer has replaced malloc, this is always the same. */
static size_t mapped_bytes(void)
{
    return mallinfo2().hblkhd;
}

TEST(large_blocks_go_back_whatever_was_freed_before)
{
    heap_return_large();
    size_t before = mapped_bytes();
    char *volatile larger = malloc(16 << 20);
    bool counts = mapped_bytes() != before;
    free(larger);
    char *volatile block = malloc(HEAP_LARGE_BYTES);
    assert_non_null(block);
    size_t during = mapped_bytes();
    free(block);
    assert_int_equal(mapped_bytes(), before);
    assert_true(!counts || during >= before + HEAP_LARGE_BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_blocks_go_back_whatever_was_freed_before),
    };
    return cmocka_run_group_tests_name("heap", tests, NULL, NULL);
}
