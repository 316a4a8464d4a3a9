/* The command line: options, numbers, sizes, and the verbs that there are. */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hpctl/command.h"
#include "hpctl/command_help.h"
#include "hpctl/verbs.h"
#include "tests/test.h"

static const struct command_option options[] = {{"size", "N", "a size", 0},
                                                {"count", "N", "a count", 0},
                                                {"way", "a|b", "a way", 0},
                                                {"fast", NULL, "a flag", 0},
                                                {0}};
static const struct command a_verb = {.path = "a verb", .summary = "s", .options = options};

static struct invocation with(const char *size, const char *count, const char *way)
{
    return (struct invocation){.command = &a_verb, .values = {size, count, way}};
}

TEST(sizes_are_read_with_their_suffixes)
{
    static const struct {
        const char *text;
        uint64_t bytes;
        int rc;
    } cases[] = {
        {"500", 500, 0},
        {"4GiB", UINT64_C(4) << 30, 0},
        {"500MB", 500000000, 0},
        {"12e9", UINT64_C(12000000000), 0},
        {"1.5k", 1536, 0},
        {"2G", UINT64_C(2) << 30, 0},
        {"1TiB", UINT64_C(1) << 40, 0},
        {"4gib", UINT64_C(4) << 30, 0},
        {"0", 0, HP_EUSAGE},
        {"", 0, HP_EUSAGE},
        {"GiB", 0, HP_EUSAGE},
        {"4 GiB", 0, HP_EUSAGE},
        {"-1", 0, HP_EUSAGE},
        {"1e30", 0, HP_EUSAGE},
        {"nan", 0, HP_EUSAGE},
        {"inf", 0, HP_EUSAGE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct invocation in = with(cases[i].text, NULL, NULL);
        struct err e = {0};
        uint64_t out = 1;
        int rc = invocation_bytes(&in, "size", 7, &out, &e);
        if (rc != cases[i].rc || (rc == 0 && out != cases[i].bytes))
            fail_msg("%s: %d, %llu", cases[i].text, rc, (unsigned long long)out);
        if (rc < 0)
            assert_non_null(strstr(e.text, "--size"));
    }
    struct invocation none = with(NULL, NULL, NULL);
    uint64_t out;
    assert_int_equal(invocation_bytes(&none, "size", 7, &out, NULL), 0);
    assert_int_equal(out, 7);
}

TEST(times_are_read_with_their_units)
{
    static const struct {
        const char *text;
        double seconds;
        int rc;
    } cases[] = {
        {"0.25s", 0.25, 0},   {"250ms", 0.25, 0},    {"250", 0, HP_EUSAGE}, {"1e3ms", 1, 0},
        {"0", 0, HP_EUSAGE},  {"-1s", 0, HP_EUSAGE}, {"", 0, HP_EUSAGE},    {"s", 0, HP_EUSAGE},
        {"1m", 0, HP_EUSAGE}, {"1 s", 0, HP_EUSAGE}, {"nan", 0, HP_EUSAGE}, {"infs", 0, HP_EUSAGE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct invocation in = with(NULL, cases[i].text, NULL);
        struct err e = {0};
        double out = -1;
        int rc = invocation_duration(&in, "count", 7, &out, &e);
        if (rc != cases[i].rc || (rc == 0 && out != cases[i].seconds))
            fail_msg("%s: %d, %g", cases[i].text, rc, out);
        if (rc < 0)
            assert_non_null(strstr(e.text, "--count"));
    }
    struct invocation none = with(NULL, NULL, NULL);
    double out;
    assert_int_equal(invocation_duration(&none, "count", 7, &out, NULL), 0);
    assert_true(out == 7);
}

TEST(whole_numbers_are_whole)
{
    static const char *const refused[] = {"-1", "1.5", "x", "", "1x", "1e300", "inf", "nan"};
    uint64_t out;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct invocation in = with(NULL, refused[i], NULL);
        assert_int_equal(invocation_u64(&in, "count", 3, &out, NULL), HP_EUSAGE);
    }
    struct invocation in = with(NULL, "2e3", NULL);
    assert_int_equal(invocation_u64(&in, "count", 3, &out, NULL), 0);
    assert_int_equal(out, 2000);
}

TEST(a_number_out_of_its_range_is_refused_with_the_range)
{
    static const struct {
        const char *text; /* NULL: the fallback, which may lie outside */
        int rc;
        uint64_t value;
    } cases[] = {{NULL, 0, 9}, {"2", 0, 2}, {"5", 0, 5}, {"1", HP_EUSAGE, 0}, {"6", HP_EUSAGE, 0}};
    struct err e = {0};
    uint64_t out;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct invocation in = with(NULL, cases[i].text, NULL);
        int rc = invocation_range(&in, "count", 9, 2, 5, &out, &e);
        if (rc != cases[i].rc || (rc == 0 && out != cases[i].value))
            fail_msg("%s: %d, %llu", cases[i].text, rc, (unsigned long long)out);
    }
    assert_string_equal(e.text, "--count: 6 is out of range: 2 to 5");
}

