/* How the limits of a key are told. */
#include "common/bytes.h"
#include "coordinator/gateway/limit_headers.h"
#include "tests/test.h"

static void line_add(void *out, const char *name, const char *value)
{
    buffer_printf(out, "%s: %s\n", name, value);
}

TEST(durations_read_as_openai_writes_them)
{
    static const struct {
        double seconds;
        const char *text;
    } cases[] = {{0, "0s"},         {0.0201, "21ms"},   {1, "1s"},
                 {59.5, "59.500s"}, {360, "6m0s"},      {3599.2, "59m59s"},
                 {3600, "1h0m0s"},  {86400, "24h0m0s"}, {90061, "25h1m1s"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[LIMIT_DURATION_BYTES];
        limit_duration_write(cases[i].seconds, text);
        assert_string_equal(text, cases[i].text);
    }
}

TEST(limits_that_there_are_not_have_no_headers)
{
    struct buffer out = {0};
    struct request_limits none = {0}, some = {.requests = {60, 59, 1}, .tokens = {1000, 900, -1}};
    limit_headers_add(&none, line_add, &out);
    assert_int_equal(out.size, 0);
    limit_headers_add(&some, line_add, &out);
    assert_string_equal(buffer_cstr(&out), "x-ratelimit-limit-requests: 60\n"
                                           "x-ratelimit-remaining-requests: 59\n"
                                           "x-ratelimit-reset-requests: 1s\n"
                                           "x-ratelimit-limit-tokens: 1000\n"
                                           "x-ratelimit-remaining-tokens: 900\n");
    buffer_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durations_read_as_openai_writes_them),
        cmocka_unit_test(limits_that_there_are_not_have_no_headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
