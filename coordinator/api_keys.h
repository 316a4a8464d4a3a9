/* Keys of the HTTP API: kept as digests. */
#ifndef HP_COORDINATOR_API_KEYS_H
#define HP_COORDINATOR_API_KEYS_H

#include "coordinator/state.h"

enum { API_KEY_TEXT = 3 + 2 * 24 + 1, API_KEY_MAX_WEIGHT = 1000 };

struct api_key {
    char digest[65];
    char name[64];
    uint64_t created_s;
    uint32_t weight; /* 1 to API_KEY_MAX_WEIGHT: its share of a queue, beside others' (shares.h) */
};

/* The text goes to whoever asked and is kept nowhere. HP_EINVAL, HP_EEXIST, HP_ENOMEM. */
int api_keys_create(struct coord *c, const char *name, uint64_t weight, char key[API_KEY_TEXT],
                    struct err *e);
int api_keys_remove(struct coord *c, const char *name, struct err *e); /* HP_ENOENT */
/* The key that this text is; NULL: none. */
const struct api_key *api_keys_find(const struct coord *c, const char *text);
int api_keys_restore(struct coord *c, const char *digest, json_t *record, struct err *e);
void api_keys_free(struct coord *c);

#endif
