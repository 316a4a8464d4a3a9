/* The shelf of what is spilled: limits of memory and disk, what is found after a restart, and files
 * that are not what was written. */
#include <sys/stat.h>

#include "tests/unit/agent/spill_fixture.h"

enum { PAGES = 2 };

/* Chain n: of the same first page as all others with its tens. */
static void names_of(int chain, uint32_t n_pages, struct digest *pages)
{
    for (uint32_t i = 0; i < n_pages; i++) {
        int words[2] = {i ? chain : chain / 10, (int)i};
        pages[i] = digest_of(words, sizeof words);
    }
}

static struct spill_image *image_make(struct spill_shelf_fixture *f, int chain, uint32_t n_pages)
{
    struct digest pages[8];
    names_of(chain, n_pages, pages);
    return image_of(f, pages, n_pages);
}

static bool has(struct spill_shelf_fixture *f, int chain)
{
    struct digest pages[PAGES];
    names_of(chain, PAGES, pages);
    return has_of(f, pages, PAGES, 0);
}

TEST(what_is_wanted_least_goes_to_disk_and_then_away)
{
    struct spill_shelf_fixture *f = *state;
    struct spill_image *one = image_make(f, 11, PAGES);
    uint64_t bytes = one->bytes;
    char path[400];
    shelf_open(f, 2 * bytes, 2 * bytes);
    spill_shelf_put(&f->shelf, one);
    spill_shelf_put(&f->shelf, image_make(f, 22, PAGES));
    assert_int_equal(f->shelf.disk_bytes, 0);
    assert_true(has(f, 11));
    spill_shelf_put(&f->shelf, image_make(f, 33, PAGES));
    assert_int_equal(f->shelf.memory_bytes, 2 * bytes);
    assert_int_equal(f->shelf.disk_bytes, bytes); /* 22: 11 was wanted since */
    assert_true(has(f, 11) && has(f, 22) && has(f, 33));
    spill_shelf_put(&f->shelf, image_make(f, 44, PAGES));
    spill_shelf_put(&f->shelf, image_make(f, 55, PAGES));
    assert_int_equal(files_of(f, path), 2);
    assert_int_equal(f->shelf.n_entries, 4);
    assert_false(has(f, 11));
    assert_int_equal(f->come - f->gone, 4);
    spill_shelf_close(&f->shelf, false);
}

TEST(pages_with_which_chains_begin_are_there_once)
{
    struct spill_shelf_fixture *f = *state;
    struct spill_image *one = image_make(f, 11, PAGES);
    uint64_t bytes = one->bytes;
    char path[400];
    shelf_open(f, plenty, plenty);
    spill_shelf_put(&f->shelf, one);
    for (int chain = 12; chain <= 19; chain++)
        spill_shelf_put(&f->shelf, image_make(f, chain, PAGES));
    assert_int_equal(f->shelf.n_entries, 9);
    assert_int_equal(f->shelf.memory_bytes, 9 * bytes - 8 * PAGE_BYTES);
    assert_int_equal(f->counted, f->shelf.memory_bytes);
    int come = f->come, gone = f->gone;
    spill_shelf_put(&f->shelf, image_make(f, 12, PAGES));    /* there already, and told again */
    assert_true(f->come == come + 2 && f->gone == gone + 2); /* with what it needs */
    for (int again = 0; again < 3; again++) {
        for (int chain = 11; chain <= 19; chain++)
            assert_true(has(f, chain));
        assert_int_equal(f->shelf.n_entries, 9);
        spill_shelf_close(&f->shelf, true);
        assert_int_equal(files_of(f, path), 9);
        shelf_open(f, plenty, plenty);
    }
    assert_int_equal(f->shelf.disk_bytes, 9 * bytes - 8 * PAGE_BYTES);
    spill_shelf_close(&f->shelf, false);
}

TEST(a_longer_chain_adds_what_its_beginning_has_not)
{
    struct spill_shelf_fixture *f = *state;
    struct spill_image *four = image_make(f, 12, 4);
    uint64_t bytes = four->bytes;
    struct digest pages[4];
    names_of(12, 4, pages);
    spill_image_release(four);
    shelf_open(f, plenty, plenty);
    for (uint32_t n = 1; n <= 4; n++)
        spill_shelf_put(&f->shelf, image_make(f, 12, n));
    assert_int_equal(f->shelf.n_entries, 4);
    assert_true(f->shelf.memory_bytes < bytes + 3 * 1024); /* heads */
    for (uint32_t n = 1; n <= 4; n++)
        for (uint32_t kept = 0; kept < n; kept++)
            assert_true(has_of(f, pages, n, kept));
    spill_shelf_put(&f->shelf, image_make(f, 12, 3));
    assert_int_equal(f->shelf.n_entries, 4);
    spill_shelf_close(&f->shelf, false);
}

/* Killed, with what was wanted last in memory alone. */
TEST(what_is_in_files_needs_nothing_that_is_not)
{
    struct spill_shelf_fixture *f = *state;
    struct spill_image *one = image_make(f, 11, PAGES);
    uint64_t bytes = one->bytes;
    char path[400];
    shelf_open(f, 2 * bytes, plenty);
    spill_shelf_put(&f->shelf, one);
    for (int chain = 12; chain <= 15; chain++)
        spill_shelf_put(&f->shelf, image_make(f, chain, PAGES));
    assert_true(f->shelf.memory_bytes <= 2 * bytes);
    assert_int_equal(files_of(f, path), 4); /* of 11, which all need, and of all but the last */
    spill_shelf_close(&f->shelf, false);
    shelf_open(f, plenty, plenty);
    assert_int_equal(f->shelf.n_entries, 4);
    assert_int_equal(f->shelf.dropped, 0);
    for (int chain = 11; chain <= 14; chain++)
        assert_true(has(f, chain));
    spill_shelf_close(&f->shelf, false);
}

