/* What an API key may do, as plain data and as its document. Knows no clock and counts nothing
 * (key_meter.h does). */
#ifndef HP_COORDINATOR_KEY_LIMITS_H
#define HP_COORDINATOR_KEY_LIMITS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"

enum { KEY_MAX_WEIGHT = 1000, KEY_MAX_MODELS = 64, KEY_MODEL_BYTES = 64 };

struct key_limits {
    uint32_t weight;  /* 1 to KEY_MAX_WEIGHT: its share of a queue, beside others' (shares.h) */
    int32_t priority; /* added to that of its requests: lower goes first */
    uint64_t requests_per_minute, tokens_per_minute; /* rates; 0: no limit, as of the others */
    uint64_t tokens_per_day, tokens_total;           /* budgets: prompts and answers together */
    json_t *models; /* names of the deployments that it may use; own; NULL: all */
};

/* No limits, weight 1. */
void key_limits_init(struct key_limits *l);
void key_limits_fini(struct key_limits *l);
/* Limits that the document names become what it says, the others stay; null takes a limit away.
 * HP_EINVAL names the member, and nothing has changed then; HP_ENOMEM. */
int key_limits_change(struct key_limits *l, const json_t *document, struct err *e);
/* All of them as members of `out`; limits that there are not, are null. False: no memory. */
bool key_limits_write(const struct key_limits *l, json_t *out);
bool key_limits_allow(const struct key_limits *l, const char *model);

#endif
