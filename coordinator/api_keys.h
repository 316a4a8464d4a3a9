/* Keys of the HTTP API: kept as digests, each with what it may do (key_limits.h) and what it has
 * used (key_meter.h). What was used is stored API_KEY_STORE_MS after it changed, so a coordinator
 * that is killed forgets that much of it, and one that stops nothing. */
#ifndef HP_COORDINATOR_API_KEYS_H
#define HP_COORDINATOR_API_KEYS_H

#include "common/map.h"
#include "coordinator/key_limits.h"
#include "coordinator/key_meter.h"
#include "coordinator/state.h"

enum { API_KEY_TEXT = 3 + 2 * 24 + 1, API_KEY_STORE_MS = 1000 };

struct api_key {
    char digest[65];
    char name[REQUEST_KEY_NAME_BYTES];
    UT_hash_handle hh; /* by name, in the order in which they were made */
    uint64_t created_s;
    struct key_limits limits;
    struct key_meter meter;
    bool used;          /* since its use was stored, */
    uint64_t stored_ns; /* at this time */
};

/* `limits` (NULL: none) is a document of key_limits.h. The text goes to whoever asked and is kept
 * nowhere. HP_EINVAL, HP_EEXIST, HP_ENOMEM. */
int api_keys_create(struct coord *c, const char *name, const json_t *limits, char key[API_KEY_TEXT],
                    struct err *e);
int api_keys_edit(struct coord *c, const char *name, const json_t *limits,
                  struct err *e);                                      /* HP_ENOENT too */
int api_keys_remove(struct coord *c, const char *name, struct err *e); /* HP_ENOENT */
/* The key that this text is; NULL: none. */
const struct api_key *api_keys_find(const struct coord *c, const char *text);
/* The name of the API key that the client (requests.h) is; NULL: it is none. */
const char *client_key(const char *client);
/* The key of this name; NULL: none. */
struct api_key *api_keys_named(const struct coord *c, const char *name);

/* Whether the client may use this deployment: HP_EDENIED names both. */
int api_keys_may_use(const struct coord *c, const char *client, const char *model, struct err *e);
/* Whether so many requests and tokens of a client are within its key's limits, as
 * key_meter_check; refusals are counted. */
int api_keys_check(const struct coord *c, const char *client, uint64_t requests, uint64_t tokens,
                   double *wait_s, struct err *e);
/* Until its limits allow it a token more. */
double api_keys_wait_s(const struct coord *c, const char *client);
void api_keys_count_request(const struct coord *c, const char *client);
void api_keys_count_tokens(const struct coord *c, const char *client, uint64_t prompt,
                           uint64_t output);
/* Gives back what was counted and then not used. */
void api_keys_return_tokens(const struct coord *c, const char *client, uint64_t prompt);
/* Tokens that its budgets leave it; UINT64_MAX: it has none. */
uint64_t api_keys_left(const struct coord *c, const char *client);
/* How its limits stand. False: the client is no key. */
bool api_keys_view(const struct coord *c, const char *client, struct request_limits *out);

void api_keys_tick(struct coord *c);
/* Stores what keys have used, all of them. */
void api_keys_store_use(struct coord *c);
int api_keys_restore(struct coord *c, const char *digest, json_t *record, struct err *e);
int api_keys_restore_use(struct coord *c, const char *digest, json_t *record, struct err *e);
void api_keys_free(struct coord *c);

#endif
