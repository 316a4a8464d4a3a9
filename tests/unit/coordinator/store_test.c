/* What every store must satisfy: the same claims run against each of them. */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "coordinator/store/store.h"
#include "tests/test.h"

struct kind_of_store {
    const char *name;
    bool durable;
};

static char folder[64], file[96];

static struct store *open_store(const struct kind_of_store *k)
{
    struct store *s = NULL;
    struct err e = {0};
    int rc = k->durable ? store_open_sqlite(file, &s, &e) : store_open_memory(&s, &e);
    if (rc < 0)
        fail_msg("%s: %s", k->name, e.text);
    return s;
}

static void put(struct store *s, const char *kind, const char *key, const char *text)
{
    struct err e = {0};
    struct store_change c = {kind, key, text, text ? strlen(text) : 0};
    assert_int_equal(store_apply(s, &c, 1, &e), 0);
}

struct listing {
    char text[256];
    int count, stop_at;
};

static int list_one(void *ctx, const char *key, const void *bytes, size_t size, struct err *e)
{
    struct listing *l = ctx;
    if (++l->count == l->stop_at)
        return err_set(e, HP_ECANCELED, "enough");
    size_t n = strlen(l->text);
    snprintf(l->text + n, sizeof l->text - n, "%s=%.*s;", key, (int)size, (const char *)bytes);
    return 0;
}

static void expect(struct store *s, const char *kind, const char *text)
{
    struct listing l = {.text = ""};
    struct err e = {0};
    assert_int_equal(store_each(s, kind, list_one, &l, &e), 0);
    assert_string_equal(l.text, text);
}

static void records_are_kept_by_kind_in_the_order_of_keys(const struct kind_of_store *k)
{
    struct store *s = open_store(k);
    put(s, "agent", "b", "2");
    put(s, "agent", "a", "1");
    put(s, "token", "a", "x");
    put(s, "agent", "c", "");
    expect(s, "agent", "a=1;b=2;c=;");
    expect(s, "token", "a=x;");
    expect(s, "none", "");
    store_close(&s);
    assert_null(s);
}

static void a_put_replaces_and_a_removal_of_nothing_is_nothing(const struct kind_of_store *k)
{
    struct store *s = open_store(k);
    put(s, "agent", "a", "1");
    put(s, "agent", "a", "22");
    put(s, "agent", "zz", NULL);
    expect(s, "agent", "a=22;");
    put(s, "agent", "a", NULL);
    expect(s, "agent", "");
    store_close(&s);
}

static void changes_of_one_step_are_applied_in_order(const struct kind_of_store *k)
{
    struct store *s = open_store(k);
    struct err e = {0};
    struct store_change c[] = {{"agent", "a", "1", 1},
                               {"agent", "a", NULL, 0},
                               {"agent", "b", "2", 1},
                               {"agent", "b", "3", 1}};
    assert_int_equal(store_apply(s, c, 4, &e), 0);
    assert_int_equal(store_apply(s, c, 0, &e), 0);
    expect(s, "agent", "b=3;");
    store_close(&s);
}

static void a_key_that_cannot_be_kept_changes_nothing(const struct kind_of_store *k)
{
    struct store *s = open_store(k);
    struct err e = {0};
    char key[STORE_MAX_KEY_BYTES + 2];
    memset(key, 'k', sizeof key - 1);
    key[sizeof key - 1] = 0;
    struct store_change c[] = {{"agent", "a", "1", 1}, {"agent", key, "2", 1}};
    assert_int_equal(store_apply(s, c, 2, &e), HP_EINVAL);
    c[1].key = "";
    assert_int_equal(store_apply(s, c, 2, &e), HP_EINVAL);
    expect(s, "agent", "");
    store_close(&s);
}

static void bytes_come_back_as_they_were(const struct kind_of_store *k)
{
    struct store *s = open_store(k);
    struct err e = {0};
    static uint8_t bytes[100000];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 7);
    struct store_change c = {"model", "m", bytes, sizeof bytes};
    assert_int_equal(store_apply(s, &c, 1, &e), 0);
    struct listing l = {.stop_at = 1};
    assert_int_equal(store_each(s, "model", list_one, &l, &e), HP_ECANCELED);
    assert_string_equal(e.text, "enough");
    put(s, "model", "m", "still there");
    expect(s, "model", "m=still there;");
    store_close(&s);
}

static const struct kind_of_store kinds[] = {{"memory", false}, {"sqlite", true}};

