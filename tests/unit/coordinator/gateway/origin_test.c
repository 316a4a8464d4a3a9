/* Which Hosts and Origins are this box's own. */
#include <stddef.h>
#include <stdint.h>

#include "coordinator/gateway/origin.h"
#include "tests/test.h"

static const char *const given[] = {"api.example", "gpu-box"};
static const struct origin_names names = {given, 2};

TEST(a_host_header_is_taken_apart_before_it_is_believed)
{
    static const struct {
        const char *value;
        bool expected;
    } cases[] = {
        {"localhost:8080", true},
        {"127.0.0.1", true},
        {"[::1]:80", true},
        {"[::1]", true},
        {"api.example:443", true},
        {"API.example", true},
        {"gpu-box", true},
        {"evil.example", false},
        {"api.example.evil", false},
        {"localhost:8080:1", false},
        {"localhost:x", false},
        {"localhost:", false},
        {"localhost:123456", false},
        {"localhost@evil", false},
        {"localhost/evil", false},
        {"[::1", false},
        {"[::1]x", false},
        {"", false},
        {":80", false},
        {"[]:80", false},
        {"localhost evil", false},
        {"::1", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (host_is_own(cases[i].value, &names) != cases[i].expected)
            fail_msg("Host: %s", cases[i].value);
}

TEST(an_origin_is_judged_by_its_host)
{
    static const struct {
        const char *value;
        bool expected;
    } cases[] = {
        {"http://localhost:3000", true},  {"https://api.example", true},
        {"http://[::1]:1", true},         {"null", false},
        {"http://evil.example", false},   {"https://localhost.evil", false},
        {"file://localhost", false},      {"localhost", false},
        {"http://localhost/evil", false}, {"http://localhost@evil", false},
        {"chrome-extension://x", false},  {"http://", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (origin_is_own(cases[i].value, &names) != cases[i].expected)
            fail_msg("Origin: %s", cases[i].value);
}

TEST(origins_in_a_list_are_compared_as_a_whole)
{
    static const char *const listed[] = {"https://app.example", "http://10.0.0.5:3000"};
    static const struct origin_names origins = {listed, 2};
    static const struct {
        const char *value;
        bool whole, is_listed;
    } cases[] = {
        {"https://app.example", true, true},
        {"HTTPS://APP.example", true, true},
        {"http://10.0.0.5:3000", true, true},
        {"http://10.0.0.5", true, false},
        {"http://app.example", true, false},
        {"https://app.example:8443", true, false},
        {"https://app.example.evil", true, false},
        {"null", false, false},
        {"*", false, false},
        {"https://app.example/", false, false},
        {"https://*.example", false, false},
        {"https://", false, false},
        {"https://a b", false, false},
        {"app.example", false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (origin_is_whole(cases[i].value) != cases[i].whole ||
            origin_is_listed(cases[i].value, &origins) != cases[i].is_listed)
            fail_msg("%s", cases[i].value);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_host_header_is_taken_apart_before_it_is_believed),
        cmocka_unit_test(an_origin_is_judged_by_its_host),
        cmocka_unit_test(origins_in_a_list_are_compared_as_a_whole),
    };
    return cmocka_run_group_tests_name("origin", tests, NULL, NULL);
}
