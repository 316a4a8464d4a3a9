/* What standard error gets of what takes long, where it is no terminal. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/env.h"
#include "hpctl/progress.h"
#include "tests/test.h"

/* Standard error goes to a file meanwhile. */
struct captured {
    FILE *file;
    int before;
    char text[400];
};

static void told_begin(struct captured *t)
{
    fflush(stderr);
    t->file = tmpfile();
    assert_non_null(t->file);
    t->before = dup(STDERR_FILENO);
    assert_true(t->before >= 0 && dup2(fileno(t->file), STDERR_FILENO) >= 0);
}

static const char *told_end(struct captured *t)
{
    fflush(stderr);
    dup2(t->before, STDERR_FILENO);
    close(t->before);
    rewind(t->file);
    t->text[fread(t->text, 1, sizeof t->text - 1, t->file)] = '\0';
    fclose(t->file);
    return t->text;
}

TEST(a_matter_has_one_line_whatever_changes_behind_its_colon)
{
    struct captured t;
    struct progress_bar p;
    told_begin(&t);
    progress_init(&p, false);
    progress_show(&p, "loading: 1 MB/s", 1, 10);
    progress_show(&p, "loading: 2 MB/s", 9, 10);
    progress_show(&p, "measuring", 0, 0);
    progress_end(&p);
    assert_string_equal(told_end(&t), "loading\nmeasuring\n");
}

TEST(one_line_is_told_once_a_second_has_passed_even_in_the_midst_of_a_step)
{
    struct captured t;
    struct progress_bar p;
    struct env_virtual clock;
    const struct env env = env_virtual_init(&clock, 1);
    told_begin(&t);
    progress_init(&p, false);
    p.env = &env;
    progress_once(&p, "getting the model ready");
    progress_show(&p, "starting", 0, 0);
    clock.now_ns += 999000000;
    progress_show(&p, "starting", 0, 0);
    assert_string_equal(told_end(&t), "");
    told_begin(&t);
    clock.now_ns += 1000000;
    progress_show(&p, "starting", 0, 0);
    progress_show(&p, "loading: 1 MB/s", 1, 10);
    assert_string_equal(told_end(&t), "getting the model ready\n");
}

/* On a terminal. */
static const char *drawn(struct progress_bar *p, const char *what, double done, double total,
                         bool bytes)
{
    static struct captured t;
    p->terminal = true;
    told_begin(&t);
    (bytes ? progress_show_bytes : progress_show)(p, what, done, total);
    const char *all = told_end(&t), *line = strstr(all, "\033[K");
    return line ? line + 3 : "";
}

TEST(rate_and_time_left_are_shown_once_they_are_known)
{
    struct progress_bar p;
    struct env_virtual clock;
    const struct env env = env_virtual_init(&clock, 1);
    progress_init(&p, false);
    p.env = &env;
    assert_string_equal(drawn(&p, "fetching: a0", 0, 100e6, true),
                        "[............................]   0 %  fetching: a0");
    clock.now_ns += 2000000000;
    assert_string_equal(drawn(&p, "fetching: a0", 20e6, 100e6, true),
                        "[#####.......................]  20 %  10.0 MB/s, 8 s left  fetching: a0");
    assert_string_equal(drawn(&p, "fetching: a0", 20e6, 100e6, true), ""); /* stands there */
    /* It goes slower: after ten seconds nothing is left of how it went before. */
    clock.now_ns += 4000000000;
    drawn(&p, "fetching: a0", 24e6, 100e6, true);
    clock.now_ns += 6000000000;
    assert_string_equal(drawn(&p, "fetching: a0", 30e6, 100e6, true),
                        "[########....................]  30 %  1.0 MB/s, 70 s left  fetching: a0");
    clock.now_ns += 12000000000;
    assert_string_equal(drawn(&p, "fetching: a0", 30e6, 100e6, true),
                        "[########....................]  30 %  0 B/s  fetching: a0");
    /* Another matter begins anew, and what is no bytes has no rate. */
    assert_string_equal(drawn(&p, "measuring", 1, 4, false),
                        "[#######.....................]  25 %  measuring");
    clock.now_ns += 2000000000;
    assert_string_equal(drawn(&p, "measuring", 2, 4, false),
                        "[##############..............]  50 %  4 s left  measuring");
}

TEST(what_is_longer_than_the_terminal_is_cut)
{
    char what[300];
    struct progress_bar p;
    memset(what, 'x', sizeof what - 1);
    what[sizeof what - 1] = '\0';
    progress_init(&p, false);
    assert_int_equal(strlen(drawn(&p, what, 1, 4, false)), 119);
    assert_int_equal(strlen(drawn(&p, what, 0, 0, false)), 119);
}

TEST(what_is_quiet_says_nothing)
{
    struct captured t;
    struct progress_bar p;
    told_begin(&t);
    progress_init(&p, true);
    progress_show(&p, "loading", 1, 10);
    progress_end(&p);
    assert_string_equal(told_end(&t), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_matter_has_one_line_whatever_changes_behind_its_colon),
        cmocka_unit_test(one_line_is_told_once_a_second_has_passed_even_in_the_midst_of_a_step),
        cmocka_unit_test(rate_and_time_left_are_shown_once_they_are_known),
        cmocka_unit_test(what_is_longer_than_the_terminal_is_cut),
        cmocka_unit_test(what_is_quiet_says_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
