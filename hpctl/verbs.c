#include "hpctl/verbs.h"

#include <stddef.h>

#define HEADING(text)                                                                              \
    (const struct command[])                                                                       \
    {                                                                                              \
        {                                                                                          \
            .summary = (text)                                                                      \
        }                                                                                          \
    }

const struct command *const command_tables[] = {
    HEADING("a cluster on this box"),
    local_verbs,
    HEADING("what serves"),
    deploy_verbs,
    deployment_verbs,
    rebalance_verbs,
    apply_verbs,
    chat_verbs,
    serve_verbs,
    load_verbs,
    chaos_verbs,
    HEADING("clusters, their agents and keys"),
    context_verbs,
    init_verbs,
    cluster_verbs,
    key_verbs,
    HEADING("looking and measuring"),
    top_verbs,
    topo_verbs,
    doctor_verbs,
    bench_verbs,
    bench_model_verbs,
    HEADING("planning"),
    plan_verbs,
    plan_pipeline_verbs,
    plan_pools_verbs,
    plan_coldstart_verbs,
    simulate_verbs,
    HEADING("profiles, which plans are made from"),
    profile_verbs,
    profile_model_verbs,
    profile_graph_verbs,
    HEADING("models on this box, without a cluster"),
    model_run_verbs,
    embed_verbs,
    onnx_verbs,
    onnx_serve_verbs,
    model_verbs,
    model_convert_verbs,
    HEADING("this program"),
    self_verbs,
    NULL,
};
