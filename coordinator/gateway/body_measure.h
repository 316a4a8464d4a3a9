/* A body's JSON, measured before a tree is made of it. Pure: any thread. */
#ifndef HP_COORDINATOR_GATEWAY_BODY_MEASURE_H
#define HP_COORDINATOR_GATEWAY_BODY_MEASURE_H

#include <jansson.h>

#include "common/status.h"
#include "coordinator/gateway/body_ids.h"

enum {
    BODY_MAX_COST = 1000000, /* what a tree costs to make, in token ids, which are read without */
    BODY_MAX_DEPTH = 64,
    BODY_ITEM_COST = 4,    /* each value of a list, and each member of an object */
    BODY_TEXT_COST = 4,    /* beside: that it is a text, and a member's name, which is one */
    BODY_MEMBER_COST = 10, /* that it has a name */
    BODY_LIST_COST = 10,   /* each list and each object */
};

/* *root is the caller's. HP_EINVAL: not UTF-8, more than a tree may cost, nested beyond
 * BODY_MAX_DEPTH, a \u0000, or no JSON; the text says which, and names the member of the outermost
 * object that it is in: it begins with that, which is *param then, as far as it is a field that
 * some path takes; else *param is NULL. `ids`, which is freed by the caller whatever comes, gets
 * the token ids of its field; NULL: there are none. HP_ENOMEM. */
int body_measure_load(const char *text, size_t n, struct body_ids *ids, json_t **root,
                      const char **param, struct err *e);
/* The same of one of several that may cost *left together, which is less by this one then. */
int body_measure_load_within(const char *text, size_t n, struct body_ids *ids, size_t *left,
                             json_t **root, const char **param, struct err *e);
/* The same of a body that is tensors: their numbers and lists cost 1. */
int body_measure_load_tensors(const char *text, size_t n, json_t **root, struct err *e);

#endif
