#include <string.h>

#include "common/cluster.h"
#include "common/env.h"
#include "tests/test.h"

static int read_text(const char *text, struct cluster *c, struct err *e)
{
    json_t *root;
    struct json_at at;
    int rc = json_parse_at("c.json", text, strlen(text), &root, &at, e);
    if (rc < 0)
        return rc;
    rc = cluster_from_json(&at, c, e);
    json_decref(root);
    return rc;
}

TEST(hop_prefers_measured_then_peer_then_device_link_then_nics)
{
    static const char text[] =
        "{\"format\": \"hp-cluster/1\", \"nodes\": [{\"name\": \"a\", \"devices\": [{\"name\": "
        "\"g0\", \"kind\": \"X\", \"memory_bytes\": 8},"
        "{\"name\": \"g1\", \"kind\": \"X\", \"memory_bytes\": 8}, {\"name\": \"g2\", \"kind\": "
        "\"Y\", \"memory_bytes\": 8}],"
        "\"device_link\": {\"bandwidth_bytes_per_s\": 5}, \"peer_links\": [{\"between\": [\"g0\", "
        "\"g1\"], \"bandwidth_bytes_per_s\": 50}],"
        "\"nics\": [{\"bandwidth_bytes_per_s\": 3, \"latency_s\": 1}]},"
        "{\"name\": \"b\", \"count\": 2, \"devices\": [{\"name\": \"g0\", \"kind\": \"Y\", "
        "\"memory_bytes\": 8}], \"nics\": [{\"bandwidth_bytes_per_s\": 2, \"latency_s\": 2}]}],"
        "\"links\": [{\"from\": \"a/g0\", \"to\": \"b-1/g0\", \"bandwidth_bytes_per_s\": 7}]}";
    struct cluster c = {0};
    struct err e = {0};
    if (read_text(text, &c, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(c.n_devices, 5);
    assert_int_equal(c.n_pools, 2);
    assert_int_equal(c.pools[0].devices_per_node, 2);
    int g0 = cluster_find_device(&c, "a/g0"), g1 = cluster_find_device(&c, "a/g1"),
        g2 = cluster_find_device(&c, "a/g2");
    int b0 = cluster_find_device(&c, "b-0/g0"), b1 = cluster_find_device(&c, "b-1/g0");
    assert_true(cluster_hop(&c, g1, g0).bandwidth_bytes_per_s == 50);
    assert_true(cluster_hop(&c, g0, g2).bandwidth_bytes_per_s == 5);
    assert_true(cluster_hop(&c, g0, b0).bandwidth_bytes_per_s == 2);
    assert_true(cluster_hop(&c, g0, b0).latency_s == 3);
    assert_true(cluster_hop(&c, g0, b1).bandwidth_bytes_per_s == 7);
    assert_true(cluster_hop(&c, b1, g0).bandwidth_bytes_per_s == 7);
    cluster_free(&c);
}

TEST(errors_name_file_path_and_value)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"{\"format\": \"hp-cluster/2\"}",
         "c.json: $.format: is \"hp-cluster/2\", expected \"hp-cluster/1\""},
        {"{\"format\": \"hp-cluster/1\", \"nodes\": [{\"name\": \"a\", \"devices\": [{\"name\": "
         "\"g\", \"kind\": \"X\", \"memory_bytes\": -4}]}]}",
         "c.json: $.nodes[0].devices[0].memory_bytes: -4 is negative"},
        {"{\"format\": \"hp-cluster/1\", \"nodes\": [{\"name\": \"a\"}]}",
         "c.json: $.nodes[0]: has no \"devices\""},
        {"{\"format\": \"hp-cluster/1\"", "not valid JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cluster c = {0};
        struct err e = {0};
        assert_int_equal(read_text(cases[i].text, &c, &e), HP_EPARSE);
        if (!strstr(e.text, cases[i].says))
            fail_msg("expected \"%s\" in \"%s\"", cases[i].says, e.text);
    }
}

/* Each name is looked up among all others: with a walk through them this took minutes. */
TEST(a_cluster_of_200000_devices_is_read_within_seconds)
{
    static const char text[] =
        "{\"format\": \"hp-cluster/1\", \"nodes\": [{\"name\": \"a\", \"count\": 100000, "
        "\"devices\": "
        "[{\"name\": \"g0\", \"kind\": \"X\", \"memory_bytes\": 8}, {\"name\": \"g1\", \"kind\": "
        "\"X\", "
        "\"memory_bytes\": 8}]}], \"links\": [{\"from\": \"a-0/g0\", \"to\": \"a-99999/g1\", "
        "\"bandwidth_bytes_per_s\": 7}]}";
    struct cluster c = {0};
    struct err e = {0};
    uint64_t from_ns = env_now_ns(&env_real);
    if (read_text(text, &c, &e) < 0)
        fail_msg("%s", e.text);
    assert_true((double)(env_now_ns(&env_real) - from_ns) * 1e-9 < 5 * env_time_scale());
    assert_int_equal(c.n_devices, 200000);
    assert_int_equal(c.links[0].to, 199999);
    assert_int_equal(c.pools[0].count, 200000);
    assert_int_equal(c.pools[0].devices_per_node, 2);
    cluster_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cluster_of_200000_devices_is_read_within_seconds),
        cmocka_unit_test(hop_prefers_measured_then_peer_then_device_link_then_nics),
        cmocka_unit_test(errors_name_file_path_and_value),
    };
    return cmocka_run_group_tests_name("cluster", tests, NULL, NULL);
}