TEST(a_number_above_zero_may_have_a_limit)
{
    struct err e = {0};
    double out;
    struct invocation in = with(NULL, "0", NULL);
    assert_int_equal(invocation_above_zero(&in, "count", 1, INFINITY, &out, &e), HP_EUSAGE);
    assert_string_equal(e.text, "--count: 0 is out of range: above 0");
    in = with(NULL, "2.5", NULL);
    assert_int_equal(invocation_above_zero(&in, "count", 1, 2, &out, &e), HP_EUSAGE);
    assert_string_equal(e.text, "--count: 2.5 is out of range: above 0, at most 2");
    assert_int_equal(invocation_above_zero(&in, "count", 1, 2.5, &out, &e), 0);
    assert_true(out == 2.5);
    in = with(NULL, NULL, NULL);
    assert_int_equal(invocation_above_zero(&in, "count", 0, 2, &out, &e), 0);
    assert_true(out == 0);
}

TEST(a_choice_is_one_of_its_words_and_an_error_lists_them)
{
    static const char *const words[] = {"a", "b", NULL};
    struct err e = {0};
    int out;
    struct invocation in = with(NULL, NULL, "b");
    assert_int_equal(invocation_choice(&in, "way", words, 0, &out, &e), 0);
    assert_int_equal(out, 1);
    in = with(NULL, NULL, "c");
    assert_int_equal(invocation_choice(&in, "way", words, 0, &out, &e), HP_EUSAGE);
    assert_non_null(strstr(e.text, "none of a, b"));
}

/* ---- command_main ---- */

static char seen[200];

static int see(struct invocation *in, struct err *e)
{
    snprintf(seen, sizeof seen, "%s %d %s %s json=%d output=%s", in->command->path, in->n_arguments,
             in->n_arguments ? in->arguments[0] : "", invocation_flag(in, "fast") ? "fast" : "slow",
             in->json, in->output ? in->output : "");
    return in->n_arguments ? 0 : err_set(e, HP_ENOENT, "nothing");
}

static int see_version(struct invocation *in, struct err *e)
{
    (void)e;
    snprintf(seen, sizeof seen, "%s", in->command->path);
    return 0;
}

static const struct command table[] = {
    {.path = "version", .summary = "s", .run = see_version},
    {.path = "see",
     .arguments = "X",
     .max_arguments = 1,
     .summary = "s",
     .options = options,
     .run = see},
    {.path = "see all",
     .arguments = "X",
     .max_arguments = 1,
     .summary = "s",
     .options = options,
     .run = see,
     .makes_file = true},
    {.path = "group one", .summary = "s", .run = see},
    {.path = "other group", .summary = "s", .run = see},
    {0},
};
static const struct command *const tables[] = {table, NULL};

static char said[4000]; /* on standard output and error */

/* Runs a line of words; what it prints goes to `said`. */
static int run_line(const char *line)
{
    char copy[200], *argv[16] = {copy}, *save = NULL;
    int argc = 0, out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO);
    snprintf(copy, sizeof copy, "%s", line);
    for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
        argv[argc++] = w;
    argv[argc] = NULL;
    fflush(NULL);
    FILE *file = tmpfile();
    dup2(fileno(file), STDOUT_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    seen[0] = '\0';
    optind = 0; /* getopt forgets the line before */
    getopt(1, argv, "");
    int rc = command_main(argc, argv, tables);
    fflush(NULL);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    close(out);
    close(err);
    rewind(file);
    said[fread(said, 1, sizeof said - 1, file)] = '\0';
    fclose(file);
    return rc;
}

