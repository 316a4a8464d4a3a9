/* What is spilled is not lost, and never taken for read, where memory is short. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/spill_shelf.h"
#include "common/log.h"
#include "tests/unit/faults.h"

static const struct digest identity = {{7}}, pages[] = {{{8}}, {{9}}};

static void changed(void *ctx, const struct spill_entry *x, bool disk, bool gone)
{
    (void)ctx, (void)x, (void)disk, (void)gone;
}

static struct spill_shelf shelf_in(const char *folder, atomic_ullong *counted)
{
    struct spill_shelf s = {
        .memory_limit = 0, .disk_limit = 1 << 20, .counted = counted, .changed = changed};
    snprintf(s.folder, sizeof s.folder, "%s", folder);
    return s;
}

/* Found again, and read. */
static int shelf_used(void *folder)
{
    atomic_ullong counted = 0;
    struct spill_shelf s = shelf_in(folder, &counted);
    struct err e = {0};
    int rc = spill_shelf_open(&s, &e);
    struct spill_found *i =
        rc == 0 && s.n_entries > 1 ? spill_shelf_get(&s, &identity, 2, &pages[1], 0, &e) : NULL;
    if (rc == 0 && s.n_entries > 1 && !i)
        rc = e.code;
    else if (rc == 0 && !i)
        rc = HP_ENOMEM; /* it was not found, and is there the next time */
    assert_int_equal(s.dropped, 0);
    assert_true(i || rc < 0);
    assert_true(!i || i->n == 2);
    spill_found_release(i);
    spill_shelf_close(&s, false);
    return rc;
}

TEST(what_no_memory_is_there_for_stays_where_it_is)
{
    char folder[] = "/tmp/hp-spill-XXXXXX", command[80];
    struct kv_shape shape = {.n_groups = 1, .groups = {{0, 1, 0, 32, KV_F16}}};
    struct err e = {0};
    atomic_ullong counted = 0;
    uint8_t *keys;
    log_set_level(LOG_ERROR);
    assert_non_null(mkdtemp(folder));
    struct spill_shelf s = shelf_in(folder, &counted);
    assert_int_equal(spill_shelf_open(&s, &e), 0);
    for (uint32_t n = 1; n <= 2; n++) { /* the second needs the first */
        struct spill_head h = spill_head_whole(&identity, pages, n, &shape);
        struct spill_image *i = spill_image_make(&h, &counted, &keys);
        memset(keys, 1, n * KV_PAGE_TOKENS * 32);
        spill_shelf_put(&s, i);
    }
    spill_shelf_close(&s, true);
    faults_each("spill shelf", shelf_used, folder);
    assert_int_equal(shelf_used(folder), 0);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_no_memory_is_there_for_stays_where_it_is)};
    return cmocka_run_group_tests_name("spill_shelf_faults", tests, NULL, NULL);
}
