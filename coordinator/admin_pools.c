#include "coordinator/admin_int.h"
#include "coordinator/pools/pools.h"

static int verb_apply(struct coord *c, struct question *q, struct err *e)
{
    bool dry = json_is_true(json_object_get(q->arguments, "dry_run"));
    json_t *document = json_object_get(q->arguments, "document");
    if (dry && json_is_true(json_object_get(q->arguments, "load"))) {
        int asked = pools_load_diff(c, q->peer, q->id, e);
        return asked < 0 ? asked : HP_PENDING;
    }
    if (!json_is_object(document))
        return err_set(e, HP_EPARSE, "\"document\" is to be an object");
    int rc = pools_apply(c, q->peer, q->id, json_incref(document), dry, e);
    return rc < 0 ? rc : HP_PENDING;
}

static int verb_measure(struct coord *c, struct question *q, struct err *e)
{
    json_t *document = json_object_get(q->arguments, "document");
    if (!json_is_object(document))
        return err_set(e, HP_EPARSE, "\"document\" is to be an object");
    int rc = pools_measure(c, q->peer, q->id, json_incref(document), e);
    return rc < 0 ? rc : HP_PENDING;
}

static int verb_pools(struct coord *c, struct question *q, struct err *e)
{
    q->result = pools_describe(c);
    return q->result ? 0 : err_no_memory(e, "the pools' state");
}

static int verb_pools_remove(struct coord *c, struct question *q, struct err *e)
{
    (void)q; /* it has no arguments */
    return pools_remove(c, e);
}

const struct admin_verb admin_pool_verbs[] = {
    {"apply", verb_apply, true},  {"profile.network", verb_measure, false}, /* agents and caches
                                                                               alone change */
    {"pools", verb_pools, false}, {"pools.remove", verb_pools_remove, true}, {NULL, NULL, false},
};