static int fresh(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/hp-store-test-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(file, sizeof file, "%s/store.db", folder);
    return 0;
}

static int clean(void **state)
{
    (void)state;
    static const char *const ends[] = {"", "-wal", "-shm", "-journal"};
    for (size_t i = 0; i < 4; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s%s", file, ends[i]);
        unlink(path);
    }
    return rmdir(folder);
}

#define CLAIM(claim)                                                                               \
    static void every_store_##claim(void **state)                                                  \
    {                                                                                              \
        (void)state;                                                                               \
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)                                  \
            claim(&kinds[i]);                                                                      \
    }
CLAIM(records_are_kept_by_kind_in_the_order_of_keys)
CLAIM(a_put_replaces_and_a_removal_of_nothing_is_nothing)
CLAIM(changes_of_one_step_are_applied_in_order)
CLAIM(a_key_that_cannot_be_kept_changes_nothing)
CLAIM(bytes_come_back_as_they_were)

/* ---- what only a store on a disk can show ---- */

/* A child that says what it has acknowledged, until it is killed. */
static void write_until_killed(int out)
{
    struct store *s = NULL;
    struct err e = {0};
    if (store_open_sqlite(file, &s, &e) < 0)
        _exit(1);
    for (uint32_t i = 1;; i++) {
        char number[16];
        snprintf(number, sizeof number, "%u", i);
        struct store_change c[] = {{"meta", "last", number, strlen(number)},
                                   {"agent", number, "x", 1}};
        if (store_apply(s, c, 2, &e) < 0 || write(out, &i, sizeof i) != sizeof i)
            _exit(1);
    }
}

TEST(what_was_acknowledged_survives_a_kill)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0)
        write_until_killed(ends[1]);
    close(ends[1]);
    uint32_t last = 0, n;
    while (read(ends[0], &n, sizeof n) == sizeof n) {
        last = n;
        if (last == 20)
            kill(child, SIGKILL);
    }
    close(ends[0]);
    waitpid(child, NULL, 0);
    assert_true(last >= 20);
    struct store *s = open_store(&kinds[1]);
    struct listing l = {.text = ""};
    struct err e = {0};
    assert_int_equal(store_each(s, "meta", list_one, &l, &e), 0);
    uint32_t kept = 0;
    assert_int_equal(sscanf(l.text, "last=%u;", &kept), 1);
    assert_true(kept >= last);
    struct listing agents = {.text = ""};
    assert_int_equal(store_each(s, "agent", list_one, &agents, &e), 0);
    assert_int_equal(agents.count, (int)kept); /* both changes of a step, or none */
    store_close(&s);
}

/* Whose making was cut off has never held anything, and is begun anew; what was emptied is not. */
TEST(a_kill_while_it_is_made_is_no_loss)
{
    struct store *s = NULL;
    struct err e = {0};
    for (int i = 0; i < 60; i++) {
        clean(NULL);
        fresh(NULL);
        pid_t child = fork();
        if (child == 0) {
            store_open_sqlite(file, &s, &e);
            _exit(0);
        }
        usleep((useconds_t)(i * 50));
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        s = open_store(&kinds[1]);
        put(s, "agent", "a", "1");
        store_close(&s);
        s = open_store(&kinds[1]);
        expect(s, "agent", "a=1;");
        store_close(&s);
    }
    assert_int_equal(truncate(file, 0), 0);
    assert_int_equal(store_open_sqlite(file, &s, &e), HP_ECORRUPT);
    assert_non_null(strstr(e.text, "the store is empty"));
}

TEST(a_second_process_is_kept_out)
{
    struct store *first = open_store(&kinds[1]), *second = NULL;
    put(first, "agent", "a", "1");
    struct err e = {0};
    pid_t child = fork();
    if (child == 0)
        _exit(store_open_sqlite(file, &second, &e) == HP_EBUSY && strstr(e.text, "in use") ? 0 : 1);
    int status = 1;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    store_close(&first);
}

TEST(a_process_that_is_just_ending_is_waited_for)
{
    struct store *first = open_store(&kinds[1]);
    put(first, "agent", "a", "1");
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    store_close(&first);
    pid_t child = fork();
    if (child == 0) {
        first = open_store(&kinds[1]);
        ssize_t told = write(ready[1], "x", 1);
        usleep(300000);
        _exit(told == 1 ? 0 : 1); /* as it is after a kill: nothing is closed by its own hand */
    }
    char word;
    assert_int_equal(read(ready[0], &word, 1), 1);
    struct err e = {0};
    struct store *second = NULL;
    assert_int_equal(store_open_sqlite(file, &second, &e), 0);
    store_close(&second);
    int status = 1;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    close(ready[0]);
    close(ready[1]);
}

