/* The tables of verbs, one a file, each ended by a zero row. */
#ifndef HP_HPCTL_VERBS_H
#define HP_HPCTL_VERBS_H

#include "hpctl/command.h"

extern const struct command plan_verbs[];          /* plan_verbs.c: plan check */
extern const struct command plan_pools_verbs[];    /* plan_pools_verbs.c: plan pools */
extern const struct command simulate_verbs[];      /* simulate_verbs.c: simulate */
extern const struct command profile_verbs[];       /* profile_verbs.c: profile split */
extern const struct command profile_graph_verbs[]; /* profile_graph_verbs.c: profile graph */
extern const struct command
    profile_model_verbs[]; /* profile_model_verbs.c: profile model, profile */
extern const struct command plan_pipeline_verbs[]; /* plan_pipeline_verbs.c: plan pipeline */
extern const struct command model_run_verbs[]; /* model_run_verbs.c: model logits, model greedy */
extern const struct command
    model_verbs[]; /* model_verbs.c: model describe, tokenize, detokenize, render */
extern const struct command plan_coldstart_verbs[]; /* plan_coldstart_verbs.c: plan coldstart */
extern const struct command local_verbs[];          /* local_verbs.c: local up, ls, start, down */
extern const struct command deploy_verbs[]; /* deploy_verbs.c: deploy, ps, describe, undeploy */
extern const struct command chat_verbs[];   /* chat_verbs.c: run, chat */
extern const struct command
    context_verbs[]; /* context_verbs.c: context ls, use, export, import, rm */
extern const struct command
    cluster_verbs[];                        /* cluster_verbs.c: node, weights, logs, key, version */
extern const struct command topo_verbs[];   /* topo_verbs.c: topo */
extern const struct command bench_verbs[];  /* bench_verbs.c: bench pipeline */
extern const struct command doctor_verbs[]; /* doctor_verbs.c: cluster init, doctor */

#endif
