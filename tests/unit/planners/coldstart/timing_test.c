#include <math.h>

#include "graphs.h"
#include "planners/coldstart/plan_file.h"
#include "planners/coldstart/timing.h"

/* Two devices on two buses of 100 bytes a second, links of 50 and 25. a: w0, 100 bytes, runs 2 s,
 * gives 50 bytes. b reads a and w1, 200 bytes, runs 1 s, or 3 s from host memory, reading 150
 * bytes. c reads a, runs 4 s. d reads b and c. */
static const char graph_text[] =
    "{\"format\": \"hp-graph/1\", \"host\": {\"buses\": [{\"bandwidth_bytes_per_s\": 100}, "
    "{\"bandwidth_bytes_per_s\": 100}],"
    "\"devices\": [{\"name\": \"g0\", \"memory_bytes\": 300, \"bus\": 0}, {\"name\": \"g1\", "
    "\"memory_bytes\": 250, \"bus\": 1}],"
    "\"peer_bytes_per_s\": [[0, 50], [25, 0]], \"load_overhead_s\": 0.5},"
    "\"nodes\": [{\"name\": \"w0\", \"kind\": \"param\", \"bytes\": 100}, {\"name\": \"w1\", "
    "\"kind\": \"param\", \"bytes\": "
    "200},"
    "{\"name\": \"a\", \"kind\": \"op\", \"bytes\": 50, \"exec_s\": [2, 2], \"host_exec_s\": [9, "
    "9], \"host_read_bytes\": 50},"
    "{\"name\": \"b\", \"kind\": \"op\", \"bytes\": 50, \"exec_s\": [1, 1], \"host_exec_s\": [3, "
    "3], \"host_read_bytes\": 150},"
    "{\"name\": \"c\", \"kind\": \"op\", \"bytes\": 100, \"exec_s\": [4, 4], \"host_exec_s\": [4, "
    "4], \"host_read_bytes\": 0},"
    "{\"name\": \"d\", \"kind\": \"op\", \"bytes\": 0, \"exec_s\": [0, 0], \"host_exec_s\": [0, "
    "0], \"host_read_bytes\": 0}],"
    "\"edges\": [[0, 2], [1, 3], [2, 3], [2, 4], [3, 5], [4, 5]]}";

struct timed_case {
    const char *claim, *subgraphs, *copies;
    bool contention;
    double latency_s; /* INFINITY: */
    enum timing_fault fault;
};

#define ALL_ON_0 "[{\"device\": 0, \"mode\": \"resident\", \"nodes\": [2, 4, 3, 5]}]"
#define B_IN_PLACE                                                                                 \
    "[{\"device\": 0, \"mode\": \"resident\", \"nodes\": [2]}, {\"device\": 0, \"mode\": "         \
    "\"host\", \"nodes\": [3]},"                                                                   \
    "{\"device\": 0, \"mode\": \"resident\", \"nodes\": [4, 5]}]"
#define C_ON_1                                                                                     \
    "[{\"device\": 0, \"mode\": \"resident\", \"nodes\": [2, 3, 5]}, {\"device\": 1, \"mode\": "   \
    "\"resident\", \"nodes\": [4]}]"

