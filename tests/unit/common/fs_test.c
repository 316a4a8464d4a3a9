#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fs.h"
#include "tests/test.h"

static char folder[64];

static const char *path_of(const char *name)
{
    static char path[FS_PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int n_files(void)
{
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (const struct dirent *entry; (entry = readdir(d));)
        n += entry->d_name[0] != '.';
    closedir(d);
    return n;
}

static void assert_holds(const char *path, const char *text)
{
    struct buffer b = {0};
    assert_int_equal(fs_file_read(path, 1 << 20, &b, NULL), 0);
    assert_string_equal(buffer_cstr(&b), text);
    buffer_free(&b);
}

static int folder_open(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/hp-fs-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int folder_close(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

TEST(folders_are_made_with_those_above_and_may_be_there)
{
    struct stat st;
    for (int i = 0; i < 2; i++)
        assert_int_equal(fs_folder_make(path_of("a/b//c/"), 0700, NULL), 0);
    assert_int_equal(stat(path_of("a/b/c"), &st), 0);
    assert_true(S_ISDIR(st.st_mode));
    assert_int_equal(st.st_mode & 0777, 0700);
}

TEST(the_folders_above_a_file_are_made_and_the_file_is_not)
{
    struct stat st;
    assert_int_equal(fs_folder_above_make(path_of("d/e/file"), 0755, NULL), 0);
    assert_int_equal(stat(path_of("d/e"), &st), 0);
    assert_int_equal(stat(path_of("d/e/file"), &st), -1);
}

TEST(a_file_in_the_place_of_a_folder_is_named)
{
    struct err e = {0};
    assert_int_equal(fs_file_write(path_of("plain"), "x", 1, 0600, NULL), 0);
    assert_int_equal(fs_folder_make(path_of("plain"), 0700, &e), HP_EIO);
    assert_non_null(strstr(e.text, "/plain: cannot make this folder"));
    assert_int_equal(fs_folder_make(path_of("plain/below"), 0700, &e), HP_EIO);
}

TEST(paths_that_are_too_long_or_empty_are_refused)
{
    char long_path[FS_PATH_BYTES + 10];
    memset(long_path, 'a', sizeof long_path - 1);
    long_path[sizeof long_path - 1] = '\0';
    struct err e = {0};
    assert_int_equal(fs_folder_make(long_path, 0700, &e), HP_EINVAL);
    assert_non_null(strstr(e.text, "the path is too long"));
    assert_int_equal(fs_file_write(long_path, "x", 1, 0600, &e), HP_EINVAL);
    assert_int_equal(fs_folder_make("", 0700, &e), HP_EINVAL);
}

TEST(a_file_is_replaced_whole_with_its_mode_and_nothing_beside)
{
    struct stat st;
    const char *path = path_of("text");
    assert_int_equal(fs_file_write(path, "a longer text", 13, 0644, NULL), 0);
    int before = n_files();
    assert_int_equal(fs_file_write(path, "short", 5, 0600, NULL), 0);
    assert_holds(path, "short");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(n_files(), before);
}

TEST(who_has_the_old_file_open_keeps_reading_it)
{
    char text[8] = "";
    const char *path = path_of("kept");
    assert_int_equal(fs_file_write(path, "old", 3, 0600, NULL), 0);
    int fd = open(path, O_RDONLY);
    assert_int_equal(fs_file_write(path, "new", 3, 0600, NULL), 0);
    assert_int_equal(read(fd, text, sizeof text), 3);
    assert_string_equal(text, "old");
    assert_holds(path, "new");
    close(fd);
}

TEST(what_is_no_regular_file_is_written_to_and_stays)
{
    struct stat st;
    char text[8] = "";
    const char *path = path_of("pipe");
    assert_int_equal(mkfifo(path, 0600), 0);
    int fd = open(path, O_RDWR);
    assert_int_equal(fs_file_write(path, "through", 7, 0600, NULL), 0);
    assert_int_equal(read(fd, text, 7), 7);
    assert_string_equal(text, "through");
    assert_int_equal(stat(path, &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
    close(fd);
    assert_int_equal(fs_file_write("/dev/null", "x", 1, 0600, NULL), 0);
    assert_int_equal(stat("/dev/null", &st), 0);
    assert_true(S_ISCHR(st.st_mode));
}

TEST(a_failed_write_names_the_path_and_leaves_nothing)
{
    struct err e = {0};
    int before = n_files();
    assert_int_equal(fs_file_write(path_of("none/file"), "x", 1, 0600, &e), HP_ENOENT);
    assert_non_null(strstr(e.text, "/none/file: cannot write: "));
    assert_int_equal(fs_file_write("/dev/full", "x", 1, 0600, &e), HP_ENOSPACE);
    assert_int_equal(n_files(), before);
}

TEST(what_was_read_before_stays_when_a_file_is_too_large)
{
    struct err e = {0};
    struct buffer b = {0};
    const char *path = path_of("ten");
    assert_int_equal(fs_file_write(path, "0123456789", 10, 0600, NULL), 0);
    buffer_append(&b, "before", 6);
    assert_int_equal(fs_file_read(path, 9, &b, &e), HP_ELIMIT);
    assert_string_equal(buffer_cstr(&b), "before");
    assert_int_equal(fs_file_read(path, 10, &b, &e), 0);
    assert_string_equal(buffer_cstr(&b), "before0123456789");
    assert_int_equal(fs_file_read(path_of("absent"), 10, &b, &e), HP_ENOENT);
    assert_int_equal(fs_file_read(folder, 10, &b, &e), HP_EIO);
    buffer_free(&b);
}

TEST(a_file_written_beside_takes_the_place)
{
    char beside[FS_PATH_BYTES];
    snprintf(beside, sizeof beside, "%s", path_of("done.part"));
    assert_int_equal(fs_file_write(beside, "whole", 5, 0600, NULL), 0);
    assert_int_equal(fs_file_replace(beside, path_of("done"), NULL), 0);
    assert_holds(path_of("done"), "whole");
    assert_int_equal(access(beside, F_OK), -1);
    assert_int_equal(fs_file_replace(beside, path_of("done"), NULL), HP_ENOENT);
    snprintf(beside, sizeof beside, "%s", path_of("done"));
    assert_int_equal(mkfifo(path_of("through"), 0600), 0);
    assert_int_equal(fs_file_replace(beside, path_of("through"), NULL), HP_EINVAL);
    assert_holds(beside, "whole");
}

TEST(a_buffer_that_failed_is_no_file)
{
    struct buffer b = {.failed = true}, empty = {0};
    assert_int_equal(fs_buffer_save(path_of("saved"), &b, NULL), HP_ENOMEM);
    assert_int_equal(access(path_of("saved"), F_OK), -1);
    assert_int_equal(fs_buffer_save(path_of("saved"), &empty, NULL), 0);
    assert_holds(path_of("saved"), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders_are_made_with_those_above_and_may_be_there),
        cmocka_unit_test(the_folders_above_a_file_are_made_and_the_file_is_not),
        cmocka_unit_test(a_file_in_the_place_of_a_folder_is_named),
        cmocka_unit_test(paths_that_are_too_long_or_empty_are_refused),
        cmocka_unit_test(a_file_is_replaced_whole_with_its_mode_and_nothing_beside),
        cmocka_unit_test(who_has_the_old_file_open_keeps_reading_it),
        cmocka_unit_test(what_is_no_regular_file_is_written_to_and_stays),
        cmocka_unit_test(a_failed_write_names_the_path_and_leaves_nothing),
        cmocka_unit_test(what_was_read_before_stays_when_a_file_is_too_large),
        cmocka_unit_test(a_file_written_beside_takes_the_place),
        cmocka_unit_test(a_buffer_that_failed_is_no_file),
    };
    return cmocka_run_group_tests(tests, folder_open, folder_close);
}
