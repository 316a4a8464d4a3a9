/* A body's JSON, measured before a tree is made of it. Pure: any thread. */
#ifndef HP_COORDINATOR_GATEWAY_BODY_MEASURE_H
#define HP_COORDINATOR_GATEWAY_BODY_MEASURE_H

#include <jansson.h>
#include <stddef.h>

#include "common/status.h"

enum { BODY_MAX_VALUES = 1000000, BODY_MAX_DEPTH = 64 };

/* *root is the caller's. HP_EINVAL: not UTF-8, more than BODY_MAX_VALUES values, nested beyond
 * BODY_MAX_DEPTH, a \u0000, or no JSON; the text says which. HP_ENOMEM. */
int body_measure_load(const char *text, size_t n, json_t **root, struct err *e);

#endif