TEST(the_longest_path_is_the_verb)
{
    assert_int_equal(run_line("hpctl see a"), 0);
    assert_string_equal(seen, "see 1 a slow json=0 output=");
    assert_int_equal(run_line("hpctl see all a --fast"), 0);
    assert_string_equal(seen, "see all 1 a fast json=0 output=");
}

TEST(minus_o_is_json_or_a_file)
{
    run_line("hpctl see a -o json");
    assert_string_equal(seen, "see 1 a slow json=1 output=");
    run_line("hpctl see a -o f.json"); /* a verb without a file of its own: its JSON goes there */
    assert_string_equal(seen, "see 1 a slow json=1 output=f.json");
    run_line("hpctl see all a -o f");
    assert_string_equal(seen, "see all 1 a slow json=0 output=f");
    run_line("hpctl see all a -o -");
    assert_string_equal(seen, "see all 1 a slow json=1 output=");
}

TEST(mistakes_have_exit_code_2_and_failures_their_own)
{
    assert_int_equal(run_line("hpctl none"), 2);
    assert_int_equal(run_line("hpctl see a b"), 2);
    assert_int_equal(run_line("hpctl see --none"), 2);
    assert_int_equal(run_line("hpctl see --size"), 2);
    assert_int_equal(run_line("hpctl see"), 4);
    assert_int_equal(run_line("hpctl --help"), 0);
    assert_int_equal(run_line("hpctl see --help"), 0);
}

