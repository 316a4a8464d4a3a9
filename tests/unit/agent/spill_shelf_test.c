/* The shelf of what is spilled: limits of memory and disk, what is found after a restart, and files
 * that are not what was written. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/spill_shelf.h"
#include "common/fs.h"
#include "common/log.h"
#include "tests/test.h"

enum { PAGES = 2, KEYS = PAGES * KV_PAGE_TOKENS * 32 };
static const uint64_t plenty = 1 << 30;

struct spill_shelf_fixture {
    struct spill_shelf shelf;
    atomic_ullong counted;
    int come, gone;
    char folder[64];
};

static void changed(void *ctx, const struct spill_entry *x, bool disk, bool gone)
{
    struct spill_shelf_fixture *f = ctx;
    (void)x, (void)disk;
    *(gone ? &f->gone : &f->come) += 1;
}

static void shelf_open(struct spill_shelf_fixture *f, uint64_t memory, uint64_t disk)
{
    struct err e = {0};
    f->shelf = (struct spill_shelf){.memory_limit = memory,
                                    .disk_limit = disk,
                                    .save_most_ns = UINT64_C(60000000000),
                                    .counted = &f->counted,
                                    .changed = changed,
                                    .ctx = f};
    snprintf(f->shelf.folder, sizeof f->shelf.folder, "%s", f->folder);
    assert_int_equal(spill_shelf_open(&f->shelf, &e), 0);
}

static int setup(void **state)
{
    struct spill_shelf_fixture *f = calloc(1, sizeof *f);
    log_set_level(LOG_ERROR);
    snprintf(f->folder, sizeof f->folder, "/tmp/hp-spill-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    *state = f;
    return 0;
}

/* The path of the n-th file; returns how many there are. */
static int files_of(const struct spill_shelf_fixture *f, char path[400])
{
    DIR *d = opendir(f->folder);
    int n = 0;
    for (const struct dirent *e; (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.') {
            snprintf(path, 400, "%s/%s", f->folder, e->d_name);
            n++;
        }
    closedir(d);
    return n;
}

static int teardown(void **state)
{
    struct spill_shelf_fixture *f = *state;
    char path[400];
    assert_int_equal(f->counted, 0);
    while (files_of(f, path))
        unlink(path);
    rmdir(f->folder);
    free(f);
    return 0;
}

static struct digest name_of(int chain, uint32_t page)
{
    int words[2] = {chain, (int)page};
    return digest_of(words, sizeof words);
}

static const struct digest identity = {{7}};

/* Chain n: of the same first page as all others with its tens. */
static struct spill_image *image_make(struct spill_shelf_fixture *f, int chain, uint32_t n_pages)
{
    struct digest pages[4];
    for (uint32_t i = 0; i < n_pages; i++)
        pages[i] = name_of(i ? chain : chain / 10, i);
    struct spill_head h = {
        identity, n_pages, pages, {.n_groups = 1, .groups = {{0, 1, 0, 32, KV_F16}}}};
    uint8_t *keys;
    struct spill_image *i = spill_image_make(&h, &f->counted, &keys);
    memset(keys, chain, n_pages * KV_PAGE_TOKENS * 32);
    return i;
}

static bool has(struct spill_shelf_fixture *f, int chain)
{
    struct digest page = name_of(chain, PAGES - 1);
    struct err e = {0};
    struct spill_image *i = spill_shelf_get(&f->shelf, &identity, PAGES, &page, &e);
    if (!i)
        return false;
    assert_int_equal(i->b.data[i->b.size - DIGEST_BYTES - 1], (uint8_t)chain);
    spill_image_release(i);
    return true;
}

TEST(what_is_wanted_least_goes_to_disk_and_then_away)
{
    struct spill_shelf_fixture *f = *state;
    struct spill_image *one = image_make(f, 11, PAGES);
    uint64_t bytes = one->bytes;
    char path[400];
    shelf_open(f, 2 * bytes, 2 * bytes);
    spill_shelf_put(&f->shelf, 1, one);
    spill_shelf_put(&f->shelf, 1, image_make(f, 22, PAGES));
    assert_int_equal(f->shelf.disk_bytes, 0);
    assert_true(has(f, 11));
    spill_shelf_put(&f->shelf, 1, image_make(f, 33, PAGES));
    assert_int_equal(f->shelf.memory_bytes, 2 * bytes);
    assert_int_equal(f->shelf.disk_bytes, bytes); /* 22: 11 was wanted since */
    assert_true(has(f, 11) && has(f, 22) && has(f, 33));
    spill_shelf_put(&f->shelf, 1, image_make(f, 44, PAGES));
    spill_shelf_put(&f->shelf, 1, image_make(f, 55, PAGES));
    assert_int_equal(files_of(f, path), 2);
    assert_int_equal(f->shelf.n_entries, 4);
    assert_false(has(f, 11));
    assert_int_equal(f->come - f->gone, 4);
    spill_shelf_close(&f->shelf, false);
}

TEST(a_longer_chain_takes_the_place_of_its_beginning)
{
    struct spill_shelf_fixture *f = *state;
    shelf_open(f, plenty, plenty);
    spill_shelf_put(&f->shelf, 1, image_make(f, 11, 1));
    spill_shelf_put(&f->shelf, 1, image_make(f, 12, PAGES));
    assert_int_equal(f->shelf.n_entries, 1);
    int come = f->come, gone = f->gone;
    spill_shelf_put(&f->shelf, 2, image_make(f, 12, PAGES)); /* there already, and told again */
    assert_true(f->come == come + 1 && f->gone == gone + 1);
    spill_shelf_put(&f->shelf, 1, image_make(f, 13, PAGES)); /* begins alike */
    assert_int_equal(f->shelf.n_entries, 2);
    spill_shelf_close(&f->shelf, false);
}

TEST(what_was_spilled_is_found_after_a_restart)
{
    struct spill_shelf_fixture *f = *state;
    struct digest other = name_of(99, PAGES - 1), page = name_of(11, PAGES - 1);
    struct err e = {0};
    char path[400];
    struct stat st;
    shelf_open(f, plenty, plenty);
    spill_shelf_put(&f->shelf, 1, image_make(f, 11, PAGES));
    spill_shelf_close(&f->shelf, true);
    assert_int_equal(files_of(f, path), 1);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    shelf_open(f, plenty, plenty);
    assert_true(has(f, 11));
    assert_true(f->shelf.disk_bytes_per_s > 0);
    assert_null(spill_shelf_get(&f->shelf, &identity, PAGES, &other, &e));
    assert_int_equal(e.code, HP_ENOENT);
    assert_null(spill_shelf_get(&f->shelf, &other, PAGES, &page, &e)); /* another model's */
    spill_shelf_close(&f->shelf, false);
    shelf_open(f, plenty, 0); /* nothing is to be on disk any more */
    assert_int_equal(f->shelf.n_entries, 0);
    assert_int_equal(files_of(f, path), 0);
    spill_shelf_close(&f->shelf, false);
}

/* What was wanted last is saved first, and no older one takes the place of a newer. */
TEST(the_end_saves_what_was_wanted_last_and_takes_no_longer_than_it_may)
{
    struct spill_shelf_fixture *f = *state;
    struct spill_image *one = image_make(f, 11, PAGES);
    uint64_t bytes = one->bytes;
    char path[400];
    shelf_open(f, plenty, 2 * bytes);
    spill_shelf_put(&f->shelf, 1, one);
    for (int i = 2; i <= 4; i++)
        spill_shelf_put(&f->shelf, 1, image_make(f, 11 * i, PAGES));
    assert_true(has(f, 11));
    spill_shelf_close(&f->shelf, true);
    shelf_open(f, plenty, plenty);
    assert_int_equal(f->shelf.n_entries, 2);
    assert_true(has(f, 11) && has(f, 44));
    spill_shelf_put(&f->shelf, 1, image_make(f, 55, PAGES));
    f->shelf.save_most_ns = 0;
    spill_shelf_close(&f->shelf, true);
    assert_int_equal(files_of(f, path), 2);
}

static void file_damage(const char *path, bool cut)
{
    struct buffer b = {0};
    struct err e = {0};
    assert_int_equal(fs_file_read(path, 1 << 20, &b, &e), 0);
    b.data[b.size / 2] ^= !cut;
    FILE *f = fopen(path, "wb");
    assert_int_equal(fwrite(b.data, 1, b.size - cut, f), b.size - cut);
    fclose(f);
    buffer_free(&b);
}

TEST(a_file_that_was_damaged_is_dropped_and_counted)
{
    struct spill_shelf_fixture *f = *state;
    char path[400];
    for (int cut = 0; cut < 2; cut++) {
        shelf_open(f, 0, plenty);
        spill_shelf_put(&f->shelf, 1, image_make(f, 11, PAGES));
        assert_int_equal(files_of(f, path), 1);
        file_damage(path, cut);
        assert_false(has(f, 11));
        assert_int_equal(f->shelf.dropped, 1);
        assert_int_equal(files_of(f, path), 0);
        assert_int_equal(f->come, f->gone);
        spill_shelf_close(&f->shelf, false);
    }
}

TEST(a_folder_with_other_files_is_cleaned)
{
    struct spill_shelf_fixture *f = *state;
    struct err e = {0};
    char path[400];
    snprintf(path, sizeof path, "%s/half-written.kv", f->folder);
    assert_int_equal(fs_file_write(path, "HPSPILL1 and no more", 20, 0600, &e), 0);
    shelf_open(f, plenty, plenty);
    assert_int_equal(f->shelf.n_entries, 0);
    assert_int_equal(f->shelf.dropped, 1);
    assert_int_equal(files_of(f, path), 0);
    spill_shelf_close(&f->shelf, false);
}

/* Of a layer with a window there is what a token behind the last page sees. */
TEST(a_chain_is_found_at_lengths_that_its_windows_reach)
{
    static const struct {
        uint32_t window, n_pages, least;
    } cases[] = {{0, 4, 1},   {20, 4, 4},  {64, 4, 4}, {65, 4, 4},
                 {193, 4, 4}, {194, 4, 1}, {20, 1, 1}, {1000, 4, 1}};
    struct spill_shelf_fixture *f = *state;
    struct err e = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct digest pages[4];
        for (uint32_t k = 0; k < 4; k++)
            pages[k] = name_of((int)i, k);
        struct spill_head h = {
            identity,
            cases[i].n_pages,
            pages,
            {.n_groups = 2,
             .groups = {{0, 1, 0, 32, KV_F16}, {0, 1, cases[i].window, 32, KV_F16}}}};
        uint8_t *keys;
        shelf_open(f, plenty, plenty);
        struct spill_image *one = spill_image_make(&h, &f->counted, &keys);
        memset(keys, 1, one->b.size - (size_t)(keys - one->b.data));
        spill_shelf_put(&f->shelf, 1, one);
        assert_int_equal(f->shelf.entries[0]->least, cases[i].least);
        for (int again = 0; again < 2; again++) {
            for (uint32_t n = 1; n <= cases[i].n_pages; n++) {
                struct spill_image *got =
                    spill_shelf_get(&f->shelf, &identity, n, &pages[n - 1], &e);
                assert_int_equal(got != NULL, n >= cases[i].least);
                spill_image_release(got);
            }
            spill_shelf_close(&f->shelf, true);
            shelf_open(f, plenty, plenty); /* from its file */
            assert_int_equal(f->shelf.n_entries, 1);
        }
        spill_shelf_close(&f->shelf, false);
        shelf_open(f, 0, 0); /* goes */
        spill_shelf_close(&f->shelf, false);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_wanted_least_goes_to_disk_and_then_away, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_longer_chain_takes_the_place_of_its_beginning, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_was_spilled_is_found_after_a_restart, setup, teardown),
        cmocka_unit_test_setup_teardown(a_chain_is_found_at_lengths_that_its_windows_reach, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            the_end_saves_what_was_wanted_last_and_takes_no_longer_than_it_may, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_that_was_damaged_is_dropped_and_counted, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_folder_with_other_files_is_cleaned, setup, teardown),
    };
    return cmocka_run_group_tests_name("spill_shelf", tests, NULL, NULL);
}
