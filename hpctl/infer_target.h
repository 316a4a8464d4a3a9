/* The models of pools that a load drives: what each takes, what is promised of it, and the body
 * that its requests have. */
#ifndef HP_HPCTL_INFER_TARGET_H
#define HP_HPCTL_INFER_TARGET_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/bytes.h"
#include "hpctl/context.h"

enum { INFER_MODELS = 64, INFER_LENGTHS = 16 };

struct infer_target_model {
    const char *name; /* of `pools` */
    double weight, slo_s, planned_per_s;
    /* Of requests by turns: one for each length that the model is served in, or one. */
    struct buffer bodies[INFER_LENGTHS];
    int n_bodies;
    size_t json_bytes; /* of each; tensors follow */
};

struct infer_target {
    json_t *pools; /* what `hpctl pools` shows */
    struct infer_target_model models[INFER_MODELS];
    int n;
};

/* Whether a model of this name is served at /v2: false where there is none. Else as http_get. */
int infer_target_known(struct context *where, const char *name, bool *known, struct err *e);
/* All models that are applied, with bodies of random numbers by the seed. `timeout_us` (0: none) is
 * what requests say themselves. HP_ESTALE: no plan serves them now; HP_EUNSUPPORTED: a model that
 * does not say what it takes; else as http_get and client_get. infer_target_free after, also on
 * failure. */
int infer_target_ask(struct context *where, uint64_t seed, uint64_t timeout_us,
                     struct infer_target *out, struct err *e);
/* -1: there is none. */
int infer_target_find(const struct infer_target *t, const char *name);
void infer_target_free(struct infer_target *t);

struct infer_body_ask {
    uint64_t seed, timeout_us;
    int64_t length;   /* of sizes that the model leaves free, but for the batch: 0 as 1 */
    const char *mask; /* an input that is 1 everywhere; NULL: none */
    size_t json_room; /* its JSON is so long at least */
};
/* {"parameters", "inputs"} and the tensors behind it, of what `metadata` (KServe's) says. Returns
 * as infer_target_ask. */
int infer_body_make(const json_t *metadata, const struct infer_body_ask *ask, struct buffer *out,
                    size_t *json_bytes, struct err *e);

#endif
