/* The model on live agents. */
#include <stdlib.h>

#include "coordinator/admin_int.h"
#include "coordinator/admission.h"

enum { ADMIN_MAX_IDS = 1 << 20, ADMIN_MAX_TOGETHER = 64 };

/* `together` 0: one sequence, by its own slices; else so many at once, by the plan's. */
static int run_ids(struct coord *c, struct question *q, uint64_t tokens, uint64_t together,
                   struct err *e)
{
    struct deployment *d;
    int rc = admin_deployment(c, q, "deployment", &d, e);
    if (rc == 0 && d->spec.copy_of[0])
        rc = err_set(e, HP_EINVAL,
                     "\"%s\" keeps copies for \"%s\" and computes nothing: ask that one", d->name,
                     d->spec.copy_of);
    if (rc < 0)
        return rc;
    const json_t *list = json_object_get(q->arguments, "ids");
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n > ADMIN_MAX_IDS)
        return err_set(e, HP_EINVAL, "\"ids\" is not a list of at most %d numbers", ADMIN_MAX_IDS);
    uint32_t *ids = malloc((n + 1) * sizeof *ids);
    if (!ids)
        return err_set(e, HP_ENOMEM, "no memory for %zu ids", n);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const json_t *v = json_array_get(list, i);
        json_int_t id = json_integer_value(v);
        if (!json_is_integer(v) || id < 0 || id > UINT32_MAX)
            rc = err_set(e, HP_EINVAL, "\"ids\"[%zu] is not a token id", i);
        ids[i] = (uint32_t)id;
    }
    if (rc == 0 && together)
        rc = admission_prefill_open(c, d, q->peer, q->id, ids, n, together, e);
    else if (rc == 0)
        rc = admission_ask_open(c, d, q->peer, q->id, ids, n, tokens, admin_number(q, "slice", 0),
                                e);
    free(ids);
    return rc < 0 ? rc : HP_PENDING;
}

static int verb_logits(struct coord *c, struct question *q, struct err *e)
{
    return run_ids(c, q, 0, 0, e);
}

static int verb_greedy(struct coord *c, struct question *q, struct err *e)
{
    uint64_t tokens = admin_number(q, "tokens", 0);
    if (tokens == 0 || tokens > ADMIN_MAX_IDS)
        return err_set(e, HP_EINVAL, "\"tokens\" is not a number from 1 to %d", ADMIN_MAX_IDS);
    return run_ids(c, q, tokens, 0, e);
}

static int verb_prefill(struct coord *c, struct question *q, struct err *e)
{
    uint64_t together = admin_number(q, "sequences", 1);
    if (together == 0 || together > ADMIN_MAX_TOGETHER)
        return err_set(e, HP_EINVAL, "\"sequences\" is not a number from 1 to %d",
                       ADMIN_MAX_TOGETHER);
    return run_ids(c, q, 1, together, e);
}

const struct admin_verb admin_run_verbs[] = {
    {"logits", verb_logits, false},
    {"greedy", verb_greedy, false},
    {"prefill", verb_prefill, false},
    {NULL, NULL, false},
};