static const struct timed_case cases[] = {
    {"copies follow each other with the overhead, operators as soon as they can", ALL_ON_0,
     "[{\"bus\": 0, \"device\": 0, \"node\": 0}, {\"bus\": 0, \"device\": 0, \"node\": 1}]", true,
     8.5, TIMING_OK},
    {"a parameter over the other bus is forwarded by itself", ALL_ON_0,
     "[{\"bus\": 0, \"device\": 0, \"node\": 0}, {\"bus\": 1, \"device\": 1, \"node\": 1}]", true,
     11.5, TIMING_OK},
    {"an operator in place ends no earlier than its read", B_IN_PLACE,
     "[{\"bus\": 0, \"device\": 0, \"node\": 0}, {\"bus\": 0, \"node\": 3, \"read\": true}]", true,
     10.5, TIMING_OK},
    {"a read that comes late holds its operator", B_IN_PLACE,
     "[{\"bus\": 0, \"device\": 0, \"node\": 0}, {\"bus\": 0, \"device\": 0, \"node\": 1}, "
     "{\"bus\": 0, \"node\": 3, \"read\": "
     "true}]",
     true, 10.5, TIMING_OK},
    {"with contention off a read needs no entry", B_IN_PLACE,
     "[{\"bus\": 0, \"device\": 0, \"node\": 0}]", false, 10.5, TIMING_OK},
    {"an output crosses once it is there, and back", C_ON_1,
     "[{\"bus\": 0, \"device\": 0, \"node\": 0}, {\"bus\": 0, \"device\": 0, \"node\": 1}]", true,
     12.5, TIMING_OK},
    {"a wish to forward takes the link before the output", C_ON_1,
     "[{\"bus\": 0, \"device\": 0, \"node\": 0, \"to\": 1}, {\"bus\": 0, \"device\": 0, \"node\": "
     "1}]",
     true, 12.5, TIMING_OK},
    {"a link carries one tensor at a time, in order of readiness", C_ON_1,
     "[{\"bus\": 0, \"device\": 0, \"node\": 1}, {\"bus\": 0, \"device\": 0, \"node\": 0, \"to\": "
     "1}]",
     true, 15, TIMING_OK},
    {"what is copied to a device is not forwarded to it", ALL_ON_0,
     "[{\"bus\": 1, \"device\": 1, \"node\": 1}, {\"bus\": 0, \"device\": 0, \"node\": 0}, "
     "{\"bus\": 0, \"device\": 0, \"node\": "
     "1}]",
     true, 8.5, TIMING_OK},
    {"a read that is missing", B_IN_PLACE, "[{\"bus\": 0, \"device\": 0, \"node\": 0}]", true,
     INFINITY, TIMING_READ_MISSING},
    {"a read twice", B_IN_PLACE,
     "[{\"bus\": 0, \"device\": 0, \"node\": 0}, {\"bus\": 0, \"node\": 3, \"read\": true}, "
     "{\"bus\": 0, \"node\": 3, \"read\": "
     "true}]",
     true, INFINITY, TIMING_READ_TWICE},
    {"a read of a resident operator", ALL_ON_0,
     "[{\"bus\": 0, \"device\": 0, \"node\": 0}, {\"bus\": 0, \"device\": 0, \"node\": 1}, "
     "{\"bus\": 0, \"node\": 3, \"read\": "
     "true}]",
     true, INFINITY, TIMING_READ_RESIDENT},
    {"a parameter that is copied nowhere", ALL_ON_0, "[{\"bus\": 0, \"device\": 0, \"node\": 0}]",
     true, INFINITY, TIMING_NOT_COPIED},
    {"a parameter copied twice", ALL_ON_0,
     "[{\"bus\": 0, \"device\": 0, \"node\": 0}, {\"bus\": 0, \"device\": 0, \"node\": 0}, "
     "{\"bus\": 0, \"device\": 0, \"node\": "
     "1}]",
     true, INFINITY, TIMING_COPIED_TWICE},
    {"more than a device holds",
     "[{\"device\": 1, \"mode\": \"resident\", \"nodes\": [2, 4, 3, 5]}]",
     "[{\"bus\": 1, \"device\": 1, \"node\": 0}, {\"bus\": 1, \"device\": 1, \"node\": 1}]", true,
     INFINITY, TIMING_MEMORY},
    {"forwarded parameters count too", ALL_ON_0,
     "[{\"bus\": 1, \"device\": 1, \"node\": 0}, {\"bus\": 1, \"device\": 1, \"node\": 1}]", true,
     INFINITY, TIMING_MEMORY},
    {"an operator before its input",
     "[{\"device\": 0, \"mode\": \"resident\", \"nodes\": [4, 2, 3, 5]}]",
     "[{\"bus\": 0, \"device\": 0, \"node\": 0}, {\"bus\": 0, \"device\": 0, \"node\": 1}]", true,
     INFINITY, TIMING_DEADLOCK},
    {"devices that wait for each other",
     "[{\"device\": 0, \"mode\": \"resident\", \"nodes\": [5, 2]}, {\"device\": 1, \"mode\": "
     "\"host\", \"nodes\": [3, 4]}]",
     "[{\"bus\": 0, \"device\": 0, \"node\": 0}, {\"bus\": 1, \"node\": 3, \"read\": true}]", true,
     INFINITY, TIMING_DEADLOCK},
};

static void run_case(const struct opgraph *g, const struct timed_case *c)
{
    struct coldstart_problem p;
    struct timing t;
    struct arena arena = {0};
    struct coldstart_plan plan;
    struct buffer text = {0};
    struct json_at at;
    json_t *root;
    struct err e = {0};
    buffer_printf(
        &text,
        "{\"format\": \"hp-plan/1\", \"kind\": \"coldstart\", \"subgraphs\": %s, \"copies\": %s}",
        c->subgraphs, c->copies);
    assert_int_equal(coldstart_problem_init(&p, g, c->contention, &e), 0);
    assert_int_equal(json_parse_at("p.json", text.data, text.size, &root, &at, &e), 0);
    if (coldstart_plan_from_json(&at, &p, &arena, &plan, &e) < 0)
        fail_msg("%s: %s", c->claim, e.text);
    assert_int_equal(timing_init(&t, &p, plan.capacity, &e), 0);
    for (int again = 0; again < 2; again++) { /* a workspace carries nothing over */
        double latency = timing_run(&t, &plan);
        if (t.fault != c->fault || (c->fault == TIMING_OK && fabs(latency - c->latency_s) > 1e-12))
            fail_msg("%s: fault %d, %.9g s, expected fault %d, %.9g s", c->claim, (int)t.fault,
                     latency, (int)c->fault, c->latency_s);
    }
    assert_int_equal(timing_explain(&t, &e), c->fault == TIMING_OK ? 0 : HP_EINFEASIBLE);
    timing_fini(&t);
    coldstart_problem_fini(&p);
    arena_free(&arena);
    buffer_free(&text);
    json_decref(root);
}

