/* Arrivals from CSV files. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/fs.h"
#include "hpctl/arrival_trace.h"
#include "tests/test.h"

static struct dispatch_model models[] = {{.name = "a"}, {.name = "b"}};
static const struct dispatch_topology two = {.models = models, .n_models = 2},
                                      one = {.models = models, .n_models = 1};

static int trace_open(struct arrival_trace *a, const char *text, const struct dispatch_topology *t,
                      struct err *e)
{
    static char path[] = "/tmp/hp-trace-XXXXXX";
    strcpy(path + strlen(path) - 6, "XXXXXX");
    close(mkstemp(path));
    assert_int_equal(fs_file_write(path, text, strlen(text), 0600, NULL), 0);
    *a = (struct arrival_trace){.stretch = 1};
    int rc = arrival_trace_open(a, path, t, -1, 1e9, e);
    a->stretch = 1;
    unlink(path);
    return rc;
}

TEST(requests_come_in_the_order_of_the_file)
{
    struct arrival_trace a;
    struct arrival r;
    struct err e = {0};
    if (trace_open(&a, "seconds,model\n0.5,a\n\n 1.25 , b \r\n2,a\t\n", &two, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(a.requests, 3);
    assert_true(a.span_s == 1.5);
    static const int expected[] = {0, 1, 0};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(arrival_trace_next(&a, &r, &e), 1);
        assert_int_equal(r.model, expected[i]);
    }
    assert_int_equal(arrival_trace_next(&a, &r, &e), 0);
    arrival_trace_close(&a);
}

TEST(one_model_needs_no_name)
{
    struct arrival_trace a;
    assert_int_equal(trace_open(&a, "0\n1\n", &one, NULL), 0);
    assert_int_equal(a.requests, 2);
    arrival_trace_close(&a);
    assert_int_equal(trace_open(&a,
                                "\xef\xbb\xbf"
                                "0\n1\n",
                                &one, NULL),
                     0); /* as spreadsheets write it */
    assert_int_equal(a.requests, 2);
    arrival_trace_close(&a);
}

TEST(what_is_wrong_names_its_line)
{
    static const struct {
        const char *text, *says;
        int rc;
    } cases[] = {
        {"0,a\nx,a\n", "line 2: begins with no number", HP_EPARSE},
        {"1,a\n0.5,a\n", "line 2: ", HP_EPARSE},
        {"-1,a\n", "line 1: ", HP_EPARSE},
        {"0,c\n", "line 1: the workload has no model \"c\"", HP_EPARSE},
        {"0\n", "line 1: names no model", HP_EPARSE},
        {"seconds\n", "has no request", HP_EINVAL},
        {"0,a\nnan,a\n", "line 2: begins with no number", HP_EPARSE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arrival_trace a;
        struct err e = {0};
        assert_int_equal(trace_open(&a, cases[i].text, &two, &e), cases[i].rc);
        if (!strstr(e.text, cases[i].says))
            fail_msg("\"%s\" does not say \"%s\"", e.text, cases[i].says);
    }
    struct arrival_trace a; /* no text, and no end */
    assert_int_equal(arrival_trace_open(&a, "/dev/zero", &two, -1, 1e9, NULL), HP_EPARSE);
}

TEST(what_a_stretch_puts_beyond_all_clocks_is_refused)
{
    static const double stretches[] = {1e300, INFINITY, NAN};
    for (size_t i = 0; i < sizeof stretches / sizeof *stretches; i++) {
        struct arrival_trace a;
        struct arrival r;
        struct err e = {0};
        int rc;
        assert_int_equal(trace_open(&a, "0\n1\n", &one, NULL), 0);
        a.stretch = stretches[i];
        while ((rc = arrival_trace_next(&a, &r, &e)) > 0)
            assert_true(r.at_ns == 0);
        assert_int_equal(rc, HP_EPARSE);
        assert_non_null(strstr(e.text, "too far in the future"));
        arrival_trace_close(&a);
    }
}

/* As `--arrivals <(..)` gives it: what was read once would not come again. */
TEST(a_pipe_is_refused_since_arrivals_are_read_twice)
{
    struct arrival_trace a;
    struct err e = {0};
    char path[40];
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "0\n1\n", 4), 4);
    close(ends[1]);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    assert_int_equal(arrival_trace_open(&a, path, &one, -1, 1e9, &e), HP_EINVAL);
    assert_non_null(strstr(e.text, "write them to a file"));
    close(ends[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_come_in_the_order_of_the_file),
        cmocka_unit_test(one_model_needs_no_name),
        cmocka_unit_test(what_is_wrong_names_its_line),
        cmocka_unit_test(what_a_stretch_puts_beyond_all_clocks_is_refused),
        cmocka_unit_test(a_pipe_is_refused_since_arrivals_are_read_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
