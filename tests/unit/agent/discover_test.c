#include "agent/discover.h"
#include "common/cluster.h"
#include "tests/test.h"
#include "tests/unit/agent/store_fixture.h"

TEST(box_is_a_node_that_the_planner_can_read)
{
    struct discover_share share;
    struct buffer text = {0}, document = {0};
    struct err e = {0};
    char kind[DISCOVER_KIND];
    assert_int_equal(discover_share(NULL, 0, 0, &share, &e), 0);
    assert_true(share.n_cores >= 1 && share.n_threads >= 1 && share.n_threads <= share.n_cores);
    assert_true(share.memory_bytes > 64 << 20);
    assert_int_equal(discover_node("here", &share, "lo", &text, &kind, &e), 0);
    buffer_printf(&document, "{\"format\": \"hp-cluster/1\", \"nodes\": [%s]}", buffer_cstr(&text));
    json_t *root;
    struct json_at at;
    struct cluster c = {0};
    if (json_parse_at("node", document.data, document.size, &root, &at, &e) < 0 ||
        cluster_from_json(&at, &c, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(c.n_devices, 1);
    assert_string_equal(c.devices[0].id, "here/cpu");
    assert_string_equal(c.devices[0].kind, kind);
    assert_true(c.devices[0].memory_bytes == (double)discover_stage_bytes(&share));
    assert_string_equal(c.nodes[0].nics[0].name, "lo");
    cluster_free(&c);
    json_decref(root);
    buffer_free(&text);
    buffer_free(&document);
}

TEST(kind_is_the_same_every_time_and_tells_the_share)
{
    char kinds[3][DISCOVER_KIND];
    for (int i = 0; i < 3; i++) {
        struct discover_share share;
        struct buffer text = {0};
        assert_int_equal(discover_share("any:1", i == 2 ? 2 : 1, 1000, &share, NULL), 0);
        assert_int_equal(discover_node("n", &share, "lo", &text, &kinds[i], NULL), 0);
        buffer_free(&text);
    }
    assert_string_equal(kinds[0], kinds[1]);
    assert_string_not_equal(kinds[0], kinds[2]);
    assert_non_null(strstr(kinds[0], "-1c1t"));
    assert_null(strpbrk(kinds[0], " /\"\\"));
}

TEST(share_is_what_was_given)
{
    struct discover_share all, share;
    char text[64];
    assert_int_equal(discover_share(NULL, 0, 0, &all, NULL), 0);
    int core = all.cores[all.n_cores - 1];
    snprintf(text, sizeof text, "%d", core);
    assert_int_equal(discover_share(text, 3, 12345, &share, NULL), 0);
    assert_int_equal(share.n_cores, 1);
    assert_int_equal(share.cores[0], core); /* a lone number is a core, not a count */
    assert_int_equal(share.n_threads, 3);
    assert_int_equal(share.memory_bytes, 12345);
    if (all.n_cores >= 2 && all.cores[1] == all.cores[0] + 1) {
        snprintf(text, sizeof text, "%d-%d", all.cores[0], all.cores[1]);
        assert_int_equal(discover_share(text, 0, 0, &share, NULL), 0);
        assert_int_equal(share.n_cores, 2);
    }
}

TEST(cores_that_there_are_not_are_refused_by_name)
{
    static const char *const bad[] = {"",    "x",     "0,",        ",0",    "0-", "1-0", "100000",
                                      "0,0", "any:0", "any:99999", "any:x", "-1", "0x"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct discover_share share;
        struct err e = {0};
        if (discover_share(bad[i], 0, 0, &share, &e) != HP_EUSAGE || !strstr(e.text, "--cores"))
            fail_msg("\"%s\": %d %s", bad[i], e.code, e.text);
    }
}

static void nic_file(const char *folder, const char *name, const char *file, const char *text)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    mkdir(path, 0755);
    snprintf(path, sizeof path, "%s/%s/%s", folder, name, file);
    FILE *f = fopen(path, "w");
    fputs(text, f);
    fclose(f);
}

TEST(fastest_nic_that_is_up_comes_first)
{
    static const struct {
        const char *name, *speed, *operstate, *type;
    } nics[] = {
        {"lo", "", "unknown", "772"},          {"eth0", "1000\n", "up\n", "1\n"},
        {"eth1", "100000\n", "down\n", "1\n"}, {"eth2", "10000\n", "up\n", "1\n"},
        {"virt0", "-1\n", "up\n", "1\n"},      {"veth9", "10000\n", "up\n", "1\n"},
        {"tun0", "10\n", "up\n", "65534\n"},
    };
    char folder[256];
    struct buffer text = {0};
    test_folder_make(folder);
    for (size_t i = 0; i < sizeof nics / sizeof *nics; i++) {
        nic_file(folder, nics[i].name, "speed", nics[i].speed);
        nic_file(folder, nics[i].name, "operstate", nics[i].operstate);
        nic_file(folder, nics[i].name, "type", nics[i].type);
    }
    assert_int_equal(discover_nics(folder, NULL, &text, NULL), 0);
    json_t *list = json_loads(buffer_cstr(&text), 0, NULL);
    static const char *const order[] = {"eth2", "eth0", "virt0", "eth1"};
    assert_int_equal(json_array_size(list), 4);
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(json_string_value(json_object_get(json_array_get(list, i), "name")),
                            order[i]);
    assert_true(json_real_value(
                    json_object_get(json_array_get(list, 0), "bandwidth_bytes_per_s")) == 1.25e9);
    assert_true(json_is_true(json_object_get(json_array_get(list, 2), "assumed")));
    json_decref(list);
    text.size = 0;
    assert_int_equal(discover_nics(folder, "eth0", &text, NULL), 0);
    assert_non_null(strstr(buffer_cstr(&text), "eth0"));
    assert_null(strstr(buffer_cstr(&text), "eth2"));
    buffer_free(&text);
    test_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(box_is_a_node_that_the_planner_can_read),
        cmocka_unit_test(kind_is_the_same_every_time_and_tells_the_share),
        cmocka_unit_test(share_is_what_was_given),
        cmocka_unit_test(cores_that_there_are_not_are_refused_by_name),
        cmocka_unit_test(fastest_nic_that_is_up_comes_first),
    };
    return cmocka_run_group_tests_name("discover", tests, NULL, NULL);
}
