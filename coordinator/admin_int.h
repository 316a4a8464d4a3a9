/* What the verbs share: a question, its arguments, and the tables of each file. */
#ifndef HP_COORDINATOR_ADMIN_INT_H
#define HP_COORDINATOR_ADMIN_INT_H

#include <jansson.h>

#include "common/pack.h"
#include "coordinator/deployment.h"
#include "coordinator/member.h"

enum { ADMIN_WAIT_MS = 5000 };

struct question {
    uint64_t peer, id;
    const json_t *arguments;
    struct pack_span blob;
    json_t *result; /* of the verb; null where it stays NULL */
};

struct admin_verb {
    const char *verb; /* NULL ends a table */
    /* 0: q->result is the answer; HP_PENDING: it comes later; negative: the error is. */
    int (*run)(struct coord *c, struct question *q, struct err *e);
    bool changes; /* has to be stored to be done */
};

extern const struct admin_verb admin_node_verbs[], admin_key_verbs[], admin_deployment_verbs[],
    admin_weight_verbs[], admin_run_verbs[], admin_pool_verbs[];

/* ---- arguments ---- */
int admin_text(const struct question *q, const char *key, const char **out, struct err *e);
uint64_t admin_number(const struct question *q, const char *key, uint64_t fallback);
int admin_member(struct coord *c, const struct question *q, const char *key, struct member **out,
                 struct err *e);
int admin_deployment(struct coord *c, const struct question *q, const char *key,
                     struct deployment **out, struct err *e);

#endif
