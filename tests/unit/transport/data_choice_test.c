/* Claims about which kind of data endpoint a box opens. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "tests/test.h"
#include "transport/data_choice.h"

static void auto_is_ucx_only_where_no_stranger_is(void **state)
{
    static const struct {
        const char *mode, *trust, *host;
        enum data_kind kind;
    } cases[] = {
        {"auto", "", "127.0.0.1", DATA_KIND_UCX},
        {"auto", "", "127.8.9.10", DATA_KIND_UCX},
        {"auto", "", "::1", DATA_KIND_UCX},
        {"auto", "", "10.1.2.3", DATA_KIND_TCP},
        {"auto", "", "128.0.0.1", DATA_KIND_TCP},
        {"auto", "10.1.0.0/16", "10.1.255.3", DATA_KIND_UCX},
        {"auto", "10.1.0.0/16", "10.2.0.1", DATA_KIND_TCP},
        {"auto", "192.168.4.0/22,fd00::/8", "192.168.7.255", DATA_KIND_UCX},
        {"auto", "192.168.4.0/22,fd00::/8", "192.168.8.0", DATA_KIND_TCP},
        {"auto", "192.168.4.0/22,fd00::/8", "fd12::9", DATA_KIND_UCX},
        {"auto", "192.168.4.0/22 fd00::/8", "fe12::9", DATA_KIND_TCP},
        {"auto", "10.0.0.7", "10.0.0.7", DATA_KIND_UCX},
        {"auto", "10.0.0.7", "10.0.0.8", DATA_KIND_TCP},
        {"auto", "0.0.0.0/0", "8.8.8.8", DATA_KIND_UCX},
        {"auto", "", "not-numeric", DATA_KIND_TCP},
        {"tcp", "0.0.0.0/0", "127.0.0.1", DATA_KIND_TCP},
        {"ucx", "", "10.1.2.3", DATA_KIND_UCX},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct data_policy p;
        struct err e = {0};
        assert_int_equal(data_policy_set(&p, cases[i].mode, cases[i].trust, &e), 0);
        assert_int_equal(data_policy_kind(&p, cases[i].host), cases[i].kind);
    }
}

static void what_is_no_mode_or_network_is_refused_by_name(void **state)
{
    static const struct {
        const char *mode, *trust, *word;
    } cases[] = {
        {"udp", "", "udp"},
        {"auto", "10.0.0.0/33", "10.0.0.0/33"},
        {"auto", "10.0.0.0/8,home", "home"},
        {"auto", "10.0.0/8", ""},
        {"auto", "10.0.0.0/", ""},
        {"auto", "fd00::/129", "fd00::/129"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct data_policy p;
        struct err e = {0};
        assert_int_equal(data_policy_set(&p, cases[i].mode, cases[i].trust, &e), HP_EUSAGE);
        assert_non_null(strstr(e.text, cases[i].word));
    }
}

static void a_box_knows_its_address_on_the_way_to_another(void **state)
{
    char host[DATA_HOST_TEXT], interface[64];
    struct err e = {0};
    (void)state;
    assert_int_equal(data_host_find("lo", NULL, host, &e), 0);
    assert_string_equal(host, "127.0.0.1");
    assert_int_equal(data_host_find(NULL, "127.0.0.1:7070", host, &e), 0);
    assert_string_equal(host, "127.0.0.1");
    assert_int_equal(data_host_find(NULL, "localhost:7070", host, &e), 0);
    assert_true(data_interface_find("127.0.0.1", interface, sizeof interface));
    assert_string_equal(interface, "lo");
    assert_int_equal(data_host_find("nosuch0", NULL, host, &e), HP_ENOENT);
    assert_non_null(strstr(e.text, "nosuch0"));
    assert_int_equal(data_host_find(NULL, "nosuch.invalid:1", host, &e), HP_ELINK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(auto_is_ucx_only_where_no_stranger_is),
        cmocka_unit_test(what_is_no_mode_or_network_is_refused_by_name),
        cmocka_unit_test(a_box_knows_its_address_on_the_way_to_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