TEST(what_was_spilled_is_found_after_a_restart)
{
    struct spill_shelf_fixture *f = *state;
    struct digest other[PAGES], pages[PAGES];
    struct err e = {0};
    char path[400];
    struct stat st;
    names_of(99, PAGES, other);
    names_of(11, PAGES, pages);
    shelf_open(f, plenty, plenty);
    spill_shelf_put(&f->shelf, image_make(f, 11, PAGES));
    spill_shelf_close(&f->shelf, true);
    assert_int_equal(files_of(f, path), 1);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    shelf_open(f, plenty, plenty);
    assert_true(has(f, 11));
    assert_true(f->shelf.disk_bytes_per_s > 0);
    assert_null(spill_shelf_get(&f->shelf, &identity, PAGES, &other[1], 0, &e));
    assert_int_equal(e.code, HP_ENOENT);
    assert_null(spill_shelf_get(&f->shelf, &other[1], PAGES, &pages[1], 0, &e)); /* of others */
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
    spill_shelf_put(&f->shelf, one);
    for (int i = 2; i <= 4; i++)
        spill_shelf_put(&f->shelf, image_make(f, 11 * i, PAGES));
    assert_true(has(f, 11));
    spill_shelf_close(&f->shelf, true);
    shelf_open(f, plenty, plenty);
    assert_int_equal(f->shelf.n_entries, 2);
    assert_true(has(f, 11) && has(f, 44));
    spill_shelf_put(&f->shelf, image_make(f, 55, PAGES));
    f->shelf.save_most_ns = 0;
    spill_shelf_close(&f->shelf, true);
    assert_int_equal(files_of(f, path), 2);
}

TEST(a_file_that_was_damaged_is_dropped_and_counted)
{
    struct spill_shelf_fixture *f = *state;
    char path[400];
    for (int cut = 0; cut < 2; cut++) {
        shelf_open(f, 0, plenty);
        spill_shelf_put(&f->shelf, image_make(f, 11, PAGES));
        assert_int_equal(files_of(f, path), 1);
        file_damage(path, cut);
        assert_false(has(f, 11));
        assert_int_equal(f->shelf.dropped, 1);
        assert_int_equal(files_of(f, path), 0);
        assert_int_equal(f->come, f->gone);
        spill_shelf_close(&f->shelf, false);
    }
}

TEST(what_needs_a_file_that_was_damaged_goes_with_it)
{
    struct spill_shelf_fixture *f = *state;
    char path[400];
    for (int again = 0; again < 2; again++) {
        shelf_open(f, 0, plenty);
        spill_shelf_put(&f->shelf, image_make(f, 11, PAGES));
        files_of(f, path);
        spill_shelf_put(&f->shelf, image_make(f, 12, PAGES));
        spill_shelf_put(&f->shelf, image_make(f, 13, PAGES));
        spill_shelf_put(&f->shelf, image_make(f, 21, PAGES));
        file_damage(path, again);
        if (again) { /* cut short: seen at the start */
            spill_shelf_close(&f->shelf, false);
            f->come = 1, f->gone = 0;
            shelf_open(f, 0, plenty);
        }
        assert_false(has(f, 12) || has(f, 13) || has(f, 11));
        assert_true(has(f, 21));
        assert_int_equal(f->shelf.dropped, 1);
        assert_int_equal(f->come - f->gone, 1);
        assert_int_equal(files_of(f, path), 1);
        spill_shelf_close(&f->shelf, false);
        unlink(path);
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

TEST(a_folder_that_went_is_made_anew)
{
    struct spill_shelf_fixture *f = *state;
    char path[400];
    shelf_open(f, 0, plenty);
    assert_int_equal(rmdir(f->folder), 0);
    spill_shelf_put(&f->shelf, image_make(f, 11, PAGES));
    assert_true(has(f, 11));
    assert_int_equal(files_of(f, path), 1);
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
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct digest pages[4];
        names_of((int)i, 4, pages);
        f->shape = (struct kv_shape){
            .n_groups = 2, .groups = {{0, 1, 0, 32, KV_F16}, {0, 1, cases[i].window, 32, KV_F16}}};
        shelf_open(f, plenty, plenty);
        spill_shelf_put(&f->shelf, image_of(f, pages, cases[i].n_pages));
        assert_int_equal(f->shelf.entries[0]->least, cases[i].least);
        for (int again = 0; again < 2; again++) {
            for (uint32_t n = 1; n <= cases[i].n_pages; n++)
                assert_int_equal(has_of(f, pages, n, 0), n >= cases[i].least);
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
        cmocka_unit_test_setup_teardown(pages_with_which_chains_begin_are_there_once, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_longer_chain_adds_what_its_beginning_has_not, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_is_in_files_needs_nothing_that_is_not, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_was_spilled_is_found_after_a_restart, setup, teardown),
        cmocka_unit_test_setup_teardown(a_chain_is_found_at_lengths_that_its_windows_reach, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            the_end_saves_what_was_wanted_last_and_takes_no_longer_than_it_may, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_that_was_damaged_is_dropped_and_counted, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_needs_a_file_that_was_damaged_goes_with_it, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_folder_with_other_files_is_cleaned, setup, teardown),
        cmocka_unit_test_setup_teardown(a_folder_that_went_is_made_anew, setup, teardown),
    };
    return cmocka_run_group_tests_name("spill_shelf", tests, NULL, NULL);
}
