#include "coordinator/admin_int.h"
#include "coordinator/pools/pool_state.h"

int admin_text(const struct question *q, const char *key, const char **out, struct err *e)
{
    *out = json_string_value(json_object_get(q->arguments, key));
    return *out ? 0 : err_set(e, HP_EINVAL, "the question has no \"%s\"", key);
}

uint64_t admin_number(const struct question *q, const char *key, uint64_t fallback)
{
    const json_t *v = json_object_get(q->arguments, key);
    return json_is_integer(v) && json_integer_value(v) >= 0 ? (uint64_t)json_integer_value(v)
                                                            : fallback;
}

int admin_member(struct coord *c, const struct question *q, const char *key, struct member **out,
                 struct err *e)
{
    const char *name;
    int rc = admin_text(q, key, &name, e);
    if (rc < 0)
        return rc;
    *out = member_find(c, name);
    return *out ? 0 : member_missing(c, name, e);
}

int admin_deployment(struct coord *c, const struct question *q, const char *key,
                     struct deployment **out, struct err *e)
{
    const char *name;
    int rc = admin_text(q, key, &name, e);
    if (rc < 0)
        return rc;
    *out = deployment_find(c, name);
    if (*out)
        return 0;
    deployment_missing(c, name, e);
    int model;
    return pool_spec_of(c->pools, name, &model)
               ? err_hint(e, "pools serve a model of this name: `hpctl pools` and `hpctl pools rm`")
               : HP_ENOENT;
}
