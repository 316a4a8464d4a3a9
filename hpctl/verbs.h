/* The tables of verbs, one a file, each ended by a zero row. */
#ifndef HP_HPCTL_VERBS_H
#define HP_HPCTL_VERBS_H

#include "hpctl/command.h"

extern const struct command plan_verbs[]; /* plan_verbs.c: plan check */
extern const struct command plan_pipeline_verbs[]; /* plan_pipeline_verbs.c: plan pipeline */
extern const struct command model_run_verbs[]; /* model_run_verbs.c: model logits, model greedy */

#endif
