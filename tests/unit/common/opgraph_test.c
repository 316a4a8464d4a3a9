#include <string.h>

#include "common/bytes.h"
#include "common/opgraph.h"
#include "tests/test.h"

#define HOST                                                                                       \
    "\"host\": {\"buses\": [{\"bandwidth_bytes_per_s\": 10}], \"devices\": [{\"name\": \"g\", "    \
    "\"memory_bytes\": 9, \"bus\": "                                                               \
    "0}]}"
#define PARAM "{\"name\": \"w\", \"kind\": \"param\", \"bytes\": 4}"
#define OP                                                                                         \
    "{\"name\": \"o\", \"kind\": \"op\", \"bytes\": 2, \"exec_s\": [1], \"host_exec_s\": [2], "    \
    "\"host_read_bytes\": 4}"
#define GRAPH(host, nodes, edges)                                                                  \
    "{\"format\": \"hp-graph/1\", " host ", \"nodes\": [" nodes "], \"edges\": [" edges "]}"

static int read_text(const char *text, struct opgraph *g, struct err *e)
{
    json_t *root;
    struct json_at at;
    int rc = json_parse_at("g.json", text, strlen(text), &root, &at, e);
    if (rc < 0)
        return rc;
    rc = opgraph_from_json(&at, g, e);
    json_decref(root);
    return rc;
}

TEST(graph_is_read_with_inputs_readers_and_order)
{
    struct opgraph g = {0};
    struct err e = {0};
    /* Nodes need not stand in topological order, edges may repeat, and what costs nothing in place
     * may leave that out. */
    static const char text[] =
        GRAPH(HOST, OP ", " PARAM ", {\"kind\": \"op\", \"bytes\": 1, \"exec_s\": [3]}",
              "[2, 0], [1, 0], [2, 0]");
    if (read_text(text, &g, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(g.n_nodes, 3);
    assert_int_equal(g.n_ops, 2);
    assert_int_equal(g.topological[0], 2);
    assert_int_equal(g.topological[1], 0);
    assert_int_equal(g.inputs_at[1] - g.inputs_at[0], 2);
    assert_int_equal(g.inputs[0], 1);
    assert_int_equal(g.readers_at[3] - g.readers_at[2], 1);
    assert_true(g.nodes[2].host_exec_s[0] == 3);
    assert_true(g.nodes[1].load_s < 0);
    assert_true(opgraph_peer(&g, 0, 0) == 0);
    opgraph_free(&g);
}

TEST(errors_name_file_path_and_value)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"{\"format\": \"hp-graph/2\"}", "g.json: $.format: is \"hp-graph/2\""},
        {GRAPH(HOST, PARAM, ""), "$.nodes: has no operator"},
        {GRAPH(HOST, PARAM ", " OP, ""), "$.nodes[0]: no operator reads the parameter \"w\""},
        {GRAPH(HOST, OP ", " OP, "[0, 1], [1, 0]"), "$.edges: have a cycle that keeps node 0"},
        {GRAPH(HOST, OP, "[0, 0]"), "$.edges: have a cycle"},
        {GRAPH(HOST, PARAM ", " OP, "[0, 1], [1, 0]"), "$.edges[1]: leads to the parameter \"w\""},
        {GRAPH(HOST, PARAM ", " OP, "[0, 2]"), "$.edges[0][1]: 2 is no node: there are 2"},
        {GRAPH(HOST, PARAM ", " OP, "[0]"), "$.edges[0]: has 1 values"},
        {GRAPH(HOST, "{\"kind\": \"op\", \"bytes\": 2}", ""),
         "$.nodes[0]: is an operator without \"exec_s\""},
        {GRAPH(HOST, "{\"kind\": \"op\", \"bytes\": 2, \"exec_s\": [1, 2]}", ""),
         "$.nodes[0].exec_s: has 2 values for 1 devices"},
        {GRAPH(HOST, "{\"kind\": \"op\", \"bytes\": 2, \"exec_s\": [-1]}", ""),
         "$.nodes[0].exec_s[0]: -1"},
        {GRAPH(HOST, PARAM ", {\"name\": \"p\", \"kind\": \"op\", \"bytes\": 2, \"exec_s\": [1]}",
               "[0, 1]"),
         "$.nodes[1]: operator \"p\" reads a parameter but has no \"host_exec_s\""},
        {GRAPH(HOST, "{\"kind\": \"layer\", \"bytes\": 2}", ""), "kind is \"layer\""},
        {GRAPH(HOST, "{\"kind\": \"param\", \"bytes\": -2}", ""),
         "$.nodes[0].bytes: -2 is negative"},
        {GRAPH("\"host\": {\"devices\": [{\"name\": \"g\", \"memory_bytes\": 9}]}", OP, ""),
         "device \"g\" has no \"bus\""},
        {GRAPH("\"host\": {\"buses\": [], \"devices\": [{\"name\": \"g\", \"memory_bytes\": 9, "
               "\"bus\": 0}]}",
               OP, ""),
         "0 is no bus"},
        {GRAPH("\"host\": {\"buses\": [{\"bandwidth_bytes_per_s\": 0}], \"devices\": []}", OP, ""),
         "has a bandwidth of 0"},
        {GRAPH("\"host\": {\"buses\": [], \"devices\": []}", OP, ""), "$.host.devices: is empty"},
        {GRAPH("\"host\": {\"buses\": [{\"bandwidth_bytes_per_s\": 1}], \"peer_bytes_per_s\": [[0, "
               "1]], \"devices\": "
               "[{\"memory_bytes\": 9, \"bus\": 0}]}",
               OP, ""),
         "$.host.peer_bytes_per_s[0]: has 2 values for 1 devices"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct opgraph g = {0};
        struct err e = {0};
        assert_int_equal(read_text(cases[i].text, &g, &e), HP_EPARSE);
        if (!strstr(e.text, cases[i].says))
            fail_msg("expected \"%s\" in \"%s\"", cases[i].says, e.text);
    }
}

TEST(graph_beyond_the_limit_is_refused)
{
    struct buffer text = {0};
    struct opgraph g = {0};
    struct err e = {0};
    buffer_printf(&text, "{\"format\": \"hp-graph/1\", " HOST ", \"edges\": [], \"nodes\": [0");
    for (int i = 0; i < OPGRAPH_MAX_NODES; i++)
        buffer_append(&text, ",0", 2);
    buffer_printf(&text, "]}");
    assert_int_equal(read_text(buffer_cstr(&text), &g, &e), HP_ELIMIT);
    assert_non_null(strstr(e.text, "$.nodes: has 200001 items; the limit is 200000"));
    buffer_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(graph_is_read_with_inputs_readers_and_order),
        cmocka_unit_test(errors_name_file_path_and_value),
        cmocka_unit_test(graph_beyond_the_limit_is_refused),
    };
    return cmocka_run_group_tests_name("opgraph", tests, NULL, NULL);
}
