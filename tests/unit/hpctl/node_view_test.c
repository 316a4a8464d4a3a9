/* What `hpctl node describe` prints. */
#include <string.h>

#include "hpctl/node_view.h"
#include "tests/test.h"

static void assert_line(const char *text, const char *line)
{
    const char *at = strstr(text, line);
    if (!at || (at != text && at[-1] != '\n') || at[strlen(line)] != '\n')
        fail_msg("no line \"%s\" in\n%s", line, text);
}

TEST(an_agent_is_a_head_and_four_tables)
{
    json_t *node = json_loads(
        "{\"name\": \"a0\", \"state\": \"ready\", \"hostname\": \"box\", \"machine\": \"m\", "
        "\"program\": \"1\", \"memory_bytes\": 10e9, \"memory_free_bytes\": 9e9, \"heard_s\": 0.25,"
        "\"data_sent_bytes\": 0, \"data_received_bytes\": 5, \"dropped_stale\": 1, "
        "\"dropped_foreign\": 0, \"devices\": [{\"id\": \"a0/cpu\", \"kind\": \"k\", \"threads\": "
        "4,"
        "\"cores\": [0, 1, 2, 5, 7, 8], \"memory_bytes\": 10e9, \"memory_free_bytes\": 9e9}], "
        "\"stages\": [{\"deployment\": \"d\", \"stage\": 0, \"device\": \"cpu\", \"first_layer\": "
        "3, "
        "\"last_layer\": 8}], \"models\": [{\"model\": \"0123456789abcdef0123\", \"name\": "
        "\"x.gguf\", "
        "\"bytes\": 2e6}], \"node\": {\"caches\": [1], \"kernels\": [{\"what\": \"instructions\", "
        "\"how\": \"avx2\", \"why\": \"the best\"}]}}",
        0, NULL);
    struct buffer out = {0};
    struct err e = {0};
    assert_non_null(node);
    assert_int_equal(node_view_write(node, &out, &e), 0);
    const char *text = buffer_cstr(&out);
    assert_line(text, "name       a0");
    assert_line(text, "memory     10.0 GB, 9.0 GB free");
    assert_line(text, "dropped    1 late and 0 foreign frames, since it joined");
    assert_line(text, "a0/cpu  k           4  0-2,5,7-8  10.0 GB  9.0 GB");
    assert_line(text, "d               0  cpu     3-8");
    assert_line(text, "x.gguf      0123456789abcdef  2.0 MB");
    assert_line(text, "instructions  avx2  the best");
    assert_null(strstr(text, "caches"));
    buffer_free(&out);
    json_array_clear(json_object_get(node, "stages"));
    json_object_del(node, "models");
    json_object_del(node, "devices");
    assert_int_equal(node_view_write(node, &out, &e), 0);
    assert_line(buffer_cstr(&out), "no stages");
    assert_line(buffer_cstr(&out), "no weights");
    assert_null(strstr(buffer_cstr(&out), "DEVICE"));
    buffer_free(&out);
    json_decref(node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_agent_is_a_head_and_four_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
