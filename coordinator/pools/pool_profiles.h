/* What was measured of networks, by content, sizes and kind of device: kept, listed, dropped, and
 * put together as a workload needs it. */
#ifndef HP_COORDINATOR_POOLS_POOL_PROFILES_H
#define HP_COORDINATOR_POOLS_POOL_PROFILES_H

#include "coordinator/pools/pool_state.h"
#include "planners/pools/split.h"

enum { POOL_PROFILE_BLOCKS = 10 };

/* A network, and the sizes of its free dimensions. */
struct pool_profile_of {
    const char *model;  /* its id */
    const json_t *dims; /* {SYMBOL: SIZE}; NULL or no object: none */
};

/* Whether what an agent of this kind has measured can be believed: hp-profile/1 of a network with
 * times of that kind alone, none above an hour. HP_EPARSE, HP_EINVAL, HP_ENOMEM. */
int pool_profile_check(json_t *profile, const char *kind, struct err *e);
/* Keeps it; `profile` NULL: that kind cannot run the network. HP_ENOMEM. */
int pool_profiles_set(struct coord *c, const struct pool_profile_of *of, const char *name,
                      const char *kind, json_t *profile, struct err *e);
/* Whether something is known of this kind: its profile, or, with *record NULL, that it has none. */
bool pool_profiles_find(const struct coord *c, const struct pool_profile_of *of, const char *kind,
                        const json_t **record);
int pool_profiles_restore(struct coord *c, const char *key, json_t *value, struct err *e);
void pool_profiles_free(struct pool_service *s);

/* One profile of `n` of them, each of another kind, in at most `blocks` blocks, or in those that
 * `split` has (it gets them where it has none; NULL: nobody minds); what paced agents told stands
 * as it is. Kinds whose layers are others than the first's are left out, and named in `left_out` (a
 * list, as in hpctl's answer). As pools_split_document. */
int pool_profiles_join(json_t *const *profiles, const char *const *kinds, int n, int blocks,
                       struct split *split, json_t *left_out, json_t **out, struct err *e);
/* Of two agents of one kind: the times of the slower one, point by point, in `into`. HP_EINVAL:
 * their layers are not the same. */
int pool_profiles_slower(json_t *into, const json_t *other, struct err *e);

/* Rows as `profile ls` has them are appended to `rows`; and forgets those of a model (id, or its
 * beginning, or name), of one kind or all (""): returns how many. */
void pool_profiles_describe(const struct coord *c, json_t *rows);
int pool_profiles_remove(struct coord *c, const char *model, const char *kind);

#endif
