#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/npy.h"
#include "tests/test.h"

static char folder[] = "/tmp/hp-npy-XXXXXX", path[64];

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/a.npy", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

TEST(a_file_is_what_numpy_reads)
{
    const float rows[] = {1, 2, 3, 4, 5, 6};
    struct npy_writer *w;
    struct err e = {0};
    assert_int_equal(npy_writer_open(path, 3, 2, &w, &e), 0);
    assert_int_equal(npy_writer_rows(w, rows, 1, &e), 0);
    assert_int_not_equal(access(path, F_OK), 0); /* not before it is whole */
    assert_int_equal(npy_writer_rows(w, rows + 2, 2, &e), 0);
    assert_int_equal(npy_writer_close(&w, &e), 0);
    assert_null(w);
    uint8_t bytes[200];
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(bytes, 1, sizeof bytes, f), 128 + sizeof rows);
    fclose(f);
    assert_memory_equal(bytes, "\x93NUMPY\x01\x00\x76\x00", 10);
    assert_non_null(
        strstr((char *)bytes + 10, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }"));
    assert_int_equal(bytes[127], '\n');
    assert_memory_equal(bytes + 128, rows, sizeof rows);
    unlink(path);
}

TEST(what_is_no_regular_file_is_written_to_and_stays)
{
    const float row[2] = {1, 2};
    struct npy_writer *w;
    struct stat st;
    uint8_t bytes[200];
    assert_int_equal(mkfifo(path, 0600), 0);
    int fd = open(path, O_RDWR);
    for (int ends_well = 0; ends_well < 2; ends_well++) {
        assert_int_equal(npy_writer_open(path, 1, 2, &w, NULL), 0);
        assert_int_equal(npy_writer_rows(w, row, (uint64_t)ends_well, NULL), 0);
        assert_int_equal(npy_writer_close(&w, NULL), ends_well ? 0 : HP_EINVAL);
        assert_int_equal(stat(path, &st), 0);
        assert_true(S_ISFIFO(st.st_mode));
    }
    assert_true(read(fd, bytes, sizeof bytes) > 0);
    close(fd);
    unlink(path);
}

TEST(an_unfinished_file_leaves_nothing_behind)
{
    const float row[2] = {0};
    struct npy_writer *w;
    struct err e = {0};
    assert_int_equal(npy_writer_open(path, 2, 2, &w, &e), 0);
    assert_int_equal(npy_writer_rows(w, row, 1, &e), 0);
    assert_int_equal(npy_writer_close(&w, &e), HP_EINVAL);
    assert_int_equal(npy_writer_open(path, 1, 2, &w, &e), 0);
    assert_int_equal(npy_writer_rows(w, row, 2, &e), HP_EINVAL);
    npy_writer_abandon(&w);
    assert_int_equal(rmdir(folder), 0); /* is empty */
    assert_int_equal(npy_writer_open(path, 1, 2, &w, &e), HP_EIO);
    assert_non_null(strstr(e.text, folder));
    assert_int_equal(mkdir(folder, 0700), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_what_numpy_reads),
        cmocka_unit_test(what_is_no_regular_file_is_written_to_and_stays),
        cmocka_unit_test(an_unfinished_file_leaves_nothing_behind)};
    return cmocka_run_group_tests_name("npy", tests, set_up, tear_down);
}
