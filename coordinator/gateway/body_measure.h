/* A body's JSON, measured before a tree is made of it. Pure: any thread. */
#ifndef HP_COORDINATOR_GATEWAY_BODY_MEASURE_H
#define HP_COORDINATOR_GATEWAY_BODY_MEASURE_H

#include <jansson.h>
#include <stddef.h>

#include "common/status.h"

enum {
    BODY_MAX_VALUES = 1000000,
    BODY_MAX_DEPTH = 64,
    /* What a tree costs, in numbers: so many of each kind alone are BODY_MAX_VALUES. */
    BODY_TEXT_COST = 4,    /* each text, also a member's name */
    BODY_MEMBER_COST = 8,  /* beside its name and value */
    BODY_OBJECT_COST = 10, /* and each list */
};

/* *root is the caller's. HP_EINVAL: not UTF-8, more than a tree may cost, nested beyond
 * BODY_MAX_DEPTH, a \u0000, or no JSON; the text says which, and for what costs too much begins
 * with the member of the outermost object that it is in, which is *param then, as far as it is a
 * field that some path takes; else NULL. HP_ENOMEM. */
int body_measure_load(const char *text, size_t n, json_t **root, const char **param, struct err *e);
/* The same of a body that is tensors: BODY_MAX_VALUES values of any kind. */
int body_measure_load_tensors(const char *text, size_t n, json_t **root, struct err *e);

#endif
