#include "graphs.h"
#include "planners/coldstart/dominators.h"

/* Three equal blocks in -> (left | right) -> out, each side with a parameter; only what lies
 * between two blocks is on every path. */
static void three_blocks(struct opgraph *g)
{
    struct buffer nodes = {0}, edges = {0}, text = {0};
    int n = 1, last = 0;
    buffer_printf(&nodes, "{\"name\": \"in\", \"kind\": \"op\", \"bytes\": 7, \"exec_s\": [9]}");
    for (int block = 0; block < 3; block++) {
        buffer_printf(&nodes,
                      ",{\"kind\": \"param\", \"bytes\": 10},{\"kind\": \"param\", \"bytes\": 10}");
        for (int side = 0; side < 2; side++)
            buffer_printf(&nodes, ",{\"kind\": \"op\", \"bytes\": 3, \"exec_s\": [1], "
                                  "\"host_exec_s\": [2], \"host_read_bytes\": 10}");
        buffer_printf(&nodes, ",{\"kind\": \"op\", \"bytes\": 5, \"exec_s\": [2]}");
        for (int side = 0; side < 2; side++)
            buffer_printf(&edges, "%s[%d, %d], [%d, %d], [%d, %d]", edges.size ? "," : "", n + side,
                          n + 2 + side, last, n + 2 + side, n + 2 + side, n + 4);
        last = n + 4;
        n += 5;
    }
    buffer_printf(&text,
                  "{\"format\": \"hp-graph/1\", \"host\": {\"buses\": [{\"bandwidth_bytes_per_s\": "
                  "1}], \"devices\": "
                  "[{\"memory_bytes\": 99, \"bus\": 0}]}, \"nodes\": [%s], \"edges\": [%s]}",
                  buffer_cstr(&nodes), buffer_cstr(&edges));
    graph_from_text(buffer_cstr(&text), g);
    buffer_free(&nodes);
    buffer_free(&edges);
    buffer_free(&text);
}

TEST(dominators_are_what_every_path_passes)
{
    struct opgraph g = {0};
    struct coldstart_problem p;
    struct err e = {0};
    int positions[10];
    three_blocks(&g);
    assert_int_equal(coldstart_problem_init(&p, &g, true, &e), 0);
    assert_int_equal(dominators_find(&p, positions), 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(positions[i], 3 * i); /* the entry, and the end of each block */
    coldstart_problem_fini(&p);
    opgraph_free(&g);
}

TEST(second_source_keeps_what_it_goes_around_from_dominating)
{
    struct opgraph g = {0};
    struct coldstart_problem p;
    struct err e = {0};
    int positions[4];
    graph_from_text(
        "{\"format\": \"hp-graph/1\", \"host\": {\"buses\": [{\"bandwidth_bytes_per_s\": 1}], "
        "\"devices\": "
        "[{\"memory_bytes\": 9, \"bus\": 0}]}, \"edges\": [[0, 1], [1, 3], [2, 3]], \"nodes\": ["
        "{\"kind\": \"op\", \"bytes\": 1, \"exec_s\": [1]}, {\"kind\": \"op\", \"bytes\": 1, "
        "\"exec_s\": [1]},"
        "{\"kind\": \"op\", \"bytes\": 1, \"exec_s\": [1]}, {\"kind\": \"op\", \"bytes\": 1, "
        "\"exec_s\": [1]}]}",
        &g);
    assert_int_equal(coldstart_problem_init(&p, &g, true, &e), 0);
    assert_int_equal(dominators_find(&p, positions), 1);
    assert_int_equal(positions[0], 3);
    coldstart_problem_fini(&p);
    opgraph_free(&g);
}

TEST(equal_nodes_share_a_class_and_sides_of_one_block_do_not)
{
    struct opgraph g = {0};
    struct coldstart_problem p;
    struct node_classes c = {0};
    struct arena arena = {0};
    struct err e = {0};
    three_blocks(&g);
    assert_int_equal(coldstart_problem_init(&p, &g, true, &e), 0);
    assert_int_equal(node_classes_find(&p, &arena, &c), 0);
    assert_int_not_equal(c.class_of[3], c.class_of[4]); /* two sides: equal, but of one stretch */
    assert_int_not_equal(c.class_of[0], c.class_of[5]);
    int members = 0;
    for (int k = 0; k < c.n; k++)
        members += c.members_at[k + 1] - c.members_at[k];
    assert_int_equal(members, g.n_nodes);
    assert_int_equal(c.n_op_classes + c.n_param_classes, c.n);
    arena_free(&arena);
    coldstart_problem_fini(&p);
    opgraph_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dominators_are_what_every_path_passes),
        cmocka_unit_test(second_source_keeps_what_it_goes_around_from_dominating),
        cmocka_unit_test(equal_nodes_share_a_class_and_sides_of_one_block_do_not),
    };
    return cmocka_run_group_tests_name("coldstart dominators", tests, NULL, NULL);
}
