/* The requests of a load: drawn, and read from files. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hpctl/load_plan.h"
#include "tests/test.h"

static struct load_options options_of(enum arrivals_kind kind, double rate, double seconds)
{
    return (struct load_options){.kind = kind,
                                 .deployment = "demo",
                                 .rate_per_s = rate,
                                 .seconds = seconds,
                                 .prompt = {20, 40, false},
                                 .answer = {5, 5, false},
                                 .seed = 7};
}

TEST(lengths_are_one_number_a_range_or_lognormal)
{
    static const struct {
        const char *text;
        struct load_lengths want;
    } good[] = {{"200", {200, 200, false}},
                {"200..2000", {200, 2000, false}},
                {"lognormal:1..9", {1, 9, true}},
                {"lognormal:64", {64, 64, true}}};
    static const char *const bad[] = {
        "",          "0",     "-4",          "9..3", "3..",   "..3",
        "3...4",     "64..x", "normal:1..2", "1.5",  "3..4 ", "1..99999999999",
        "lognormal:"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct load_lengths l;
        assert_int_equal(load_lengths_parse(good[i].text, "prompt-tokens", &l, NULL), 0);
        assert_true(l.least == good[i].want.least && l.most == good[i].want.most &&
                    l.lognormal == good[i].want.lognormal);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct load_lengths l;
        struct err e = {0};
        if (load_lengths_parse(bad[i], "prompt-tokens", &l, &e) != HP_EUSAGE)
            fail_msg("\"%s\" is a length", bad[i]);
        assert_non_null(strstr(e.text, "--prompt-tokens"));
    }
}

TEST(arrivals_have_their_rate_and_lengths_and_come_again_with_the_seed)
{
    for (int kind = 0; kind < ARRIVALS_TRACE; kind++) {
        struct load_options o = options_of((enum arrivals_kind)kind, 50, 40);
        struct load_plan a, b;
        double last = 0, prompt = 0;
        assert_int_equal(load_plan_make(&o, &a, NULL), 0);
        assert_int_equal(load_plan_make(&o, &b, NULL), 0);
        assert_true(a.n > 1700 && a.n < 2300 && a.n == b.n);
        assert_memory_equal(a.requests, b.requests, a.n * sizeof *a.requests);
        for (size_t i = 0; i < a.n; i++) {
            const struct load_request *r = &a.requests[i];
            assert_true(r->at_s >= last && r->at_s < 40);
            assert_true(r->prompt_tokens >= 20 && r->prompt_tokens <= 40 && r->answer_tokens == 5);
            last = r->at_s;
            prompt += r->prompt_tokens;
        }
        assert_true(fabs(prompt / (double)a.n - 30) < 1);
        load_plan_free(&b);
        o.seed = 8;
        assert_int_equal(load_plan_make(&o, &b, NULL), 0);
        assert_true(a.requests[0].at_s != b.requests[0].at_s);
        load_plan_free(&a);
        load_plan_free(&b);
    }
}

TEST(lognormal_lengths_have_their_median_and_stay_within)
{
    struct load_options o = options_of(ARRIVALS_UNIFORM, 1000, 10);
    struct load_plan p;
    size_t below = 0, outside = 0;
    o.prompt = (struct load_lengths){100, 10000, true};
    assert_int_equal(load_plan_make(&o, &p, NULL), 0);
    for (size_t i = 0; i < p.n; i++) {
        uint32_t n = p.requests[i].prompt_tokens;
        assert_true(n >= 100 && n <= 10000);
        below += n < 1000;
        outside += n == 100 || n == 10000;
    }
    assert_true(fabs((double)below / (double)p.n - 0.5) < 0.03);
    assert_true(fabs((double)outside / (double)p.n - 0.05) < 0.02);
    load_plan_free(&p);
}

static int plan_of(const char *content, struct load_options o, struct load_plan *p, struct err *e)
{
    char path[] = "/tmp/hp-load-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, content, strlen(content)) == (ssize_t)strlen(content));
    close(fd);
    o.kind = ARRIVALS_TRACE;
    o.file = path;
    int rc = load_plan_make(&o, p, e);
    unlink(path);
    return rc;
}

TEST(a_file_says_when_for_whom_and_how_long)
{
    struct load_options o = options_of(ARRIVALS_TRACE, 0, INFINITY);
    struct load_plan p;
    static const char content[] = "seconds,model,prompt,answer\n0.5\n1,other\n1.5, demo\n\n"
                                  "2,1000,10\r\n3,demo,2000,20\n4,other,1,1\n6\n";
    assert_int_equal(plan_of(content, o, &p, NULL), 0);
    assert_int_equal(p.n, 5);
    assert_true(p.requests[0].at_s == 0.5 && p.requests[1].at_s == 1.5 && p.seconds == 6);
    assert_true(p.requests[2].prompt_tokens == 1000 && p.requests[2].answer_tokens == 10);
    assert_true(p.requests[3].prompt_tokens == 2000 && p.requests[3].answer_tokens == 20);
    load_plan_free(&p);
    o.seconds = 3;
    assert_int_equal(plan_of(content, o, &p, NULL), 0);
    assert_int_equal(p.n, 3);
    load_plan_free(&p);
    o.seconds = INFINITY;
    o.rate_per_s = 2; /* 5 requests over 5.5 s become 5 over 2.5 s */
    assert_int_equal(plan_of(content, o, &p, NULL), 0);
    assert_true(fabs(p.requests[4].at_s - p.requests[0].at_s - 2.5) < 1e-9);
    load_plan_free(&p);
    assert_int_equal(plan_of("\xef\xbb\xbf"
                             "0\n1\n",
                             o, &p, NULL),
                     0); /* as spreadsheets write it */
    assert_int_equal(p.n, 2);
    load_plan_free(&p);
    assert_int_equal(plan_of("0\n1e-320\n", o, &p, NULL), 0); /* closer than any pace */
    assert_true(isfinite(p.requests[0].at_s) && isfinite(p.requests[1].at_s));
    load_plan_free(&p);
}

