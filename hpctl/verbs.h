/* The tables of verbs: `X_verbs` is what X_verbs.c holds, ended by a zero row. */
#ifndef HP_HPCTL_VERBS_H
#define HP_HPCTL_VERBS_H

#include "hpctl/command.h"

extern const struct command local_verbs[];
extern const struct command deploy_verbs[];
extern const struct command deployment_verbs[];
extern const struct command rebalance_verbs[];
extern const struct command apply_verbs[];
extern const struct command chat_verbs[];
extern const struct command serve_verbs[];
extern const struct command load_verbs[];
extern const struct command chaos_verbs[];
extern const struct command context_verbs[];
extern const struct command init_verbs[];
extern const struct command cluster_verbs[];
extern const struct command key_verbs[];
extern const struct command top_verbs[];
extern const struct command topo_verbs[];
extern const struct command doctor_verbs[];
extern const struct command bench_verbs[];
extern const struct command bench_model_verbs[];
extern const struct command plan_verbs[];
extern const struct command plan_pipeline_verbs[];
extern const struct command plan_pools_verbs[];
extern const struct command simulate_verbs[];
extern const struct command profile_verbs[];
extern const struct command profile_model_verbs[];
extern const struct command profile_graph_verbs[];
extern const struct command plan_coldstart_verbs[];
extern const struct command model_run_verbs[];
extern const struct command embed_verbs[];
extern const struct command onnx_verbs[];
extern const struct command onnx_serve_verbs[];
extern const struct command model_verbs[];
extern const struct command model_convert_verbs[];
extern const struct command self_verbs[];

/* All of them, ended by NULL, in the order of the help. */
extern const struct command *const command_tables[];

#endif