TEST(every_rule_of_the_format_holds)
{
    struct opgraph g = {0};
    graph_from_text(graph_text, &g);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run_case(&g, &cases[i]);
    opgraph_free(&g);
}

TEST(pathless_plans_are_refused)
{
    struct opgraph g = {0};
    char text[sizeof graph_text];
    memcpy(text, graph_text, sizeof text);
    memcpy(strstr(text, "[25, 0]"), "[ 0, 0]", 7);
    graph_from_text(text, &g);
    static const struct timed_case pathless[] = {
        {"a parameter over a bus from which no path leads", ALL_ON_0,
         "[{\"bus\": 0, \"device\": 0, \"node\": 0}, {\"bus\": 1, \"device\": 1, \"node\": 1}]",
         true, INFINITY, TIMING_NO_PATH},
        {"an output from a device from which no path leads", C_ON_1,
         "[{\"bus\": 0, \"device\": 0, \"node\": 0}, {\"bus\": 0, \"device\": 0, \"node\": 1}]",
         true, INFINITY, TIMING_NO_PATH},
    };
    for (size_t i = 0; i < sizeof pathless / sizeof *pathless; i++)
        run_case(&g, &pathless[i]);
    opgraph_free(&g);
}

TEST(plan_that_is_no_plan_of_the_graph_is_refused)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"{\"format\": \"hp-plan/1\", \"kind\": \"pipeline\"}", "expected \"coldstart\""},
        {"{\"format\": \"hp-plan/1\", \"kind\": \"coldstart\", \"subgraphs\": []}",
         "has no \"copies\""},
        {"{\"format\": \"hp-plan/1\", \"kind\": \"coldstart\", \"copies\": [], \"subgraphs\": []}",
         "operator 2 (\"a\") runs nowhere"},
        {"{\"format\": \"hp-plan/1\", \"kind\": \"coldstart\", \"copies\": [], \"subgraphs\": "
         "[{\"device\": 2, \"mode\": "
         "\"host\", \"nodes\": []}]}",
         "$.subgraphs[0].device: 2 is no device"},
        {"{\"format\": \"hp-plan/1\", \"kind\": \"coldstart\", \"copies\": [], \"subgraphs\": "
         "[{\"device\": 0, \"mode\": "
         "\"warm\", \"nodes\": []}]}",
         "mode is \"warm\""},
        {"{\"format\": \"hp-plan/1\", \"kind\": \"coldstart\", \"copies\": [], \"subgraphs\": "
         "[{\"device\": 0, \"mode\": "
         "\"host\", \"nodes\": [2, 2]}]}",
         "operator 2 runs twice"},
        {"{\"format\": \"hp-plan/1\", \"kind\": \"coldstart\", \"copies\": [{\"bus\": 1, "
         "\"device\": 0, \"node\": 0}], "
         "\"subgraphs\": " ALL_ON_0 "}",
         "device 0 is on bus 0, not on bus 1"},
        {"{\"format\": \"hp-plan/1\", \"kind\": \"coldstart\", \"copies\": [{\"bus\": 0, \"node\": "
         "0, \"read\": true}], "
         "\"subgraphs\": " ALL_ON_0 "}",
         "a read names the operator"},
    };
    struct opgraph g = {0};
    struct coldstart_problem p;
    struct err e = {0};
    graph_from_text(graph_text, &g);
    assert_int_equal(coldstart_problem_init(&p, &g, true, &e), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct arena arena = {0};
        struct coldstart_plan plan;
        struct json_at at;
        json_t *root;
        assert_int_equal(json_parse_at("p.json", bad[i].text, strlen(bad[i].text), &root, &at, &e),
                         0);
        assert_int_equal(coldstart_plan_from_json(&at, &p, &arena, &plan, &e), HP_EPARSE);
        if (!strstr(e.text, bad[i].says))
            fail_msg("expected \"%s\" in \"%s\"", bad[i].says, e.text);
        arena_free(&arena);
        json_decref(root);
    }
    coldstart_problem_fini(&p);
    opgraph_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rule_of_the_format_holds),
        cmocka_unit_test(pathless_plans_are_refused),
        cmocka_unit_test(plan_that_is_no_plan_of_the_graph_is_refused),
    };
    return cmocka_run_group_tests_name("coldstart timing", tests, NULL, NULL);
}
