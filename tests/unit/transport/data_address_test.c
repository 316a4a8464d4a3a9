#include <string.h>

#include "tests/test.h"
#include "transport/data_address.h"

#define KEY "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static int parse(const char *text, struct data_address *out, struct err *e)
{
    return data_address_parse((const uint8_t *)text, strlen(text), out, e);
}

TEST(an_address_is_printed_as_it_was_read)
{
    static const char *const texts[] = {
        "tcp:10.0.0.5:7071:" KEY, "ucx:127.0.0.1:1:" KEY, "tcp:[fd00::5]:65535:" KEY,
        "ucx:[ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255]:65535:" KEY};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct data_address a;
        char text[DATA_ADDRESS_TEXT];
        assert_int_equal(parse(texts[i], &a, NULL), 0);
        assert_int_equal(data_address_print(&a, text), strlen(texts[i]));
        assert_string_equal(text, texts[i]);
        assert_int_equal(a.kind, i % 2 ? DATA_KIND_UCX : DATA_KIND_TCP);
    }
}

TEST(what_is_no_address_is_refused_with_what_is_wrong)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "0 bytes"},
        {"tcp:", "4 bytes"},
        {"udp:10.0.0.5:7071:" KEY, "kind"},
        {"tcpx10.0.0.5:7071:" KEY, "kind"},
        {"tcp:example.org:7071:" KEY, "host"},
        {"tcp:10.0.0.5.6:7071:" KEY, "host"},
        {"tcp:fd00::5:7071:" KEY, "host"},
        {"tcp:[10.0.0.5]:7071:" KEY, "host"},
        {"tcp:[fd00::5]7071:" KEY, "host"},
        {"tcp:[fd00::5", "host"},
        {"tcp:10.0.0.5:0:" KEY, "port"},
        {"tcp:10.0.0.5:07071:" KEY, "port"},
        {"tcp:10.0.0.5:65536:" KEY, "port"},
        {"tcp:10.0.0.5:-1:" KEY, "port"},
        {"tcp:10.0.0.5:7071", "port"},
        {"tcp:10.0.0.5:7071:", "key"},
        {"tcp:10.0.0.5:7071:" KEY "0", "key"},
        {"tcp:10.0.0.5:7071:0x112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
         "key"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct data_address a;
        struct err e = {0};
        assert_int_equal(parse(cases[i].text, &a, &e), HP_EINVAL);
        if (!strstr(e.text, cases[i].says))
            fail_msg("%s: %s", cases[i].text, e.text);
    }
    uint8_t zero[20] = "tcp:1";
    assert_int_equal(data_address_parse(zero, sizeof zero, &(struct data_address){0}, NULL),
                     HP_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_is_printed_as_it_was_read),
        cmocka_unit_test(what_is_no_address_is_refused_with_what_is_wrong),
    };
    return cmocka_run_group_tests_name("data_address", tests, NULL, NULL);
}
