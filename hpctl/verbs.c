#include "hpctl/verbs.h"

#include <stddef.h>

const struct command *const command_tables[] = {
    local_verbs,     deploy_verbs,        deployment_verbs,    rebalance_verbs,
    chat_verbs,      load_verbs,          context_verbs,       init_verbs,
    cluster_verbs,   topo_verbs,          doctor_verbs,        bench_verbs,
    plan_verbs,      plan_pipeline_verbs, plan_pools_verbs,    simulate_verbs,
    profile_verbs,   profile_model_verbs, profile_graph_verbs, plan_coldstart_verbs,
    model_run_verbs, embed_verbs,         onnx_verbs,          onnx_serve_verbs,
    model_verbs,     model_convert_verbs, self_verbs,          NULL,
};
