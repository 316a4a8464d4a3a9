/* Which model a request names: a deployment's, or else one that pools serve. */
#ifndef HP_COORDINATOR_GATEWAY_SERVED_MODEL_H
#define HP_COORDINATOR_GATEWAY_SERVED_MODEL_H

#include "coordinator/gateway/openai.h"

struct served_model {
    struct request_model row; /* of pools: as a deployment's that serves */
    bool in_pools;            /* also where it was found and cannot be used */
};

enum { SERVED_MAX_MODELS = REQUEST_MAX_MODELS + POOL_MAX_MODELS };

/* All that the client may use, deployments first, in room for SERVED_MAX_MODELS; returns how many.
 * Valid until control returns to the loop. */
int served_models_list(const struct openai *o, const char *client, struct served_model *out);
/* The only deployment, or where there is none the only language model of pools. HP_ENOENT: nothing
 * is there; HP_EINVAL: several. */
int served_model_only(const struct openai *o, const char *client, struct served_model *out,
                      struct err *e);
/* As find of struct requests; HP_EBUSY: pools prepare it. No name has a slash here: "org/name", as
 * clients know models of hubs, is "name" where there is one. HP_ENOENT names the nearest. */
int served_model_find(const struct openai *o, const char *client, const char *name,
                      struct served_model *out, struct err *e);
/* The HTTP status of a failure: pools refuse with 429 what would be late, and with 503 what is
 * being prepared. */
int served_model_status(int rc, bool in_pools);

#endif
