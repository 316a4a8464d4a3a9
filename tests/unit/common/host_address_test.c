#include <stdint.h>
#include <string.h>

#include "common/host_address.h"
#include "tests/test.h"

TEST(only_hosts_of_loopback_are_loopback)
{
    static const struct {
        const char *host;
        bool expected;
    } cases[] = {
        {"127.0.0.1", true},
        {"127.255.0.9", true},
        {"localhost", true},
        {"LocalHost", true},
        {"::1", true},
        {"0:0:0:0:0:0:0:1", true},
        {"::ffff:127.0.0.1", true},
        {"127.evil.example", false},
        {"127.", false},
        {"127.1", false},
        {"128.0.0.1", false},
        {"0.0.0.0", false},
        {"::", false},
        {"::2", false},
        {"localhost.", false},
        {"localhost.evil", false},
        {"", false},
        {"::ffff:10.0.0.1", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (host_is_loopback(cases[i].host) != cases[i].expected)
            fail_msg("%s: %s", cases[i].host, cases[i].expected ? "is loopback" : "is not");
}

TEST(an_address_is_taken_apart_or_refused)
{
    static const struct {
        const char *address, *host; /* NULL: refused */
        bool loopback;
    } cases[] = {
        {"127.0.0.1:7070", "127.0.0.1", true},
        {"127.0.0.1", "127.0.0.1", true},
        {"localhost:7070", "localhost", true},
        {"localhost", "localhost", true},
        {"[::1]:7070", "::1", true},
        {"[::1]", "::1", true},
        {"127.box.example:7070", "127.box.example", false},
        {"localhosts:7070", "localhosts", false},
        {"[::1]x:7070", NULL, false},
        {"[::10]:7070", "::10", false},
        {"10.0.0.5:7070", "10.0.0.5", false},
        {"box:70700000", NULL, false},
        {"box:", NULL, false},
        {"user@127.0.0.1:80", NULL, false},
        {"[::1", NULL, false},
        {":7070", NULL, false},
        {"", NULL, false},
        {"a-name-that-does-not-fit-in-so-little-room", NULL, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char host[24] = "";
        bool good = host_of_address(cases[i].address, host, sizeof host);
        if (good != (cases[i].host != NULL) || (good && strcmp(host, cases[i].host) != 0))
            fail_msg("%s: \"%s\"", cases[i].address, host);
        if (address_is_loopback(cases[i].address) != cases[i].loopback)
            fail_msg("%s: %s", cases[i].address, cases[i].loopback ? "is loopback" : "is not");
    }
}

TEST(a_host_alone_is_a_name_or_an_address)
{
    static const char *const good[] = {"api.example", "localhost", "10.1.2.3", "::1", "my_box-2"};
    static const char *const bad[] = {
        "",    "a b", "api.example:80", "http://api.example", "[::1]", "a/b", "a\n", "*.example",
        "a,b", "a\"b"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(host_is_name(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(host_is_name(bad[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_hosts_of_loopback_are_loopback),
        cmocka_unit_test(an_address_is_taken_apart_or_refused),
        cmocka_unit_test(a_host_alone_is_a_name_or_an_address),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
