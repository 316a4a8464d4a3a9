/* Pages are counted once, whoever shares them, and all are given back. */
#include <stdlib.h>

#include "common/env.h"
#include "common/kv_account.h"
#include "tests/test.h"

enum { PAGE = KV_PAGE_TOKENS };

TEST(what_is_shared_counts_once_until_the_last_leaves)
{
    struct kv_account a = {0};
    struct kv_holding one = {0}, two = {0}, three = {0};
    assert_true(kv_account_open(&a, &one, 10 * PAGE, NULL, 0));
    assert_int_equal(a.used, 10);
    assert_int_equal(kv_account_need(10 * PAGE, 3 * PAGE + 5), 7);
    assert_true(kv_account_open(&a, &two, 10 * PAGE, &one, 3 * PAGE + 5));
    assert_int_equal(a.used, 17);
    assert_int_equal(kv_account_alone(&a, &one), 7);
    kv_account_keep(&a, &one, 5 * PAGE - 1);
    assert_int_equal(a.used, 12);
    assert_int_equal(a.used_growing, 10);
    assert_int_equal(kv_account_growth(&a, 10 * PAGE, &one, 5 * PAGE - 1), 7);
    assert_true(kv_account_open(&a, &three, 10 * PAGE, &one, 4 * PAGE));
    assert_int_equal(a.used, 18);
    assert_int_equal(a.used_growing, 17);
    kv_account_keep(&a, &one, 3 * PAGE); /* shorter: the fourth page stays with the third */
    assert_int_equal(a.used, 17);
    assert_int_equal(kv_account_alone(&a, &one), 0);
    kv_account_close(&a, &one);
    assert_int_equal(a.used, 17);
    kv_account_close(&a, &three);
    assert_int_equal(a.used, 10);
    kv_account_close(&a, &two);
    assert_int_equal(a.used + a.used_growing, 0);
    kv_account_free(&a);
}

TEST(a_thousand_sequences_with_a_common_prompt_count_it_once)
{
    enum { N = 1000, PROMPT = 2000, ANSWER = 100 };
    struct kv_account a = {0};
    struct kv_holding *h = calloc(N, sizeof *h);
    for (int i = 0; i < N; i++)
        assert_true(
            kv_account_open(&a, &h[i], PROMPT + ANSWER, i ? &h[0] : NULL, i ? PROMPT - 1 : 0));
    uint32_t whole = (PROMPT - 1) / PAGE, all = kv_pages_for(PROMPT + ANSWER);
    assert_int_equal(a.used, whole + N * (all - whole));
    for (int i = 0; i < N; i++)
        kv_account_close(&a, &h[i]);
    assert_int_equal(a.used, 0);
    kv_account_free(&a);
    free(h);
}

/* Whatever is opened, kept and closed: the counts are those of the pages that somebody has. */
TEST(counts_agree_with_a_count_by_hand)
{
    enum { N = 24, STEPS = 4000 };
    struct kv_account a = {0};
    struct kv_holding h[N] = {0};
    uint64_t random = 5;
    for (int step = 0; step < STEPS; step++) {
        struct kv_holding *own = &h[random_next(&random) % N], *from = &h[random_next(&random) % N];
        uint64_t tokens = 1 + random_next(&random) % (20 * PAGE);
        if (own->pages && random_next(&random) % 3)
            kv_account_close(&a, own);
        else if (own->pages)
            kv_account_keep(&a, own, tokens);
        else if (from->n_pages && from != own) {
            uint64_t most = (uint64_t)from->n_pages * PAGE;
            assert_true(kv_account_open(&a, own, tokens, from, most < tokens ? most : tokens));
        } else
            assert_true(kv_account_open(&a, own, tokens, NULL, 0));
        uint32_t used = 0, growing = 0;
        for (uint32_t p = 0; p < a.n_pages; p++) {
            uint32_t all = 0, live = 0;
            for (int i = 0; i < N; i++)
                for (uint32_t k = 0; k < h[i].n_pages; k++) {
                    all += h[i].pages[k] == p;
                    live += h[i].pages[k] == p && !h[i].kept;
                }
            used += all > 0;
            growing += live > 0;
        }
        assert_int_equal(a.used, used);
        assert_int_equal(a.used_growing, growing);
    }
    for (int i = 0; i < N; i++)
        kv_account_close(&a, &h[i]);
    assert_int_equal(a.used, 0);
    kv_account_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_shared_counts_once_until_the_last_leaves),
        cmocka_unit_test(a_thousand_sequences_with_a_common_prompt_count_it_once),
        cmocka_unit_test(counts_agree_with_a_count_by_hand),
    };
    return cmocka_run_group_tests_name("kv_account", tests, NULL, NULL);
}
