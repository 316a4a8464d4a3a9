#include "coordinator/admin_int.h"
#include "coordinator/deploy.h"
#include "coordinator/describe.h"
#include "coordinator/lifecycle_ends.h"
#include "coordinator/plan_vs_actual.h"
#include "coordinator/rebalance.h"

static int verb_deploy(struct coord *c, struct question *q, struct err *e)
{
    const char *name;
    int rc = admin_text(q, "name", &name, e);
    if (rc == 0)
        rc = deploy_start(c, q->peer, q->id, name, json_object_get(q->arguments, "options"),
                          q->blob, e);
    return rc < 0 ? rc : HP_PENDING;
}

static int verb_deployment_ls(struct coord *c, struct question *q, struct err *e)
{
    (void)e;
    q->result = json_array();
    for (size_t i = 0; i < c->n_deployments; i++)
        json_array_append_new(q->result, describe_deployment(c->deployments[i], false));
    return 0;
}

static int verb_deployment_describe(struct coord *c, struct question *q, struct err *e)
{
    struct deployment *d;
    int rc = admin_deployment(c, q, "name", &d, e);
    if (rc == 0) {
        q->result = describe_deployment(d, true);
        json_object_set_new(q->result, "prefill",
                            plan_vs_actual_describe(c, d, (size_t)admin_number(q, "prefills", 1)));
    }
    return rc;
}

static int verb_undeploy(struct coord *c, struct question *q, struct err *e)
{
    struct deployment *d;
    int rc = admin_deployment(c, q, "name", &d, e);
    if (rc == 0 && d->spec.prefill_of[0])
        rc = err_set(e, HP_EINVAL, "\"%s\" reads the prompts of \"%s\" and ends with it", d->name,
                     d->spec.prefill_of);
    if (rc == 0 && d->spec.copy_of[0])
        rc = err_set(e, HP_EINVAL, "\"%s\" keeps copies for \"%s\" and ends with it", d->name,
                     d->spec.copy_of);
    if (rc < 0)
        return rc;
    lifecycle_undeploy(c, d, q->peer, q->id);
    return HP_PENDING;
}

static int verb_rebalance(struct coord *c, struct question *q, struct err *e)
{
    struct deployment *d;
    const json_t *margin = json_object_get(q->arguments, "margin");
    struct rebalance_wish w = {.peer = q->peer,
                               .ask = q->id,
                               .dry = json_is_true(json_object_get(q->arguments, "dry_run")),
                               .margin = json_is_number(margin) ? json_number_value(margin)
                                                                : REBALANCE_MARGIN};
    int rc = admin_deployment(c, q, "name", &d, e);
    rc = rc < 0 ? rc : rebalance_start(c, d, &w, e);
    return rc < 0 ? rc : HP_PENDING;
}

const struct admin_verb admin_deployment_verbs[] = {
    {"deploy", verb_deploy, true},
    {"deployment.ls", verb_deployment_ls, false},
    {"deployment.describe", verb_deployment_describe, false},
    {"undeploy", verb_undeploy, true},
    {"rebalance", verb_rebalance, true},
    {NULL, NULL, false},
};