TEST(a_mistake_is_named)
{
    static const struct {
        const char *line, *says;
    } cases[] = {
        {"hpctl see --size", "--size lacks its value"},
        {"hpctl see -o", "-o lacks its value"},
        {"hpctl see --none", "--none is unknown"},
        {"hpctl see -x", "-x is unknown"},
        {"hpctl see --fast=1", "--fast=1 is unknown, or takes no value"},
        {"hpctl -o json see", "a verb first"},
        {"hpctl --context home see", "a verb first"},
        {"hpctl sea a", "there is no verb \"sea a\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(run_line(cases[i].line), 2);
        if (!strstr(said, cases[i].says))
            fail_msg("%s: %s", cases[i].line, said);
    }
}

TEST(what_was_meant_by_a_misspelt_word_is_said)
{
    static const struct {
        const char *line, *says;
    } cases[] = {
        {"hpctl see --siez", "did you mean --size?"},
        {"hpctl see --siez=3", "did you mean --size?"},
        {"hpctl see --outputs", "did you mean --output?"},
        {"hpctl see --nothing", NULL},
        {"hpctl sea a", "did you mean `hpctl see`?"},
        {"hpctl see alll b", "did you mean `hpctl see all`?"}, /* `see` takes one argument */
        {"hpctl se all", "did you mean `hpctl see`?"},
        {"hpctl all", "did you mean `hpctl see all`?"},
        {"hpctl group onee", "did you mean `hpctl group one`?"},
        {"hpctl group nothing", NULL}, /* no "other group": "group" begins verbs itself */
        {"hpctl nothing", NULL},
        {"hpctl pull m", NULL}, /* these tables have no such verb */
        {"hpctl s", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(run_line(cases[i].line), 2);
        const char *meant = strstr(said, "did you mean");
        if (!meant != !cases[i].says ||
            (meant && strncmp(meant, cases[i].says, strlen(cases[i].says)) != 0))
            fail_msg("%s: %s", cases[i].line, said);
    }
}

TEST(help_lists_each_verb_once_below_a_heading_that_a_group_does_without)
{
    char *text = NULL;
    size_t n = 0, lines = 0, verbs = 0;
    FILE *out = open_memstream(&text, &n);
    command_print_overview(out, command_tables, NULL);
    fclose(out);
    const char *heading = strstr(text, "\nplanning:\n");
    assert_non_null(heading);
    assert_non_null(strstr(heading, "\n  plan pools "));
    for (const char *at = text; (at = strstr(at, "\n  ")); at++)
        lines++;
    for (const struct command *const *t = command_tables; *t; t++)
        for (const struct command *c = *t; c->path; c++)
            verbs++;
    assert_int_equal(lines, verbs);
    free(text);
    out = open_memstream(&text, &n);
    command_print_overview(out, command_tables, "plan ");
    fclose(out);
    assert_null(strstr(text, "planning:"));
    free(text);
}

TEST(help_and_version_are_found_where_other_programs_have_them)
{
    assert_int_equal(run_line("hpctl help see all"), 0);
    assert_non_null(strstr(said, "usage: hpctl see all"));
    assert_int_equal(run_line("hpctl help"), 0);
    assert_int_equal(run_line("hpctl --version"), 0);
    assert_string_equal(seen, "version");
}

/* ---- the verbs that there are ---- */

TEST(every_verb_has_a_summary_and_examples_of_it)
{
    for (const struct command *const *t = command_tables; *t; t++)
        for (const struct command *c = *t; c->path; c++) {
            char names[100], line[300];
            snprintf(names, sizeof names, "hpctl %s", c->path);
            if (!c->summary || !c->run || !c->examples)
                fail_msg("%s lacks something", c->path);
            snprintf(line, sizeof line, "%.*s", (int)strcspn(c->examples, "\n"), c->examples);
            if (strncmp(line, "  ", 2) != 0 || !strstr(line, names))
                fail_msg("the first example of %s is of another verb: %s", c->path, c->examples);
            if (c->min_arguments > c->max_arguments || (c->max_arguments && !*c->arguments))
                fail_msg("%s takes arguments that its usage does not name", c->path);
        }
}

TEST(no_two_verbs_and_no_two_options_of_one_have_one_name)
{
    for (const struct command *const *t = command_tables; *t; t++)
        for (const struct command *c = *t; c->path; c++) {
            int same = 0, n = 0;
            for (const struct command *const *u = command_tables; *u; u++)
                for (const struct command *d = *u; d->path; d++)
                    same += strcmp(c->path, d->path) == 0;
            if (same != 1)
                fail_msg("%s is there %d times", c->path, same);
            for (const struct command_option *o = c->options; o && o->name; o++, n++)
                for (const struct command_option *p = c->options; p != o; p++)
                    if (strcmp(o->name, p->name) == 0)
                        fail_msg("%s has --%s twice", c->path, o->name);
            assert_true(n < COMMAND_MAX_OPTIONS);
        }
}

TEST(an_option_that_is_given_again_has_all_its_values_in_their_order)
{
    struct invocation in = {.command = &a_verb,
                            .given = {{0, "one"}, {1, "7"}, {0, "two"}, {0, "three"}},
                            .n_given = 4};
    const char *all[2] = {NULL};
    assert_int_equal(invocation_values(&in, "size", all, 2), 3);
    assert_string_equal(all[0], "one");
    assert_string_equal(all[1], "two");
    assert_int_equal(invocation_values(&in, "count", all, 2), 1);
    assert_string_equal(all[0], "7");
    assert_int_equal(invocation_values(&in, "way", all, 2), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_option_that_is_given_again_has_all_its_values_in_their_order),
        cmocka_unit_test(sizes_are_read_with_their_suffixes),
        cmocka_unit_test(times_are_read_with_their_units),
        cmocka_unit_test(whole_numbers_are_whole),
        cmocka_unit_test(a_number_out_of_its_range_is_refused_with_the_range),
        cmocka_unit_test(a_number_above_zero_may_have_a_limit),
        cmocka_unit_test(a_choice_is_one_of_its_words_and_an_error_lists_them),
        cmocka_unit_test(the_longest_path_is_the_verb),
        cmocka_unit_test(minus_o_is_json_or_a_file),
        cmocka_unit_test(a_mistake_is_named),
        cmocka_unit_test(what_was_meant_by_a_misspelt_word_is_said),
        cmocka_unit_test(help_lists_each_verb_once_below_a_heading_that_a_group_does_without),
        cmocka_unit_test(help_and_version_are_found_where_other_programs_have_them),
        cmocka_unit_test(mistakes_have_exit_code_2_and_failures_their_own),
        cmocka_unit_test(every_verb_has_a_summary_and_examples_of_it),
        cmocka_unit_test(no_two_verbs_and_no_two_options_of_one_have_one_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