TEST(bad_files_are_refused_by_line)
{
    static const struct {
        const char *content, *says;
        int code;
    } cases[] = {{"1\nx\n", "line 2: begins with no number", HP_EPARSE},
                 {"-1\n", "line 1: is before the start", HP_EPARSE},
                 {"2\n1\n", "line 2: is earlier", HP_EPARSE},
                 {"1,demo,2,3,4\n", "line 1: has more fields", HP_EPARSE},
                 {"1,demo,2,x\n", "line 1: ends with no two numbers", HP_EPARSE},
                 {"1,0,5\n", "line 1: ends with no two numbers", HP_EPARSE},
                 {"0\n1e300\n", "too far in the future", HP_EINVAL},
                 {"seconds\n", "has no request for \"demo\"", HP_EINVAL},
                 {"1,other\n", "has no request for \"demo\"", HP_EINVAL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct load_plan p;
        struct err e = {0};
        assert_int_equal(plan_of(cases[i].content, options_of(ARRIVALS_TRACE, 0, INFINITY), &p, &e),
                         cases[i].code);
        if (!strstr(e.text, cases[i].says))
            fail_msg("\"%s\" does not say \"%s\"", e.text, cases[i].says);
        assert_null(p.requests);
    }
    struct load_options o = options_of(ARRIVALS_TRACE, 0, INFINITY);
    struct load_plan p;
    o.rate_per_s = 1e-300;
    assert_int_equal(plan_of("0\n1\n", o, &p, NULL), HP_EINVAL);
    o.rate_per_s = 0;
    o.file = "/nowhere/a.csv";
    assert_int_equal(load_plan_make(&o, &p, NULL), HP_ENOENT);
    o.file = "/dev/zero"; /* no text, and no end */
    assert_int_equal(load_plan_make(&o, &p, NULL), HP_EPARSE);
    o = options_of(ARRIVALS_POISSON, 1e9, 1e9);
    assert_int_equal(load_plan_make(&o, &p, NULL), HP_ELIMIT);
    o = options_of(ARRIVALS_POISSON, 1e-6, 1);
    assert_int_equal(load_plan_make(&o, &p, NULL), HP_EINVAL);
}

/* What a prompt says, cut into its ids. */
static size_t ids_of(const struct load_plan *p, size_t index, uint32_t common, uint32_t *ids)
{
    struct buffer b = {0};
    size_t n = 0;
    load_prompt_write(p, index, 3, common, 300, &b);
    for (const char *at = buffer_cstr(&b) + 1; *at; at = strpbrk(at, ",]") + 1)
        ids[n++] = (uint32_t)atoi(at);
    buffer_free(&b);
    return n;
}

TEST(prompts_have_their_length_a_common_beginning_and_nothing_else_in_common)
{
    struct load_request requests[2] = {{0, 50, 1, 0}, {0, 60, 1, 1}};
    struct load_plan p = {.requests = requests, .n = 2};
    uint32_t a[64], b[64];
    size_t same = 0;
    assert_int_equal(ids_of(&p, 0, 20, a), 50);
    assert_int_equal(ids_of(&p, 1, 20, b), 60);
    assert_memory_equal(a, b, 20 * sizeof *a);
    for (size_t i = 0; i < 50; i++) {
        assert_true(a[i] >= 3 && a[i] < 300);
        same += i >= 20 && a[i] == b[i];
    }
    assert_true(same < 5);
    ids_of(&p, 0, 20, b);
    assert_memory_equal(a, b, 50 * sizeof *a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_are_one_number_a_range_or_lognormal),
        cmocka_unit_test(arrivals_have_their_rate_and_lengths_and_come_again_with_the_seed),
        cmocka_unit_test(lognormal_lengths_have_their_median_and_stay_within),
        cmocka_unit_test(a_file_says_when_for_whom_and_how_long),
        cmocka_unit_test(bad_files_are_refused_by_line),
        cmocka_unit_test(prompts_have_their_length_a_common_beginning_and_nothing_else_in_common),
    };
    return cmocka_run_group_tests_name("load plan", tests, NULL, NULL);
}
