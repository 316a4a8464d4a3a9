/* What the planner is given: the cluster as its members told it, and a model's costs on each kind
 * of device, measured or estimated. */
#ifndef HP_COORDINATOR_COSTS_H
#define HP_COORDINATOR_COSTS_H

#include <jansson.h>

#include "common/status.h"

struct core;
struct deployment;
struct member;

/* What there is, as hp-cluster/1: every member that has told its node. */
json_t *costs_cluster(const struct core *c);
/* The same for planning `d`: members that may be given stages, one device each (a stage runs on the
 * first), without the memory that other deployments hold. */
json_t *costs_cluster_for(const struct core *c, const struct deployment *d);
/* hp-profile/1 of the deployment's model on every kind of device that a member has. */
json_t *costs_profile(const struct core *c, const struct deployment *d);
/* A copy of what is kept of a kind of device (core_profile_find), estimates included for what was
 * not measured. */
json_t *costs_tables(const struct core *c, const struct deployment *d, const struct member *m);
/* Bytes that a layer's weights take once loaded: as a backend measured, or else by the number
 * format that it computes in. */
double costs_resident_bytes(const struct core *c, const struct deployment *d, int layer);
/* KV cache of one token of one of the deployment's sequences. */
double costs_state_bytes_per_token(const struct core *c, const struct deployment *d, int layer);
/* Sequences of the profile that one of the deployment's stands for: 1, but for paced agents, whose
 * profile is of another model at some batch. */
double costs_stands_for(const struct core *c, const struct deployment *d);
/* The device that a paced member stands for, "" for all others. */
const char *costs_paced_as(const struct member *m);
/* What each stage holds beside weights and KV cache, on this member. */
double costs_workspace_bytes(const struct deployment *d, const struct member *m);
/* Free for this deployment on the first device of a member. */
double costs_free_bytes(const struct core *c, const struct deployment *d, const struct member *m);

#endif