TEST(nobody_else_may_read_it)
{
    char wal[sizeof file + 8];
    struct err e = {0};
    struct store *s;
    struct stat st;
    snprintf(wal, sizeof wal, "%s-wal", file);
    for (int run = 0; run < 2; run++) {
        assert_int_equal(store_open_sqlite(file, &s, &e), 0);
        struct store_change c = {"meta", "x", "1", 1};
        assert_int_equal(store_apply(s, &c, 1, &e), 0);
        assert_true(stat(file, &st) == 0 && (st.st_mode & 0777) == 0600);
        assert_true(stat(wal, &st) == 0 && (st.st_mode & 0777) == 0600);
        store_close(&s);
        assert_int_equal(chmod(file, 0644), 0); /* as an older version left it */
    }
}

TEST(a_damaged_file_and_a_missing_folder_are_named)
{
    struct store *s = NULL;
    struct err e = {0};
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    for (int i = 0; i < 1000; i++)
        fputs("this is no database ", f);
    fclose(f);
    assert_int_equal(store_open_sqlite(file, &s, &e), HP_ECORRUPT);
    assert_non_null(strstr(e.text, file));
    unlink(file);
    assert_int_equal(store_open_sqlite("/nowhere/at/all/store.db", &s, &e), HP_EIO);
}

/* No file may grow: what a full disk is to a process. */
static int on_a_full_disk(void)
{
    struct store *s = NULL;
    struct err e = {0};
    struct rlimit none = {0, RLIM_INFINITY};
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &none) != 0)
        return 1;
    if (store_open_sqlite(file, &s, &e) < 0)
        return 2;
    struct listing l = {.text = ""};
    if (store_each(s, "agent", list_one, &l, &e) < 0 || strcmp(l.text, "a=1;") != 0)
        return 3;
    struct store_change c = {"agent", "b", "2", 1};
    int rc = store_apply(s, &c, 1, &e);
    if (rc != HP_ENOSPACE && rc != HP_EIO)
        return 4;
    struct listing again = {.text = ""};
    if (store_each(s, "agent", list_one, &again, &e) < 0 || strcmp(again.text, "a=1;") != 0)
        return 5;
    struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    if (setrlimit(RLIMIT_FSIZE, &all) != 0 || store_apply(s, &c, 1, &e) < 0)
        return 6;
    store_close(&s);
    return 0;
}

TEST(a_full_disk_fails_a_change_and_neither_the_opening_nor_the_store)
{
    struct store *s = open_store(&kinds[1]);
    put(s, "agent", "a", "1");
    store_close(&s);
    pid_t child = fork();
    if (child == 0)
        _exit(on_a_full_disk());
    int status = 1;
    waitpid(child, &status, 0);
    assert_int_equal(WEXITSTATUS(status), 0);
    s = open_store(&kinds[1]);
    expect(s, "agent", "a=1;b=2;");
    store_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_store_records_are_kept_by_kind_in_the_order_of_keys,
                                        fresh, clean),
        cmocka_unit_test_setup_teardown(
            every_store_a_put_replaces_and_a_removal_of_nothing_is_nothing, fresh, clean),
        cmocka_unit_test_setup_teardown(every_store_changes_of_one_step_are_applied_in_order, fresh,
                                        clean),
        cmocka_unit_test_setup_teardown(every_store_a_key_that_cannot_be_kept_changes_nothing,
                                        fresh, clean),
        cmocka_unit_test_setup_teardown(every_store_bytes_come_back_as_they_were, fresh, clean),
        cmocka_unit_test_setup_teardown(a_kill_while_it_is_made_is_no_loss, fresh, clean),
        cmocka_unit_test_setup_teardown(what_was_acknowledged_survives_a_kill, fresh, clean),
        cmocka_unit_test_setup_teardown(
            a_full_disk_fails_a_change_and_neither_the_opening_nor_the_store, fresh, clean),
        cmocka_unit_test_setup_teardown(a_second_process_is_kept_out, fresh, clean),
        cmocka_unit_test_setup_teardown(a_process_that_is_just_ending_is_waited_for, fresh, clean),
        cmocka_unit_test_setup_teardown(nobody_else_may_read_it, fresh, clean),
        cmocka_unit_test_setup_teardown(a_damaged_file_and_a_missing_folder_are_named, fresh,
                                        clean),
    };
    return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
