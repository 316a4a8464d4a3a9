/* Graphs and cold-start plans from files: {"graph": hp-graph/1, "plan": hp-plan/1}. A graph that is
 * read is planned with a few evaluations, and its plan must be one that the judge accepts. */
#include <stdlib.h>

#include "planners/coldstart/coldstart.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void plan_and_judge(const struct opgraph *g)
{
    static const enum coldstart_method methods[] = {COLDSTART_BEST, COLDSTART_PT_DHA,
                                                    COLDSTART_LIST};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        struct coldstart_options o = {
            .method = methods[i], .contention = true, .evaluations = 60, .env = &env_real};
        struct coldstart_result r;
        struct coldstart_verdict v;
        struct err e = {0};
        if (coldstart_plan_make(g, &o, &r, &e) < 0)
            continue;
        struct json_at at = {.file = "made", .value = r.plan};
        if (coldstart_plan_check(&at, g, false, false, &v, NULL, &e) < 0)
            abort();
        coldstart_result_free(&r);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct opgraph g = {0};
    struct json_at at, graph, plan;
    struct coldstart_verdict v;
    struct err e = {0};
    json_t *root;
    if (json_parse_at("input", data, size, &root, &at, &e) < 0)
        return 0;
    if (json_find(&at, "graph", &graph) && opgraph_from_json(&graph, &g, &e) == 0) {
        if (json_find(&at, "plan", &plan))
            coldstart_plan_check(&plan, &g, false, false, &v, NULL, &e);
        if (g.n_nodes <= 60)
            plan_and_judge(&g);
        opgraph_free(&g);
    }
    json_decref(root);
    return 0;
}
