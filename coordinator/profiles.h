/* What agents measured of models, by kind of device: kept, listed, dropped. */
#ifndef HP_COORDINATOR_PROFILES_H
#define HP_COORDINATOR_PROFILES_H

#include "coordinator/measured_profile.h"
#include "coordinator/state.h"

struct kept_profile {
    char *key;      /* model/kind/compute */
    json_t *record; /* as it was told: for the store and files */
    struct measured_profile measured;
};

/* Valid until the profiles change; NULL: nothing was measured. */
const struct kept_profile *profiles_find(const struct coord *c, const char *model, const char *kind,
                                         const char *compute);
/* HP_ENOMEM. Takes `tables`. */
int profiles_set(struct coord *c, const char *model, const char *kind, const char *compute,
                 json_t *tables, struct err *e);
/* A record of the store; what does not pass profile_check is dropped with a warning. */
int profiles_restore(struct coord *c, const char *key, json_t *value, struct err *e);
void profiles_free(struct coord *c);

/* Rows for people; and forgets those of a model (id, or its beginning, or name), of one kind or all
 * ("": all). HP_ENOENT. */
/* Classes that tables have times of. */
size_t profiles_classes_of(const json_t *tables);
json_t *profiles_describe(const struct coord *c);
int profiles_remove(struct coord *c, const char *model, const char *kind, int *removed,
                    struct err *e);

#endif
