/* What agents tell of chains that they have spilled, truly or not. */
#include <stdlib.h>

#include "coordinator/spilled_pages.h"
#include "tests/unit/coordinator/deployment_fixture.h"

enum { MANY = 280000 };

static struct digest name_of(uint32_t n)
{
    struct digest d = {{0}};
    memcpy(d.bytes, &n, sizeof n);
    return d;
}

/* Pages [first, first + n) as chains of a thousand. */
static void tell(struct fixture *f, struct deployment *d, int stage, uint32_t first, uint32_t n,
                 bool anew, bool gone)
{
    struct digest *pages = calloc(n, sizeof *pages);
    struct message_spill *chains = calloc(n / 1000 + 1, sizeof *chains);
    size_t n_chains = 0;
    for (uint32_t i = 0; i < n; i++)
        pages[i] = name_of(first + i);
    for (uint32_t i = 0; i < n; i += 1000) {
        size_t here = n - i < 1000 ? n - i : 1000;
        chains[n_chains++] = (struct message_spill){
            {(const uint8_t *)(pages + i), here * sizeof *pages}, false, gone};
    }
    const struct message_spills m = {.deployment = d->id,
                                     .generation = d->generation,
                                     .stage = (uint64_t)stage,
                                     .anew = anew,
                                     .chains = {chains, n_chains},
                                     .memory_bytes_per_s = -1,
                                     .disk_bytes_per_s = 1e300};
    spilled_pages_told(f->core, d->stages[stage].agent, &m);
    free(chains);
    free(pages);
}

/* A file of these pages came, or went. */
static void tell_file(struct fixture *f, struct deployment *d, int stage, uint32_t first,
                      uint32_t n, bool gone)
{
    struct digest pages[8];
    assert_true(n <= 8);
    for (uint32_t i = 0; i < n; i++)
        pages[i] = name_of(first + i);
    const struct message_spill chain = {{(const uint8_t *)pages, n * sizeof *pages}, true, gone};
    const struct message_spills m = {.deployment = d->id,
                                     .generation = d->generation,
                                     .stage = (uint64_t)stage,
                                     .chains = {(void *)&chain, 1}};
    spilled_pages_told(f->core, d->stages[stage].agent, &m);
}

static bool begins(const struct deployment *d, uint32_t page)
{
    struct digest name = name_of(page);
    const struct spill_node *n = spilled_page_find(d->spills, &name);
    return n && spilled_page_begins(d->spills, n);
}

static struct deployment *spilling(struct fixture *f)
{
    static const uint32_t before[8][MODEL_KV_GROUPS];
    struct deployment *d = serving(f);
    d->model->facts.kv_before = before;
    assert_int_equal(d->n_stages, 2);
    return d;
}

TEST(a_page_is_there_when_all_stages_have_it)
{
    struct fixture f;
    struct deployment *d = spilling(&f);
    tell(&f, d, 0, 0, 10, true, false);
    assert_int_equal(spilled_pages_totals(d).pages, 0);
    tell(&f, d, 1, 5, 10, true, false);
    assert_int_equal(spilled_pages_totals(d).pages, 5);
    tell(&f, d, 0, 9, 1, false, true);
    assert_int_equal(spilled_pages_totals(d).pages, 4);
    tell(&f, d, 0, 9, 1, false, true); /* twice */
    tell(&f, d, 0, 9, 1, false, false);
    assert_int_equal(spilled_pages_totals(d).pages, 5);
    tell(&f, d, 1, 7, 1, true, false);
    assert_int_equal(spilled_pages_totals(d).pages, 1);
    fixture_close(&f);
}

TEST(a_file_begins_where_every_stage_has_one_that_begins_there)
{
    struct fixture f;
    struct deployment *d = spilling(&f);
    for (int i = 0; i < 2; i++)
        tell_file(&f, d, i, 0, 4, false);
    tell_file(&f, d, 0, 4, 2, false);
    assert_true(begins(d, 0) && !begins(d, 1) && !begins(d, 4));
    tell_file(&f, d, 1, 4, 2, false);
    assert_true(begins(d, 4) && !begins(d, 5));
    tell_file(&f, d, 1, 4, 2, true);
    assert_false(begins(d, 4));
    fixture_close(&f);
}

/* One that tells of pages without end takes neither memory without end nor the others' place. */
TEST(who_tells_of_too_many_pages_keeps_no_others_out)
{
    struct fixture f;
    struct deployment *d = spilling(&f);
    tell(&f, d, 0, 0, MANY, true, false);
    tell(&f, d, 1, MANY, 100, true, false);
    assert_int_equal(spilled_pages_totals(d).pages, 0);
    tell(&f, d, 0, 0, 100, false, true);
    tell(&f, d, 0, MANY, 200, false, false);
    assert_int_equal(spilled_pages_totals(d).pages, 100);
    tell(&f, d, 1, 0, MANY, false, false);
    assert_true(spilled_pages_totals(d).pages < MANY / 2);
    fixture_close(&f);
}

TEST(who_is_believed_for_nothing_again_and_again_is_believed_no_more)
{
    struct fixture f;
    struct deployment *d = spilling(&f);
    for (int i = 0; i < 2; i++)
        tell(&f, d, i, 0, 40, true, false);
    for (uint32_t i = 0; i < 16; i++) {
        struct digest page = name_of(i);
        spilled_pages_strike(d, &page);
    }
    assert_int_equal(spilled_pages_totals(d).pages, 24);
    d->spill_counts.hits++; /* one that was read well makes up for one that was not */
    for (uint32_t i = 16; i < 18; i++) {
        struct digest page = name_of(i);
        assert_int_equal(spilled_pages_totals(d).pages, 24 - (i - 16));
        spilled_pages_strike(d, &page);
    }
    assert_int_equal(spilled_pages_totals(d).pages, 0);
    d->generation++;
    for (int i = 0; i < 2; i++)
        tell(&f, d, i, 0, 40, true, false);
    assert_int_equal(spilled_pages_totals(d).pages, 40);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_is_there_when_all_stages_have_it),
        cmocka_unit_test(a_file_begins_where_every_stage_has_one_that_begins_there),
        cmocka_unit_test(who_tells_of_too_many_pages_keeps_no_others_out),
        cmocka_unit_test(who_is_believed_for_nothing_again_and_again_is_believed_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
