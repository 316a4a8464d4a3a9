#include "coordinator/prefill_plans.h"

#include <string.h>

#include "common/log.h"
#include "coordinator/deployment_options.h"
#include "coordinator/record.h"

/* As the other's, but for where it lies. */
static json_t *options_of(const struct deployment *d)
{
    static const char *const own[] = {"plan",       "layers", "agents",      "prefill",
                                      "prefill_kv", "decode", "replicate_kv"};
    json_t *o = json_copy(d->spec.options);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        json_object_del(o, own[i]);
    json_object_set_new(o, "agents", json_string(deployment_readers(d)));
    if (d->spec.prefill_kv[0])
        json_object_set_new(o, "kv", json_string(d->spec.prefill_kv));
    json_object_set_new(o, "prefill_of", json_string(d->name));
    return o;
}

static int plan_make(struct coord *c, struct deployment *d, struct err *e)
{
    char name[DEPLOYMENT_NAME];
    struct deployment_spec spec;
    struct deployment *p;
    json_t *options = options_of(d);
    int rc = options ? deployment_options_read(options, &spec, e)
                     : err_set(e, HP_ENOMEM, "no memory for a deployment");
    json_decref(options);
    if (rc < 0)
        return rc;
    deployment_partner_name(d, name);
    rc = record_begin(c, name, d->model, &spec, &p, e);
    if (rc < 0) {
        deployment_spec_free(&spec);
        return rc;
    }
    p->listener_peer = d->listener_peer;
    p->listener_ask = d->listener_ask;
    d->listener_peer = d->listener_ask = 0;
    return 0;
}

bool prefill_plan_wanted(struct coord *c, const struct deployment *p)
{
    const struct deployment *d = deployment_find(c, p->spec.prefill_of);
    if (!d || !deployment_readers(d)[0] || d->model != p->model)
        return false;
    json_t *options = options_of(d);
    bool same = !options || json_equal(options, p->spec.options); /* for want of memory: later */
    json_decref(options);
    return same;
}

bool prefill_plan_begin(struct coord *c, struct deployment *d, struct err *e)
{
    if (!deployment_readers(d)[0] || d->spec.succeeds[0] || deployment_partner(c, d))
        return false;
    int rc = plan_make(c, d, e);
    if (rc < 0)
        log_warn("coordinator", "prefill_plan", "deployment=%s why=\"%s\"", d->name, e->text);
    return rc == 0;
}
